"""What the linear part leaves to the neighbours: much where rows are in clusters, little where they are one cloud."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from pyod_quadric import QuadricDetector
from pyod_quadric.fitting.neighbors import LEAST_AGREEMENT, agreement


def squares(seed, n=40):
    return torch.tensor(np.random.default_rng(seed).gamma(1.0, size=(2, n)))


def slow_agreement(along, near):
    """The same by NumPy: the correlation of distances, each within three robust deviations of its median."""
    found = []
    for distances in (np.sqrt(along), np.sqrt(near)):
        median = np.quantile(distances, 0.5, method="lower")
        deviation = 1.4826 * np.quantile(np.abs(distances - median), 0.5, method="lower")
        found.append(np.clip(distances, median - 3 * deviation, median + 3 * deviation))
    return np.clip(np.corrcoef(found)[0, 1], LEAST_AGREEMENT, 1)


@given(seed=st.integers(0, 2**16), mixed=st.floats(0, 1), n=st.sampled_from([5, 40]))
def test_agreement_is_a_correlation(seed, mixed, n):
    along, other = squares(seed, n)
    near = mixed * along + (1 - mixed) * other
    assert agreement(along, near) == pytest.approx(slow_agreement(along.numpy(), near.numpy()), abs=1e-9)


@given(seed=st.integers(0, 2**16), power=st.integers(-60, 60))
def test_agreement_knows_neither_units_nor_order(seed, power):
    along, near = squares(seed)
    order = torch.tensor(np.random.default_rng(seed).permutation(len(along)))
    expected = agreement(along, near)
    assert agreement(along, near * 4.0**power) == expected
    assert agreement(along[order], near[order]) == pytest.approx(expected, abs=1e-9)
    assert agreement(along, along * 4.0**power) == 1


def test_a_few_far_rows_do_not_decide_the_agreement():
    along, near = squares(0, 400)
    expected = agreement(along, near)
    far = torch.cat([along, torch.full((4,), 1e12)]), torch.cat([near, torch.full((4,), 1e12)])
    assert agreement(*far) == pytest.approx(expected, abs=0.15)


@pytest.mark.parametrize("n", [0, 1, 30])
def test_rows_that_are_all_equally_far_agree(n):
    assert agreement(torch.ones(n).double(), torch.arange(n).double()) == 1


def linear_share(rows):
    """Return which share of its squared distances the linear part keeps beside neighbours."""
    alone, beside = (
        QuadricDetector(score_function=name).fit(rows).model_.linear_part for name in ("linear", "linear+neighbors")
    )
    shares = alone.variances / beside.variances
    assert torch.allclose(shares, shares[0])
    return float(shares[0])


def test_one_cloud_keeps_its_linear_part_and_clusters_do_not():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(30, 8))
    clusters = centres[rng.integers(30, size=2000)] + 0.1 * rng.normal(size=(2000, 8))
    assert linear_share(rng.normal(size=(2000, 8))) > 0.7
    assert linear_share(clusters) < 0.3


def test_a_new_cluster_between_the_others_is_found():
    """Its rows are nearer to the mean than most, so a distance from the mean ranks them backwards."""
    rng = np.random.default_rng(0)
    centres = np.concatenate([rng.normal(size=(300, 12)), 0.3 * rng.normal(size=(1, 12))])

    def rows(classes):
        return centres[classes] + 0.3 * rng.normal(size=(len(classes), 12))

    training, new = (
        rows(rng.integers(300, size=6000)),
        np.concatenate([rows(rng.integers(300, size=300)), rows(np.full(300, 300))]),
    )
    labels = np.repeat([0, 1], 300)
    linear, default = (QuadricDetector(score_function=name).fit(training) for name in ("linear", "combined"))
    assert roc_auc_score(labels, linear.decision_function(new)) < 0.1
    assert roc_auc_score(labels, default.decision_function(new)) > 0.9  # .72 with all of the linear part, .97 without


def test_held_out_rows_score_as_new_ones_do():
    """The linear part's share and the neighbours' weight are those of the other folds, so decisions hold for new rows."""
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(20, 10))
    rows, new = (centres[rng.integers(20, size=n)] + 0.3 * rng.normal(size=(n, 10)) for n in (3000, 3000))
    detector = QuadricDetector(contamination=0.05).fit(rows)
    assert detector.predict(new).mean() == pytest.approx(0.05, abs=0.02)
