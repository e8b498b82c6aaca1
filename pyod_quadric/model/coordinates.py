"""Working coordinates: an affine map from the input that makes fits equivariant.

Rows are centred, divided by one scale, and rotated to principal axes. A cloud and its rotated, reflected, shifted or scaled
copy then have the same working coordinates up to rounding. So every fit in them is equivariant, whatever the optimiser, up to
rounding: a closed form keeps rounding small, a long descent on absolute values amplifies it. The covariance leaves the sign of
each axis open. The sample decides it: its third moment along the axis is positive. A rule by the entries of the axis would
depend on the coordinates of the input. If a cloud has axes of equal variance, or is symmetric along an axis, axes or signs stay
open, and rounding decides.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from pyod_quadric.geometry.quadrics import Quadrics, check_finite
from pyod_quadric.model.moments import Moments, negligible_variance, sum_of_moments


@dataclass(frozen=True, eq=False)
class WorkingCoordinates:
    """The map ``x → matrix @ (x - mean)``.

    Parameters
    ----------
    mean : Tensor of shape (d,)
    matrix : Tensor of shape (k, d)
        Principal axes over the scale (or over the standard deviation along each, when whitening).

    Examples
    --------
    >>> import torch
    >>> halved = WorkingCoordinates(torch.ones(2), torch.eye(2) / 2)
    >>> halved.transform(torch.tensor([[3.0, 1.0]]))
    tensor([[1., 0.]])
    """

    mean: Tensor
    matrix: Tensor

    def transform(self, points: Tensor) -> Tensor:
        """Return the working coordinates (n, k) of points (n, d), in their dtype and on their device."""
        return (points - self.mean.to(points)) @ self.matrix.to(points).T

    def lengths(self) -> Tensor:
        """Return the lengths (k,) of the rows of the matrix in float64, without overflow or underflow of their squares."""
        matrix = self.matrix.double()
        sizes = matrix.abs().amax(dim=1, keepdim=True)
        sizes = torch.where(sizes > 0, sizes, 1)
        lengths: Tensor = sizes.squeeze(1) * torch.linalg.vector_norm(matrix / sizes, dim=1)
        return lengths

    def in_input_space(self, quadrics: Quadrics) -> Quadrics:
        """Express quadrics in working coordinates as quadrics in the input."""
        matrix, mean = self.matrix.to(quadrics.linear), self.mean.to(quadrics.linear)
        return quadrics.compose(matrix, -matrix @ mean)


def fit_working_coordinates(
    blocks: Callable[[], Iterable[Tensor]],
    n_components: int | None = None,
    *,
    whiten: bool = False,
    principal: bool = True,
) -> WorkingCoordinates:
    """Learn working coordinates in two passes over blocks of rows.

    Parameters
    ----------
    blocks : callable
        Called once for each pass; yields tensors of shape (?, d). Sums are computed in float64 on their device.
    n_components : int, optional
        The number of principal axes to keep, by descending variance. Default and maximum: all axes with any variance.
    whiten : bool, default=False
        Whether to scale each axis to unit variance, instead of dividing all by one number.
    principal : bool, default=True
        Whether to rotate to principal axes; otherwise the map only centres and scales.

    Examples
    --------
    >>> import torch
    >>> points = torch.tensor([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
    >>> fit_working_coordinates(lambda: [points]).transform(points)
    tensor([[-1.0690],
            [-0.2673],
            [ 1.3363]])
    """
    if not principal and (n_components is not None or whiten):
        raise ValueError("n_components and whiten are about principal axes, so they do not go with principal=False")
    dtypes = set()

    def rows() -> Iterable[Tensor]:
        for block in blocks():
            check_finite(block, "rows")
            dtypes.add(block.dtype)
            yield block.to(torch.float64)

    moments = sum_of_moments(Moments.of(block) for block in rows() if len(block))
    mean = moments.mean
    variances, axes = torch.linalg.eigh(moments.covariance())
    variances, axes = variances.flip(0).clamp(min=0), axes.flip(1).T  # descending; rows are axes
    if variances[0] == 0:
        raise ValueError("all rows are equal, so they have no coordinates to work in; give rows that differ")
    if n_components is not None and not 1 <= n_components <= len(mean):
        raise ValueError(f"n_components must be from 1 to the number of features, {len(mean)}, got {n_components}")
    if not principal:
        return centred_coordinates(moments)
    rank = int((variances > negligible_variance(variances, mean, max(torch.finfo(dtype).eps for dtype in dtypes))).sum())
    axes = axes[: min(rank, n_components or rank)]
    kept = variances[: len(axes)]
    # One number keeps angles and ratios of distances; after it the mean variance along the kept axes is 1.
    scales = kept.sqrt() if whiten else kept.mean().sqrt().expand(len(axes))
    return principal_coordinates(mean, axes, scales, ((block, block.new_ones(len(block))) for block in rows()))


def centred_coordinates(moments: Moments) -> WorkingCoordinates:
    """Return the input coordinates, centred and divided by one scale, the root of the mean variance."""
    scale = moments.covariance().diagonal().mean().sqrt()
    return WorkingCoordinates(moments.mean, torch.eye(len(moments.mean)).to(moments.mean) / scale)


def principal_coordinates(
    mean: Tensor, axes: Tensor, scales: Tensor, weighted_rows: Iterable[tuple[Tensor, Tensor]]
) -> WorkingCoordinates:
    """Return coordinates along axes (k, d), divided by scales (k,); weighted rows (n, d), (n,) decide the signs."""
    matrix = axes / scales[:, None]
    third = sum(weights.double() @ ((rows.double() - mean) @ matrix.T).pow(3) for rows, weights in weighted_rows)
    signs = torch.where(torch.as_tensor(third) < 0, -1.0, 1.0)
    return WorkingCoordinates(mean, matrix * signs[:, None])
