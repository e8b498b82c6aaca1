"""What the pictures show is what was given: numbers are read back from what matplotlib was told to draw."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection
from mpl_toolkits.mplot3d.art3d import Line3DCollection, Poly3DCollection

from pyod_quadric import QuadricDetector, Quadrics, compare_constraints, second_order_distance
from pyod_quadric.plotting import plot_comparison, plot_distances, plot_history, plot_quadrics, plot_scores


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def ring(d, n=200, seed=0):
    """Return rows near a circle in R^d, and outliers inside of it, with labels."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n)
    outliers = np.arange(n) >= n - 10
    radius = np.where(outliers, 0.5, 2)
    rows = np.stack([radius * np.cos(angle), radius * np.sin(angle), 0.5 * np.cos(2 * angle)][:d], axis=1)
    return rows + 0.05 * rng.normal(size=rows.shape), outliers.astype(int)


FLAT, LABELS = ring(2)
SPACE, _ = ring(3)


@pytest.fixture(scope="module")
def flat():
    return QuadricDetector(epoch_num=3, training_options={"validation_fraction": 0.2}, contamination=0.05).fit(FLAT)


@pytest.fixture(scope="module")
def space():
    return QuadricDetector(contamination=0.05).fit(SPACE)


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def overlapping(ax):
    """Return whether the legend covers a part of the axes' own box."""
    ax.figure.draw_without_rendering()
    return ax.get_legend().get_window_extent().overlaps(ax.get_window_extent())


def of_kind(ax, kind):
    return [collection for collection in ax.collections if type(collection) is kind]


# Training


def test_training_curves(flat):
    ax = plot_history(flat.history_)
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_array_equal(lines["loss"].get_xydata().T, [[1, 2, 3], flat.history_["loss"]])
    np.testing.assert_array_equal(lines["loss of held-out rows"].get_ydata(), flat.history_["held_out_loss"])
    (right,) = [other for other in ax.figure.axes if other is not ax]
    np.testing.assert_array_equal(right.lines[0].get_ydata(), flat.history_["orthonormality_error"])
    assert len(legend(ax)) == 3
    assert not overlapping(ax)
    assert ax.get_xlabel() == "epoch"


def test_training_without_held_out_rows_has_no_such_curve():
    detector = QuadricDetector(epoch_num=2).fit(FLAT)
    ax = plot_history(detector.history_)
    assert legend(ax) == ["loss", "orthonormality error (right axis)"]


def test_nothing_trained_is_an_error(space):
    with pytest.raises(ValueError, match="epoch_num above 0"):
        plot_history(space.history_)


# Scores


@pytest.mark.parametrize("labels", [None, LABELS], ids=["one kind", "two kinds"])
def test_histogram_counts_all_rows_and_has_the_threshold(flat, labels):
    scores = flat.decision_scores_
    ax = plot_scores(scores, flat.threshold_, labels=labels)
    assert sum(bar.get_height() for bar in ax.patches) == len(scores)
    (line,) = ax.lines
    assert set(line.get_xdata()) == {flat.threshold_}
    above = [bar for bar in ax.patches if bar.get_x() >= flat.threshold_]
    assert sum(bar.get_height() for bar in above) <= (scores > flat.threshold_).sum()
    assert f"{(scores > flat.threshold_).sum()} rows above" in legend(ax)[-1]
    assert len(legend(ax)) == (2 if labels is None else 3)


def test_scores_with_a_long_tail_are_on_a_logarithmic_axis():
    ax = plot_scores(np.geomspace(1, 1000, 50), 500)
    assert ax.get_xscale() == "log"
    assert sum(bar.get_height() for bar in ax.patches) == 50


def test_scores_without_a_tail_are_on_a_linear_axis():
    scores = np.random.default_rng(0).normal(size=100)
    ax = plot_scores(scores, 5.0)  # no row is above
    assert ax.get_xscale() == "linear"
    assert "0 rows above" in legend(ax)[-1]
    assert sum(bar.get_height() for bar in ax.patches) == 100
    assert ax.get_xlim()[1] > 5


def test_equal_scores_can_be_drawn():
    ax = plot_scores(np.ones(5), 1.0)
    assert sum(bar.get_height() for bar in ax.patches) == 5


# Distances


def test_heat_map_is_the_distances(space):
    distances = space.quadric_distances(SPACE[:20])
    ax = plot_distances(distances)
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), distances)
    assert image.get_clim()[0] == 0
    assert [axes.get_ylabel() for axes in ax.figure.axes] == ["row", "distance in working coordinates"]
    named = plot_distances(distances[:3], row_names=["a", "b", "c"])
    assert [tick.get_text() for tick in named.get_yticklabels()] == ["a", "b", "c"]


def test_heat_map_of_nothing_is_an_error():
    linear = QuadricDetector(score_function="linear").fit(SPACE)
    with pytest.raises(ValueError, match=r"at least one row and one quadric, got \(200, 0\)"):
        plot_distances(linear.quadric_distances(SPACE))
    with pytest.raises(ValueError, match="each of the 2 rows, got 1"):
        plot_distances(np.ones((2, 3)), row_names=["a"])


# Quadrics


