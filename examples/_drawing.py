"""What the three-dimensional examples share: the curve in which two quadrics of R³ meet, and axes to draw it in."""

from itertools import combinations, permutations

import numpy as np
import torch
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Line3DCollection
from torch import Tensor

from pyod_quadric import Quadrics

# The six tetrahedra of a cube, as paths from corner 000 to corner 111 along its edges; they fit together from cube to cube.
CORNERS = torch.cartesian_prod(*[torch.arange(2)] * 3)  # (8, 3)
PATHS = torch.tensor([np.cumsum([0, *(2**axis for axis in order)]).tolist() for order in permutations(range(3))])  # (6, 4)


def intersection_segments(quadrics: Quadrics, half_width: float, n_cells: int = 60, n_newton: int = 6) -> Tensor:
    """Return the intersection of two quadrics in a cube around 0 as short segments, shape (n, 2, 3).

    The cube is cut into tetrahedra. Where both polynomials, taken as linear on a tetrahedron, vanish on two of its faces,
    the line between these two points is a piece of the curve; Newton's method then moves its ends on the true curve.

    Parameters
    ----------
    quadrics : Quadrics
        Two, in three variables.
    half_width : float
        Half of the edge of the cube.
    n_cells : int, default=60
        How many cells to cut an edge into. Strands of the curve closer than one cell may be missed.
    n_newton : int, default=6
        How many Newton steps to take.
    """
    # Three different edges, none symmetric around 0, so that no symmetric curve passes through the corners of the cells.
    edges = [torch.linspace(-half_width * r, half_width, n_cells + 1, dtype=quadrics.dtype) for r in (1.013, 1.017, 1.019)]
    nodes = torch.cartesian_prod(*edges)
    values = quadrics.values(nodes).reshape(*[n_cells + 1] * 3, 2)
    tetrahedra = _tetrahedra(values)  # (t, 4, 3), indices of nodes
    flat = (tetrahedra * torch.tensor([(n_cells + 1) ** 2, n_cells + 1, 1])).sum(dim=2)
    ends = _line_through(nodes[flat], values.reshape(-1, 2)[flat])
    polished = newton(ends.reshape(-1, 3), quadrics, n_newton).reshape(ends.shape)
    cell = 2 * half_width / n_cells
    near = ((polished - ends).norm(dim=2) < cell).all(dim=1)  # Newton may run away where the curve has no tangent
    inside = (polished.abs() <= half_width).flatten(1).all(dim=1)
    return polished[near & inside]


def newton(points: Tensor, quadrics: Quadrics, n_steps: int) -> Tensor:
    """Move points (n, d) towards the intersection by the shortest steps that make all linearised polynomials vanish."""
    for _ in range(n_steps):
        steps = torch.linalg.pinv(quadrics.gradients(points)) @ quadrics.values(points)[:, :, None]
        points = points - steps.squeeze(2)
    return points


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


def _tetrahedra(values: Tensor) -> Tensor:
    """Return the corners (t, 4, 3), as indices into the grid, of the tetrahedra in cells where both signs change."""
    n = values.shape[0] - 1
    corners = torch.stack([values[i : i + n, j : j + n, k : k + n] for i, j, k in CORNERS.tolist()])
    mixed = ((corners.amin(dim=0) < 0) & (corners.amax(dim=0) > 0)).all(dim=-1)
    return (mixed.nonzero()[:, None, None] + CORNERS[PATHS]).flatten(0, 1)


def _line_through(corners: Tensor, values: Tensor) -> Tensor:
    """Return where the line on which two linear functions vanish enters and leaves each tetrahedron it meets.

    Parameters
    ----------
    corners : Tensor of shape (t, 4, 3)
    values : Tensor of shape (t, 4, 2)
        Of both functions, in the corners.

    Returns
    -------
    Tensor of shape (at most t, 2, 3)
    """
    hits, places = [], []
    for face in combinations(range(4), 3):
        f, g = values[:, face].unbind(dim=2)  # (t, 3)
        weights = torch.linalg.cross(f, g)  # barycentric coordinates up to a factor: orthogonal to both
        hits.append((weights > 0).all(dim=1) | (weights < 0).all(dim=1))
        total = weights.sum(dim=1, keepdim=True)
        places.append((weights[:, :, None] * corners[:, face]).sum(dim=1) / torch.where(total == 0, 1, total))
    hit, place = torch.stack(hits, dim=1), torch.stack(places, dim=1)  # (t, 4), (t, 4, 3)
    met = hit.sum(dim=1) == 2
    return place[met][hit[met]].reshape(-1, 2, corners.shape[2])
