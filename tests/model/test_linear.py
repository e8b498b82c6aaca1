"""The linear part: variances are those of held-out rows, distances those of Mahalanobis."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric.model.linear import LinearPart, held_out_spreads, principal_axes
from pyod_quadric.model.moments import Moments
from tests.support import reference
from tests.support.strategies import clouds


def folds_of(cloud):
    return [cloud[fold::3] for fold in range(3)]


@given(cloud=clouds(), floor=st.sampled_from([0.0, 0.1, 1.0]))
def test_variances_are_those_of_held_out_rows(cloud, floor):
    """Those of all folds, or of all but the one that must not be seen."""
    whole, held_out = held_out_spreads([Moments.of(fold) for fold in folds_of(cloud)], cloud.shape[1]).parts(floor)
    for left_out, part in ((None, whole), *enumerate(held_out)):
        variances = reference.held_out_variances([fold.numpy() for fold in folds_of(cloud)], left_out)
        variances = reference.decreasing(variances)
        floored = variances + floor * np.sort(variances)[(len(variances) - 1) // 2]  # torch's median is the lower one
        expected = 1 / (0.9 / floored + 0.1 / variances)
        np.testing.assert_allclose(part.variances, expected, rtol=1e-6)


@given(cloud=clouds())
def test_held_out_parts_have_not_seen_their_fold(cloud):
    folds = folds_of(cloud)
    whole, held_out = held_out_spreads([Moments.of(fold) for fold in folds], cloud.shape[1]).parts(0.1)
    np.testing.assert_allclose(whole.mean, cloud.mean(dim=0), atol=1e-9)
    for fold, part in enumerate(held_out):
        others = torch.cat(folds[:fold] + folds[fold + 1 :])
        np.testing.assert_allclose(part.mean, others.mean(dim=0), atol=1e-9)
        covariance = np.cov(others.numpy().T, bias=True).reshape(2 * cloud.shape[1:])
        rotated = part.axes.numpy() @ covariance @ part.axes.numpy().T  # diagonal along its principal axes
        np.testing.assert_allclose(rotated - np.diag(np.diag(rotated)), 0 * rotated, atol=1e-7 * np.trace(covariance))


@st.composite
def parts(draw):
    """Draw a linear part with r axes in d features, and its dense covariance."""
    d = draw(st.integers(1, 6))
    r = draw(st.integers(0, d))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    axes = np.linalg.qr(rng.normal(size=(d, d)))[0][:r]
    variances, complement = np.sort(rng.uniform(0.1, 5, size=r))[::-1].copy(), 0.3
    covariance = axes.T @ np.diag(variances) @ axes + complement * (np.eye(d) - axes.T @ axes)
    part = LinearPart(torch.tensor(rng.normal(size=d)), torch.tensor(axes), torch.tensor(variances), complement)
    return part, covariance, torch.tensor(rng.normal(size=(5, d)))


@given(case=parts())
def test_distances_are_those_of_mahalanobis(case):
    part, covariance, points = case
    centred = (points - part.mean).numpy()
    expected = np.einsum("ni,ij,nj->n", centred, np.linalg.inv(covariance), centred)
    np.testing.assert_allclose(part.squared_distances(points), expected, rtol=1e-9)
    np.testing.assert_allclose(part.log_determinant(), np.linalg.slogdet(covariance)[1], atol=1e-9)
    contributions = part.contributions(points).numpy()
    np.testing.assert_allclose(contributions.sum(axis=1), expected, rtol=1e-9)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors / np.sqrt(values) @ vectors.T
    np.testing.assert_allclose(contributions, (centred @ root) ** 2, rtol=1e-7, atol=1e-9)


def test_directions_no_row_has_entered_share_what_held_out_rows_have_there():
    """Thirty rows in 500 white features: variances near 1, not the 0 and 20 that the sample shows."""
    rows = torch.tensor(np.random.default_rng(0).normal(size=(30, 500)))
    whole, _ = held_out_spreads([Moments.of(fold) for fold in folds_of(rows)], 500).parts(0.0)
    assert len(whole.axes) == 29
    assert whole.complement == pytest.approx(1, rel=0.2)
    assert float(whole.variances.max()) < 2


def test_the_complement_counts_all_features_of_the_input():
    """Moments in coordinates of the span give the same as moments in all features."""
    rows = torch.tensor(np.random.default_rng(0).normal(size=(9, 30)))
    axes = torch.linalg.svd(rows - rows.mean(dim=0), full_matrices=False)[2][:8]
    spanned = (rows - rows.mean(dim=0)) @ axes.T
    plain, _ = held_out_spreads([Moments.of(fold) for fold in folds_of(rows)], 30).parts(0.1)
    inside, _ = held_out_spreads([Moments.of(fold) for fold in folds_of(spanned)], 30).parts(0.1)
    assert inside.complement == pytest.approx(plain.complement)
    np.testing.assert_allclose(inside.variances, plain.variances)


@pytest.mark.parametrize("unit", [1e-30, 1e-3, 1.0, 1e30])
def test_the_unit_does_not_decide_which_axes_there_are(unit):
    variances, axes = principal_axes(unit * torch.diag(torch.tensor([1e-20, 1.0, 1e-3], dtype=torch.float64)))
    np.testing.assert_allclose(variances, [unit, 1e-3 * unit])
    np.testing.assert_allclose(axes.abs(), [[0, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize("unit", [2.0**-20, 2.0**20])
def test_variances_go_with_the_unit(unit):
    """Also those of directions that no row has entered."""
    rows = torch.tensor(np.random.default_rng(0).normal(size=(12, 30)))
    plain, measured = (
        held_out_spreads([Moments.of(fold) for fold in folds_of(some)], 30).parts(0.1)[0] for some in (rows, unit * rows)
    )
    assert len(plain.axes) < 30
    np.testing.assert_allclose(measured.variances, unit**2 * plain.variances, rtol=1e-9)
    assert measured.complement == pytest.approx(unit**2 * plain.complement, rel=1e-9)


def test_a_direction_that_none_of_n_rows_has_entered_has_the_nth_part_of_a_typical_variance():
    rows = np.zeros((60, 5))
    rows[:, :3] = np.random.default_rng(0).normal(size=(60, 3)) * [3.0, 2.0, 1.0]
    whole, held_out = held_out_spreads([Moments.of(torch.tensor(fold)) for fold in folds_of(rows)], 5).parts(0.0)
    assert whole.complement == pytest.approx(float(whole.variances[1]) / 60)
    for part in held_out:
        assert part.complement == pytest.approx(float(part.variances[1]) / 40)
