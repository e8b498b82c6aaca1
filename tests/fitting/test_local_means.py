"""Axes along which rows are in clusters: against a slow search, and laws."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from pyod_quadric import QuadricDetector
from pyod_quadric.fitting import local_means, neighbors
from pyod_quadric.fitting.local_means import ENOUGH_ROWS, LEAST_WITHIN, N_NEAREST, TOO_FEW_ROWS, stretch


def cloud(seed, n=400, r=6):
    return torch.tensor(np.random.default_rng(seed).normal(size=(n, r)) * np.linspace(2, 1, r))


def clusters(seed, n=400, r=6, width=0.2):
    rng = np.random.default_rng(seed)
    centres = np.concatenate([rng.normal(size=(8, r // 2)), np.zeros((8, r - r // 2))], axis=1)
    return torch.tensor(centres[rng.integers(8, size=n)] + width * rng.normal(size=(n, r)))


def metric(points, **kwargs):
    found = stretch(points, **kwargs)
    return (found.T @ found).numpy()


def slow_ratios(points, axes):
    """Variances of local means along axes (rows) over those about them, by scikit-learn's search."""
    nearest = NearestNeighbors(n_neighbors=N_NEAREST + 1).fit(points).kneighbors(points, return_distance=False)
    local = np.stack([points[indices].mean(axis=0) for indices in nearest])
    between, within = (local - local.mean(axis=0)), points - local
    return (
        between,
        within,
        1
        + np.array(
            [
                np.mean((between @ axis) ** 2)
                / max(np.mean((within @ axis) ** 2), LEAST_WITHIN * np.mean((between @ axis) ** 2 + (within @ axis) ** 2))
                for axis in axes
            ]
        ),
    )


@given(seed=st.integers(0, 2**16))
def test_stretch_against_a_slow_search(seed):
    points = clusters(seed, n=300, r=4).numpy()
    found = stretch(torch.tensor(points), seed=seed).numpy()
    lengths = np.linalg.norm(found, axis=1)
    axes = found / lengths[:, None]
    between, _, ratios = slow_ratios(points, axes)
    covariance = axes @ between.T @ between @ axes.T
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-9 * covariance.max())
    normal = torch.randn(points.shape, generator=torch.Generator().manual_seed(seed)).double().numpy() * points.std(axis=0)
    between, within, _ = slow_ratios(normal, axes)
    b, w = ((axes**2) @ np.mean(some**2, axis=0) for some in (between, within))
    expected = (ratios / (1 + b / np.maximum(w, LEAST_WITHIN * (b + w)))) ** (
        (len(points) - TOO_FEW_ROWS) / (ENOUGH_ROWS - TOO_FEW_ROWS)
    )
    np.testing.assert_allclose(lengths**2, expected / np.exp(np.log(expected).mean()), rtol=1e-6)


@given(seed=st.integers(0, 2**16), exponent=st.integers(-40, 40))
def test_stretch_knows_neither_units_nor_directions(seed, exponent):
    points = clusters(seed, n=100)
    signs = torch.tensor(np.random.default_rng(seed).choice([-1.0, 1.0], size=points.shape[1]))
    expected = metric(points)
    np.testing.assert_allclose(metric(points * 2.0**exponent), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(metric(points * signs), expected * np.outer(signs, signs), rtol=1e-7, atol=1e-7)


@given(seed=st.integers(0, 2**16), of=st.sampled_from([cloud, clusters]))
def test_rows_of_the_map_are_orthogonal_and_in_order(seed, of):
    points = of(seed, n=100)
    found = stretch(points)
    products = (found @ found.T).numpy()
    np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-9)
    assert (np.diff((points @ found.T).square().mean(dim=0).numpy()) <= 1e-9).all()


@pytest.mark.parametrize("seed", range(5))
def test_nothing_changes_in_a_cloud(seed):
    lengths = torch.linalg.vector_norm(stretch(cloud(seed, n=3000), seed=seed), dim=1)
    assert lengths.min() > 0.9
    assert lengths.max() < 1.1


def test_few_rows_say_nothing():
    lengths = torch.linalg.vector_norm(stretch(clusters(0, n=TOO_FEW_ROWS)), dim=1)
    np.testing.assert_allclose(lengths, 1)


@pytest.mark.parametrize("seed", range(5))
def test_axes_along_which_clusters_lie_apart_are_longer(seed):
    points = clusters(seed, n=3000, r=20)
    found = metric(points / points.std(dim=0))
    assert np.diag(found)[:10].min() > 2 * np.diag(found)[10:].max()


@pytest.mark.parametrize(
    "points",
    [
        torch.zeros(1, 3),
        torch.zeros(50, 3),
        torch.ones(50, 1),
        torch.arange(2.0)[:, None].repeat(50, 3),
        torch.cat([torch.eye(3)] * 20),
        torch.randn(2, 40, generator=torch.Generator().manual_seed(0)),
    ],
)
def test_any_points_have_a_finite_map(points):
    found = stretch(points)
    assert found.shape == (points.shape[1],) * 2
    assert torch.isfinite(found).all()


def test_blocks_change_nothing(monkeypatch):
    points = clusters(0)
    expected = metric(points)
    monkeypatch.setattr(local_means, "BLOCK_NUMBERS", 100)
    np.testing.assert_allclose(metric(points), expected, rtol=1e-9, atol=1e-9)


def test_a_new_cluster_among_others_is_found_better(monkeypatch):
    """Clusters lie apart in 10 of 60 features, and are noise in the others."""
    rng = np.random.default_rng(0)
    centres = np.concatenate([rng.normal(size=(41, 10)), np.zeros((41, 50))], axis=1)

    def rows(classes):
        return centres[classes] + 0.35 * rng.normal(size=(len(classes), 60))

    training = rows(rng.integers(40, size=3000))
    new, labels = rows(np.repeat([*rng.integers(40, size=300), 40], [1] * 300 + [300])), np.repeat([0, 1], 300)

    def auc():
        return roc_auc_score(labels, QuadricDetector(score_function="neighbors").fit(training).decision_function(new))

    with_stretch = auc()
    monkeypatch.setattr(neighbors, "stretch", lambda points, *_: torch.eye(points.shape[1]).double())
    assert with_stretch > auc() + 0.02


def test_groups_are_no_clusters():
    """New rows are in new groups, so what tells groups apart is no reason to be an outlier."""
    rows, groups = clusters(0, n=1000, r=20).numpy(), np.repeat(np.arange(250), 4)

    def turned(**kwargs):
        model = QuadricDetector(score_function="linear+neighbors").fit(rows, **kwargs).model_
        products = model.neighbors.coordinates.matrix @ model.linear_part.axes.T
        return (products - torch.diag(products.diagonal())).abs().max() / products.abs().max()

    assert turned(groups=groups) < 1e-6
    assert turned() > 1e-2
