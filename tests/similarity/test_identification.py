"""Identification rates equal those of a brute-force oracle that holds all pairs, for any tiles, with ties."""

import dataclasses
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pyod_quadric import identification_curve, identification_rate
from pyod_quadric.similarity.identification import n_allowed
from tests.support import reference

# Zero, or one or four entries of one size: norms are 1 and 2, so that cosines are exact and few.
UNIT_ROWS = np.array([row for row in np.ndindex(3, 3, 3, 3) if sum(x != 1 for x in row) in (0, 1, 4)]) - 1.0
RATES = [0.0, 0.05, 0.1, 0.29, 0.5, 0.9, 1.0]
INF = float("inf")


@dataclasses.dataclass
class Faces:
    X: np.ndarray
    labels: np.ndarray
    distractors: np.ndarray
    scores: np.ndarray
    distractor_scores: np.ndarray

    def matrices(self, similarity, cutoff, fill_value):
        """Return all similarities, robust ones, by loops: (n, n) and (n, m)."""

        def matrix(others, other_scores):
            values = [
                [
                    reference.robust(similarity(x, y), a, b, cutoff, fill_value)
                    for y, b in zip(others, other_scores, strict=True)
                ]
                for x, a in zip(self.X, self.scores, strict=True)
            ]
            return np.array(values).reshape(len(self.X), len(others))

        return matrix(self.X, self.scores), matrix(self.distractors, self.distractor_scores)


@st.composite
def faces(draw):
    """Draw embeddings with few distinct similarities, identities with a genuine pair, distractors, and tied scores."""
    n, m = draw(st.integers(2, 12)), draw(st.integers(0, 6))
    rows = arrays(np.int64, n + m, elements=st.integers(0, len(UNIT_ROWS) - 1)).map(lambda chosen: UNIT_ROWS[chosen])
    points = draw(rows)
    labels = draw(arrays(np.int64, n, elements=st.integers(0, 5)))
    labels[1] = labels[0]
    scores = draw(arrays(np.int64, n + m, elements=st.integers(0, 3))).astype(float)
    return Faces(points[:n], labels, points[n:], scores[:n], scores[n:])


def cosine(x, y):
    return float(x @ y / max(np.linalg.norm(x) * np.linalg.norm(y), 1))


def negative_distance(x, y):
    return -float(np.sqrt(((x - y) ** 2).sum()))


def inner_products(x, y):
    return x @ y.T


KINDS = {"cosine": ("cosine", cosine), "euclidean": ("euclidean", negative_distance), "callable": (inner_products, np.dot)}


def assert_equals_oracle(rate, case, similarity, f, cutoff=INF, fill_value=0.0):
    pairs, to_distractors = case.matrices(similarity, cutoff, fill_value)
    ir, full_ir, bound = reference.identification_rate(pairs, case.labels, to_distractors, f)
    assert (rate.ir, rate.full_ir) == (ir, full_ir)
    assert rate.threshold == (np.nextafter(bound, INF) if rate.n_different and f < 1 else -INF)


def distractors_of(case):
    return case.distractors if len(case.distractors) else None


@pytest.mark.parametrize("kind", KINDS)
@given(case=faces(), f=st.sampled_from(RATES), batch_size=st.sampled_from([1, 2, 3, 5, 100]))
def test_rates_equal_those_of_all_pairs(kind, case, f, batch_size):
    similarity, slow = KINDS[kind]
    rate = identification_rate(
        case.X, case.labels, distractors_of(case), false_positive_rate=f, similarity=similarity, batch_size=batch_size
    )
    assert_equals_oracle(rate, case, slow, f)
    n = len(case.X)
    assert rate.n_genuine + rate.n_different == n * (n - 1) // 2
    assert rate.n_distractors == len(case.distractors)


@pytest.mark.parametrize("kind", KINDS)
@given(
    case=faces(),
    f=st.sampled_from(RATES),
    batch_size=st.sampled_from([1, 3, 100]),
    cutoffs=st.lists(st.sampled_from([-1.0, 0.0, 1.0, 1.5, 2.0, 3.0, INF]), min_size=1, max_size=5),
    fill_value=st.sampled_from([-INF, -0.5, 0.0, 0.6]),
)
def test_robust_rates_equal_those_of_all_pairs(kind, case, f, batch_size, cutoffs, fill_value):
    similarity, slow = KINDS[kind]
    rates = identification_curve(
        case.X,
        case.labels,
        case.scores,
        cutoffs,
        distractors_of(case),
        case.distractor_scores,
        false_positive_rate=f,
        similarity=similarity,
        fill_value=fill_value,
        batch_size=batch_size,
    )
    for rate, cutoff in zip(rates, cutoffs, strict=True):
        assert_equals_oracle(rate, case, slow, f, cutoff, fill_value)


