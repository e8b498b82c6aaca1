"""A fit as a whole: normalisation, coordinates, weights of rows and of quadrics, training."""

import contextlib

import numpy as np
import pytest
import torch

from pyod_quadric import QuadricDetector, Quadrics, TrainingOptions, random_quadrics, spectral_quadrics, train
from pyod_quadric.data.batches import RowBatches
from pyod_quadric.data.rows import rows_of
from pyod_quadric.fitting import preparation
from pyod_quadric.fitting.fit import fit_model
from pyod_quadric.parameters import Parameters

CPU = torch.device("cpu")


def fitted(rows, **options):
    return fit_model(rows_of(rows), Parameters(**options), CPU)


def sphere(n=400, d=4, noise=0.03, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, d))
    return points / np.linalg.norm(points, axis=1, keepdims=True) * np.arange(1, d + 1) + noise * rng.normal(size=(n, d))


def embeddings(n=400, d=40, seed=0):
    """Return directions in a wide cone, with lengths of their own."""
    rng = np.random.default_rng(seed)
    rows = 0.5 + rng.normal(size=(n, 5)) @ rng.normal(size=(5, d)) + 0.3 * rng.normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) * rng.uniform(0.7, 1.3, size=(n, 1))


def test_quadrics_see_what_the_linear_part_cannot():
    """The centre of an ellipsoid is the most normal point to a Gaussian, and the most abnormal one to quadrics."""
    rows = sphere()
    centre = torch.zeros(1, 4, dtype=torch.float64)
    linear, combined = (fitted(rows, score_function=score).model for score in ("linear", "combined"))
    typical = torch.tensor(sphere(seed=1))
    assert linear.score(centre) < linear.score(typical).min()
    assert combined.score(centre) > combined.score(typical).max()


def test_without_shape_no_quadric_has_a_say():
    """A Gaussian cloud has no quadrics, so with them the score is that of the linear part."""
    rows = np.random.default_rng(0).normal(size=(600, 5)) * np.arange(1, 6)
    combined, linear = (fitted(rows, score_function=score).model for score in ("linear+quadrics", "linear"))
    points = torch.tensor(np.random.default_rng(1).normal(size=(200, 5)) * np.arange(1, 6))
    ranks = [np.argsort(np.argsort(model.score(points).numpy())) for model in (combined, linear)]
    assert np.corrcoef(*ranks)[0, 1] > 0.98


def test_blocks_change_nothing(monkeypatch):
    rows = sphere()
    whole = fitted(rows)
    monkeypatch.setattr(preparation, "MOST_BLOCK_ROWS", 37)
    blocks = fitted(rows)
    points = torch.tensor(sphere(seed=1))
    np.testing.assert_allclose(blocks.row_weights, whole.row_weights, rtol=1e-6)
    np.testing.assert_allclose(blocks.model.score(points), whole.model.score(points), rtol=1e-6)


@pytest.mark.parametrize("source", ["array", "float32", "memmap", "path", "tensor"])
def test_rows_may_come_from_anywhere(source, tmp_path):
    rows = sphere()
    np.save(tmp_path / "rows.npy", rows)
    sources = {
        "array": rows,
        "float32": rows.astype(np.float32),
        "memmap": np.load(tmp_path / "rows.npy", mmap_mode="r"),
        "path": tmp_path / "rows.npy",
        "tensor": torch.tensor(rows),
    }
    points = torch.tensor(sphere(seed=1))
    expected = fitted(rows).model.score(points)
    tolerance = 1e-2 if source == "float32" else 1e-12
    np.testing.assert_allclose(fitted(sources[source]).model.score(points), expected, rtol=tolerance)


def test_far_rows_lose_weight_and_clean_rows_keep_it():
    rows = sphere(n=300)
    rows[:15] = np.random.default_rng(1).normal(size=(15, 4)) * 8
    weights = fitted(rows).row_weights
    assert np.median(weights[:15]) < 0.05
    assert np.median(weights[15:]) == 1
    assert np.mean(weights[15:]) > 0.9
    assert np.array_equal(fitted(rows, robust=False).row_weights, np.ones(300))


def test_robust_fits_forget_outliers():
    """With a fifth of outliers around the surface, the robust fit keeps them farther from it than the plain one does."""
    rng = np.random.default_rng(1)
    rows = np.concatenate([sphere(n=400, d=3), rng.uniform(-4, 4, size=(100, 3))])
    outliers, inliers = torch.tensor(rng.uniform(-4, 4, size=(300, 3))), torch.tensor(sphere(n=300, d=3, seed=2))
    robust, plain = (fitted(rows, robust=robust).model for robust in (True, False))
    gaps = [float((model.score(outliers).median() / model.score(inliers).median()).log()) for model in (robust, plain)]
    assert gaps[0] > gaps[1] + 0.2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "d"), [(9, 8), (50, 4), (1000, 40)])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.45])
