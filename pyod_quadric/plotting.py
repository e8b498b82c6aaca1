"""Plots. Each is drawn on the given matplotlib Axes, or on new ones, and returns them."""

from collections.abc import Mapping, Sequence
from itertools import combinations, cycle
from os import PathLike
from textwrap import fill
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LightSource
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from mpl_toolkits.mplot3d.art3d import Line3DCollection, Poly3DCollection
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pyod_quadric.fitting.comparison import Comparison
from pyod_quadric.fitting.dimension import Spectrum
from pyod_quadric.geometry.quadrics import Quadrics
from pyod_quadric.geometry.zero_sets import intersection_curve, zero_set
from pyod_quadric.model.model import Model
from pyod_quadric.parameters import ConstraintName

MOST_NAMES = 30  # features that can be named below each other's bars
LONG_TAIL = 20  # of scores: the largest, in units of the median
CELLS_IN_PLANE, CELLS_IN_SPACE = 200, 24
MOST_POINTS = 5000  # of a scatter plot
CONSTRAINT_NAMES: dict[ConstraintName, str] = {"penalty": "penalty", "stiefel": "manifold"}
# Colours that colour-blind people tell apart (Okabe and Ito).
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9")
ABNORMAL = "#d55e00"
CONSTRAINT_COLOURS = {"penalty": COLOURS[1], "stiefel": COLOURS[0]}


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
    """Draw what each feature adds to the score of one row, with quantiles of what it adds to other rows.

    Parameters
    ----------
    contributions : ndarray of shape (d,)
    others : ndarray of shape (n, d)
        The contributions of the rows to compare with.
    columns : sequence of int, optional
        The features to show; all by default.
    cutoffs : sequence of float
        The quantiles of the others to draw.
    feature_names : sequence of str, optional
        One for each feature shown.
    title : str
    path : path, optional
        Where to save the picture. A saved picture is not shown.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> import numpy as np
    >>> others = np.random.default_rng(0).random(size=(50, 3))
    >>> ax = plot_contributions(np.array([0.2, 5.0, 0.4]), others, title="Row 7")
    >>> ax.get_title()
    'Row 7'
    """
    shown = np.arange(len(contributions)) if columns is None else np.asarray(columns)
    if feature_names is not None and len(feature_names) != len(shown):
        raise ValueError(
            f"feature_names must hold one name for each of the {len(shown)} features shown, got {len(feature_names)}"
        )
    is_own = ax is None
    if ax is None:
        _, ax = plt.subplots(figsize=(min(14.0, max(6.4, 0.3 * len(shown))), 4.8), layout="constrained")
    places = np.arange(len(shown))
    ax.bar(places, contributions[shown], color="lightsteelblue", label="this row")
    for cutoff, style in zip(cutoffs, cycle(("dotted", "solid", "dashed", "dashdot")), strict=False):
        band = np.quantile(others[:, shown], cutoff, axis=0)
        label = f"{cutoff:.0%} of training rows are below"
        ax.hlines(band, places - 0.45, places + 0.45, color="black", linestyle=style, label=label)
    if len(shown) <= MOST_NAMES:
        names = [str(number) for number in shown] if feature_names is None else list(feature_names)
        long = max(map(len, names)) > 3
        ax.set_xticks(places, names, rotation=45 if long else 0, ha="right" if long else "center")
    ax.set(xlabel="feature", ylabel="added to the score", title=title)
    ax.set_ylim(top=1.4 * ax.dataLim.ymax)  # room for the legend
    ax.legend(loc="upper right")
    if path is not None:
        figure = ax.figure.figure  # of a part of a figure, the whole
        figure.savefig(path)
        if is_own:
            plt.close(figure)  # or pyplot would keep it, and show it
    return ax


