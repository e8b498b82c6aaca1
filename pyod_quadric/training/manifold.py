"""A Stiefel manifold for geoopt whose retraction costs matrix products instead of a QR decomposition.

See :mod:`pyod_quadric.geometry.frames` for the products. This module is imported when a Stiefel manifold is asked for, since
importing geoopt takes time.
"""

import geoopt
import torch
from torch import Tensor

from pyod_quadric.geometry.frames import orthonormalize_, polar


class CholeskyStiefel(geoopt.EuclideanStiefel):  # type: ignore[misc]  # geoopt has no types
    """The Stiefel manifold with the Euclidean metric, retraction by CholeskyQR and projection by the polar factor.

    It is :class:`geoopt.EuclideanStiefel` with the same geometry and the same retraction (the Q factor with positive
    diagonal), computed faster for tall frames; use it with any geoopt optimiser.

    Examples
    --------
    >>> import geoopt, torch
    >>> manifold = CholeskyStiefel()
    >>> frame = geoopt.ManifoldParameter(torch.eye(5, 2), manifold=manifold)
    >>> optimizer = geoopt.optim.RiemannianSGD([frame], lr=0.1)
    >>> frame.sum().backward()
    >>> _ = optimizer.step()
    >>> bool(manifold.check_point_on_manifold(frame))
    True
    """

    name = "Stiefel(euclidean, cholesky)"
    reversible = False

    def proju(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the projection of u to the tangent space at x."""
        inner = x.mT @ u
        symmetric = (inner + inner.mT) / 2
        if x.ndim == 2 and x.mT.is_contiguous():
            # Column by column in memory, and it stays so: turning a tall frame around costs more than the product.
            return torch.addmm(u.mT, symmetric, x.mT, alpha=-1).mT
        return u - x @ symmetric

    egrad2rgrad = proju

    def retr(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the retraction of the tangent vector u at x."""
        return orthonormalize_(x + u)

    def projx(self, x: Tensor) -> Tensor:
        """Return the frame nearest to x."""
        return polar(x)


class InPlaceStiefel(CholeskyStiefel):
    """The same manifold for callers that have no further use for the gradients and steps they pass: these are overwritten.

    Every fresh tensor of the size of a frame costs as much as a product with it. geoopt's optimisers write into gradients
    themselves and make their steps anew, so with them this is safe.
    """

    def egrad2rgrad(self, x: Tensor, u: Tensor) -> Tensor:
        """Turn the Euclidean gradient u at x into the Riemannian one."""
        inner = x.mT @ u
        return u.sub_(x @ ((inner + inner.mT) / 2)) if u.ndim > 2 else u.mT.addmm_((inner + inner.mT) / 2, x.mT, alpha=-1).mT

    def retr(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the retraction of the tangent vector u at x."""
        return orthonormalize_(u.add_(x))
