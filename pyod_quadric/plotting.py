"""Pictures, each drawn on the given matplotlib Axes, or on a new one, which is returned."""

from collections.abc import Sequence
from os import PathLike

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pyod_quadric.spectrum import Spectrum

MOST_NAMES = 30  # features that can be named below each other's bars


def plot_contributions(
    contributions: NDArray[np.float64],
    others: NDArray[np.float64],
    *,
    columns: Sequence[int] | None = None,
    cutoffs: Sequence[float] = (0.9, 0.99),
    feature_names: Sequence[str] | None = None,
    title: str = "",
    path: str | PathLike[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what each feature adds to the score of one row, over bands of what it adds to others.

    Parameters
    ----------
    contributions : ndarray of shape (d,)
    others : ndarray of shape (n, d)
        Of the rows to compare with.
    columns : sequence of int, optional
        The features to show; all by default.
    cutoffs : sequence of float
        The quantiles of the others to draw.
    feature_names : sequence of str, optional
        One for each feature shown.
    title : str
    path : path, optional
        Where to save the picture.
    ax : matplotlib Axes, optional
    """
    shown = np.arange(len(contributions)) if columns is None else np.asarray(columns)
    if feature_names is not None and len(feature_names) != len(shown):
        raise ValueError(
            f"feature_names must hold one name for each of the {len(shown)} features shown, got {len(feature_names)}"
        )
    if ax is None:
        _, ax = plt.subplots(figsize=(min(14.0, max(6.4, 0.3 * len(shown))), 4.8), layout="constrained")
    places = np.arange(len(shown))
    ax.bar(places, contributions[shown], color="lightsteelblue", label="this row")
    for cutoff, color in zip(cutoffs, plt.get_cmap("autumn_r")(np.linspace(0.4, 1, len(cutoffs))), strict=True):
        band = np.quantile(others[:, shown], cutoff, axis=0)
        ax.step(places, band, where="mid", color=color, label=f"{cutoff:.0%} of training rows are below")
    if len(shown) <= MOST_NAMES:
        names = [str(number) for number in shown] if feature_names is None else list(feature_names)
        long = max(map(len, names)) > 3
        ax.set_xticks(places, names, rotation=45 if long else 0, ha="right" if long else "center")
    ax.set(xlabel="feature", ylabel="added to the score", title=title)
    ax.legend()
    if path is not None:
        ax.figure.figure.savefig(path)  # of a part of a figure, the whole
    return ax


def plot_spectrum(spectrum: Spectrum, *, ax: Axes | None = None) -> Axes:
    """Draw ``-log(λₙ / λ₁)`` over the principal axes, and where Wold's criterion ends the manifold.

    Parameters
    ----------
    spectrum : Spectrum
        See :func:`pyod_quadric.principal_spectrum`.
    ax : matplotlib Axes, optional
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    numbers = np.arange(1, len(spectrum.variances) + 1)
    ax.plot(numbers, spectrum.decay(), ".-", label="−log(λₙ / λ₁)")
    label = f"Wold: dimension {spectrum.dimension}, so {spectrum.n_quadrics} quadrics"
    ax.axvline(spectrum.dimension + 0.5, color="tab:orange", linestyle="--", label=label)
    ax.set(xlabel="principal axis n", ylabel="−log of its share of the largest variance", title="How many quadrics?")
    ax.legend()
    return ax
