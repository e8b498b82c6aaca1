"""The paper's settings, what is inside a fitted detector, projections and explanations."""

import pickle

import matplotlib.pyplot as plt
import numpy as np
import pandas
import pytest
import torch
from matplotlib.axes import Axes

from pyod_quadric import QuadricDetector, Quadrics
from tests.support.circle import TEST, X, Y, ways


@pytest.fixture(scope="module")
def fitted():
    return QuadricDetector(contamination=0.05).fit(X)


# The paper


@pytest.mark.parametrize(("variant", "m"), [("full", 100), ("base", 100), ("sub", 30)])
def test_the_paper_has_three_variants(variant, m):
    detector = QuadricDetector.from_paper(variant, epoch_num=1, contamination=0.2)
    assert (detector.epoch_num, detector.contamination) == (1, 0.2)
    rows = np.random.default_rng(0).normal(size=(300, 16)) + 1
    detector.fit(rows)
    assert detector.n_quadrics_ == len(detector.quadrics_) == m
    assert detector.quadric_weights_ is None
    np.testing.assert_allclose(detector.row_weights_, 1)
    scores = detector.decision_function(rows)
    np.testing.assert_allclose(scores, detector.quadric_distances(rows).mean(axis=1))
    np.testing.assert_allclose(detector.decision_function(3 * rows), scores)  # rows are normalised


def test_variants_of_the_paper_differ():
    full, base = (QuadricDetector.from_paper(variant).get_params() for variant in ("full", "base"))
    assert {name for name in full if full[name] != base[name]} == {"inner_product", "training_options"}
    assert (base["inner_product"], base["training_options"]) == ("coefficient", {"loss": "squared_algebraic"})
    added = QuadricDetector.from_paper("base", training_options={"momentum": 0.5}).training_options
    assert added == {"loss": "squared_algebraic", "momentum": 0.5}
    with pytest.raises(ValueError, match=r"variant must be one of \['full', 'base', 'sub'\], got 'best'"):
        QuadricDetector.from_paper("best")


# What is inside


@ways
def test_scores_are_made_of_quadric_distances(settings):
    detector = QuadricDetector(**settings).fit(X)
    distances = detector.quadric_distances(TEST)
    assert distances.shape == (200, detector.n_quadrics_)
    assert distances.dtype == np.float64
    if detector.quadric_weights_ is None:
        part = distances.mean(axis=1) if detector.n_quadrics_ else 0
    else:
        part = distances**2 @ detector.quadric_weights_
    linear = detector.model_.linear_part
    rest = 0 if linear is None else linear.squared_distances(torch.tensor(TEST)).numpy()
    kept = detector.model_.neighbors
    rest = rest if kept is None else rest + kept.scores(torch.tensor(TEST)).numpy()
    np.testing.assert_allclose(detector.decision_function(TEST), part + rest)


@ways
def test_input_quadrics_are_those_of_the_input(settings):
    detector = QuadricDetector(**settings).fit(X)
    if detector.quadrics_ is None:
        assert detector.input_quadrics_ is None
        return
    rows = detector.model_.prepared(torch.tensor(TEST))
    working = detector.model_.coordinates.transform(rows)
    values = detector.input_quadrics_.values(rows)
    assert isinstance(detector.quadrics_, Quadrics)
    np.testing.assert_allclose(values, detector.quadrics_.values(working), atol=1e-9)


def test_the_circle_is_among_the_input_quadrics(fitted):
    values = fitted.input_quadrics_.values(torch.tensor([[2.0, 0, 0], [0, -2, 0], [0, 0, 0]], dtype=torch.float64)).abs()
    assert (values[:2].amax(dim=0) < 0.1 * values[2]).any()


def test_rows_weigh_less_the_farther_they_are(fitted):
    assert fitted.row_weights_.shape == (200,)
    assert fitted.row_weights_.min() >= 0
    assert fitted.row_weights_.max() == 1
    assert fitted.row_weights_[Y == 1].max() < 0.2 < np.median(fitted.row_weights_)


