"""A model file of a stranger, with a checksum that fits, gives a detector that works in every method, or a clear error."""

import copy
import json

import numpy as np
import pytest
import torch
from hypothesis import given

from pyod_quadric import QuadricDetector
from pyod_quadric.model.saved import LAYOUT
from pyod_quadric.storage import container
from pyod_quadric.storage.container import decode
from tests.support.circle import TEST, X
from tests.support.files import content, saved
from tests.support.mutants import BASES, base, forged, loaded_from, mutants, outcome
from tests.support.profiles import n_examples


@n_examples(40)
@given(mutants())
@pytest.mark.filterwarnings("ignore::UserWarning")  # as of equal scores
def test_mutants_work_or_are_refused(mutant):
    assert outcome(mutant[1])


@pytest.mark.filterwarnings("ignore:.*quadrics that were asked for")
@pytest.mark.parametrize("name", BASES)
def test_what_was_not_changed_works(name):
    assert outcome(forged(*base(name))) == "works"


def test_the_bases_have_every_value():
    assert set().union(*(value for name in BASES for value in (base(name)[0]["values"], base(name)[1]))) | {
        "stream.window",
        "list_column",  # of rows that come from a file
    } == {*LAYOUT}


# What was found


def values(**changes):
    return lambda document, tensors: document["values"].update(changes)


def parameters(**changes):
    return lambda document, tensors: document["parameters"].update(changes)


def numbers(name, change):
    def edit(document, tensors):
        tensors[name] = change(tensors[name])

    return edit


def one(number):
    """Return a change of the first number alone."""

    def change(tensor):
        changed = tensor.clone()
        changed.view(-1)[0] = number
        return changed

    return change


def wide_and_flat(document, tensors):
    """Make many quadrics of one coordinate: a small file, of which explanations would need m times d numbers."""
    tensors["model.coordinates.matrix"] = torch.ones(1, 3, dtype=torch.float64)
    for name, shape in (("quadratic", (9, 1, 1)), ("linear", (9, 1)), ("constant", (9,))):
        tensors[f"model.quadrics.{name}"] = torch.ones(shape, dtype=torch.float64)
    tensors["model.quadric_weights"] = torch.ones(9, dtype=torch.float64)


def far_scales(document, tensors):
    tensors["model.scales"] = torch.full((3,), 1e300, dtype=torch.float64)
    tensors["model.coordinates.mean"] = torch.full((3,), 1e100, dtype=torch.float64)