@given(case=faces(), f=st.sampled_from(RATES), cutoff=st.sampled_from([-1.0, 1.0, 2.0, INF]))
def test_a_curve_is_made_of_single_rates(case, f, cutoff):
    (on_curve,) = identification_curve(case.X, case.labels, case.scores, [cutoff], false_positive_rate=f)
    single = identification_rate(case.X, case.labels, scores=case.scores, cutoff=cutoff, false_positive_rate=f)
    assert on_curve == single


@given(case=faces(), f=st.sampled_from(RATES))
def test_infinite_cutoff_changes_nothing(case, f):
    plain = identification_rate(case.X, case.labels, distractors_of(case), false_positive_rate=f)
    (robust,) = identification_curve(
        case.X, case.labels, case.scores, [INF], distractors_of(case), case.distractor_scores, false_positive_rate=f
    )
    assert robust == plain


@given(case=faces(), rates=st.lists(st.floats(0, 1), min_size=2, max_size=6).map(sorted))
def test_rates_grow_with_the_false_positive_rate(case, rates):
    found = [identification_rate(case.X, case.labels, distractors_of(case), false_positive_rate=f) for f in rates]
    for less, more in itertools.pairwise(found):
        assert less.ir <= more.ir
        assert less.full_ir <= more.full_ir
        assert less.threshold >= more.threshold


@given(case=faces(), f=st.sampled_from(RATES), cutoff=st.sampled_from([1.0, 2.0, INF]))
def test_distractors_only_take_away(case, f, cutoff):
    settings = {"scores": case.scores, "cutoff": cutoff, "false_positive_rate": f}
    without = identification_rate(case.X, case.labels, **settings)
    assert without.full_ir == without.ir
    if len(case.distractors):
        rate = identification_rate(case.X, case.labels, case.distractors, distractor_scores=case.distractor_scores, **settings)
        assert (rate.ir, rate.threshold) == (without.ir, without.threshold)
        assert rate.full_ir <= rate.ir


@given(case=faces(), f=st.sampled_from(RATES), seed=st.integers(0, 2**16), cutoff=st.sampled_from([1.0, 2.0, INF]))
def test_order_of_rows_and_names_of_identities_do_not_matter(case, f, seed, cutoff):
    rng = np.random.default_rng(seed)
    order, other = rng.permutation(len(case.X)), rng.permutation(len(case.distractors))
    names = rng.permutation(["eve", "joe", "sue", "tom", "una", "vic"])[case.labels]
    settings = {"cutoff": cutoff, "false_positive_rate": f}
    first = identification_rate(
        case.X, case.labels, distractors_of(case), scores=case.scores, distractor_scores=case.distractor_scores, **settings
    )
    second = identification_rate(
        case.X[order],
        names[order],
        None if len(other) == 0 else case.distractors[other],
        scores=case.scores[order],
        distractor_scores=case.distractor_scores[other],
        **settings,
    )
    assert first == second


@given(rate=st.floats(0, 1), n=st.integers(0, 10**7))
def test_as_many_are_allowed_as_the_rate_says(rate, n):
    k = n_allowed(rate, n)
    assert 0 <= k <= n
    assert k == 0 or k / n <= rate
    assert k == n or (k + 1) / n > rate


LINE = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]])


def test_a_rate_below_one_false_pair_lets_none_pass():
    rate = identification_rate(LINE, [0, 0, 1, 1], false_positive_rate=0.2)  # one of four would be 0.25
    assert rate.ir == 0
    assert rate.threshold == np.nextafter(LINE[1] @ LINE[2], 2)
    assert identification_rate(LINE, [0, 0, 1, 1], false_positive_rate=0.25).ir == 1


def test_without_different_pairs_all_are_found():
    rate = identification_rate(LINE, [7, 7, 7, 7], false_positive_rate=0.0)
    assert (rate.ir, rate.full_ir, rate.threshold, rate.n_different) == (1, 1, -INF, 0)


def test_a_pair_as_similar_as_a_distractor_is_distracted():
    rate = identification_rate(LINE[[0, 3]], [0, 0], distractors=-LINE[[0]])
    assert (rate.ir, rate.full_ir) == (1, 0)  # the second row is orthogonal to the first and to the distractor


def test_the_threshold_tells_pairs_apart():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 3)
    X = (rng.normal(size=(40, 16))[labels] + rng.normal(size=(120, 16))).astype(np.float32)
    rate = identification_rate(X, labels, false_positive_rate=0.01)
    unit = torch.nn.functional.normalize(torch.from_numpy(X)).double()
    pairs = np.triu(np.ones((120, 120), dtype=bool), 1)
    found, same = (unit @ unit.T).numpy() >= rate.threshold, labels[:, None] == labels
    assert found[pairs & same].mean() == pytest.approx(rate.ir, abs=0.01)
    assert found[pairs & ~same].mean() == pytest.approx(0.01, abs=0.0005)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64])