def test_projection_removes_noise(fitted):
    projected = fitted.project(TEST[:190])
    assert projected.shape == (190, 3)
    assert projected.dtype == np.float64
    before, after = (np.abs(np.hypot(rows[:, 0], rows[:, 1]) - 2) for rows in (TEST[:190], projected))
    assert after.mean() < 0.5 * before.mean()


def test_projections_of_unweighted_quadrics_are_on_them():
    detector = QuadricDetector(score_function="mean_distance", n_quadrics=1).fit(X)
    assert detector.quadric_distances(TEST).max() > 0.1
    assert detector.quadric_distances(detector.project(TEST)).max() < 1e-5


@ways
def test_explanations_sum_to_the_score(settings):
    detector = QuadricDetector(**settings).fit(X)
    added = detector.explain(TEST)
    assert added.shape == TEST.shape
    assert added.dtype == np.float64
    assert added.min() >= 0
    np.testing.assert_allclose(added.sum(axis=1), detector.decision_function(TEST))


def test_explanations_find_the_feature(fitted):
    height = np.array([[2.0, 0.0, 1.0], [0.0, -2.0, 1.0]])  # above the circle
    assert (fitted.explain(height).argmax(axis=1) == 2).all()


# Pictures


@pytest.fixture
def closing():
    yield
    plt.close("all")


def heights(band):
    """Return the height of each of the level lines that are drawn as one."""
    segments = np.array(band.get_segments())
    np.testing.assert_array_equal(segments[:, 0, 1], segments[:, 1, 1])
    return segments[:, 0, 1]


@pytest.mark.usefixtures("closing")
def test_explain_outlier_draws_the_contributions(fitted):
    number = int(np.argmax(fitted.decision_scores_))
    axes = fitted.explain_outlier(number)
    assert isinstance(axes, Axes)
    np.testing.assert_allclose([bar.get_height() for bar in axes.patches], fitted.explain(X[[number]])[0])
    bands = [heights(band) for band in axes.collections]
    np.testing.assert_allclose(bands, np.quantile(fitted.explain(X), [0.95, 0.99], axis=0))
    assert "outlier" in axes.get_title()
    assert "inlier" in fitted.explain_outlier(0).get_title()


@pytest.mark.usefixtures("closing")
def test_explain_outlier_shows_what_is_asked_for(fitted):
    axes = fitted.explain_outlier(3, columns=[2, 0], cutoffs=[0.5], feature_names=["height", "width"])
    np.testing.assert_allclose([bar.get_height() for bar in axes.patches], fitted.explain(X[[3]])[0, [2, 0]])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["height", "width"]
    np.testing.assert_allclose(heights(axes.collections[0]), np.median(fitted.explain(X)[:, [2, 0]], axis=0))
    with pytest.raises(ValueError, match="feature_names must hold one name for each of the 3 features shown, got 1"):
        fitted.explain_outlier(3, feature_names=["height"])


@pytest.mark.usefixtures("closing")
def test_explain_outlier_saves_files(fitted, tmp_path):
    fitted.explain_outlier(0, file_name=str(tmp_path / "row"))
    assert (tmp_path / "row.png").read_bytes().startswith(b"\x89PNG")
    fitted.explain_outlier(0, file_name=str(tmp_path / "row"), file_type="svg")
    assert "<svg" in (tmp_path / "row.svg").read_text()
    assert not plt.get_fignums()  # nobody waits for them


@pytest.mark.usefixtures("closing")
def test_explain_outlier_knows_the_names_of_a_frame():
    detector = QuadricDetector().fit(pandas.DataFrame(X, columns=["x", "y", "z"]))
    assert [label.get_text() for label in detector.explain_outlier(0).get_xticklabels()] == ["x", "y", "z"]
    assert [label.get_text() for label in detector.explain_outlier(0, columns=[1]).get_xticklabels()] == ["y"]


@pytest.mark.usefixtures("closing")
def test_explain_outlier_after_loading_needs_the_rows(fitted):
    loaded = pickle.loads(pickle.dumps(fitted))
    with pytest.raises(ValueError, match="give them as X"):
        loaded.explain_outlier(5)
    heights = [
        [bar.get_height() for bar in axes.patches] for axes in (fitted.explain_outlier(5), loaded.explain_outlier(5, X=X))
    ]
    np.testing.assert_array_equal(*heights)
