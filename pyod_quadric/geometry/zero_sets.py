"""Zero sets of quadrics in the plane and in space, as short segments and small triangles, for plots.

A box is cut into cells, and cells into simplices (triangles in the plane, tetrahedra in space) that fit together across cells.
If a polynomial has different signs at two corners of a simplex, it vanishes once on the edge between them. Along the edge it is
quadratic in one variable, so the zero is found exactly.
"""

from itertools import combinations, permutations

import torch
from torch import Tensor

from pyod_quadric.geometry.quadrics import Quadrics

N_NEWTON = 6


def zero_set(quadric: Quadrics, bounds: Tensor, n_cells: int) -> Tensor:
    """Return the zero set of a quadric in a box, as simplices (n, d, d): segments for d = 2, triangles for d = 3.

    Parameters
    ----------
    quadric : Quadrics
        A single one, in d variables.
    bounds : Tensor of shape (2, d)
        The lowest and the highest corner of the box.
    n_cells : int
        The number of cells along each edge. Parts of the zero set smaller than a cell may be missed, as are zeros without a
        change of sign.

    Returns
    -------
    Tensor of shape (n, d, d)
        The corners of each simplex, all of them on the quadric, in an order by which all have the same side in front: the
        gradient and the edges from the first corner have a positive determinant.

    Examples
    --------
    The length of a circle, from chords:

    >>> import torch
    >>> from pyod_quadric import Quadrics
    >>> circle = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
    >>> chords = zero_set(circle, torch.tensor([[-2.0, -2.0], [2.0, 2.0]]), n_cells=100)
    >>> round(float((chords[:, 1] - chords[:, 0]).norm(dim=1).sum()), 2)
    6.28
    """
    quadric = quadric.to(dtype=torch.float64)
    simplices, values = _mixed_simplices(quadric, bounds, n_cells)  # (s, d + 1, d), (s, d + 1, 1)
    positive = values.squeeze(2) > 0
    parts = [torch.empty(0, quadric.n_features, quadric.n_features, dtype=torch.float64)]
    for numbers in range(1, 2 ** positive.shape[1] - 1):
        pattern = [bool(numbers >> corner & 1) for corner in range(positive.shape[1])]
        chosen = simplices[(positive == torch.tensor(pattern)).all(dim=1)]
        for edges in _section(pattern):
            starts, ends = zip(*edges, strict=True)
            parts.append(_roots_on_edges(quadric, chosen[:, starts], chosen[:, ends]))
    return _oriented(torch.cat(parts), quadric)


def intersection_curve(quadrics: Quadrics, bounds: Tensor, n_cells: int) -> Tensor:
    """Return the curve in which two quadrics of three variables meet in a box, as short segments (n, 2, 3).

    Where both polynomials, taken as linear on a tetrahedron, vanish on two of its faces, the line between these two points is a
    piece of the curve; Newton's method then moves its ends on the true curve.

    Parameters
    ----------
    quadrics : Quadrics
        Two, in three variables.
    bounds : Tensor of shape (2, 3)
        The lowest and the highest corner of the box.
    n_cells : int
        The number of cells along each edge. Strands of the curve closer than one cell may be missed.

    Examples
    --------
    A sphere and a plane through its centre meet in a great circle:

    >>> import torch
    >>> from pyod_quadric import Quadrics
    >>> matrices = torch.stack([torch.eye(3), torch.zeros(3, 3)])
    >>> both = Quadrics(matrices, torch.tensor([[0.0, 0, 0], [0, 0, 1]]), torch.tensor([-1.0, 0.0]))
    >>> pieces = intersection_curve(both, torch.tensor([[-1.5, -1.5, -1.6], [1.5, 1.5, 1.5]]), n_cells=30)
    >>> round(float((pieces[:, 1] - pieces[:, 0]).norm(dim=1).sum()), 2)
    6.28
    """
    quadrics = quadrics.to(dtype=torch.float64)
    bounds = bounds.double()
    ends = _line_through(*_mixed_simplices(quadrics, bounds, n_cells))
    polished = newton(ends.reshape(-1, 3), quadrics, N_NEWTON).reshape(ends.shape)
    cell = (bounds[1] - bounds[0]).max() / n_cells
    near = ((polished - ends).norm(dim=2) < cell).all(dim=1)  # Newton may run away where the curve has no tangent
    inside = ((polished >= bounds[0]) & (polished <= bounds[1])).flatten(1).all(dim=1)
    return polished[near & inside]


