"""Parameters are declared once, reach the fit, and are never ignored in silence."""

import inspect
import warnings

import numpy as np
import pytest

from pyod_quadric import QuadricDetector, Quadrics, TrainingOptions, random_quadrics
from pyod_quadric.allowed import (
    Flag,
    Mapping,
    Nothing,
    Number,
    Object,
    PathName,
    Seed,
    Share,
    Text,
    Whole,
    Words,
    checked,
    parsed,
)
from pyod_quadric.fitting.folds import LEAST_FOLDS
from pyod_quadric.geometry.distances import DISTANCE_FUNCTIONS
from pyod_quadric.parameters import LEAST_ROWS, RARELY_USED, Parameters, declarations, training_declaration
from tests.support.circle import X


def test_the_signature_has_the_declared_parameters_and_defaults():
    signature = inspect.signature(QuadricDetector).parameters
    assert {name: parameter.default for name, parameter in signature.items()} == {
        name: entry.default for name, entry in declarations(Parameters).items()
    }
    assert list(signature) == list(declarations(Parameters))


def test_the_docstrings_name_every_parameter():
    for kind, names in ((QuadricDetector, declarations(Parameters)), (TrainingOptions, declarations(TrainingOptions))):
        for name in names:
            doc = inspect.getdoc(kind)  # without the indentation, which Python 3.13 removes anyway
            assert f"\n{name} : " in doc or f"``{name}``" in doc, name
    assert all(f"``{name}``" in QuadricDetector.__doc__ for name in RARELY_USED)


def test_what_is_declared_elsewhere_agrees():
    (words,) = declarations(Parameters)["distance"].metadata["kinds"]
    assert words.words == tuple(DISTANCE_FUNCTIONS)
    assert LEAST_ROWS == LEAST_FOLDS


# No silence


def epochs(**settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return len(QuadricDetector(**settings).fit(X).history_["loss"])


ASKING = [
    {"constraint": "penalty"},
    {"constraint": "stiefel"},
    {"lr": 0.002},
    {"batch_size": 50},
    {"optimizer_name": "adam"},
    {"init": "random"},
    {"training_options": {"orthonormality_weight": 2.0}},
    {"training_options": {"loss": "algebraic"}},
    {"training_options": {"momentum": 0.5}},
    {"training_options": {"schedule": "constant"}},
    {"training_options": {"validation_fraction": 0.2}},
]


@pytest.mark.parametrize("asked", ASKING, ids=str)
def test_whoever_asks_for_training_gets_it_or_an_error(asked):
    assert epochs(**asked) == 20
    assert epochs(epoch_num=2, **asked) == 2
    ((name, value),) = asked.items()
    given = next(iter(value.items())) if isinstance(value, dict) else (name, value)
    with pytest.raises(ValueError, match=f"{given[0]}={given[1]!r} asks for training, but epoch_num=0 forbids it"):
        epochs(epoch_num=0, **asked)
    with pytest.raises(ValueError, match=f"{given[0]}={given[1]!r} asks for training, but score_function='linear'"):
        epochs(score_function="linear", **asked)


def test_nobody_is_trained_without_asking():
    assert epochs() == epochs(epoch_num=0) == epochs(training_options={}) == epochs(score_function="mean_distance") == 0


def test_a_constraint_is_the_one_that_trains():
    penalty, stiefel = (
        QuadricDetector(constraint=name, n_quadrics=2, score_function="mean_distance", lr=0.05).fit(X).history_
        for name in ("penalty", "stiefel")
    )
    assert stiefel["orthonormality_error"][-1] < 1e-12 < 1e-8 < penalty["orthonormality_error"][-1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"score_function": "linear", "n_quadrics": 3}, "n_quadrics=3 has no effect: score_function='linear' has no quadrics"),
        ({"score_function": "linear", "distance": "algebraic"}, "distance='algebraic' has no effect"),
        ({"score_function": "linear", "inner_product": "coefficient"}, "inner_product='coefficient' has no effect"),
        ({"score_function": "linear", "init": "spectral"}, "init='spectral' has no effect"),
        (
            {"init": "given", "score_function": "mean_distance", "inner_product": "coefficient"},
            "has no effect: the quadrics are given and not trained",
        ),
    ],
)
def test_what_has_no_effect_is_said(settings, message):
    if settings.get("init") == "given":
        import torch

        settings = settings | {"init": random_quadrics(1, 3, torch.Generator().manual_seed(0), torch.float64)}
    with pytest.warns(UserWarning, match=message):
        QuadricDetector(**settings).fit(X)