def test_rows_come_from_arrays_tensors_and_files(tmp_path, dtype):
    rng = np.random.default_rng(0)
    X, labels = rng.integers(-3, 4, size=(30, 5)).astype(dtype), np.repeat(np.arange(10), 3)
    distractors = rng.integers(-3, 4, size=(20, 5)).astype(dtype)
    np.save(tmp_path / "distractors.npy", distractors)
    expected = identification_rate(X, labels, distractors, false_positive_rate=0.1)
    assert identification_rate(torch.from_numpy(X), labels, tmp_path / "distractors.npy", false_positive_rate=0.1) == expected
    assert identification_rate(X.tolist(), labels.tolist(), distractors, false_positive_rate=0.1).ir == expected.ir


def nothing(x, y):
    return None


def half(x, y):
    return torch.zeros(len(x), 1)


def undefined(x, y):
    return torch.full((len(x), len(y)), torch.nan)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"labels": [0, 0, 1]}, ValueError, r"labels must have shape \(4,\), one for each row of X, got \(3,\)"),
        ({"labels": [0, 1, 2, 3]}, ValueError, "no genuine pair: all 4 labels differ"),
        ({"labels": [0, 0, np.nan, 1]}, ValueError, "labels must be finite"),
        ({"X": LINE[0]}, ValueError, r"shape \(n, d\)"),
        ({"X": LINE * np.nan}, ValueError, "row 0 holds NaN"),
        ({"distractors": LINE * np.nan}, ValueError, "row 0 holds NaN"),
        ({"distractors": np.ones((3, 5))}, ValueError, "as many features as X, got 5 and 2"),
        ({"scores": np.zeros(4)}, ValueError, "both scores and a cutoff"),
        ({"cutoff": 1.0}, ValueError, "both scores and a cutoff"),
        ({"scores": np.zeros(3), "cutoff": 1.0}, ValueError, r"scores must have shape \(4,\), one for each row, got \(3,\)"),
        ({"scores": np.full(4, np.nan), "cutoff": 1.0}, ValueError, "scores must be numbers, got 4 NaN"),
        ({"scores": np.zeros(4), "cutoff": np.nan}, ValueError, "cutoffs must be one or more numbers"),
        ({"scores": np.zeros(4), "cutoff": 1.0, "distractors": LINE}, ValueError, "distractor_scores are needed .* 4 rows"),
        ({"false_positive_rate": 1.5}, ValueError, "from 0 to 1, got 1.5"),
        ({"false_positive_rate": np.nan}, ValueError, "from 0 to 1, got nan"),
        ({"fill_value": np.nan}, ValueError, "fill_value must be a number"),
        ({"batch_size": 0}, ValueError, "batch_size must be 1 or more, got 0"),
        ({"similarity": "manhattan"}, ValueError, r"one of \['cosine', 'euclidean'\] or a callable, got 'manhattan'"),
        ({"similarity": nothing}, ValueError, r"finite numbers of shape \(4, 4\), got NoneType"),
        ({"similarity": half}, ValueError, r"of shape \(4, 4\), got a tensor of shape \(4, 1\)"),
        ({"similarity": undefined}, ValueError, "finite numbers"),
    ],
)
def test_bad_input_is_refused(changes, error, message):
    with pytest.raises(error, match=message):
        identification_rate(**({"X": LINE, "labels": [0, 0, 1, 1]} | changes))


SCRIPT = """
import resource, sys
import numpy as np
from pyod_quadric import identification_curve, identification_rate

rng = np.random.default_rng(0)
X, labels = rng.normal(size=(6000, 16)).astype(np.float32), np.arange(6000) // 3
identification_rate(X[:3000], labels[:3000], X[:3000], batch_size=512)  # whatever is allocated once
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + 60 * 2**20,) * 2)
try:
    X @ X.T
except MemoryError:
    print("all pairs do not fit")
scores = np.linspace(0, 1, 6000)
print(identification_curve(X, labels, scores, np.linspace(0.5, 1.1, 20), sys.argv[1], np.zeros(100_000), batch_size=512)[0])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit on private memory is Linux's")
def test_memory_is_that_of_tiles(tmp_path):
    path = tmp_path / "distractors.npy"
    np.save(path, np.random.default_rng(1).normal(size=(100_000, 16)).astype(np.float32))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT, path], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "all pairs do not fit"
    assert "n_different=17991000, n_distractors=100000" in second
