"""Files with something changed in them and a checksum that fits, as an attacker would make them; and what must hold for each.

``python -m tests.support.mutants 5000`` tries so many and prints what happened: by kind of change, how many were refused, how
many were loaded, and what of the loaded ones did not work. A second number chooses other ones.
"""

import contextlib
import copy
import json
import math
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from functools import cache
from itertools import count as count_from
from pathlib import Path

import numpy as np
import pandas
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from safetensors.torch import save as save_tensors

from pyod_quadric import QuadricDetector
from pyod_quadric.model.model import MOST_SCORE
from pyod_quadric.model.saved import from_content
from pyod_quadric.storage.container import CHECKSUM_LENGTH, DETECTOR, decode, with_checksum
from tests.support.circle import TEST, X
from tests.support.files import content, saved

# Fits of all parts that a file can have, beside the one with everything.
FITS = {
    "mean distance": {"score_function": "mean_distance", "n_quadrics": 2, "n_components": None},
    "first order": {"score_function": "quadrics", "distance": "first_order"},
    "scales": {"standardize": True, "score_function": "linear+quadrics"},
    "linear": {"score_function": "linear"},
    "neighbours": {"score_function": "neighbors", "n_prototypes": 20},
}
BASES = ["everything", "groups", *FITS]
WHOLE = [-1, 0, 1, 2, 3, 7, 60, 61, 10**6, 2**31, 2**53, 2**63, 10**40, 10**400]
FLOATS = [0.0, -0.0, -0.5, 1e-320, 1e-200, 1e-30, 0.5, 1.0, 1e10, 1e30, 1e160, 1e308, math.nan, math.inf, -math.inf]
TEXTS = [
    "",
    "auto",
    "random",
    "spectral",
    "penalty",
    "stiefel",
    "mean_distance",
    "cpu",
    "cuda:0",
    "\x1b[2J",
    "\ud800",
    "x" * 20_000,
]
OTHERS = [None, True, False, [], {}, [1], ["x", "y", "z"], {"a": 1}, {"momentum": 2}, {"loss": "algebraic"}, [[[[]]]]]
STRANGE = st.one_of(*map(st.sampled_from, (WHOLE, FLOATS, TEXTS, OTHERS)), st.floats(width=64), st.integers(-(2**70), 2**70))
DTYPES = [torch.float64, torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64]
CHUNK, LONG = 250, 50
FAR = {8: 1e100, 4: 1e8}  # a score of rows that are far out, by the bytes of a number