@pytest.mark.parametrize(
    ("rare", "message"),
    [
        ({"orthonormality_weight": -1}, "orthonormality_weight must be a number of at least 0"),
        ({"loss": "third_order"}, "loss must be 'second_order' or"),
        ({"patience": 3}, "set validation_fraction"),
        ({"checkpoint_steps": 3}, "checkpoint_steps=3 has no effect"),
        ({"checkpoint": "/no/such/folder/run.ckpt"}, "there is no folder"),
    ],
)
def test_training_options_are_checked(rare, message):
    with pytest.raises(ValueError, match=message):
        QuadricDetector(training_options=rare).fit(X)


def test_a_weight_of_the_penalty_does_not_go_with_the_manifold():
    with pytest.raises(ValueError, match=r"orthonormality_weight=2\.0 has no effect: the Stiefel manifold"):
        QuadricDetector(constraint="stiefel", training_options={"orthonormality_weight": 2.0}).fit(X)


def test_fits_leave_the_given_options_alone():
    options = {"momentum": np.float32(0.5)}
    detector = QuadricDetector(training_options=options, epoch_num=1).fit(X)
    assert detector.training_options is options
    assert options == {"momentum": np.float32(0.5)}


# Kinds of values


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Words("a", "b"), ["a", "b"], ["c", 1, None]),
        (Whole(1), [1, np.int64(3)], [0, 1.0, True, "1"]),
        (Whole(0, 5), [0, 5], [6, -1]),
        (Number(above=0, most=1), [1, 0.5, np.float32(0.5)], [0, 1.1, np.nan, np.inf, True, "1"]),
        (Share(), [0.5, 1e-9], [0.6, 0, True, np.float32(0.1)]),
        (Flag(), [True, False, np.True_], [1, 0, None, "yes"]),
        (Nothing(), [None], [0, False, ""]),
        (Text(), ["a"], [1, None]),
        (PathName(), ["a"], [1, None]),
        (Seed(), [0, 2**32 - 1, np.random.RandomState(0)], [-1, 2**32, 0.5, None, np.random.default_rng(0)]),
        (Mapping(("a",)), [{}, {"a": 1}], [{"b": 1}, [], None]),
        (Object("Quadrics"), [], [1, Quadrics]),
    ],
    ids=lambda value: str(value) if not isinstance(value, list) else "",
)
def test_kinds_accept_what_they_say(kind, good, bad):
    assert all(kind.accepts(value) for value in good)
    assert not any(kind.accepts(value) for value in bad)
    for value in bad:
        with pytest.raises(ValueError, match=r"^x must be .*; got"):
            checked("x", value, (kind,))


def test_values_come_in_types_of_python():
    found = Parameters(n_quadrics=np.int64(3), robust=np.True_, n_components=np.float32(0.5), lr=np.float64(1))
    assert [type(value) for value in (found.n_quadrics, found.robust, found.n_components, found.lr)] == [
        int,
        bool,
        float,
        float,
    ]


@pytest.mark.parametrize("name", [*declarations(Parameters), *RARELY_USED])
def test_defaults_are_allowed_and_texts_are_parsed(name):
    entry = declarations(Parameters).get(name) or training_declaration(name)
    kinds = entry.metadata["kinds"]
    assert checked(name, entry.default, kinds) == entry.default
    assert entry.metadata["words"]
    text = {"True": "yes", "False": "no", "None": "none"}.get(str(entry.default), str(entry.default))
    assert parsed(text, kinds) == entry.default
