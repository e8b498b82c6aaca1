"""Closed forms: the quadrics that minimise the mean squared value on a cloud of points.

Minimising ``Σ_k mean_j f_k(p_j)²`` over polynomials that are orthonormal in some inner product is an eigenvalue problem for
the moments of the features ``φ(p) = (quadratic monomials, p, 1)``. The inner product decides what the solution is:

* ``"coefficient"``: that of the monomial coefficients v(f), the base problem of the paper. It is uncentred PCA in the
  space of φ, that is, kernel PCA with a quadratic kernel, but with the smallest eigenvalues. It is not equivariant: shifting
  the cloud does not just shift the solution.
* ``"hs"``: the Hilbert-Schmidt inner product. It does not involve b and c, so they are eliminated by least squares on (p, 1),
which leaves an eigenproblem for the residuals of the quadratic features. Equivariant under isometries.
* ``"gradient"``: the mean of ``∇f·∇g`` over the cloud (Taubin 1991), so that values are measured in units of slope, as
  distances are. Equivariant under isometries too. Planes can be among the solutions.

The two equivariant ones are solved in principal coordinates, where both are symmetric eigenproblems with a diagonal
normalisation. The solutions are then transformed back.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pyod_quadric.geometry.packing import features_of_packed_size, pack_outer, packed_size, packing_factors, unpack
from pyod_quadric.geometry.quadrics import BLOCK_NUMBERS, Quadrics, check_finite
from pyod_quadric.model.moments import negligible_variance

SpectralInnerProduct = Literal["hs", "coefficient", "gradient"]
Eigenvectors = Callable[[Tensor, int], Tensor]  # of a symmetric matrix, as many as are wanted, by ascending eigenvalues
N_STRIPES = 4  # of a symmetric product; each is a product of its own, so that they must not be too thin
# Above this size, float32 rows are multiplied in float32, and inverse iteration finds a few eigenvectors: this many iterations,
# with a basis this many times the number of vectors, and at least this large. A full float64 solution takes ten times as long.
WIDE = packed_size(51)
N_ITERATIONS, OVERSAMPLING, LEAST_BASIS = 3, 1.25, 500
FAR = 1e6


def spectral_fit(points: Tensor, n_quadrics: int, *, inner_product: SpectralInnerProduct = "hs") -> Quadrics:
    """Return the quadrics with the smallest mean squared values among those orthonormal in an inner product.

    Parameters
    ----------
    points : Tensor of shape (n, d)
        float32 or float64; the computation is in float64.
    n_quadrics : int
        The number m of quadrics, at most d (d + 1) / 2 for ``"hs"``, d (d + 3) / 2 for ``"gradient"`` and one more for
        ``"coefficient"``.
    inner_product : {"hs", "coefficient", "gradient"}, default="hs"
        The inner product in which the polynomials are orthonormal: Hilbert-Schmidt, of the coefficients, or of the gradients
        (Taubin).

    Returns
    -------
    Quadrics
        The m quadrics by ascending mean squared value, with the dtype and on the device of the points.

    Warns
    -----
    UserWarning
        If the points do not determine the solution: fewer points than coefficients, so that some polynomials vanish on all
        points, or points in a proper affine subspace.

    Examples
    --------
    Recover the unit circle from twelve of its points:

    >>> import torch
    >>> from pyod_quadric import spectral_fit
    >>> angle = torch.arange(12, dtype=torch.float64)
    >>> circle = spectral_fit(torch.stack([angle.cos(), angle.sin()], dim=1), 1)
    >>> bool(circle.values(torch.tensor([[0.6, 0.8]], dtype=torch.float64)).abs() < 1e-12)
    True
    """
    _check(points, n_quadrics, inner_product)
    exact = points.to(torch.float64)
    fit = _coefficient_fit if inner_product == "coefficient" else _equivariant_fit
    return fit(exact, n_quadrics, inner_product, torch.finfo(points.dtype).eps).to(dtype=points.dtype)


def feature_moments(blocks: Iterable[Tensor]) -> tuple[Tensor, int]:
    """Return the mean of ``φ φᵀ`` over all rows of all blocks, (D, D) in float64, and the number of rows.

    ``φ(p) = (packed p pᵀ, p, 1)``. The features of a block are computed in parts, so no (n, D) matrix is held in memory.
    """
    total, n = None, 0
    for block in blocks:
        if total is None:
            size = packed_size(block.shape[1] + 1)
            total = torch.zeros(size, size, dtype=torch.float64, device=block.device)
        add_feature_products(total, block)
        n += len(block)
    if total is None or n == 0:
        raise ValueError("there are no points to take moments of")
    return total / n, n


def add_feature_products(total: Tensor, block: Tensor, weights: Tensor | None = None) -> None:
    """Add the sum of ``φ φᵀ`` over the rows of a block (n, d), with weights (n,) if given, to a total (D, D), in place.

    The total is in float64. Wide features of float32 rows are multiplied in float32, a thousand rows or so at a time.
    """
    n_rows = max(1, BLOCK_NUMBERS // len(total))
    # Fourth powers of what is farther away would leave the range of float32.
    is_single = len(total) > WIDE and block.numel() > 0 and float(block.abs().max()) < FAR
    dtype = block.dtype if is_single else torch.float64
    roots = block.new_ones(len(block), 1) if weights is None else weights.to(block).sqrt()[:, None]
    for part, root in zip(torch.split(block, n_rows), torch.split(roots, n_rows), strict=True):
        part, root = part.to(dtype), root.to(dtype)
        _add_gram(total, torch.cat([pack_outer(part), part, torch.ones_like(root)], dim=1) * root)


def _add_gram(total: Tensor, features: Tensor) -> None:
    """Add ``FᵀF`` for features F (n, D) to a total (D, D): stripes of one triangle, and the other one by symmetry."""
    size = -(-len(total) // N_STRIPES)
    for start in range(0, len(total), size):
        n, n_right = min(size, len(total) - start), len(total) - start
        # narrow instead of slices: fake tensors, by which devices are tested, have no others
        stripe = features.narrow(1, start, n).T @ features.narrow(1, start, n_right)
        total.narrow(0, start, n).narrow(1, start, n_right).add_(stripe)
        total.narrow(0, start + n, n_right - n).narrow(1, start, n).add_(stripe.narrow(1, n, n_right - n).T)


def _coefficient_fit(points: Tensor, n_quadrics: int, _: SpectralInnerProduct, eps: float) -> Quadrics:
    d = points.shape[1]
    variances = torch.linalg.eigvalsh(torch.cov(points.T, correction=0).reshape(d, d))
    warn_if_underdetermined(len(points), variances, points.mean(dim=0), eps)
    return coefficient_solution(feature_moments([points])[0], n_quadrics)


def _equivariant_fit(points: Tensor, n_quadrics: int, inner_product: SpectralInnerProduct, eps: float) -> Quadrics:
    mean = points.mean(dim=0)
    variances, axes = torch.linalg.eigh((points - mean).T @ (points - mean) / len(points))
    warn_if_underdetermined(len(points), variances, mean, eps)
    scale = variances.sum().sqrt()  # one number for all axes, so that the map stays a similarity
    coordinates = (points - mean) @ axes / scale
    solution = SOLUTIONS[inner_product](feature_moments([coordinates])[0], n_quadrics, lowest_eigenvectors)
    matrix = axes.T / scale
    moved = solution.compose(matrix, -matrix @ mean)
    # A similarity by 1 / scale divides HS norms by scale² and gradients by scale.
    return moved.scaled(scale**2 if inner_product == "hs" else scale)


def lowest_eigenvectors(matrix: Tensor, n_vectors: int) -> Tensor:
    """Return the eigenvectors (D, n_vectors) of a symmetric matrix (D, D) with the smallest eigenvalues, ascending."""
    vectors: Tensor = torch.linalg.eigh(matrix).eigenvectors[:, :n_vectors]
    return vectors


def nearly_lowest_eigenvectors(matrix: Tensor, n_vectors: int) -> Tensor:
    """Return nearly the same for a positive semidefinite float64 matrix, in a tenth of the time if few of many are wanted.

    Inverse iteration from a fixed random start is followed by a Rayleigh-Ritz step. Eigenvectors whose eigenvalues stand out
    are exact. In the bulk of the spectrum the vectors have nearly the lowest values; which ones are the very lowest is an
    accident of the sample.

    Examples
    --------
    >>> import torch
    >>> nearly_lowest_eigenvectors(torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64)), 1).abs().T
    tensor([[0., 1.]], dtype=torch.float64)
    """
    n_kept = max(LEAST_BASIS, round(OVERSAMPLING * n_vectors))
    if len(matrix) <= WIDE or n_kept > len(matrix) // 2:
        return lowest_eigenvectors(matrix, n_vectors)
    scale = float(matrix.diagonal().mean().clamp(min=torch.finfo(torch.float64).tiny))
    single = (matrix / scale).float()  # float32 has fewer exponents
    if not single.isfinite().all():
        raise FloatingPointError("products of the rows are not finite: some row is too far from the others to be squared twice")
    factor = _cholesky_factor(single)
    start = np.random.default_rng(0).standard_normal((len(matrix), n_kept), dtype=np.float32)
    basis = torch.from_numpy(start).to(matrix.device)
    for _ in range(N_ITERATIONS):
        basis = torch.linalg.qr(torch.cholesky_solve(basis, factor)).Q
    inner = basis.T @ (single @ basis)
    return basis.double() @ lowest_eigenvectors(inner.double(), n_vectors)


def _cholesky_factor(matrix: Tensor) -> Tensor:
    """Return the factor of a matrix with as little added to its diagonal as rounding needs."""
    shift = torch.finfo(matrix.dtype).eps * float(matrix.diagonal().max())
    shifted = matrix.clone()
    while True:
        shifted.diagonal().copy_(matrix.diagonal() + shift)
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(shifted)
        if not failed:
            return factor
        shift *= 10


def coefficient_solution(moments: Tensor, n_quadrics: int, eigenvectors: Eigenvectors = lowest_eigenvectors) -> Quadrics:
    """Return the quadrics with orthonormal coefficients and the smallest mean squared values, given the moments of φ."""
    d = features_of_packed_size(len(moments)) - 1
    # φ holds x_i x_j times sqrt 2 for i < j; the monomials do not.
    weights = torch.cat([packing_factors(d, moments), moments.new_ones(d + 1)])
    vectors = eigenvectors(moments / weights / weights[:, None], n_quadrics)
    return Quadrics.from_coefficients(vectors.T)


def hs_solution(moments: Tensor, n_quadrics: int, eigenvectors: Eigenvectors = lowest_eigenvectors) -> Quadrics:
    """Return the HS-orthonormal quadrics with the smallest mean squared values, given the moments of φ."""
    d = features_of_packed_size(len(moments)) - 1
    size = packed_size(d)
    cross = moments[:size, size:]
    # The pseudo-inverse leaves out directions without variance, which get no linear part.
    regression = cross @ torch.linalg.pinv(moments[size:, size:], hermitian=True)
    residual = torch.addmm(moments[:size, :size], regression, cross.T, alpha=-1)
    packed = eigenvectors(residual, n_quadrics).T
    rest = -packed @ regression
    return Quadrics(unpack(packed), rest[:, :-1], rest[:, -1])


def _gradient_solution(moments: Tensor, n_quadrics: int, eigenvectors: Eigenvectors = lowest_eigenvectors) -> Quadrics:
    """Return quadrics with orthonormal mean gradients, given the moments of φ in centred principal coordinates."""
    d = features_of_packed_size(len(moments)) - 1
    size = packed_size(d)
    variances = moments.diagonal()[size:-1]
    # The mean of ∇f·∇g is 4 tr(A diag(variances) B) + b·b', which is diagonal in the packed entries.
    pairs = 2 * (variances[:, None] + variances)
    row, column = torch.triu_indices(d, d, device=variances.device)
    slopes = torch.cat([pairs[row, column], torch.ones_like(variances)])
    # A direction without variance has neither value nor slope on the points; any positive number lets it come out as 0.
    roots = slopes.clamp(min=float(d * torch.finfo(variances.dtype).eps * variances.max())).sqrt()
    means = moments[-1, :-1]  # c is eliminated by centring the other features
    covariance = moments[:-1, :-1] - torch.outer(means, means)
    vectors = eigenvectors(covariance / roots / roots[:, None], n_quadrics).T / roots
    return Quadrics(unpack(vectors[:, :size]), vectors[:, size:], -vectors @ means)


# What the quadrics are orthonormal in, and the solution for it, given the moments of φ, a number, and how to find eigenvectors.
SOLUTIONS: dict[str, Callable[[Tensor, int, Eigenvectors], Quadrics]] = {
    "hs": hs_solution,
    "coefficient": coefficient_solution,
    "gradient": _gradient_solution,
}


def _check(points: Tensor, n_quadrics: int, inner_product: SpectralInnerProduct) -> None:
    if not isinstance(points, Tensor):
        raise TypeError(f"points must be a tensor, such as torch.as_tensor(points), got {type(points).__name__}")
    if points.ndim != 2 or 0 in points.shape or points.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"points must be a float32 or float64 tensor of shape (n, d), n and d at least 1, "
            f"got {points.dtype} of shape {tuple(points.shape)}"
        )
    check_finite(points, "points")
    d = points.shape[1]
    largest = {"hs": packed_size(d), "gradient": packed_size(d + 1) - 1, "coefficient": packed_size(d + 1)}
    if inner_product not in largest:
        raise ValueError(f"inner_product must be one of {sorted(largest)}, got {inner_product!r}")
    if not 1 <= n_quadrics <= largest[inner_product]:
        raise ValueError(
            f"in {d} features at most {largest[inner_product]} quadrics can be orthonormal in the {inner_product!r} inner "
            f"product, and at least 1 is needed, got n_quadrics={n_quadrics}"
        )
    if bool((points == points[0]).all()):
        raise ValueError(f"all {len(points)} points are equal, which determines no quadric; give at least two that differ")


def warn_if_underdetermined(n: int, variances: Tensor, mean: Tensor, eps: float) -> None:
    """Warn if n rows with these variances along their principal axes do not determine a quadric."""
    d = len(variances)
    n_coefficients = packed_size(d + 1)
    rank = int((variances > negligible_variance(variances, mean, eps)).sum())
    if rank < d:
        problem = f"the points lie in an affine subspace of dimension {rank} of {d}"
    elif n < n_coefficients:
        problem = f"{n} points are fewer than the {n_coefficients} coefficients of a quadric in {d} features"
    else:
        return
    warnings.warn(
        f"{problem}: quadrics that vanish on all points are not unique, and values near 0 on these points say nothing "
        "about others. Fit in fewer principal coordinates, or to more points.",
        stacklevel=4,
    )