@cache
def base(name):
    """Return a sound file, as a document and tensors."""
    if name == "everything":
        return decode(content())
    if name == "groups":
        return decode(saved(QuadricDetector().partial_fit(X[:60], groups=np.arange(60) // 2)))
    rows = X[:60].astype(np.float32 if name == "linear" else np.float64)
    return decode(saved(QuadricDetector(**FITS[name]).fit(rows), sample=True))


def forged(document, tensors):
    """Return the content of a file with any document and any tensors."""
    metadata = {
        "format": DETECTOR.name,
        "format_version": "1",
        "detector": json.dumps(document),
        "sha256": "0" * CHECKSUM_LENGTH,
    }
    raw = save_tensors({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata)
    end = 8 + int.from_bytes(raw[:8], "little")
    text = json.dumps(json.loads(raw[8:end]), separators=(",", ":")).encode()
    return with_checksum(len(text).to_bytes(8, "little") + text + raw[end:])


def places(part, found=None):
    """Return where the values of a document are: the dictionary or list, and the name."""
    found = [] if found is None else found
    for name in part if isinstance(part, dict) else range(len(part)):
        found.append((part, name))
        if isinstance(part[name], dict | list):
            places(part[name], found)
    return found


def changed_document(draw, document, tensors):
    """Put something strange anywhere, take something away, or give one thing the place of another."""
    part, name = draw(st.sampled_from(places(document)))
    other, other_name = draw(st.sampled_from(places(document)))
    kind = draw(st.sampled_from(["strange", "strange", "near", "moved", "gone"]))
    if kind == "gone":
        del part[name]
    elif kind == "near" and isinstance(part[name], int | float):
        part[name] *= draw(st.sampled_from([-1, 0.5, 2, 1e9, 1e-9]))
    elif kind == "moved":
        part[name] = copy.deepcopy(other[other_name])
    else:
        part[name] = copy.deepcopy(draw(STRANGE))  # which may be changed in its turn


def changed_numbers(draw, document, tensors):
    """Change one number of a tensor, a row, or all of them."""
    name = draw(st.sampled_from(sorted(tensors)))
    flat = tensors[name].flatten()
    if not flat.numel():
        return
    number = draw(st.one_of(st.sampled_from(FLOATS), st.sampled_from(WHOLE[:7]), st.floats(width=64)))
    first = draw(st.integers(0, flat.numel() - 1))
    some = slice(None) if draw(st.booleans()) else slice(first, first + draw(st.sampled_from([1, tensors[name].shape[-1]])))
    number = torch.tensor(float(number), dtype=torch.float64)
    if not flat.is_floating_point():
        flat[some] = int(number.nan_to_num().clamp(0, 255))
    elif draw(st.booleans()):
        flat[some] *= number.to(flat.dtype)
    else:
        flat[some] = number.to(flat.dtype)
    tensors[name] = flat.view(tensors[name].shape)


def changed_shape(draw, document, tensors):
    """Take rows or columns away, repeat them, or give one tensor the type, the name or the numbers of another."""
    name, other = draw(st.sampled_from(sorted(tensors))), draw(st.sampled_from(sorted(tensors)))
    kind = draw(
        st.sampled_from(["fewer", "more", "flat", "type", "none", "swapped", "gone", "dimension", "all fewer", "all more"])
    )
    tensor = tensors[name]
    axis = draw(st.integers(0, tensor.ndim - 1))
    size = tensor.shape[axis]
    if kind in ("all fewer", "all more"):  # of all tensors with a dimension of this size
        for each, of_all in list(tensors.items()):
            for along, found in enumerate(of_all.shape):
                if found == size:
                    part = tensors[each]
                    tensors[each] = (
                        part.narrow(along, 0, max(0, size - 1)) if kind == "all fewer" else torch.cat([part, part], along)
                    )
    elif kind == "gone":
        del tensors[name]
    else:
        tensors[name] = {
            "fewer": tensor.narrow(axis, 0, max(0, size - 1)),
            "more": torch.cat([tensor, tensor], axis),
            "flat": tensor.flatten(),
            "type": tensor.to(draw(st.sampled_from(DTYPES))),
            "none": tensor.narrow(axis, 0, 0),
            "swapped": tensors[other],
            "dimension": tensor[None],
        }[kind].clone()


CHANGES = {"document": changed_document, "numbers": changed_numbers, "shapes": changed_shape}


@st.composite
def mutants(draw):
    """Draw the content of a file with one to three changes in it; gives their kind and the content."""
    document, tensors = copy.deepcopy(base(draw(st.sampled_from(BASES))))
    kind = draw(st.sampled_from([*CHANGES, "several"]))
    for _ in range(draw(st.integers(2, 3)) if kind == "several" else 1):
        change = CHANGES[draw(st.sampled_from(sorted(CHANGES))) if kind == "several" else kind]
        if places(document) and tensors:
            change(draw, document, tensors)
    return kind, forged(document, tensors)


def loaded_from(raw):
    """Return the detector in the content of a file, as load does."""
    return QuadricDetector._from_state(*from_content(decode(raw)))


def assert_works(detector):
    """Assert that every method of a detector gives what it promises, for rows like those of its model and for any others."""
    names = getattr(detector, "feature_names_in_", None)
    near = near_rows(detector)
    with np.errstate(over="ignore"):
        in_float32 = near.astype(np.float32)
    for given_rows in (near, in_float32, TEST[:5], TEST[:5].astype(np.float32)):
        rows = np.resize(given_rows, (5, detector.n_features_in_))
        if np.isfinite(rows).all():
            frame = rows if names is None else pandas.DataFrame(rows, columns=names)
            assert_scores(detector, frame, with_projections=given_rows is not in_float32)  # which are in float64 anyway
    again = loaded_from(saved(detector))
    np.testing.assert_array_equal(again.decision_function(TEST_OF(detector)), detector.decision_function(TEST_OF(detector)))
    assert_goes_on(detector)


def TEST_OF(detector):  # noqa: N802
    rows = np.resize(TEST[:20], (20, detector.n_features_in_))
    names = getattr(detector, "feature_names_in_", None)
    return rows if names is None else pandas.DataFrame(rows, columns=names)


def near_rows(detector):
    """Return rows that a model is about: its mean, and some beside it."""
    model = detector.model_
    mean, matrix = model.coordinates.mean.double(), model.coordinates.matrix.double()
    way = torch.linalg.pinv(matrix) @ torch.linspace(-1, 1, 4 * len(matrix), dtype=torch.float64).view(len(matrix), 4)
    rows = torch.cat([mean[None], mean + way.T])
    return (rows if model.scales is None else rows * model.scales.double()).numpy()


def assert_scores(detector, rows, with_projections=True):
    n = len(rows)
    scores = detector.decision_function(rows)
    assert scores.shape == (n,)
    assert (np.isfinite(scores) & (scores >= 0) & (scores <= MOST_SCORE)).all()
    order = np.argsort(scores)
    for method in ("linear", "unify", "posterior"):
        inlier, outlier = detector.predict_proba(rows, method).T
        assert ((outlier >= 0) & (outlier <= 1)).all(), method
        np.testing.assert_allclose(inlier + outlier, 1)
        assert (np.diff(outlier[order]) >= 0).all(), method  # the higher the score, the more probable
    assert set(detector.predict(rows)) <= {0, 1}
    assert ((detector.predict_confidence(rows) >= 0) & (detector.predict_confidence(rows) <= 1)).all()
    p_values = detector.predict_pvalue(rows)
    assert ((p_values > 0) & (p_values <= 1)).all()
    groups = None if detector.groups_ is None else np.arange(n)
    assert 0 <= detector.drift_test(rows, groups=groups).pvalue <= 1
    module_scores = detector.to_module()(torch.tensor(np.asarray(rows)))
    assert torch.isfinite(module_scores).all()
    distances = detector.quadric_distances(rows)
    assert distances.shape == (n, detector.n_quadrics_)
    assert not np.isnan(distances).any()
    usual = rows[scores < FAR[np.asarray(rows).itemsize]]
    if len(usual):
        explained = detector.explain(usual)
        assert (np.isfinite(explained) & (explained >= 0)).all()
    if len(usual) and with_projections:
        with contextlib.suppress(torch.linalg.LinAlgError):  # of quadrics that weigh 1e30 times as much as the way
            projected = detector.project(usual)
            assert projected.shape == usual.shape
            assert np.isfinite(projected).all()


def assert_goes_on(detector):
    """Assert that a stream goes on, or that what keeps it from that is said."""
    n = len(detector.decision_scores_)
    groups = {} if detector.groups_ is None else {"groups": np.arange(20)}
    if (detector.epoch_num or 0) > LONG:  # which works, too, but not in seconds
        detector.set_params(epoch_num=1)
    try:
        detector.partial_fit(TEST_OF(detector), **groups)
    except (ValueError, FloatingPointError) as error:
        if not str(error) or len(detector.decision_scores_) != n:
            raise AssertionError("the earlier fit stays, and the error says why") from error
        raise StreamRefusedError(str(error)) from error
    assert np.isfinite(detector.decision_scores_).all()


class StreamRefusedError(Exception):
    """A stream that cannot go on, which was said."""


def outcome(raw):
    """Return what happens with the content of a file: refused, works, or what is wrong."""
    try:
        detector = loaded_from(raw)
    except ValueError as error:
        if not 0 < len(str(error)) < 2000:
            raise AssertionError("the error is short and clear") from error
        return "refused"
    try:
        assert_works(detector)
    except StreamRefusedError as error:
        return f"works; partial_fit says: {str(error)[:60]}"
    return "works"


def main(count, first=0):
    found, wrong = Counter(), {}
    some = settings(
        max_examples=CHUNK, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )

    def tried(mutant):
        kind, raw = mutant
        try:
            result = outcome(raw)
        except Exception as error:
            result = f"WRONG: {type(error).__name__}: {str(error).strip()[:80]}"
            wrong.setdefault(result, (raw, traceback.format_exc()))
        found[kind, result] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", category=RuntimeWarning)
        for chunk in count_from(first):
            if found.total() >= count:
                break
            seed(chunk)(some(given(mutants())(lambda mutant: tried(mutant))))()
    for (kind, result), number in sorted(found.items()):
        print(f"{number:6d}  {kind:10s} {' '.join(result.split())}")
    print(f"{found.total():6d}  in all; {sum(n for (_, result), n in found.items() if result != 'refused')} loaded")
    for place, (raw, trace) in enumerate(wrong.values()):
        print(trace[-1500:])
        (Path(tempfile.gettempdir()) / f"mutant-{place}").write_bytes(raw)
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])) > 0)
