"""A file gives back the detector that was saved, bit for bit."""

import json
import pickle
import warnings

import joblib
import numpy as np
import pandas
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from sklearn.base import clone

from pyod_quadric import QuadricDetector, Quadrics, random_quadrics
from pyod_quadric.storage.container import FORMAT_VERSION
from tests.support.circle import TEST, WAYS, X
from tests.support.elsewhere import DEVICE, Elsewhere
from tests.support.files import assert_same, content, loaded, saved, state
from tests.support.profiles import n_examples
from tests.support.runs import global_states
from tests.support.thresholder import Thresholder

# Round trips


@st.composite
def fitted_detectors(draw):
    """Draw a detector, the rows that it was fitted to, and rows to score."""
    n, d = draw(st.integers(3, 40)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    rows, test = (rng.normal(size=(n, d)).astype(dtype) ** 3 + 1 for _ in range(2))
    parameters = {
        "score_function": draw(st.sampled_from(["combined", "quadrics", "linear", "mean_distance"])),
        "normalize": draw(st.sampled_from([True, False, "auto"])) if d > 1 else False,
        "n_components": draw(st.sampled_from(["auto", None, 1, np.int64(1), 0.5])),
        "contamination": draw(st.sampled_from([0.1, 0.5, "auto"])),
        "random_state": draw(st.sampled_from([None, 0, 2**32 - 1])),
        "device": draw(st.sampled_from([None, "cpu"])),
    }
    if parameters["score_function"] != "linear":
        parameters["distance"] = draw(st.sampled_from(["second_order", "first_order", "algebraic"]))
        parameters["epoch_num"] = draw(st.sampled_from([None, 0, 2]))
        parameters["training_options"] = draw(st.sampled_from([None, {"momentum": 0.5}])) if parameters["epoch_num"] else None
        parameters["n_quadrics"] = 1
    fit = getattr(QuadricDetector(**parameters), draw(st.sampled_from(["fit", "partial_fit"])))
    with warnings.catch_warnings():
        for message in ("all training rows have the same score", ".* quadrics that were asked for", "training has ended"):
            warnings.filterwarnings("ignore", message)  # where no quadric has a say, or rows are wild
        return fit(rows), test


@n_examples(20)
@given(fitted_detectors())
def test_everything_comes_back_bit_for_bit(drawn):
    fitted, test = drawn
    again = loaded(saved(fitted))
    assert again.get_params() == fitted.get_params()
    assert_same(state(again), state(fitted) | again.get_params())  # numbers of NumPy may come back as Python's
    for method in ("decision_function", "predict", "quadric_distances", "explain"):
        np.testing.assert_array_equal(getattr(again, method)(test), getattr(fitted, method)(test))
    assert saved(again) == saved(fitted)
    assert clone(again).get_params() == fitted.get_params()


@pytest.mark.parametrize("way", ["closed form", "mean distance", "stiefel"])
def test_loaded_detectors_do_what_saved_ones_do(way):
    frame = pandas.DataFrame(X, columns=["x", "y", "z"])
    fitted = QuadricDetector(**WAYS[way]).fit(frame)
    again = loaded(saved(fitted))
    test = pandas.DataFrame(TEST, columns=["x", "y", "z"])
    np.testing.assert_array_equal(again.predict_proba(test, "unify"), fitted.predict_proba(test, "unify"))
    np.testing.assert_array_equal(again.predict_confidence(test), fitted.predict_confidence(test))
    np.testing.assert_array_equal(again.project(test[:10]), fitted.project(test[:10]))
    assert list(again.feature_names_in_) == ["x", "y", "z"]
    with pytest.raises(ValueError, match="feature names"):
        again.decision_function(test[["z", "y", "x"]])
    np.testing.assert_array_equal(clone(again).fit(frame).decision_scores_, fitted.decision_scores_)


def test_rows_in_another_order_in_memory_come_back_alike():
    rows = np.asfortranarray(np.random.default_rng(0).normal(size=(60, 90)))  # fewer rows than features
    fitted = QuadricDetector().fit(rows)
    again = loaded(saved(fitted))
    assert_same(state(again), state(fitted))
    np.testing.assert_array_equal(again.decision_function(rows), fitted.decision_function(rows))


@pytest.mark.filterwarnings("ignore:.* quadrics that were asked for count:UserWarning")
def test_given_quadrics_come_back():
    start = random_quadrics(2, 3, torch.Generator().manual_seed(0), torch.float64)
    fitted = QuadricDetector(init=start, n_components=None, epoch_num=1).fit(X)
    again = loaded(saved(fitted))
    assert isinstance(again.init, Quadrics)
    assert_same(again.init, start)
    np.testing.assert_array_equal(clone(again).fit(X).decision_scores_, fitted.decision_scores_)


def test_loaded_detectors_go_through_the_files_of_others(tmp_path):
    again = loaded(content())
    assert_same(state(pickle.loads(pickle.dumps(again))), state(again))
    joblib.dump(again, tmp_path / "joblib")
    assert_same(state(joblib.load(tmp_path / "joblib")), state(again))
    persistence = pytest.importorskip("pyod.utils.persistence", reason="PyOD has it from 3.5 on")
    persistence.save(again, tmp_path / "pyod", metadata=again.versions_)
    assert_same(state(persistence.load(tmp_path / "pyod", trusted=True)), state(again))


def test_loading_unpickles_nothing(monkeypatch):
    fitted = QuadricDetector().fit(X)
    content = saved(fitted)

    def refuse(*_, **__):
        raise AssertionError("unpickled")

    for place in ("pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load", "joblib.load"):
        monkeypatch.setattr(place, refuse)
    np.testing.assert_array_equal(loaded(content).decision_function(TEST), fitted.decision_function(TEST))


def test_files_are_safetensors_that_others_can_read(tmp_path):
    fitted = QuadricDetector().fit(X)
    fitted.save(tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata()["format_version"] == str(FORMAT_VERSION) == "1"
        torch.testing.assert_close(file.get_tensor("model.quadrics.quadratic"), fitted.quadrics_.quadratic, rtol=0, atol=0)
        assert json.loads(file.metadata()["detector"])["parameters"]["contamination"] == 0.1


def test_global_state_is_left_alone(tmp_path):
    fitted = QuadricDetector().fit(X)
    before = global_states()
    fitted.save(tmp_path / "model")
    QuadricDetector.load(tmp_path / "model")
    assert global_states() == before


def test_only_fitted_detectors_can_be_saved(tmp_path):
    with pytest.raises(Exception, match="not fitted"):
        QuadricDetector().save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


# What belongs to the machine, and what would be code


def test_fitted_on_a_device_and_loaded_on_a_cpu():
    with Elsewhere():
        fitted = QuadricDetector(device=DEVICE).fit(X)
    again = loaded(saved(fitted))
    assert again.device is None
    np.testing.assert_allclose(again.decision_function(X), QuadricDetector().fit(X).decision_function(X), rtol=1e-12)
    fitted.set_params(device="cuda:1")
    assert loaded(saved(fitted)).device is None


def test_who_asked_for_training_by_a_checkpoint_alone_still_asks(tmp_path):
    fitted = QuadricDetector(training_options={"checkpoint": tmp_path / "run.ckpt"}, n_quadrics=1).fit(X)
    again = loaded(saved(fitted))
    assert (again.training_options, again.epoch_num) == (None, 20)
    np.testing.assert_array_equal(clone(again).fit(X).decision_scores_, fitted.decision_scores_)


def test_checkpoints_are_not_of_the_file(tmp_path):
    fitted = QuadricDetector(epoch_num=1, training_options={"checkpoint": tmp_path / "run.ckpt"}, n_quadrics=1).fit(X)
    assert loaded(saved(fitted)).get_params() == fitted.get_params() | {"training_options": None}


@pytest.mark.parametrize(
    ("parameter", "kind"),
    [("random_state", np.random.RandomState(0)), ("contamination", Thresholder())],
    ids=["random_state", "contamination"],
)
def test_what_would_need_code_is_not_saved(tmp_path, parameter, kind):
    fitted = QuadricDetector(**{parameter: kind}).fit(X)
    with pytest.raises(
        ValueError, match=rf"files hold no code, so {parameter} must be .*, got {type(kind).__name__}; change it"
    ):
        fitted.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
    fitted.set_params(**{parameter: 0.1 if parameter == "contamination" else 0}).save(tmp_path / "model")
    np.testing.assert_array_equal(QuadricDetector.load(tmp_path / "model").decision_scores_, fitted.decision_scores_)


def test_bad_parameters_are_noticed_when_saving(tmp_path):
    fitted = QuadricDetector().fit(X).set_params(epoch_num=-1)
    with pytest.raises(ValueError, match="epoch_num must be a whole number from 0 to 100000"):
        fitted.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


# Streams, which test_streams.py goes on with


@pytest.mark.parametrize("begin", ["fit", "partial_fit"])
def test_files_without_a_sample_hold_no_rows(begin):
    fitted = getattr(QuadricDetector(), begin)(X)
    content = saved(fitted, sample=False)
    assert X[50:52].tobytes() not in content
    assert (X[50:52].tobytes() in saved(fitted)) == (begin == "partial_fit")
    with pytest.raises(ValueError, match="do not hold its training rows"):
        loaded(content).partial_fit(TEST)


# Files that are none
