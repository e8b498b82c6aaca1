"""A search for rows that look like groups although no groups were given.

Rows of one person, document or machine are near each other. If some of them are held out while others stay, the model knows
them already, and everything that held-out rows decide is wrong for rows of new groups. The search compares, in coordinates of
unit variance, the distance of rows to the nearest other row with that of Gaussian points of the same covariance.
"""

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyod_quadric.fitting.cross_fit import Sample
from pyod_quadric.fitting.evidence import gaussian_references
from pyod_quadric.fitting.folds import FoldedRows
from pyod_quadric.model.linear import principal_axes
from pyod_quadric.model.moments import Moments, sum_of_moments
from pyod_quadric.parallel.ranks import gathered
from pyod_quadric.progress import stage

# Tables of few features have near rows for many reasons; in embeddings it takes groups, or clusters as tight as those.
N_COORDINATES = 50
N_COMPARED = 300  # rows, and as many points in random directions
# Median distances, over those of points of a Gaussian distribution: .59 for 21 pictures of each person, .63 for 5, .41 to .55
# for 10 to 2 images of a number; .77 to .83 for images, .82 to .93 for texts without groups, .74 for pixels of digits. Intents
# are clusters as tight as groups (.38).
NEAR = 0.7


@stage("groups")
def warn_of_relatives(
    folded: FoldedRows, sample: Sample, moments: list[Moments], copies: NDArray[np.int64] | None = None
) -> None:
    """Warn if rows are far nearer to each other than their covariance explains; copies (n,) do not count. Takes one pass."""
    if folded.rows.n_features < N_COORDINATES or folded.rows.n_rows < N_COMPARED:
        return
    if nearness(folded, sample, moments, copies) < NEAR:
        warnings.warn(
            "rows are far nearer to each other than a cloud of their covariance allows: if several of them are of one person, "
            "document or machine, and new rows will be of others, give fit the groups=... of the rows, or too many new ones "
            "will be flagged",  # without the figure, so that a stream is warned of once
            stacklevel=6,
        )


def nearness(folded: FoldedRows, sample: Sample, moments: list[Moments], copies: NDArray[np.int64] | None = None) -> float:
    """Return the median distance of rows to the nearest row that is not a copy, over that of points in random directions."""
    total = sum_of_moments(moments)
    variances, axes = principal_axes(total.covariance())
    matrix = (axes[:N_COORDINATES] / variances[:N_COORDINATES].sqrt()[:, None]).float()

    def white(rows: Tensor) -> Tensor:
        return (rows.double() - total.mean).float() @ matrix.T

    rows = white(sample.rows)
    others = gaussian_references(rows, torch.ones_like(rows[:, 0]), N_COMPARED)
    points, indices = torch.cat([rows[:N_COMPARED], others]), sample.indices[:N_COMPARED]
    same = torch.arange(folded.rows.n_rows) if copies is None else torch.from_numpy(copies)
    same = same.to(folded.device)
    nearest = points.new_full((len(points),), torch.inf)
    for place, block in folded.blocks():
        distances = torch.cdist(white(block), points)
        distances[:, : len(indices)][same[place, None] == same[indices]] = torch.inf  # a row itself
        nearest = torch.minimum(nearest, distances.amin(dim=0))
    nearest = torch.stack(list(gathered(nearest))).amin(dim=0)
    return float(nearest[: len(indices)].median() / nearest[len(indices) :].median().clamp(min=torch.finfo(torch.float32).tiny))