def test_most_rows_may_be_the_same_one(dtype, n, d, share):
    others = max(1, int(share * n))
    rows = np.full((n, d), 3.3)
    rows[:others] += np.random.default_rng(0).normal(size=(others, d))
    scores = QuadricDetector().fit(rows.astype(dtype)).decision_scores_
    assert np.isfinite(scores).all()
    assert scores[:others].min() > scores[-1]


@pytest.mark.parametrize("size", [1e2, 1e6, 1e10])
def test_one_gross_row_changes_little(size):
    rng = np.random.default_rng(0)
    clean = rng.normal(size=(500, 5)) * np.arange(1, 6)
    dirty = clean.copy()
    dirty[7] = size
    points = torch.tensor(rng.normal(size=(300, 5)) * 5)
    expected, actual = (fitted(rows).model.score(points).numpy() for rows in (clean, dirty))
    assert np.corrcoef(np.log(expected), np.log(actual))[0, 1] > 0.999


def test_norms_are_dropped_only_where_that_is_better():
    rows = embeddings()
    assert fitted(rows).model.normalize
    assert not fitted(rows, normalize=False).model.normalize
    assert not fitted(rows - rows.mean(axis=0)).model.normalize  # the origin is in the cloud
    spread = np.exp(2 * np.random.default_rng(0).normal(size=(400, 1)))
    assert not fitted(rows * spread).model.normalize  # the norms hold most of the variance
    assert not fitted(rows[:, :10]).model.normalize  # of few features the norm is one too many to lose
    rows[3] = 0
    assert not fitted(rows).model.normalize


@pytest.mark.parametrize(("share", "normalizes"), [(0.0, False), (0.03, True)])
def test_directions_around_a_weak_mean_are_what_counts(share, normalizes):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 40)) + np.sqrt(share / (1 - share))  # so much of the squared norms is in the mean
    rows *= np.exp(0.2 * rng.normal(size=(1000, 1))) / np.linalg.norm(rows, axis=1, keepdims=True)
    assert fitted(rows).model.normalize == normalizes


def test_normalised_models_see_norms_by_their_logarithms_alone():
    model = fitted(embeddings(), normalize=True).model
    points = torch.tensor(embeddings(seed=1))
    added = model.norms.scores(7 * points) - model.norms.scores(points)
    assert (added > 0).all()
    np.testing.assert_allclose(model.score(7 * points) - added, model.score(points), rtol=1e-9)
    np.testing.assert_allclose(model.quadric_distances(7 * points), model.quadric_distances(points), rtol=1e-6, atol=1e-9)


