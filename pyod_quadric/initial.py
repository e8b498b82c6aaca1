"""Where training starts: random, in closed form, or given."""

from collections.abc import Iterable

import torch
from torch import Tensor

from pyod_quadric._packing import packed_size, unpack
from pyod_quadric.quadrics import Quadrics
from pyod_quadric.spectral import feature_moments, hs_solution
from pyod_quadric.stiefel import orthonormalized

# The closed form decomposes a matrix of the size of the packed features: half a minute at 100 features, hours at 500.
SPECTRAL_FEATURES = 100


def random_quadrics(
    n_quadrics: int, n_features: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Quadrics:
    """Return quadrics with a random HS-orthonormal frame, uniform on the Stiefel manifold, and no linear or constant part.

    Examples
    --------
    >>> import torch
    >>> quadrics = random_quadrics(3, 4, torch.Generator().manual_seed(0), torch.float64)
    >>> bool(torch.allclose(quadrics.hs_inner(quadrics), torch.eye(3, dtype=torch.float64)))
    True
    """
    check_n_quadrics(n_quadrics, n_features)
    columns = torch.randn(packed_size(n_features), n_quadrics, generator=generator, dtype=dtype, device=generator.device)
    quadratic = unpack(orthonormalized(columns).T)
    return Quadrics(quadratic, quadratic.new_zeros(n_quadrics, n_features), quadratic.new_zeros(n_quadrics))


def spectral_quadrics(blocks: Iterable[Tensor], n_quadrics: int) -> Quadrics:
    """Return the HS-orthonormal quadrics with the smallest mean squared values, from one pass over blocks of rows.

    The streaming version of :func:`pyod_quadric.spectral_fit` for working coordinates, which are centred and scaled already.
    """
    moments = feature_moments(blocks)
    return hs_solution(moments, n_quadrics)


def check_n_quadrics(n_quadrics: int, n_features: int) -> None:
    """Raise a ValueError if so many quadrics cannot be orthonormal."""
    if not 1 <= n_quadrics <= packed_size(n_features):
        raise ValueError(
            f"n_quadrics must be from 1 to d (d + 1) / 2 = {packed_size(n_features)} for d = {n_features} features, since no "
            f"more can be orthonormal; got {n_quadrics}"
        )