def plot_spectrum(spectrum: Spectrum, *, ax: Axes | None = None) -> Axes:
    """Draw ``-log(λₙ / λ₁)`` over the principal axes, and the dimension by Wold's criterion.

    Parameters
    ----------
    spectrum : Spectrum
        See :func:`pyod_quadric.principal_spectrum`.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> import numpy as np
    >>> from pyod_quadric import principal_spectrum
    >>> rows = np.random.default_rng(0).normal(size=(100, 5)) * [3, 2, 1, 0.1, 0.1]
    >>> ax = plot_spectrum(principal_spectrum(rows))
    >>> ax.get_xlabel()
    'principal axis n'
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    numbers = np.arange(1, len(spectrum.variances) + 1)
    ax.plot(numbers, spectrum.decay(), ".-", label="−log(λₙ / λ₁)")
    label = f"Wold: dimension {spectrum.dimension}, so {spectrum.n_quadrics} quadrics"
    ax.axvline(spectrum.dimension + 0.5, color=COLOURS[1], linestyle="--", label=label)
    ax.set(xlabel="principal axis n", ylabel="−log of its share of the largest variance", title="How many quadrics?")
    _legend_below(ax)
    return ax


def plot_history(history: Mapping[str, Sequence[float]], *, ax: Axes | None = None) -> Axes:
    """Draw losses over the epochs of a training, and the orthonormality error on a second axis.

    Parameters
    ----------
    history : mapping of str to sequences
        ``detector.history_``, or that of :func:`pyod_quadric.train`: ``loss``, ``held_out_loss``, ``orthonormality_error``.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
        The axes of the losses.

    Examples
    --------
    >>> ax = plot_history({"loss": [0.5, 0.2, 0.1]})
    >>> ax.get_xlabel()
    'epoch'
    """
    loss = np.asarray(history["loss"], dtype=float)
    if len(loss) == 0:
        raise ValueError("the history is empty, since nothing was trained: fit with epoch_num above 0")
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    epochs = np.arange(1, len(loss) + 1)
    held_out = np.asarray(history.get("held_out_loss", []), dtype=float)
    lines = ax.plot(epochs, loss, ".-", color=COLOURS[0], label="loss")
    if len(held_out) and np.isfinite(held_out).any():
        lines += ax.plot(epochs, held_out, ".-", color=COLOURS[2], label="loss of held-out rows")
    errors = np.asarray(history.get("orthonormality_error", []), dtype=float)
    if len(errors):
        right = ax.twinx()
        lines += right.plot(epochs, errors, ".--", color=COLOURS[1], label="orthonormality error (right axis)")
        right.set(ylabel="orthonormality error ‖ṼᵀṼ − I‖", yscale="log" if (errors > 0).all() else "linear")
    ax.set(xlabel="epoch", ylabel="mean distance, summed over quadrics", title="Training")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend_below(ax, handles=lines)
    return ax


def plot_comparison(comparison: Comparison) -> Figure:
    """Draw a comparison: its detectors, and losses, errors and scores of penalty against manifold.

    The first panel has the ROC-AUC of each detector or, without labels, the rank correlation of its scores with those of the
    default. The others show quadrics alone: held-out losses over time, orthonormality errors over time, and the scores of the
    manifold over those of the penalty.

    Parameters
    ----------
    comparison : Comparison
        The result of :func:`pyod_quadric.compare_constraints`.

    Returns
    -------
    matplotlib.figure.Figure
        A figure without a window; ``savefig`` writes it.
    """
    figure = Figure(figsize=(13, 8), layout="constrained")
    detectors, losses, errors, scores = figure.subplots(2, 2).flat
    _draw_detectors(detectors, comparison)
    for name, run in comparison.runs.items():
        style = {"color": CONSTRAINT_COLOURS[name], "label": f"{CONSTRAINT_NAMES[name]}, learning rate {run.lr:g}"}
        losses.plot(run.seconds, run.losses, ".-", **style)
        errors.semilogy(run.seconds[1:], run.errors[1:], ".-", **style)
    losses.set(xlabel="seconds", ylabel="mean order-2 distance", title="Quadrics alone: held-out loss")
    errors.set(xlabel="seconds", ylabel="‖ṼᵀṼ − I‖", title="Quadrics alone: orthonormality error")
    penalty, manifold = (comparison.scores[name] for name in CONSTRAINT_NAMES)
    shown = slice(None, None, max(1, len(penalty) // MOST_POINTS))
    scores.loglog(penalty[shown], manifold[shown], ".", markersize=3, alpha=0.5, color="tab:gray")
    scores.set(
        xlabel="score by quadrics trained with the penalty",
        ylabel="score by those trained on the manifold",
        title=f"Quadrics alone: scores of {len(penalty)} rows, ρ = {comparison.rank_correlation:.3f}",
    )
    for axis in (scores.xaxis, scores.yaxis):  # scores may be within one power of ten
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    for axes in (losses, errors, scores):
        axes.grid(alpha=0.3)
    losses.legend()
    return figure


def _draw_detectors(ax: Axes, comparison: Comparison) -> None:
    roc_auc = comparison.roc_auc
    values = {name: comparison.correlation(name) for name in comparison.detectors} if roc_auc is None else roc_auc
    words = [fill(detector.words, 40) for detector in comparison.detectors.values()]
    colours = [CONSTRAINT_COLOURS.get(name.removeprefix("default_"), "tab:gray") for name in comparison.detectors]
    bars = ax.barh(words, list(values.values()), color=colours)
    ax.bar_label(bars, fmt="%.3f", padding=3)
    ax.invert_yaxis()
    ax.set_xlim(min(0.0, *values.values()), 1.15)
    is_rated = roc_auc is not None
    if is_rated:
        ax.axvline(0.5, color="black", linestyle=":", linewidth=1)  # chance
    ax.set(
        xlabel="ROC-AUC" if is_rated else "rank correlation of scores",
        title="Detectors, by rows that they have not seen" if is_rated else "Detectors: agreement with the default",
    )


def plot_scores(
    scores: ArrayLike,
    threshold: float,
    *,
    labels: ArrayLike | None = None,
    bins: int = 50,
    ax: Axes | None = None,
) -> Axes:
    """Draw a histogram of outlier scores, and the threshold above which rows are outliers.

    Scores with a long tail are drawn on a logarithmic axis.

    Parameters
    ----------
    scores : array-like of shape (n,)
        ``detector.decision_scores_``, or scores of new rows, by any detector of PyOD.
    threshold : float
        ``detector.threshold_``.
    labels : array-like of shape (n,), optional
        1 for known outliers, which are drawn in another colour.
    bins : int, default=50
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> ax = plot_scores([1.0, 2.0, 3.0, 9.0], threshold=5.0)
    >>> ax.get_legend().get_texts()[-1].get_text()
    'threshold 5, 1 rows above'
    """
    scores = np.asarray(scores, dtype=float)
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    wide = scores.min() > 0 and scores.max() > LONG_TAIL * np.median(scores)
    ends = (min(scores.min(), threshold), max(scores.max(), threshold))
    edges = np.geomspace(*ends, bins + 1) if wide and threshold > 0 else np.linspace(*ends, bins + 1)
    edges[0], edges[-1] = ends  # which rounding may miss
    bounds: list[float] = edges.tolist()
    if labels is None:
        ax.hist(scores, bounds, color="lightsteelblue", label=f"{len(scores)} rows")
    else:
        outliers = np.asarray(labels).astype(bool)
        groups = [scores[~outliers], scores[outliers]]
        names = [f"{len(groups[0])} inliers", f"{len(groups[1])} outliers"]
        ax.hist(groups, bounds, stacked=True, color=["lightsteelblue", ABNORMAL], label=names)
    above = int((scores > threshold).sum())
    ax.axvline(threshold, color="black", linestyle="--", label=f"threshold {threshold:.3g}, {above} rows above")
    ax.set(xlabel="outlier score", ylabel="rows", title="Scores", xscale="log" if wide and threshold > 0 else "linear")
    _legend_below(ax)
    return ax


def plot_distances(
    distances: NDArray[np.float64], *, row_names: Sequence[object] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the distances of rows to each quadric as a heat map.

    Parameters
    ----------
    distances : ndarray of shape (n, m)
        ``detector.quadric_distances(rows)``.
    row_names : sequence, optional
        One for each row; by default they are numbered.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> import numpy as np
    >>> ax = plot_distances(np.array([[0.1, 0.2], [0.0, 0.9]]), row_names=["first", "second"])
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('quadric', 'row')
    """
    distances = np.asarray(distances)
    if distances.ndim != 2 or not distances.size:
        raise ValueError(f"distances must have shape (n, m), with at least one row and one quadric, got {distances.shape}")
    if row_names is not None and len(row_names) != len(distances):
        raise ValueError(f"row_names must hold one name for each of the {len(distances)} rows, got {len(row_names)}")
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    image = ax.imshow(distances, aspect="auto", interpolation="nearest", cmap="magma_r", vmin=0)
    ax.figure.colorbar(image, ax=ax, label="distance in working coordinates")
    if row_names is not None and len(row_names) <= MOST_NAMES:
        ax.set_yticks(np.arange(len(row_names)), [str(name) for name in row_names])
    else:
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    if distances.shape[1] <= MOST_NAMES:
        ax.set_xticks(np.arange(distances.shape[1]))
    ax.set(xlabel="quadric", ylabel="row", title="Distance of each row to each quadric")
    return ax


