"""What the three-dimensional examples share: the curve in which two quadrics of R³ meet, and axes to draw it in."""

import torch
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Line3DCollection
from torch import Tensor

from pyod_quadric import Quadrics
from pyod_quadric.geometry.zero_sets import intersection_curve


def intersection_segments(quadrics: Quadrics, half_width: float, n_cells: int = 60) -> Tensor:
    """Return the intersection of two quadrics in a cube around 0 as short segments, shape (n, 2, 3)."""
    # Three different edges, none symmetric around 0, so that no symmetric curve passes through the corners of the cells.
    bounds = half_width * torch.tensor([[-1.013, -1.017, -1.019], [1.0, 1.0, 1.0]], dtype=torch.float64)
    segments = intersection_curve(quadrics, bounds, n_cells)
    return segments[(segments.abs() <= half_width).flatten(1).all(dim=1)]


def distance_to_segments(points: Tensor, segments: Tensor) -> Tensor:
    """Return the distance of each point (n, d) to the nearest of the segments (s, 2, d); infinite if there are none."""
    if len(segments) == 0:
        return points.new_full((len(points),), torch.inf)
    start, along = segments[:, 0], segments[:, 1] - segments[:, 0]
    square = along.square().sum(dim=1).clamp(min=torch.finfo(points.dtype).tiny)
    # |p - s - t v|² with t = (p - s)·v / |v|² clamped to [0, 1], from inner products alone
    offset = points @ along.T - (start * along).sum(dim=1)
    t = (offset / square).clamp(0, 1)
    gap = torch.cdist(points, start).square() - 2 * t * offset + t.square() * square
    return gap.clamp(min=0).amin(dim=1).sqrt()


def draw_segments(ax: Axes3D, segments: Tensor, **style: object) -> None:
    """Draw segments (n, 2, 3) as one collection of lines."""
    ax.add_collection3d(Line3DCollection(segments.numpy(), capstyle="round", **style))


def set_axes(ax: Axes3D, half_width: float) -> None:
    """Give all axes one scale, from -half_width to half_width, with ticks at ±1 and the name of the axis between them."""
    for name, axis in (("x", ax.xaxis), ("y", ax.yaxis), ("z", ax.zaxis)):
        axis.set_label_text(name)
        axis.labelpad = -6
        axis.set_ticks([-1, 1])
    ax.set(xlim=(-half_width, half_width), ylim=(-half_width, half_width), zlim=(-half_width, half_width))
    ax.set_box_aspect((1, 1, 1), zoom=1.08)
