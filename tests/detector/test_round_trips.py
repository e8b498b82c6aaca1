"""Fits with one seed agree, and detectors go through files, processes and clones unchanged."""

import copy
import io
import pickle
import random

import joblib
import matplotlib.pyplot as plt
import numpy as np
import pandas
import pytest
import torch
from joblib.externals import loky
from sklearn.base import clone

from pyod_quadric import QuadricDetector, random_quadrics
from pyod_quadric._version import __version__
from pyod_quadric.model import pickled
from tests.support.circle import TEST, WAYS, X, ways
from tests.support.runs import global_states


@pytest.fixture(scope="module")
def fitted():
    return QuadricDetector(contamination=0.05).fit(X)


# Seeds


@ways
def test_fits_with_one_seed_agree_bit_for_bit(settings):
    detector = QuadricDetector(**settings, random_state=7).fit(X)
    expected = detector.decision_function(TEST)
    others = [
        detector.fit(X),
        clone(detector).fit(X),
        QuadricDetector(**settings, random_state=7).fit(X),
        QuadricDetector(**settings, random_state=1).fit(X).set_params(random_state=7).fit(X),
    ]
    for other in others:
        np.testing.assert_array_equal(other.decision_function(TEST), expected)


@pytest.mark.parametrize("settings", [WAYS["closed form"], WAYS["penalty"]])
def test_the_seed_matters(settings):
    one, two = (QuadricDetector(**settings, random_state=seed).fit(X).decision_scores_ for seed in (1, 2))
    assert not np.array_equal(one, two)


def test_random_state_may_be_a_generator_or_none():
    same = [QuadricDetector(random_state=np.random.RandomState(3)).fit(X).decision_scores_ for _ in range(2)]
    np.testing.assert_array_equal(*same)
    free = QuadricDetector(random_state=None)
    assert not np.array_equal(free.fit(X).decision_scores_, free.fit(X).decision_scores_)


@pytest.mark.parametrize(
    ("settings", "random_state"),
    [(WAYS["closed form"], None), (WAYS["penalty"], 0), (WAYS["stiefel"], None), (WAYS["stiefel"], 0)],
)
def test_global_generators_are_left_alone(settings, random_state, monkeypatch):
    before = global_states()
    seeded = []
    for module, name in ((np.random, "seed"), (torch, "manual_seed"), (random, "seed")):
        monkeypatch.setattr(module, name, lambda *args, **kwargs: seeded.append(args))
    detector = QuadricDetector(**settings, random_state=random_state).fit(X)
    detector.decision_function(TEST)
    detector.partial_fit(TEST)
    detector.explain(TEST)
    detector.project(TEST[:3])
    plt.close(detector.explain_outlier(0).figure)
    assert global_states() == before
    assert not seeded


# Round trips


def through_joblib(detector):
    file = io.BytesIO()
    joblib.dump(detector, file)
    file.seek(0)
    return joblib.load(file)


def through_skops(detector):
    """As skops writes and reads it, which asks for one class of ours, and for none of torch's."""
    skops = pytest.importorskip("skops.io")
    content = skops.dumps(detector)
    assert skops.get_untrusted_types(data=content) == [TRUSTED]
    return skops.loads(content, trusted=[TRUSTED])


TRUSTED = "pyod_quadric.detector.QuadricDetector"
ROUND_TRIPS = {
    "skops": through_skops,
    "deepcopy": copy.deepcopy,
    "pickle": lambda detector: pickle.loads(pickle.dumps(detector)),
    "joblib": through_joblib,
}


@pytest.mark.parametrize("round_trip", ROUND_TRIPS.values(), ids=ROUND_TRIPS)
@pytest.mark.parametrize("settings", [WAYS["closed form"], WAYS["stiefel"]], ids=["closed form", "stiefel"])
def test_round_trips_keep_everything(settings, round_trip):
    detector = QuadricDetector(**settings).fit(X)
    other = round_trip(detector)
    np.testing.assert_array_equal(other.decision_function(TEST), detector.decision_function(TEST))
    np.testing.assert_array_equal(other.predict(TEST), detector.predict(TEST))
    np.testing.assert_array_equal(other.explain(TEST), detector.explain(TEST))
    np.testing.assert_array_equal(other.project(TEST[:3]), detector.project(TEST[:3]))
    assert other.get_params() == detector.get_params()


