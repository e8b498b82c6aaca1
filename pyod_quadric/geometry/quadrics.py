"""Collections of quadratic polynomials ``f(x) = xᵀ A x + b·x + c``, whose zero sets are the quadrics."""

import math
from dataclasses import InitVar, dataclass

import torch
from torch import Tensor

from pyod_quadric.geometry.frames import nearest_frame
from pyod_quadric.geometry.packing import features_of_packed_size, pack, packed_size, packing_factors, unpack

# Rows and numbers of one block of gradients: large enough for a fast matrix product, small enough that the block is
# reduced to values and norms while it is still in the cache.
BLOCK_ROWS = 1024
BLOCK_NUMBERS = 2**22


@dataclass(frozen=True, eq=False)
class Quadrics:
    """A collection of m quadratic polynomials in d variables.

    Parameters
    ----------
    quadratic : Tensor of shape (m, d, d)
        The symmetric matrices A. Asymmetry at the level of rounding is averaged away; anything larger is an error.
    linear : Tensor of shape (m, d)
        The vectors b.
    constant : Tensor of shape (m,)
        The numbers c.
    check_values : bool, default=True
        Whether to validate the numbers (finite, symmetric, no zero polynomial) as well as shapes, dtypes and devices. That
        costs a pass over the numbers and, on an accelerator, a synchronisation.

    Examples
    --------
    The unit circle and the line x = y:

    >>> import torch
    >>> from pyod_quadric import Quadrics
    >>> circle_and_line = Quadrics(
    ...     quadratic=torch.stack([torch.eye(2), torch.zeros(2, 2)]),
    ...     linear=torch.tensor([[0.0, 0.0], [1.0, -1.0]]),
    ...     constant=torch.tensor([-1.0, 0.0]),
    ... )
    >>> circle_and_line.values(torch.tensor([[3.0, 1.0]]))
    tensor([[9., 2.]])
    """

    quadratic: Tensor
    linear: Tensor
    constant: Tensor
    check_values: InitVar[bool] = True

    def __post_init__(self, check_values: bool) -> None:
        _check_form(self.quadratic, self.linear, self.constant)
        if check_values:
            object.__setattr__(self, "quadratic", _symmetrized(self.quadratic))
            _check_numbers(self.quadratic, self.linear, self.constant)

    @classmethod
    def from_coefficients(cls, coefficients: Tensor) -> "Quadrics":
        """Build quadrics from their monomial coefficients v(f).

        Parameters
        ----------
        coefficients : Tensor of shape (m, D), D = d (d + 3) / 2 + 1
            For each quadric the coefficients of ``x_i x_j`` for ``i <= j`` row by row, of ``x_i``, and of 1.

        Examples
        --------
        >>> import torch
        >>> Quadrics.from_coefficients(torch.tensor([[1.0, 4.0, 0.0, 0.0, 0.0, -1.0]])).quadratic
        tensor([[[1., 2.],
                 [2., 0.]]])
        """
        if coefficients.ndim != 2:
            raise ValueError(f"coefficients must have shape (m, D), got {tuple(coefficients.shape)}")
        # D = d (d + 3) / 2 + 1 is the packed size of d + 1, which is how homogeneous coordinates count them.
        n_features = features_of_packed_size(coefficients.shape[1]) - 1
        if n_features < 1:
            raise ValueError("coefficients of polynomials in at least one variable have 3 or more columns, got 1")
        size = packed_size(n_features)
        weights = packing_factors(n_features, coefficients)
        return cls(
            quadratic=unpack(coefficients[:, :size] / weights),
            linear=coefficients[:, size:-1],
            constant=coefficients[:, -1],
        )

    def coefficients(self) -> Tensor:
        """Return the monomial coefficients v(f), shape (m, D); the inverse of :meth:`from_coefficients`."""
        # The coefficient of x_i x_j is 2 A_ij for i < j, and the packed entry sqrt 2 A_ij.
        weights = packing_factors(self.n_features, self.quadratic)
        return torch.cat([self.packed() * weights, self.linear, self.constant.unsqueeze(1)], dim=1)

    @property
    def n_quadrics(self) -> int:
        """The number m of polynomials."""
        return self.linear.shape[0]

    @property
    def n_features(self) -> int:
        """The number d of variables."""
        return self.linear.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of all three tensors."""
        return self.linear.dtype

    @property
    def device(self) -> torch.device:
        """The device of all three tensors."""
        return self.linear.device

    def __len__(self) -> int:
        return self.n_quadrics

    def __getitem__(self, index: int | slice | Tensor) -> "Quadrics":
        """Return some of the quadrics, always as a collection (an int gives a collection of one)."""
        if isinstance(index, int):
            if not -len(self) <= index < len(self):
                raise IndexError(f"there are {len(self)} quadrics, so none has the number {index}")
            index = slice(index, index + 1 or None)
        return Quadrics(self.quadratic[index], self.linear[index], self.constant[index], check_values=False)

    def __repr__(self) -> str:
        size = f"n_quadrics={self.n_quadrics}, n_features={self.n_features}"
        return f"Quadrics({size}, dtype={self.dtype}, device='{self.device}')"

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> "Quadrics":
        """Return the same quadrics in another floating-point type or on another device."""
        dtype, device = dtype or self.dtype, torch.device(device or self.device)
        if (dtype, device) == (self.dtype, self.device):
            return self  # nothing to convert, nor to check again
        return Quadrics(self.quadratic.to(device, dtype), self.linear.to(device, dtype), self.constant.to(device, dtype))

    def values(self, points: Tensor) -> Tensor:
        """Return every ``f_k(x_i)``: points of shape (n, d) give shape (n, m)."""
        return self.values_and_gradient_norms(points)[0]

    def gradients(self, points: Tensor) -> Tensor:
        """Return every ``∇f_k(x_i) = 2 A_k x_i + b_k``: points of shape (n, d) give shape (n, m, d)."""
        self.check_points(points)
        return 2 * half_gradients(points, self.quadratic, self.linear)

    def values_and_gradient_norms(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return every ``f_k(x_i)`` and ``‖∇f_k(x_i)‖``, both (n, m), without ever holding all gradients."""
        self.check_points(points)
        return values_and_gradient_norms(points, self.quadratic, self.linear, self.constant)

    def packed(self) -> Tensor:
        """Return the packed matrices ṽ(f), shape (m, d (d + 1) / 2), whose Euclidean geometry is the HS geometry."""
        return pack(self.quadratic)

    def hs_inner(self, other: "Quadrics") -> Tensor:
        """Return the HS inner products ``⟨f_k, g_l⟩`` with another collection, shape (m, m').

        It is degenerate: polynomials of degree 1 or less have inner product 0 with everything. The Gram matrix of a
        collection is its HS inner product with itself.
        """
        if other.n_features != self.n_features:
            raise ValueError(
                f"HS inner products need quadrics in the same space, got {self.n_features} and {other.n_features} features"
            )
        _check_same_kind(self.quadratic, other.quadratic, "the other quadrics")
        return self.quadratic.flatten(1) @ other.quadratic.flatten(1).T

    def hs_norm(self) -> Tensor:
        """Return the HS seminorms ``‖A_k‖``, shape (m,)."""
        return hs_norm(self.quadratic)

    def scaled(self, factors: Tensor | float) -> "Quadrics":
        """Return the polynomials ``factor_k f_k``: same zero sets, other values.

        Parameters
        ----------
        factors : float or Tensor of shape (m,)
            Finite and nonzero numbers.
        """
        factors = torch.as_tensor(factors, dtype=self.dtype, device=self.device).expand(self.n_quadrics)
        return Quadrics(self.quadratic * factors[:, None, None], self.linear * factors[:, None], self.constant * factors)

    def orthonormalized(self) -> "Quadrics":
        """Return combinations of the polynomials whose matrices are HS-orthonormal and nearest to the given ones.

        Whole polynomials are combined, so their span stays the same.

        Examples
        --------
        >>> import torch
        >>> one = Quadrics(torch.tensor([[[2.0]]]), torch.tensor([[4.0]]), torch.tensor([6.0]))
        >>> unit = one.orthonormalized()
        >>> unit.quadratic, unit.linear
        (tensor([[[1.]]]), tensor([[2.]]))
        """
        packed, rest = nearest_frame(self.packed(), torch.cat([self.linear, self.constant[:, None]], dim=1))
        return Quadrics(unpack(packed), rest[:, :-1], rest[:, -1])

    def compose(self, matrix: Tensor, shift: Tensor) -> "Quadrics":
        """Return the polynomials ``f_k ∘ θ`` for the affine map ``θ(x) = matrix @ x + shift``.

        Parameters
        ----------
        matrix : Tensor of shape (d, e)
        shift : Tensor of shape (d,)

        Returns
        -------
        Quadrics in e variables

        Examples
        --------
        The unit circle, moved so that its centre is at (3, 0):

        >>> import torch
        >>> circle = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
        >>> moved = circle.compose(torch.eye(2), torch.tensor([-3.0, 0.0]))
        >>> moved.values(torch.tensor([[4.0, 0.0]]))
        tensor([[0.]])
        """
        if matrix.ndim != 2 or matrix.shape[0] != self.n_features or shift.shape != matrix.shape[:1]:
            raise ValueError(
                f"composition needs a matrix of shape ({self.n_features}, e) and a shift of shape ({self.n_features},), "
                f"got {tuple(matrix.shape)} and {tuple(shift.shape)}"
            )
        _check_same_kind(self.quadratic, matrix, "the matrix")
        _check_same_kind(self.quadratic, shift, "the shift")
        half_gradient = half_gradients(shift[None], self.quadratic, self.linear)[0]  # (m, d), at the shift
        return Quadrics(
            quadratic=matrix.T @ self.quadratic @ matrix,
            linear=2 * half_gradient @ matrix,
            constant=(half_gradient + self.linear / 2) @ shift + self.constant,
        )

    def check_points(self, points: Tensor) -> None:
        """Raise an error unless points is a finite (n, d) tensor of this dtype on this device."""
        if not isinstance(points, Tensor):
            raise TypeError(f"points must be a tensor, such as torch.as_tensor(points), got {type(points).__name__}")
        if points.ndim != 2 or points.shape[1] != self.n_features:
            raise ValueError(f"points must have shape (n, {self.n_features}), got {tuple(points.shape)}")
        _check_same_kind(self.quadratic, points, "points")
        check_finite(points, "points")


