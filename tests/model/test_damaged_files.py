"""What is wrong with a file is said, and no file gives a detector that does not work."""

import copy
import json
import pickle
from dataclasses import fields, is_dataclass
from typing import get_origin, get_type_hints

import numpy as np
import pandas
import pytest
import torch
from safetensors.torch import save_file

from pyod_quadric import QuadricDetector
from pyod_quadric.data.stream import Reservoir
from pyod_quadric.model.model import HISTORY_NAMES
from pyod_quadric.model.saved import LAYOUT, FittedState, from_content
from pyod_quadric.storage import container
from pyod_quadric.storage.container import decode, read_container, with_checksum
from pyod_quadric.storage.layout import _without_none
from tests.support.circle import TEST
from tests.support.files import assert_same, content, loaded, state


def edited(content, edit):
    """Return the file after an edit of its header (the document is parsed, too), with a checksum that fits."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"]["detector"] = json.loads(header["__metadata__"]["detector"])
    edit(header)
    metadata = header.get("__metadata__")
    if isinstance(metadata, dict) and "detector" in metadata:
        metadata["detector"] = json.dumps(metadata["detector"])
    text = json.dumps(header, separators=(",", ":")).encode()
    return with_checksum(len(text).to_bytes(8, "little") + text + content[end:])


def path_of(tmp_path, content):
    path = tmp_path / "model"
    path.write_bytes(content)
    return path


def test_an_edit_of_nothing_changes_nothing():
    assert_same(state(loaded(edited(content(), lambda header: None))), state(loaded(content())))


def change(place, **changes):
    def edit(header):
        part = header
        for name in place:
            part = part[name]
        part.update(changes)

    return edit


METADATA, DOCUMENT = ["__metadata__"], ["__metadata__", "detector"]
PARAMETERS, VALUES = [*DOCUMENT, "parameters"], [*DOCUMENT, "values"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (change(METADATA, format_version="2"), "a model of a newer format: 2, where this version of pyod-quadric knows 1"),
        (change(METADATA, format_version="one"), "the version of its format is 'one'"),
        (change(METADATA, format="pt"), "not one of a QuadricDetector"),
        (change(METADATA, detector=3), "is no JSON object"),
        (change(PARAMETERS, n_quadric=3), r"\['n_quadric'\] are no parameters of QuadricDetector"),
        (change(PARAMETERS, lr=-1.0), "lr must be a number above 0"),
        (change(PARAMETERS, lr="fast"), "lr must be a number"),
        (change(PARAMETERS, lr=[1.0]), "lr must be a number"),
        (change(PARAMETERS, contamination="much"), "contamination must be a number"),
        (change(PARAMETERS, random_state=-1), "random_state must be"),
        (
            change(PARAMETERS, training_options={"checkpoint": "/home/somebody/.profile"}),
            "must not choose where this machine computes or writes",
        ),
        (change(PARAMETERS, device="cuda:0"), "must not choose where this machine computes or writes"),
        (change(DOCUMENT, values=None), "it has no parameters, or no values"),
        (change(VALUES, threshold=None), "threshold of the file must be a number; got None"),
        (change(VALUES, std_score=-1.0), "std_score of the file must be a number above 0"),
        (change(VALUES, **{"model.normalize": 1}), "model.normalize of the file must be True or False; got 1"),
        (change(VALUES, **{"model.distance": "euclidean"}), "model.distance of the file must be 'second_order' or"),
        (change(VALUES, **{"model.linear_part.complement": -1.0}), "complement of the file must be a number above 0"),
        (change(VALUES, **{"model.norms.spread": 0.0}), "model.norms.spread of the file must be a number of at least 0.01"),
        (change(VALUES, feature_names=["x", "y"]), "feature_names of the file must be 3 texts"),
        (change(VALUES, feature_names=["x", "y", 3]), "feature_names of the file must be a list of texts"),
        (change(VALUES, versions={"torch_version": 2}), "versions of the file must be a dict of texts"),
        (change(VALUES, labels=3), "a value is there twice"),
        (change(VALUES, **{"stream.n_seen": 61}), "has 60 rows, which does not fit"),
        (change(VALUES, **{"stream.n_used": 10**30}), "stream.n_used of the file must be a whole number of 0 or more"),
        (change(VALUES, **{"stream.window": 50}), "has 60 rows, which does not fit"),
        (change(VALUES, **{"stream.window": "all"}), "stream.window of the file must be a whole number"),
        (change(PARAMETERS, window=2), "window must be a whole number of 3 or more, or None"),
        (change(["labels"], shape=[2**40, 2**40]), "cannot be read"),
        (change(["labels"], shape=[11]), "cannot be read"),
        (change(["labels"], dtype="I8"), "labels of the file does not fit its other tensors: it is torch.int8"),
        (change(["labels"], data_offsets=[0, 2**50]), "cannot be read"),
        (change(["labels"], data_offsets=None), "cannot be read"),
        (change(["model.coordinates.matrix"], shape=[9, 1]), "coordinates.matrix of the file does not fit its other tensors"),
        (lambda header: header.update(other=header.pop("model.quadric_weights")), r"not what a detector has: \['other'\]"),
        (lambda header: header.pop("__metadata__") and None, "it has no checksum"),
    ],
)
def test_what_is_wrong_is_said(edit, message, tmp_path):
    if "no checksum" in message:
        with pytest.raises(ValueError, match=message):
            edited(content(), edit)
        return
    path = path_of(tmp_path, edited(content(), edit))
    with pytest.raises(ValueError, match=message) as raised:
        QuadricDetector.load(path)
    assert str(raised.value).startswith(f"{path} cannot be loaded: ")


def with_numbers(content, name, number):
    """Return the file with other bytes of the first number of a tensor."""
    end = 8 + int.from_bytes(content[:8], "little")
    start = end + json.loads(content[8:end])[name]["data_offsets"][0]
    new = number if isinstance(number, bytes) else np.float64(number).tobytes()
    return with_checksum(content[:start] + new + content[start + len(new) :])


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        ("model.coordinates.matrix", np.nan, "coordinates.matrix of the file has numbers that no fit gives"),
        ("model.linear_part.mean", np.inf, "linear_part.mean of the file has numbers"),
        ("model.linear_part.variances", 0.0, "linear_part.variances of the file has numbers"),
        ("model.quadric_weights", -1.0, "quadric_weights of the file has numbers that no fit gives, from -1"),
        ("decision_scores", 1e200, "decision_scores of the file has numbers"),
        ("labels", b"\x02", "labels of the file has numbers"),
        ("model.quadrics.constant", np.nan, "quadrics.constant of the file has numbers"),
        ("model.quadrics.constant", 1e200, "quadrics.constant of the file has numbers"),
        ("init.linear", np.nan, "init.linear of the file has numbers"),
        ("stream.rows", np.nan, "stream.rows of the file has numbers"),
    ],
)
def test_numbers_that_no_fit_gives_are_noticed(name, number, message):
    with pytest.raises(ValueError, match=message):
        from_content(decode(with_numbers(content(), name, number)))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (b"", "has 0 bytes"),
        (b"short", "has 5 bytes"),
        (pickle.dumps({"a": 1}), "not one of a QuadricDetector"),
        (b"\x89PNG\r\n\x1a\n" + bytes(1000), "not one of a QuadricDetector"),
        ((2**62).to_bytes(8, "little") + bytes(1000), "not one of a QuadricDetector"),
        ((10).to_bytes(8, "little") + b"[[[[[[[[[[", "its header is damaged"),
        ((2).to_bytes(8, "little") + b"[]", "not one of a QuadricDetector"),
        ((10**6).to_bytes(8, "little") + b"[" * 10**6, "its header is damaged"),
    ],
)
def test_files_of_other_programs_are_noticed(tmp_path, other, message):
    with pytest.raises(ValueError, match=message):
        QuadricDetector.load(path_of(tmp_path, other))


def test_other_safetensors_are_noticed(tmp_path):
    save_file({"a": torch.ones(3)}, tmp_path / "model")
    with pytest.raises(ValueError, match="not one of a QuadricDetector"):
        QuadricDetector.load(tmp_path / "model")


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        QuadricDetector.load(tmp_path / "model")


def test_huge_files_are_not_read(tmp_path, monkeypatch):
    path = path_of(tmp_path, content())
    with path.open("r+b") as file:
        file.truncate(2**40)  # a hole: it takes no space on the disk
    with pytest.raises(ValueError, match="the file has 1099511627776 bytes, but at most"):
        QuadricDetector.load(path)
    monkeypatch.setattr(container, "MOST_BYTES", len(content()) - 1)
    with pytest.raises(ValueError, match=f"at most {len(content()) - 1} can be read"):
        QuadricDetector.load(path_of(tmp_path, content()))


# Mutations

STRANGE = [None, True, -1, 0, 1, 2**31, 2**63, 10**40, 0.0, -0.5, 1e308, float("nan"), float("inf"), "", "auto", "F64", [], {}]


def flip(rng, content, start=0, stop=None):
    changed = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        changed[rng.integers(start, stop or len(content))] ^= 1 << rng.integers(8)
    return bytes(changed)


def flipped_header(rng, content):
    return with_checksum(flip(rng, content, 8, 8 + int.from_bytes(content[:8], "little")))


def flipped_numbers(rng, content):
    return with_checksum(flip(rng, content, 8 + int.from_bytes(content[:8], "little")))


def cut(rng, content):
    start = rng.integers(len(content))
    return content[:start] + content[start + rng.integers(1, len(content)) :]


def insert(rng, content):
    place, other = rng.integers(len(content) + 1), rng.integers(len(content))
    added = rng.bytes(rng.integers(1, 20)) if rng.random() < 0.5 else content[other : other + rng.integers(1, 2000)]
    return content[:place] + added + content[place:]


def strange_header(rng, content):
    """Put something strange anywhere in the header, take something away, or give one thing the place of another."""

    def edit(header):
        places = []

        def walk(part):
            for name in part if isinstance(part, dict) else range(len(part)):
                places.append((part, name))
                if isinstance(part[name], dict | list):
                    walk(part[name])

        walk(header)
        for _ in range(rng.integers(1, 3)):
            part, name = places[rng.integers(len(places))]
            other, other_name = places[rng.integers(len(places))]
            kind = rng.integers(4)
            try:
                if kind == 0:
                    del part[name]
                elif kind == 1 and isinstance(part[name], int | float):
                    part[name] += int(rng.integers(-3, 4))
                elif kind == 2:
                    part[name] = copy.deepcopy(other[other_name])
                else:
                    part[name] = copy.deepcopy(STRANGE[rng.integers(len(STRANGE))])
            except (KeyError, IndexError):  # it was taken away before
                continue

    return edited(content, edit)


@pytest.mark.parametrize(
    ("mutate", "count", "always_noticed"),
    [
        (flip, 4500, True),
        (cut, 2000, True),
        (insert, 2000, True),
        (flipped_header, 1500, False),
        (flipped_numbers, 150, False),
        (strange_header, 1000, False),
    ],
)
def test_no_mutation_gives_a_detector_that_does_not_work(mutate, count, always_noticed):
    rng = np.random.default_rng(0)
    accepted = refused = 0
    for _ in range(count):
        try:
            mutated = mutate(rng, content())  # which raises if there is no place for a checksum left
            found = QuadricDetector._from_state(*from_content(decode(mutated)))
        except ValueError:
            refused += 1
            continue
        accepted += 1
        rows = pandas.DataFrame(TEST[:5, : found.n_features_in_], columns=getattr(found, "feature_names_in_", None))
        for dtype in (np.float64, np.float32):
            scores = found.decision_function(rows.astype(dtype))
            assert scores.shape == (5,)
            assert np.isfinite(scores).all()
    assert refused > 0
    assert accepted == 0 if always_noticed else accepted > 0


def test_files_that_were_cut_off_are_noticed(tmp_path):
    rng = np.random.default_rng(1)
    for _ in range(50):
        with pytest.raises(ValueError, match="file"):
            read_container(path_of(tmp_path, cut(rng, content())))
    state, _ = from_content(read_container(path_of(tmp_path, content())))
    assert isinstance(state.stream, Reservoir)


def test_the_layout_names_every_value_of_a_fitted_state():
    """What a fit leaves behind is in the file, or this says what is missing."""

    def names(kind, before=""):
        for field in fields(kind):
            inner = _without_none(get_type_hints(kind)[field.name])
            if is_dataclass(inner):
                yield from names(inner, f"{before}{field.name}.")
            elif get_origin(inner) is dict and field.name == "history":
                yield from (f"history.{name}" for name in HISTORY_NAMES)
            else:
                yield f"{before}{field.name}"

    init = {f"init.{name}" for name in ("quadratic", "linear", "constant")}
    assert {*names(FittedState)} | init == LAYOUT.keys()