@pytest.mark.filterwarnings("ignore:.*quadrics that were asked for")
@pytest.mark.parametrize("round_trip", [ROUND_TRIPS["pickle"], ROUND_TRIPS["skops"]], ids=["pickle", "skops"])
def test_round_trips_keep_streams_groups_names_and_given_quadrics(round_trip):
    start = random_quadrics(2, 3, torch.Generator().manual_seed(0), torch.float64)
    frame = pandas.DataFrame(X, columns=["x", "y", "z"])
    groups = np.repeat(np.arange(50), 4)
    detector = QuadricDetector(window=150, init=start, n_components=None).partial_fit(frame, groups=groups)
    other = round_trip(detector)
    assert {name: type(value) for name, value in vars(other).items()} == {
        name: type(value) for name, value in vars(detector).items() if name not in ("_rows", "_table")
    }
    assert list(other.feature_names_in_) == ["x", "y", "z"]
    assert torch.equal(other.init.quadratic, start.quadratic)
    np.testing.assert_array_equal(other.groups_, detector.groups_)
    for each in (detector, other):
        each.partial_fit(frame[:40], groups=groups[:40])
    np.testing.assert_array_equal(other.decision_scores_, detector.decision_scores_)
    assert round_trip(QuadricDetector(lr=0.5)).get_params() == QuadricDetector(lr=0.5).get_params()


def test_numbers_that_no_fit_gives_are_refused(fitted):
    plain = pickled.to_plain(vars(fitted))
    axes = plain["model_"]["linear_part.axes"]
    for change in ({"linear_part.axes": axes[:, :2]}, {"linear_part.axes": np.nan * axes}, {"linear_part.variances": None}):
        with pytest.raises(ValueError, match="of the file"):
            pickled.from_plain(plain | {"model_": plain["model_"] | change})
    with pytest.raises(ValueError, match="not what a detector has"):
        pickled.from_plain(plain | {"model_": plain["model_"] | {"code": "print()"}})


def test_other_processes_score_the_same(fitted):
    with loky.ProcessPoolExecutor(max_workers=1) as executor:  # as joblib.Parallel has them
        scores = executor.submit(fitted.decision_function, TEST).result()
    np.testing.assert_allclose(scores, fitted.decision_function(TEST), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.*quadrics that were asked for")
def test_clones_are_unfitted_and_keep_given_quadrics():
    start = random_quadrics(2, 3, torch.Generator().manual_seed(0), torch.float64)
    detector = QuadricDetector(init=start, n_components=None).fit(X)
    other = clone(detector)
    assert not hasattr(other, "model_")
    assert other.init is not start
    np.testing.assert_array_equal(other.fit(X).decision_scores_, detector.decision_scores_)


def tensors_in(thing):
    """Find all tensors in attributes, dictionaries and sequences."""
    if isinstance(thing, torch.Tensor):
        return [thing]
    parts = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list | tuple) else []
    if type(thing).__module__.startswith("pyod_quadric"):
        parts = vars(thing).values()
    return [tensor for part in parts for tensor in tensors_in(part)]


@ways
def test_files_hold_what_was_learnt_and_no_more(settings, monkeypatch):
    detector = QuadricDetector(**settings).fit(X)
    found = set()

    class Recorder(pickle.Unpickler):
        def find_class(self, module, name):
            found.add(f"{module}.{name}")
            return super().find_class(module, name)

    content = pickle.dumps(detector)
    loaded = Recorder(io.BytesIO(content)).load()
    assert not [name for name in found if "optim" in name or "oader" in name or "batches" in name], found
    assert X[50:100].tobytes() not in content  # the training rows
    tensors = tensors_in(loaded)
    assert len(tensors) > 3
    for tensor in tensors:
        assert tensor.device.type == "cpu"
        assert not tensor.requires_grad
        assert tensor.untyped_storage().nbytes() == tensor.nbytes  # no part of something larger


def test_pyod_saves_and_loads(fitted, tmp_path):
    persistence = pytest.importorskip("pyod.utils.persistence", reason="PyOD has it from 3.5 on")
    persistence.save(fitted, tmp_path / "detector.joblib", metadata=fitted.versions_)
    loaded, envelope = persistence.load(tmp_path / "detector.joblib", trusted=True, strict=True, return_metadata=True)
    np.testing.assert_array_equal(loaded.decision_function(TEST), fitted.decision_function(TEST))
    assert envelope["metadata"] == {"torch_version": torch.__version__, "pyod_quadric_version": __version__}
    assert {type(version) for version in envelope["metadata"].values()} == {str}