def test_fewer_rows_than_features_work_in_their_span():
    """The same rows with columns of zeros, which add features but no span, and the same scores up to the complement."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 60)) * np.linspace(3, 0.1, 60)
    model = fitted(rows).model
    assert model.linear_part.axes.shape == (39, 60)
    np.testing.assert_allclose(model.linear_part.axes @ model.linear_part.axes.T, np.eye(39), atol=1e-9)
    score = model.score(torch.tensor(rng.normal(size=(30, 60)) * np.linspace(3, 0.1, 60)))
    assert float(score.median() / 60) == pytest.approx(1, rel=0.5)  # in units of held-out spread, a number of directions


@pytest.mark.parametrize(("n", "k"), [(3, 1), (50, 4), (400, 13), (5000, 30)])
def test_components_follow_from_rows_and_features(n, k):
    rows = np.random.default_rng(0).normal(size=(n, 30))
    assert len(fitted(rows, robust=False, normalize=False).model.coordinates.matrix) == k


def test_components_by_number_and_by_share():
    rows = np.random.default_rng(0).normal(size=(2000, 4)) * [10, 1, 1, 0.1]
    for asked, got in ((2, 2), (0.9, 1), (0.985, 2), (1.0, 4), (None, 4)):
        assert len(fitted(rows, n_components=asked).model.coordinates.matrix) == got
    for wrong in (0, 5, 1.5):
        with pytest.raises(ValueError, match="n_components"):
            fitted(rows, n_components=wrong)


def test_components_none_are_the_inputs_own():
    rows = sphere()
    coordinates = fitted(rows, n_components=None).model.coordinates
    matrix = coordinates.matrix.numpy()
    np.testing.assert_allclose(matrix, matrix[0, 0] * np.eye(4), atol=1e-12)


def test_so_many_quadrics_as_asked_for():
    assert len(fitted(sphere(), n_quadrics=3, score_function="mean_distance").model.quadrics) == 3
    assert len(fitted(sphere(), score_function="mean_distance").model.quadrics) == 5  # half of all
    with pytest.raises(ValueError, match=r"at most .* = 10, .* in k = 4 coordinates .* for 400 rows of 4 features; got 11"):
        fitted(sphere(), n_quadrics=11)


def test_closed_form_is_the_spectral_fit():
    """Without folds, weights and evidence what is left is the closed form in working coordinates."""
    rows = sphere()
    model = fitted(rows, robust=False, score_function="mean_distance", n_quadrics=2).model
    working = model.coordinates.transform(torch.tensor(rows))
    expected = spectral_quadrics([working], 2)
    np.testing.assert_allclose(model.quadrics.hs_inner(expected).abs(), np.eye(2), atol=1e-8)


@pytest.mark.parametrize("constraint", ["penalty", "stiefel"])
def test_training_lowers_the_loss_and_is_judged_by_held_out_rows(constraint):
    result = fitted(sphere(), epoch_num=5, lr=0.003, batch_size=64, constraint=constraint)
    assert len(result.history["loss"]) == 5
    assert result.history["loss"][-1] < result.history["loss"][0]
    centre, typical = torch.zeros(1, 4, dtype=torch.float64), torch.tensor(sphere(seed=1))
    assert result.model.score(centre) > result.model.score(typical).max()


def test_training_does_not_see_rows_without_weight():
    """Rows of weight 0 can be anything."""
    rows, other = sphere(), sphere()
    weights = np.repeat([1.0, 0.0], [300, 100])
    other[300:] = 100
    start = spectral_quadrics([torch.tensor(rows[:300])], 2)
    options = TrainingOptions(epoch_num=2, batch_size=32)
    ours, theirs = (train(array, start, options, weights=weights).quadrics for array in (rows, other))
    assert torch.equal(ours.quadratic, theirs.quadratic)
    with pytest.raises(ValueError, match="400 numbers from 0 to 1"):
        train(rows, start, options, weights=2 * weights)
    with pytest.raises(ValueError, match="no rows in epoch"):
        train(rows, start, options, weights=0 * weights)


def test_weights_are_shares_of_epochs():
    rows = np.arange(400.0)[:, None]
    weights = np.repeat([1.0, 0.25], 200)
    batches = RowBatches(rows_of(rows), 32, seed=0, weights=weights)
    seen = np.concatenate([np.concatenate(list(batches.epoch(epoch)))[:, 0] for epoch in range(40)]).astype(int)
    counts = np.bincount(seen, minlength=400)
    assert (counts[:200] == 40).all()
    assert counts[200:].mean() == pytest.approx(10, rel=0.1)
    again = np.concatenate(list(batches.epoch(3, first=5)))
    np.testing.assert_array_equal(again, np.concatenate(list(batches.epoch(3))[5:]))


def test_random_quadrics_are_trained():
    assert len(fitted(sphere(), init="random", batch_size=64).history["loss"]) == 20
    with pytest.raises(ValueError, match="init='random' asks for training, but epoch_num=0 forbids it"):
        fitted(sphere(), init="random", epoch_num=0)


def test_random_starts_of_few_wide_rows_are_judged():
    """Fewer rows than features are seen in float64, whatever their type; quadrics have the type of the rows."""
    rows = np.random.default_rng(0).normal(size=(30, 50)).astype(np.float32)
    model = fitted(rows, init="random", n_components=3, epoch_num=1).model
    assert torch.isfinite(model.score(torch.from_numpy(rows))).all()


def test_too_many_coordinates_for_the_closed_form():
    rows = np.random.default_rng(0).normal(size=(300, 120))
    with pytest.raises(ValueError, match=r"in 120 coordinates would take too long, .* or epoch_num to train them"):
        fitted(rows, n_components=None)
    with pytest.raises(ValueError, match="in 110 coordinates would take too long: set n_components to 100 or less"):
        fitted(rows, n_components=110, init="spectral")


def test_given_quadrics_are_used():
    given = Quadrics(torch.eye(2)[None].double(), torch.zeros(1, 2).double(), torch.tensor([-1.0]).double())
    model = fitted(sphere(d=2), init=given, score_function="mean_distance").model
    assert torch.equal(model.quadrics.quadratic, given.quadratic)
    with pytest.raises(ValueError, match=r"init holds quadrics in 2 coordinates, .* the 3 working .* n_components=2 would"):
        fitted(sphere(d=3), init=given)
    with pytest.raises(ValueError, match="init holds 1 quadrics, but n_quadrics asks for 2"):
        fitted(sphere(d=2), init=given, n_quadrics=2)


def test_quadrics_that_were_asked_for_and_do_not_count_are_said():
    """All that are asked for count, or it is said how many do; nobody has asked where the number is left open."""
    cloud = np.random.default_rng(0).normal(size=(300, 4))
    with pytest.warns(UserWarning, match="none of the 5 quadrics that were asked for count in the score"):
        assert fitted(cloud, n_quadrics=5).model.quadrics is None
    mixed = np.c_[sphere(d=2), np.random.default_rng(1).normal(size=(400, 6))]
    with pytest.warns(UserWarning, match=r"\d+ of the 30 quadrics that were asked for count") as warned:
        n_kept = len(fitted(mixed, n_quadrics=30).model.quadrics)
    assert str(warned[0].message).startswith(f"{n_kept} of the 30")
    assert 0 < n_kept < 30
    given = random_quadrics(2, 4, torch.Generator().manual_seed(0), torch.float64)
    with pytest.warns(UserWarning, match="none of the 2 quadrics"):
        fitted(cloud, init=given)
    fitted(cloud)
    assert len(fitted(cloud, n_quadrics=5, score_function="mean_distance").model.quadrics) == 5
    assert len(fitted(sphere(d=4), n_quadrics=1).model.quadrics) == 1


def test_too_many_quadrics_are_refused_in_terms_of_the_rows():
    rows = np.random.default_rng(0).normal(size=(200, 64))
    with pytest.raises(ValueError, match=r"in k = 9 .* for 200 rows of 64 features; got 46: .* n_components to 10"):
        fitted(rows, n_quadrics=46)
    with pytest.raises(ValueError, match="got 2080: set n_components to 64 or more"):
        fitted(rows, n_quadrics=64 * 65 // 2)
    with pytest.raises(ValueError, match="got 3000: ask for fewer"):
        fitted(rows, n_quadrics=3000)


def test_contributions_share_a_quadrics_distance_by_its_gradient():
    """One quadric, whose gradient at the point is (3, 4) / 5 of its norm: shares of 9 / 25 and 16 / 25."""
    circle = Quadrics(torch.eye(2)[None].double(), torch.zeros(1, 2).double(), torch.tensor([-1.0]).double())
    rows = sphere(d=2)
    model = fitted(rows, init=circle, score_function="mean_distance", n_components=None, normalize=False).model
    mean, scale = model.coordinates.mean, model.coordinates.matrix[0, 0]
    point = (mean + torch.tensor([3.0, 4.0], dtype=torch.float64) / scale)[None]
    contributions = model.contributions(point)
    np.testing.assert_allclose(contributions / model.score(point), [[9 / 25, 16 / 25]], rtol=1e-9)
    centre = model.contributions(mean[None])  # no direction is better than another
    np.testing.assert_allclose(centre, model.score(mean[None])[:, None].expand(1, 2) / 2)


def test_rows_that_say_nothing_are_refused():
    for rows, message in ((np.ones((2, 3)), "at least 3 rows"), (np.full((20, 3), 0.1), "all rows are equal")):
        with pytest.raises(ValueError, match=message):
            fitted(rows)


@pytest.mark.parametrize("kind", ["constant column", "duplicates", "two values", "one feature", "three rows", "rank one"])
def test_degenerate_rows_give_finite_scores(kind):
    rng = np.random.default_rng(0)
    rows = {
        "constant column": np.concatenate([rng.normal(size=(50, 2)), np.ones((50, 1))], axis=1),
        "duplicates": np.repeat(rng.normal(size=(5, 3)), 20, axis=0),
        "two values": np.repeat([[0.0, 1.0], [1.0, 0.0]], 30, axis=0),
        "one feature": rng.normal(size=(50, 1)),
        "three rows": rng.normal(size=(3, 4)),
        "rank one": rng.normal(size=(50, 1)) * np.arange(1.0, 5),
    }[kind]
    settings = {"score_function": "linear"} if kind == "two values" else {}  # by which both are as far from the mean
    expected = pytest.warns(UserWarning, match="same score") if settings else contextlib.nullcontext()
    with expected:
        detector = QuadricDetector(**settings).fit(rows)
    scores = detector.decision_function(np.concatenate([rows, rows + 1, 100 + 0 * rows]))
    assert np.isfinite(scores).all()
    assert scores[-1] > np.median(scores[: len(rows)])


def test_quadrics_leave_out_coordinates_in_which_usual_rows_hardly_differ():
    """A column that is constant but for an outlier has no shape; it would put the outlier a million deviations away."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(400, 5)), 1e-4 * rng.normal(size=400)])
    detector = QuadricDetector(standardize=False, normalize=False).fit(rows)
    assert len(detector.model_.coordinates.matrix) == 5
    usual, off = np.zeros((1, 6)), np.array([[0.0] * 5 + [0.01]])
    assert detector.decision_function(off) > 100 * detector.decision_function(usual)  # the linear part still sees it