FOUND = {
    # partial_fit would not have ended
    "epochs": (parameters(epoch_num=2**53), "epoch_num must be a whole number from 0 to 100000"),
    "epochs of training": (parameters(training_options={"epoch_num": 10}), "training_options must be a dictionary"),
    "a stream that keeps nothing": (
        values(**{"stream.capacity": 0}),
        "stream.capacity of the file must be a whole number from 3",
    ),
    "a stream that keeps all": (
        values(**{"stream.capacity": 2**50}),
        "stream.capacity of the file must be a whole number from 3",
    ),
    # probabilities would have fallen with the score, or been NaN
    "a negative deviation": (values(std_score=-1.0), "std_score of the file must be a number above 0"),
    "no deviation": (values(std_score=0.0), "std_score of the file must be a number above 0"),
    "another deviation": (values(std_score=1e-9), "std_score of the file is 1e-09, but its decision_scores have"),
    "another mean": (values(mean_score=1e9), r"mean_score of the file is 1e\+09, but its decision_scores have"),
    # raw OverflowError
    "whole numbers beyond floats": (parameters(lr=10**400), "lr must be a number above 0"),
    "a threshold beyond floats": (values(threshold=-(10**400)), "threshold of the file must be a number"),
    "a contamination beyond floats": (parameters(contamination=10**400), "contamination must be a number"),
    "a seed beyond floats": (parameters(random_state=10**400), "random_state must be a whole number from 0"),
    # explain would not have been finite
    "tiny spread of norms": (values(**{"model.norms.spread": 1e-300}), "norms.spread of the file must be a number of at least"),
    "large median of norms": (values(**{"model.norms.median": 1e300}), "norms.median of the file must be a number"),
    "heavy neighbours": (values(**{"model.neighbors.weight": 1e300}), "neighbors.weight of the file must be a number"),
    "far neighbours": (
        numbers("model.neighbors.prototypes", one(1e200)),
        "prototypes of the file has numbers that no fit gives",
    ),
    "heavy quadrics": (numbers("model.quadric_weights", one(1e300)), "quadric_weights of the file has numbers"),
    "large quadrics": (numbers("model.quadrics.quadratic", lambda tensor: tensor * 1e30), "quadratic of the file has numbers"),
    "long axes": (numbers("model.linear_part.axes", lambda tensor: tensor * 1e10), "axes of the file has numbers"),
    # project would not have been finite, or raised
    "no way back": (numbers("model.coordinates.matrix", lambda tensor: tensor * 1e-310), "matrix of the file has numbers"),
    "no quadrics in float32": (
        numbers("model.quadrics.constant", lambda tensor: tensor * torch.nan),
        "constant of the file has",
    ),
    "quadrics that are not symmetric": (numbers("model.quadrics.quadratic", lambda t: t.triu()), "symmetric"),
    "rows of the weights": (numbers("row_weights", one(7.0)), "row_weights of the file has numbers"),
    # of memory
    "more quadrics than there are": (wide_and_flat, "the file has 9 quadrics, but there can be at most 1"),
    # of other programs, where it is printed or saved
    "half a letter": (values(feature_names=["\ud800", "y", "z"]), "feature_names of the file must be a list of texts"),
    "half a letter in versions": (values(versions={"\udfff": ""}), "versions of the file must be a dict of texts"),
    "a text of megabytes": (values(feature_names=["x" * 10**6, "y", "z"]), "feature_names of the file must be a list of texts"),
    "a text for a number": (values(threshold="1" * 10**6), "threshold of the file must be a number"),
    "very many values": (values(**{f"x{number}": 1 for number in range(10**5)}), "not what a detector has"),
    "very many parameters": (
        parameters(**{f"x{number}": 1 for number in range(10**5)}),
        "are no parameters of QuadricDetector",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_is_refused(name):
    edit, message = FOUND[name]
    document, tensors = copy.deepcopy(base("everything"))
    edit(document, tensors)
    with pytest.raises(ValueError, match=message) as raised:
        loaded_from(forged(document, tensors))
    assert len(str(raised.value)) < 1000


def test_scales_and_coordinates_go_together():
    document, tensors = copy.deepcopy(base("scales"))
    far_scales(document, tensors)
    with pytest.raises(ValueError, match="scales of the file do not go with its coordinates"):
        loaded_from(forged(document, tensors))


# Numbers that are far from what fits give, and within bounds, are no reason for a raw error.
FAR_OFF = {
    "tiny coordinates": ("mean distance", numbers("model.coordinates.matrix", lambda tensor: torch.full_like(tensor, 1e-200))),
    "a large coordinate": ("mean distance", numbers("model.coordinates.matrix", one(1e160))),
    "tiny coordinates of neighbours": ("neighbours", numbers("model.neighbors.coordinates.matrix", lambda t: t * 1e-200)),
    "tiny scales": ("scales", numbers("model.scales", lambda tensor: tensor * 1e-213)),
    "a quadric without weight": ("first order", numbers("model.quadric_weights", one(0.0))),
    "no weights": ("everything", numbers("model.quadric_weights", torch.zeros_like)),
}


@pytest.mark.filterwarnings("ignore:.*quadrics that were asked for")
@pytest.mark.parametrize("name", FAR_OFF)
def test_numbers_far_off_but_within_bounds_work(name):
    of, edit = FAR_OFF[name]
    document, tensors = copy.deepcopy(base(of))
    edit(document, tensors)
    assert outcome(forged(document, tensors)) == "works"


@pytest.mark.parametrize("number", [1e-213, 1e-60, 1e60])
def test_models_beyond_float32_score_its_rows_all_the_same(number):
    document, tensors = copy.deepcopy(base("scales"))
    tensors["model.scales"] *= number
    detector = loaded_from(forged(document, tensors))
    rows = np.float32([[0, 0, 0], [1e-30, 1, 1e30], [-1, 1e-45, 3e38]])
    np.testing.assert_array_equal(detector.decision_function(rows), detector.decision_function(rows.astype(float)))


# Headers that cost more to parse than to write


@pytest.mark.parametrize(
    "part", [b"[],", b'{"a":1},', b"[" * 900 + b"]" * 900 + b",", b'{"a":', b"[", b"1,"], ids=lambda part: part[:8].decode()
)
def test_headers_of_very_many_values_are_not_parsed(part, tmp_path, monkeypatch):
    def parsed(text):
        raise AssertionError(f"{len(text)} bytes were parsed")

    text = b"[" + part * (3 * 2**21 // len(part.strip(b"1]}"))) + b"1]"
    (tmp_path / "model").write_bytes(len(text).to_bytes(8, "little") + text)
    monkeypatch.setattr(container.json, "loads", parsed)
    with pytest.raises(ValueError, match=r"the header of the file has \d+ values.*at most 2097152 are read"):
        QuadricDetector.load(tmp_path / "model")


def test_large_headers_are_not_read(tmp_path):
    with (tmp_path / "model").open("wb") as file:
        file.write((2**25 + 8).to_bytes(8, "little"))
        file.truncate(2**26)
    with pytest.raises(ValueError, match="a header of 33554440 bytes, but at most 33554432 can be read"):
        QuadricDetector.load(tmp_path / "model")


def test_a_document_in_the_document_is_no_way_around(monkeypatch):
    """The text in the header that is a document of its own is bounded by the same signs."""
    document, tensors = copy.deepcopy(base("linear"))
    document["values"]["versions"] = {"x": [[]] * 2**20}
    raw = forged(document, tensors)
    with pytest.raises(ValueError, match="values, by the signs before them"):
        decode(raw)


def test_a_hundred_thousand_names_are_read():
    names = [f"sensor {number}, in [mV]: {{x}}" for number in range(100_000)]
    raw = container.encode({"names": names}, {"x": torch.ones(1)})
    assert decode(raw)[0]["names"] == names


# Saving


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    """While there still is a model to be fitted otherwise."""
    fitted = QuadricDetector().fit(X)
    fitted.decision_scores_ = fitted.decision_scores_ * 1e200
    with pytest.raises(ValueError, match="decision_scores of the file has numbers that no fit gives"):
        fitted.save(tmp_path / "model")
    with pytest.raises(ValueError, match="values, by the signs before them"):
        container.encode({"names": [",,,,"] * 2**20}, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:all training rows have the same score")
def test_equal_scores_have_probabilities():
    """Their standard deviation is 0, or what rounding makes of it."""
    fitted = QuadricDetector(score_function="quadrics").fit(np.random.default_rng(41).normal(size=(40, 1)))
    assert np.ptp(fitted.decision_scores_) == 0
    again = loaded_from(saved(fitted))
    rows = TEST[:5, :1]
    for detector in (fitted, again):
        probabilities = detector.predict_proba(rows, "unify")
        assert np.isfinite(probabilities).all()


def test_the_file_with_everything_is_the_one_of_other_tests():
    assert json.dumps(decode(content())[0], sort_keys=True) == json.dumps(base("everything")[0], sort_keys=True)