def test_curves_are_where_the_strongest_quadrics_vanish(flat):
    ax = plot_quadrics(flat.model_, FLAT, labels=LABELS)
    curves = of_kind(ax, LineCollection)
    order = flat.quadric_weights_.argsort()[::-1][:2]
    assert len(curves) == len(order)
    for curve, number in zip(curves, order, strict=True):
        points = torch.tensor(np.concatenate(curve.get_segments()))
        assert second_order_distance(points, flat.input_quadrics_[int(number)]).max() < 1e-12
    # The strongest is the circle that the rows are near.
    radii = np.linalg.norm(np.concatenate(curves[0].get_segments()), axis=1)
    assert (abs(radii - 2) < 0.1).all()
    assert legend(ax)[-2:] == ["190 inliers", "10 outliers"]
    assert not overlapping(ax)
    drawn = np.concatenate([part.get_offsets() for part in ax.collections if part not in curves])
    np.testing.assert_allclose(drawn, FLAT)


def test_surfaces_and_the_curve_in_which_they_meet(space):
    ax = plot_quadrics(space.model_, SPACE, n_cells=12)
    order = torch.tensor(space.quadric_weights_).argsort(descending=True)[:2]
    (surface,), (curve,) = of_kind(ax, Poly3DCollection), of_kind(ax, Line3DCollection)
    quadrics = space.input_quadrics_[order]
    faces = surface._faces.reshape(-1, 3) if hasattr(surface, "_faces") else surface._vec[:3].T  # matplotlib before 3.10
    faces = torch.tensor(np.asarray(faces))
    assert second_order_distance(faces, quadrics).amin(dim=1).max() < 1e-9
    points = torch.tensor(np.concatenate(curve._segments3d))
    assert second_order_distance(points, quadrics).max() < 1e-9
    assert len(legend(ax)) == 4
    assert ax.name == "3d"


def test_given_quadrics_are_drawn_in_a_given_box():
    circles = Quadrics(torch.eye(2).expand(2, 2, 2), torch.zeros(2, 2), torch.tensor([-1.0, -9.0]))
    ax = plot_quadrics(circles, bounds=[[-2, -2], [2, 2]])
    small, large = of_kind(ax, LineCollection)
    np.testing.assert_allclose(np.linalg.norm(np.concatenate(small.get_segments()), axis=1), 1, rtol=1e-12)
    assert len(large.get_segments()) == 0  # outside of the box
    assert ax.get_xlim() == ax.get_ylim() == (-2, 2)
    assert len(of_kind(plot_quadrics(circles, most=1), LineCollection)) == 1


def test_mean_distance_has_no_weights_and_shows_the_first_quadrics():
    detector = QuadricDetector(score_function="mean_distance", n_quadrics=2).fit(FLAT)
    ax = plot_quadrics(detector.model_)
    assert legend(ax) == ["quadric 0", "quadric 1"]


def test_what_cannot_be_drawn_is_refused(flat, space):
    with pytest.raises(ValueError, match="normalize=False"):
        plot_quadrics(QuadricDetector(normalize=True).fit(SPACE).model_)
    with pytest.raises(ValueError, match="only a linear part"):
        plot_quadrics(QuadricDetector(score_function="linear").fit(SPACE).model_)
    with pytest.raises(ValueError, match="2 or 3 variables can be drawn, got 4"):
        plot_quadrics(Quadrics(torch.eye(4)[None], torch.zeros(1, 4), -torch.ones(1)))
    with pytest.raises(ValueError, match=r"rows must have shape \(n, 2\)"):
        plot_quadrics(flat.model_, SPACE)
    with pytest.raises(ValueError, match='projection="3d"'):
        plot_quadrics(space.model_, ax=plt.figure().add_subplot())


# All


def test_each_draws_on_the_given_axes(flat, space):
    plt.close("all")  # what others have left open
    figure = plt.figure()
    draw = {
        "history": lambda ax: plot_history(flat.history_, ax=ax),
        "scores": lambda ax: plot_scores(flat.decision_scores_, flat.threshold_, ax=ax),
        "distances": lambda ax: plot_distances(space.quadric_distances(SPACE), ax=ax),
        "curves": lambda ax: plot_quadrics(flat.model_, ax=ax),
    }
    for number, function in enumerate(draw.values(), start=1):
        ax = figure.add_subplot(2, 3, number)
        assert function(ax) is ax
        assert ax.get_xlabel()
        assert ax.get_ylabel()
    in_space = figure.add_subplot(2, 3, 5, projection="3d")
    assert plot_quadrics(space.model_, ax=in_space, n_cells=6) is in_space
    assert plt.get_fignums() == [figure.number]  # and opens no other figure


@pytest.mark.parametrize("labels", [None, LABELS])
def test_a_comparison_shows_its_detectors_and_its_runs(labels):
    found = compare_constraints(FLAT, labels, n_quadrics=1, epoch_num=2, learning_rates=[0.01])
    detectors, losses, errors, scores = plot_comparison(found).axes
    expected = [found.correlation(name) for name in found.detectors] if labels is None else list(found.roc_auc.values())
    assert [bar.get_width() for bar in detectors.patches] == expected
    shown = [label.get_text().replace("\n", " ") for label in detectors.get_yticklabels()]
    assert shown == [detector.words for detector in found.detectors.values()]
    for line, run in zip(losses.get_lines(), found.runs.values(), strict=True):
        assert line.get_ydata().tolist() == run.losses
    for line, run in zip(errors.get_lines(), found.runs.values(), strict=True):
        assert line.get_ydata().tolist() == run.errors[1:]
    np.testing.assert_array_equal(scores.get_lines()[0].get_xdata(), found.scores["penalty"])
    np.testing.assert_array_equal(scores.get_lines()[0].get_ydata(), found.scores["stiefel"])
