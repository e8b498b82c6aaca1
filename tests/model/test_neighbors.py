"""Neighbours against a slow search."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric import QuadricDetector, WorkingCoordinates
from pyod_quadric.fitting.neighbors import _are_many
from pyod_quadric.model import neighbors
from pyod_quadric.model.neighbors import Neighbors, comparison, half_squares, smallest


def drawn(seed, n_rows=40, d=5, r=3):
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(d, d)))[0][:r]
    coordinates = WorkingCoordinates(torch.tensor(rng.normal(size=d)), torch.tensor(axes * rng.uniform(0.5, 2, size=(r, 1))))
    rows = torch.tensor(rng.normal(size=(n_rows, d)))
    return Neighbors(coordinates, coordinates.transform(rows), weight=1.7), torch.tensor(rng.normal(size=(30, d)))


@given(seed=st.integers(0, 2**16), n_rows=st.sampled_from([1, 2, 3, 50]))
def test_scores_are_mean_squared_distances_to_the_nearest_three(seed, n_rows):
    kept, points = drawn(seed, n_rows)
    found = kept.coordinates.transform(points).numpy()
    squared = ((found[:, None] - kept.prototypes.numpy()) ** 2).sum(axis=2)
    expected = 1.7 * np.sort(squared, axis=1)[:, :3].mean(axis=1)
    np.testing.assert_allclose(kept.scores(points), expected, rtol=1e-9)


@given(seed=st.integers(0, 2**16))
def test_contributions_add_up(seed):
    kept, points = drawn(seed)
    contributions = kept.contributions(points)
    assert (contributions >= 0).all()
    np.testing.assert_allclose(contributions.sum(dim=1), kept.scores(points), rtol=1e-9)


@given(seed=st.integers(0, 2**16))
def test_contributions_are_those_of_the_symmetric_root(seed):
    """Coordinates may be turned at will; what a feature adds must not depend on it."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(4, 4))
    kept = Neighbors(WorkingCoordinates(torch.zeros(4).double(), torch.tensor(matrix)), torch.zeros(1, 4).double(), weight=1.0)
    variances, axes = np.linalg.eigh(matrix.T @ matrix)
    root = axes * np.sqrt(variances) @ axes.T
    points = rng.normal(size=(20, 4))
    np.testing.assert_allclose(kept.contributions(torch.tensor(points)), (points @ root) ** 2, rtol=1e-6, atol=1e-9)


def test_blocks_change_nothing(monkeypatch):
    kept, points = drawn(0)
    expected = kept.scores(points)
    monkeypatch.setattr(neighbors, "BLOCK_NUMBERS", 100)
    assert torch.equal(kept.scores(points), expected)


@given(
    seed=st.integers(0, 2**16),
    n_numbers=st.integers(1, 700),
    count=st.integers(1, 9),
    n_different=st.sampled_from([1, 5, 10**6]),
)
def test_the_smallest_numbers_are_found_in_groups(seed, n_numbers, count, n_different):
    count = min(count, n_numbers)
    numbers = torch.from_numpy(np.random.default_rng(seed).integers(n_different, size=(3, n_numbers)))
    found = smallest(numbers, count)
    assert all(len(set(row)) == count for row in found.tolist())
    assert torch.equal(numbers.gather(1, found).sort(dim=1).values, numbers.sort(dim=1).values[:, :count])


def test_a_copy_of_a_row_is_no_distance_away_in_float32():
    """Far from the origin, differences of squares would leave rounding."""
    kept, _ = drawn(0)
    far = Neighbors(kept.coordinates, torch.full((3, 3), 3000.0), weight=1.0)
    centre = kept.coordinates.mean + torch.linalg.pinv(kept.coordinates.matrix) @ torch.full((3,), 3000.0).double()
    assert far.scores(centre[None].float()) < 1e-5


def test_between_clusters_nothing_is_normal():
    """Rows in eight clusters on a cube: its centre is the middle of everything, and near to nothing."""
    rng = np.random.default_rng(0)
    corners = np.stack(np.meshgrid([-1, 1], [-1, 1], [-1, 1]), axis=-1).reshape(-1, 3)
    rows = corners[rng.integers(8, size=800)] + 0.1 * rng.normal(size=(800, 3))
    detector = QuadricDetector(score_function="linear+neighbors", contamination=0.01).fit(rows)
    assert detector.predict([[0.0, 0.0, 0.0]]) == 1
    assert QuadricDetector(score_function="linear", contamination=0.01).fit(rows).predict([[0.0, 0.0, 0.0]]) == 0


def test_outliers_among_the_rows_are_no_neighbours():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(500, 4)), [[30.0, 30.0, 30.0, 30.0]] * 3])
    detector = QuadricDetector().fit(rows)
    assert len(detector.model_.neighbors.prototypes) <= 500
    assert detector.decision_scores_[-3:].min() > detector.decision_scores_[:500].max()


