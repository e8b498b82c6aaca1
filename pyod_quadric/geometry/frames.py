"""Orthonormal frames, by matrix products instead of a QR decomposition.

A frame is an (N, m) matrix with orthonormal columns, N much larger than m. QR decomposes it column by column; CholeskyQR gets
the same factor from the small Gram matrix, ``Y = Q R`` with ``Yᵀ Y = Rᵀ R``, in two products that run at full speed. Its error
grows with the condition of the Gram matrix, which for a step U along the tangent space is at most 1 + ‖U‖². So one round is
almost always enough. If not, further rounds repair it; if Cholesky fails, QR takes over.
"""

import torch
from torch import Tensor

# From this condition of the Gram matrix (as far as the diagonal of its factor shows it) a second round of CholeskyQR is made.
# Small steps stay below; without it a float32 frame would be off by 1e-5 after steps of length 3.
ILL_CONDITIONED = 2.0
# Each round takes the root of the condition until rounding stops it; what is not repaired by then is left to QR.
ROUNDS = 3
# Of the series for an inverse root. In float64 four are enough where the distance is up to 0.8.
SERIES_ROUNDS = 6


def orthonormalized(columns: Tensor) -> Tensor:
    """Return the Q of the QR decomposition with positive diagonal of R, shape (..., N, m).

    Examples
    --------
    >>> import torch
    >>> orthonormalized(torch.tensor([[3.0], [4.0]]))
    tensor([[0.6000],
            [0.8000]])
    """
    return orthonormalize_(columns.clone())


def orthonormalize_(columns: Tensor) -> Tensor:
    """Orthonormalise in place, if possible: fresh memory for a tall frame costs as much as the division."""
    out = None if columns.requires_grad else columns
    for _ in range(ROUNDS):
        products = gram(columns)
        factor, failed = torch.linalg.cholesky_ex(products)  # lower triangular, (..., m, m)
        if failed.any():
            break
        columns = torch.linalg.solve_triangular(factor.mT, columns, upper=True, left=False, out=out)
        # The row sums bound the largest eigenvalue, and after a tangent step the smallest is at least 1.
        smallest = factor.diagonal(dim1=-2, dim2=-1).amin(-1).square()
        if (products.abs().sum(-1).amax(-1) <= ILL_CONDITIONED * smallest).all():
            return columns
    return _qr(columns)


def polar(columns: Tensor) -> Tensor:
    """Return the orthonormal frame nearest to the columns, ``Y (Yᵀ Y)^(-1/2)``, shape (..., N, m).

    Examples
    --------
    >>> import torch
    >>> polar(torch.tensor([[2.0, 0.0], [0.0, 3.0], [0.0, 0.0]]))
    tensor([[1., 0.],
            [0., 1.],
            [0., 0.]])
    """
    return (columns.to(torch.float64) @ polar_factor(columns)).to(columns.dtype)


def polar_factor(columns: Tensor) -> Tensor:
    """Return the ``(Yᵀ Y)^(-1/2)`` that makes columns orthonormal from the right, shape (..., m, m), in float64."""
    exact = columns.to(torch.float64)
    eigenvalues, vectors = torch.linalg.eigh(gram(exact))
    if (eigenvalues[..., 0] <= eigenvalues[..., -1] * torch.finfo(columns.dtype).eps ** 2 * exact.shape[-2]).any():
        raise ValueError("the columns are linearly dependent, so no orthonormal frame is nearest to them")
    factor: Tensor = vectors / eigenvalues.sqrt()[..., None, :] @ vectors.mT
    # Newton's iteration removes what the conditioning of the Gram matrix has left.
    for _ in range(2):
        factor = 1.5 * factor - factor @ gram(exact @ factor) / 2
    return factor


def inverse_root(products: Tensor) -> Tensor | None:
    """Return ``(Yᵀ Y)^(-1/2)`` of products Yᵀ Y (m, m) near the identity; None if they are too far from it.

    The series ``1 - e / 2 + 3 e² / 8`` leaves an error of third order in ``e = Yᵀ Y - 1``, so few rounds are enough. For small
    matrices its products cost less than an eigendecomposition.

    Examples
    --------
    >>> import torch
    >>> inverse_root(torch.tensor([[1.21]])), inverse_root(torch.tensor([[4.0]]))
    (tensor([[0.9091]]), None)
    """
    identity = torch.eye(len(products), dtype=products.dtype, device=products.device)
    exact_from = torch.finfo(products.dtype).eps ** (1 / 3)
    root, rest = identity, products
    for _ in range(SERIES_ROUNDS):
        difference = rest - identity
        distance = float(torch.linalg.matrix_norm(difference))
        if not distance < 1:
            return None
        factor = torch.addmm(difference, difference, difference, beta=-1 / 2, alpha=3 / 8).add_(identity)
        root = factor if root is identity else root @ factor
        if distance < exact_from:
            return root
        rest = rest @ (factor @ factor)
    return None


def nearest_frame(frame: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
    """Return the orthonormal rows nearest to a frame (m, F), and the rest (m, R) with the same combinations.

    Whole polynomials are combined, so their span stays the same.
    """
    mixing = polar_factor(frame.T).to(frame)  # (m, m)
    return polar((mixing @ frame).T).T.contiguous(), mixing @ rest


def gram(columns: Tensor) -> Tensor:
    """Return ``Yᵀ Y``, shape (..., m, m)."""
    return columns.mT @ columns


def orthonormality_error(columns: Tensor) -> Tensor:
    """Return ``‖Yᵀ Y - I‖``, the unsquared Frobenius norm."""
    difference = gram(columns)
    difference.diagonal(dim1=-2, dim2=-1).sub_(1)
    error: Tensor = torch.linalg.matrix_norm(difference)
    return error


def _qr(columns: Tensor) -> Tensor:
    q, r = torch.linalg.qr(columns)
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(columns)
    frame: Tensor = q * signs.unsqueeze(-2)
    return frame