def newton(points: Tensor, quadrics: Quadrics, n_steps: int) -> Tensor:
    """Move points (n, d) towards the intersection by the shortest steps that make all linearised polynomials vanish."""
    for _ in range(n_steps):
        steps = torch.linalg.pinv(quadrics.gradients(points)) @ quadrics.values(points)[:, :, None]
        points = points - steps.squeeze(2)
    return points


def _mixed_simplices(quadrics: Quadrics, bounds: Tensor, n_cells: int) -> tuple[Tensor, Tensor]:
    """Return the corners (s, d + 1, d) of the simplices of cells where each polynomial changes its sign, and its values."""
    d = quadrics.n_features
    axes = [torch.linspace(float(low), float(high), n_cells + 1, dtype=torch.float64) for low, high in bounds.T]
    nodes = torch.cartesian_prod(*axes)
    values = quadrics.values(nodes)
    grid = values.reshape(*[n_cells + 1] * d, len(quadrics))
    corners = torch.cartesian_prod(*[torch.arange(2)] * d)  # (2^d, d)
    at_corners = torch.stack([grid[tuple(slice(i, i + n_cells) for i in corner)] for corner in corners.tolist()])
    mixed = ((at_corners.amin(dim=0) <= 0) & (at_corners.amax(dim=0) > 0)).all(dim=-1)
    # The simplices of a cell, as paths from its lowest corner to its highest one along its edges.
    steps = torch.eye(d, dtype=torch.int64)[torch.tensor(list(permutations(range(d))))]  # (d!, d, d)
    paths = torch.cat([torch.zeros_like(steps[:, :1]), steps.cumsum(dim=1)], dim=1)  # (d!, d + 1, d)
    numbers = (mixed.nonzero()[:, None, None] + paths).flatten(0, 1)
    flat = (numbers * (n_cells + 1) ** torch.arange(d - 1, -1, -1)).sum(dim=2)
    return nodes[flat], values[flat]


def _section(positive: list[bool]) -> list[list[tuple[int, int]]]:
    """Return the simplices into which a zero set cuts a simplex with these signs; their corners are given by edges.

    The edges are all pairs of a corner with either sign. Paths through their table, a step right or down at a time, have the
    right number of corners and fit together: one path if a corner is alone with its sign, two if there are two and two.
    """
    above = [corner for corner, sign in enumerate(positive) if sign]
    below = [corner for corner, sign in enumerate(positive) if not sign]
    n_steps = len(positive) - 2
    paths = []
    for downs in combinations(range(n_steps), len(above) - 1):
        row = column = 0
        path = [(above[0], below[0])]
        for step in range(n_steps):
            row, column = (row + 1, column) if step in downs else (row, column + 1)
            path.append((above[row], below[column]))
        paths.append(path)
    return paths


def _roots_on_edges(quadric: Quadrics, starts: Tensor, ends: Tensor) -> Tensor:
    """Return where a polynomial vanishes between starts and ends, at which its signs differ: all of shape (s, k, d)."""
    along = (ends - starts).reshape(-1, starts.shape[2])
    first, last = (quadric.values(points.reshape(along.shape)).squeeze(1) for points in (starts, ends))
    square = torch.einsum("ni,ij,nj->n", along, quadric.quadratic[0], along)
    slope = last - first - square  # f = first + slope t + square t²
    root = (slope.square() - 4 * square * first).clamp(min=0).sqrt()
    # The two formulas that do not cancel; one of them is between 0 and 1.
    half = -(slope + torch.where(slope < 0, -root, root)) / 2
    candidates = torch.stack([first / half, half / square])
    good = (candidates >= 0) & (candidates <= 1)  # NaN and infinity are not
    t = torch.where(good[0], candidates[0], torch.where(good[1], candidates[1], first / (first - last)))
    return starts + t.reshape(*starts.shape[:2], 1) * (ends - starts)


def _oriented(simplices: Tensor, quadric: Quadrics) -> Tensor:
    """Exchange the last two corners of simplices (n, d, d) that are the wrong way round."""
    edges = simplices[:, 1:] - simplices[:, :1]
    determinants = torch.linalg.det(torch.cat([quadric.gradients(simplices.mean(dim=1)), edges], dim=1))
    swapped = torch.cat([simplices[:, :-2], simplices[:, -2:].flip(1)], dim=1)
    return torch.where((determinants < 0)[:, None, None], swapped, simplices)


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