def test_no_more_rows_are_kept_than_asked_for():
    rows = np.random.default_rng(0).normal(size=(900, 4))
    detector = QuadricDetector(n_prototypes=100).fit(rows)
    assert len(detector.model_.neighbors.prototypes) == 100
    new = np.random.default_rng(1).normal(size=(3000, 4))
    assert abs(detector.predict(new, false_positive_rate=0.1).mean() - 0.1) < 0.04
    assert QuadricDetector(score_function="linear+quadrics").fit(rows).model_.neighbors is None


@pytest.mark.parametrize("seed", range(8))
def test_a_few_outliers_do_not_decide_how_much_neighbours_weigh(seed):
    """Two circles of one centre, and some scattered points: the centre is near to nothing."""
    rng = np.random.default_rng(seed)
    angle, n_scattered = rng.uniform(0, 2 * np.pi, 800), [4, 200][seed % 2]
    rows = np.stack([np.cos(angle), np.sin(angle)], axis=1) * rng.choice([1.0, 2.0], size=(800, 1))
    rows = np.concatenate([rows + 0.05 * rng.normal(size=rows.shape), rng.uniform(-3, 3, size=(n_scattered, 2))])
    detector = QuadricDetector(random_state=seed).fit(rows)
    on_a_circle = rng.permutation(800)[:200]
    assert np.mean(detector.decision_function(rows[on_a_circle]) < detector.decision_function([[0.0, 0.0]])) > 0.95


def test_a_cluster_whose_rows_count_less_is_still_near():
    points = torch.cat([torch.randn(300, 2, generator=torch.Generator().manual_seed(0)), torch.full((1, 2), 50.0)])
    points[:60] = 0.5 * points[:60] + 20  # as dense as the others
    usual = torch.arange(301) >= 60
    usual[-1] = False
    found = _are_many(points, usual)
    assert found[:60].float().mean() > 0.9
    assert not found[-1]


def test_candidates_are_found_along_the_first_axes_and_measured_along_all(monkeypatch):
    for name, value in {"FEW_ROWS": 5, "SEARCHED_AXES": 1, "N_CANDIDATES": 4}.items():
        monkeypatch.setattr(neighbors, name, value)
    identity = WorkingCoordinates(torch.zeros(2), torch.eye(2))
    rows = torch.tensor([[0.0, 5.0], [0.1, 4.0], [0.2, 5.0], [0.3, 3.0], [9.0, 0.0], [9.1, 0.0], [9.2, 0.0]])
    kept = Neighbors(identity, rows, weight=1.0)
    expected = torch.tensor([[0.2**2 + 9 + 0.0 + 16 + 0.1**2 + 25]]) / 3  # rows 3 and 1, and the nearer of 0 and 2
    torch.testing.assert_close(kept.scores(torch.tensor([[0.1, 0.0]])), expected[0])


@given(seed=st.integers(0, 2**16), n_rows=st.sampled_from([3, 9, 200]))
def test_with_all_rows_as_candidates_the_search_is_exact_in_many_features(seed, n_rows):
    kept, points = drawn(seed, n_rows, d=80, r=70)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"FEW_ROWS": 2, "SEARCHED_AXES": 40, "N_CANDIDATES": n_rows}.items():
            patch.setattr(neighbors, name, value)
        found = kept.scores(points)
    squared = torch.cdist(kept.coordinates.transform(points), kept.prototypes).square()
    expected = 1.7 * squared.sort(dim=1).values[:, :3].mean(dim=1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("few", [2, 1000])
@given(seed=st.integers(0, 2**16), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_both_libraries_compare_alike(few, seed, dtype):
    kept, points = drawn(seed)
    found, rows = kept.coordinates.transform(points).to(dtype), kept.prototypes.to(dtype)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"FEW_ROWS": few, "SEARCHED_AXES": 2}.items():
            patch.setattr(neighbors, name, value)
        halves = half_squares(rows)
        one, other = (comparison(rows, halves, by_onednn)(found) for by_onednn in (False, True))
    axes = slice(2 if few == 2 else None)
    expected = (found[:, None, axes] - rows[:, axes]).square().sum(dim=2) / 2 - found[:, axes].square().sum(dim=1)[:, None] / 2
    torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)


def test_many_points_have_the_scores_of_each(monkeypatch):
    """In full blocks and in the last one."""
    rng = np.random.default_rng(0)
    rows = torch.tensor(rng.normal(size=(500, 6)), dtype=torch.float32)
    kept = Neighbors(WorkingCoordinates(torch.zeros(6), torch.eye(6)), rows, weight=1.0)
    monkeypatch.setattr(neighbors, "BLOCK_NUMBERS", neighbors.MANY_POINTS * 500)
    points = torch.tensor(rng.normal(size=(2 * neighbors.MANY_POINTS + 7, 6)), dtype=torch.float32)
    torch.testing.assert_close(kept.scores(points), torch.cat([kept.scores(point[None]) for point in points]))