def plot_quadrics(
    model: Model | Quadrics,
    rows: ArrayLike | None = None,
    *,
    labels: ArrayLike | None = None,
    most: int = 2,
    bounds: ArrayLike | None = None,
    n_cells: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw quadrics in input coordinates: curves for two features; for three, surfaces and the curves in which they meet.

    Parameters
    ----------
    model : Model or Quadrics
        ``detector.model_``, of which the quadrics with the largest weights are drawn; or quadrics in two or three variables,
        of which the first ones are drawn.
    rows : array-like of shape (n, d), optional
        Rows to draw as points.
    labels : array-like of shape (n,), optional
        1 for outliers, which are drawn in another colour.
    most : int, default=2
        The largest number of quadrics to draw.
    bounds : array-like of shape (2, d), optional
        The lowest and the highest corner of the box to draw. By default the range of the rows and a tenth more on each side;
        without rows from -1 to 1.
    n_cells : int, optional
        The number of grid cells along each edge of the box; by default 200 in the plane and 24 in space.
    ax : matplotlib Axes, optional
        With ``projection="3d"`` for three features.

    Examples
    --------
    >>> import torch
    >>> from pyod_quadric import Quadrics
    >>> circle = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
    >>> rows = [[0.6, 0.8], [0.0, 0.0]]
    >>> ax = plot_quadrics(circle, rows, labels=[0, 1], bounds=[[-2, -2], [2, 2]])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['quadric 0', '1 inliers', '1 outliers']
    """
    quadrics, names = _strongest(model, most)
    d = quadrics.n_features
    if d not in (2, 3):
        raise ValueError(f"quadrics in 2 or 3 variables can be drawn, got {d}: fit two or three features, or components, alone")
    points = None if rows is None else np.asarray(rows, dtype=float)
    if points is not None and (points.ndim != 2 or points.shape[1] != d):
        raise ValueError(f"rows must have shape (n, {d}), as the quadrics have {d} variables, got {points.shape}")
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 5.6), layout="constrained", subplot_kw={"projection": "3d"} if d == 3 else None)
    if d == 3 and ax.name != "3d":
        raise ValueError('quadrics in 3 variables need Axes made with projection="3d"')
    box = torch.as_tensor(_bounds(points, d) if bounds is None else np.asarray(bounds, dtype=float), dtype=torch.float64)
    if d == 2:
        _draw_curves(ax, quadrics, names, box, n_cells or CELLS_IN_PLANE)
    else:
        _draw_surfaces(ax, quadrics, names, box, n_cells or CELLS_IN_SPACE)
    if points is not None:
        _draw_points(ax, points, labels)
    limits = dict(zip(("xlim", "ylim", "zlim"), box.T.tolist(), strict=False))
    ax.set(**limits, xlabel="x₁", ylabel="x₂", title="Learnt quadrics" if isinstance(model, Model) else "Quadrics")
    if d == 3:
        ax.set(zlabel="x₃", box_aspect=(box[1] - box[0]).tolist())
        ax.locator_params(nbins=3)  # more numbers would cover each other in a small picture
    else:
        ax.set_aspect("equal")
    _legend_below(ax, 0.07 if d == 3 else 0.14, ncols=2)
    return ax


def _legend_below(ax: Axes, gap: float = 0.14, **changes: Any) -> None:
    """Put the legend below the axes, where it covers nothing."""
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -gap), frameon=False, **changes)


def _strongest(model: Model | Quadrics, most: int) -> tuple[Quadrics, list[str]]:
    """Return the quadrics to draw, in input coordinates, and their names."""
    if isinstance(model, Quadrics):
        return model[:most], [f"quadric {number}" for number in range(len(model[:most]))]
    if model.normalize:
        raise ValueError(
            "this model divides rows by their norms, so its quadrics are not surfaces among the rows: fit with normalize=False"
        )
    quadrics = model.in_input_space()
    if quadrics is None:
        raise ValueError("this model has no quadrics, only a linear part; plot_contributions draws what that sees")
    if model.quadric_weights is None:
        return _strongest(quadrics, most)
    order = model.quadric_weights.argsort(descending=True)[:most]
    shares = model.quadric_weights / model.quadric_weights.sum()
    return quadrics[order], [f"quadric {k}, {shares[k]:.0%} of the weight" for k in order.tolist()]


def _bounds(points: NDArray[np.float64] | None, n_features: int) -> NDArray[np.float64]:
    """Return the box (2, d) of the points, and a tenth more on each side."""
    if points is None:
        return np.array([[-1.0], [1.0]]).repeat(n_features, axis=1)
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.1 * np.maximum(high - low, 1e-9 * (1 + np.abs(high)))
    return np.stack([low - margin, high + margin])


def _draw_curves(ax: Axes, quadrics: Quadrics, names: Sequence[str], box: Tensor, n_cells: int) -> None:
    for number, name in enumerate(names):
        segments = zero_set(quadrics[number], box, n_cells).numpy()
        ax.add_collection(
            LineCollection(list(segments), colors=COLOURS[number % len(COLOURS)], linewidths=2, label=name, zorder=3)
        )


def _draw_surfaces(ax: Any, quadrics: Quadrics, names: Sequence[str], box: Tensor, n_cells: int) -> None:
    """Draw all surfaces as one collection, so that faces hide each other by depth, and the curves in which pairs meet."""
    faces = [zero_set(quadrics[number], box, n_cells).numpy() for number in range(len(quadrics))]
    colours = np.repeat([COLOURS[number % len(COLOURS)] for number in range(len(faces))], [len(part) for part in faces])
    if len(colours):
        light = {"shade": True, "lightsource": LightSource(azdeg=225, altdeg=50)}
        style: dict[str, Any] = {"facecolors": colours, "edgecolors": colours, "alpha": 0.35, "linewidth": 0, "zorder": 1}
        ax.add_collection3d(Poly3DCollection(np.concatenate(faces), **style, **light))
    for number, name in enumerate(names):
        ax.plot([], [], [], linewidth=8, alpha=0.5, color=COLOURS[number % len(COLOURS)], label=name)
    pairs = combinations(range(len(quadrics)), 2)
    curves = [intersection_curve(quadrics[torch.tensor(pair)], box, 2 * n_cells).numpy() for pair in pairs]
    if any(map(len, curves)):
        style = {"colors": "black", "linewidths": 2, "zorder": 3, "label": "where two meet"}
        ax.add_collection3d(Line3DCollection(list(np.concatenate(curves)), **style))
    ax.computed_zorder = False  # points lie over the surfaces, curves over both


def _draw_points(ax: Any, points: NDArray[np.float64], labels: ArrayLike | None) -> None:
    outliers = np.zeros(len(points), dtype=bool) if labels is None else np.asarray(labels).astype(bool)
    kinds = [(~outliers, "tab:gray", "rows" if labels is None else "inliers"), (outliers, ABNORMAL, "outliers")]
    for chosen, colour, name in kinds:
        if chosen.any():
            ax.scatter(*points[chosen].T, s=9, color=colour, label=f"{chosen.sum()} {name}", zorder=2)