def values_and_gradient_norms(points: Tensor, quadratic: Tensor, linear: Tensor, constant: Tensor) -> tuple[Tensor, Tensor]:
    """Return every value and gradient norm, both (n, m), in blocks, unchecked."""
    width = max(1, BLOCK_NUMBERS // (BLOCK_ROWS * points.shape[1]))
    values, norms = [], []
    parts = list(zip(torch.split(quadratic, width), torch.split(linear, width), torch.split(constant, width), strict=True))
    buffer = half_gradient_buffer(min(BLOCK_ROWS, len(points)) * min(width, len(linear)), points, quadratic, linear)
    for rows in torch.split(points, BLOCK_ROWS):
        blocks = [evaluate(rows, *part, buffer) for part in parts]
        values.append(torch.cat([block[1] for block in blocks], dim=1))
        norms.append(torch.cat([block[2] for block in blocks], dim=1))
    return torch.cat(values), 2 * torch.cat(norms)


def evaluate(
    points: Tensor, quadratic: Tensor, linear: Tensor, constant: Tensor, buffer: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return h = ∇f / 2 (n, m, d), f (n, m) and ‖h‖ (n, m), all from one matrix product.

    ``h = A x + b / 2`` and ``f = (h + b / 2)·x + c``. With a buffer of at least n m d numbers, h is in its memory.
    """
    halves = half_gradients(points, quadratic, linear, buffer)
    values = torch.addmm(constant, points, linear.T, alpha=0.5) + (halves @ points.unsqueeze(2)).squeeze(-1)
    return halves, values, torch.linalg.vector_norm(halves, dim=2)


def hs_norm(quadratic: Tensor) -> Tensor:
    """Return the HS norms of matrices of shape (m, d, d), shape (m,)."""
    norms: Tensor = torch.linalg.vector_norm(quadratic, dim=(1, 2))
    return norms


def half_gradients(points: Tensor, quadratic: Tensor, linear: Tensor, buffer: Tensor | None = None) -> Tensor:
    """Return ``A_k x_i + b_k / 2``, shape (n, m, d)."""
    shape = points.shape[0], *linear.shape  # len() would be a fixed number in a traced graph
    out = None if buffer is None else buffer.narrow(0, 0, math.prod(shape)).view(len(points), linear.numel())
    # The matrices are symmetric, so their rows stacked to (m d, d) serve as the transposed factor without a copy.
    return torch.addmm(linear.flatten() / 2, points, quadratic.flatten(0, 1).T, out=out).view(shape)


def half_gradient_buffer(n_vectors: int, points: Tensor, *parts: Tensor) -> Tensor | None:
    """Return memory for this many half gradients, or None.

    On a CPU it saves fresh pages for each block; accelerators keep freed memory anyway, and autograd needs each block's own.
    """
    needs_graph = torch.is_grad_enabled() and any(part.requires_grad for part in (points, *parts))
    if needs_graph or points.device.type != "cpu":
        return None
    return points.new_empty(n_vectors * points.shape[1])


def _check_form(quadratic: Tensor, linear: Tensor, constant: Tensor) -> None:
    if not all(isinstance(part, Tensor) for part in (quadratic, linear, constant)):
        raise TypeError("quadrics are made of tensors, such as torch.as_tensor makes of arrays")
    if linear.ndim != 2 or 0 in linear.shape:
        raise ValueError(f"linear must have shape (m, d) with m quadrics and d features, both >= 1, got {tuple(linear.shape)}")
    m, d = linear.shape
    if quadratic.shape != (m, d, d) or constant.shape != (m,):
        raise ValueError(
            f"for linear of shape ({m}, {d}), quadratic must have shape ({m}, {d}, {d}) and constant ({m},), "
            f"got {tuple(quadratic.shape)} and {tuple(constant.shape)}"
        )
    if quadratic.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"quadrics are float32 or float64, got {quadratic.dtype}; convert with .to(torch.float64)")
    _check_same_kind(quadratic, linear, "linear")
    _check_same_kind(quadratic, constant, "constant")


def _check_same_kind(like: Tensor, other: Tensor, name: str) -> None:
    """Raise a ValueError unless both tensors share dtype and device."""
    if other.dtype != like.dtype or other.device != like.device:
        raise ValueError(
            f"{name} must be {like.dtype} on device '{like.device}' like the quadratic part, "
            f"got {other.dtype} on '{other.device}'; convert with .to(dtype=..., device=...)"
        )


def check_finite(tensor: Tensor, name: str) -> None:
    """Raise a ValueError that counts the NaN and infinite entries, if there are any."""
    finite = torch.isfinite(tensor)
    if not finite.all():
        raise ValueError(f"{name} must be finite, got {int((~finite).sum())} NaN or infinite entries")


def _symmetrized(matrices: Tensor) -> Tensor:
    """Average rounding-level asymmetry away and refuse anything larger."""
    asymmetry = (matrices - matrices.mT).abs().amax(dim=(1, 2))
    # The rounding of a product of three (d, d) matrices grows at most like d.
    allowed = 8 * matrices.shape[-1] * torch.finfo(matrices.dtype).eps * matrices.abs().amax(dim=(1, 2))
    if (asymmetry > allowed).any():
        worst = int(torch.argmax(asymmetry - allowed))
        raise ValueError(
            f"quadratic must hold symmetric matrices, but matrix {worst} differs from its transpose by "
            f"{float(asymmetry[worst]):.3g}; (A + Aᵀ) / 2 gives the same polynomial"
        )
    return (matrices + matrices.mT) / 2


def _check_numbers(quadratic: Tensor, linear: Tensor, constant: Tensor) -> None:
    for tensor, name in ((quadratic, "quadratic"), (linear, "linear"), (constant, "constant")):
        check_finite(tensor, name)
    largest = torch.stack([quadratic.abs().amax(dim=(1, 2)), linear.abs().amax(dim=1), constant.abs()]).amax(dim=0)
    if (largest == 0).any():
        zero = int(torch.argmin(largest))
        raise ValueError(f"quadric {zero} is the zero polynomial, whose zero set is the whole space; leave it out")
