"""Checkpoints as an attacker would make them, with a checksum that fits: a clear error, or a training that ends."""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric.storage.checkpoints import read_checkpoint, write_checkpoint
from pyod_quadric.training import loop
from pyod_quadric.training.loop import train
from tests.support.profiles import n_examples
from tests.support.runs import assert_same, interrupted, options, start, torus

RUNS = {
    "sgd": {},
    "adam": {"optimizer_name": "adam"},
    "stiefel sgd": {"constraint": "stiefel"},
    "stiefel adam": {"constraint": "stiefel", "optimizer_name": "adam"},
}
PATIENT = {"validation_fraction": 0.1, "patience": 2}
REFUSED = r"the checkpoint .*run.ckpt (is none that such a run has written|belongs to another run)"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Return the options of each run, the path of its checkpoint in the second epoch, and the state in it."""
    found = {}
    for name, changes in RUNS.items():
        path = tmp_path_factory.mktemp("runs") / "run.ckpt"
        kept = options(**changes, **PATIENT, checkpoint=path, checkpoint_steps=1)
        interrupted(torus(), start(), kept, 14)
        found[name] = kept, path, read_checkpoint(path)
    return found


def resumed(run, state):
    kept, path, _ = run
    write_checkpoint(path, state)
    return train(torus(), start(), kept)


@pytest.mark.parametrize("name", RUNS)
def test_what_was_not_changed_goes_on_bit_for_bit(sound, name):
    state = sound[name][2]
    assert any(value.startswith("optimizer.0") for value in state)
    whole = train(torus(), start(), options(**RUNS[name], **PATIENT))
    assert_same(resumed(sound[name], state).quadrics, whole.quadrics)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # What a run has, but no checkpoint may set.
        ({"options": None}, r"not what a run with these options has: \['options'\]"),
        ({"_save": "x"}, "_save"),
        ({"__class__": "x"}, "__class__"),
        ({"constraint": torch.ones(2)}, "constraint"),
        ({"optimizer.0.lr": 1e30}, r"optimizer\.0\.lr"),
        ({"optimizer.param_groups": [{"lr": 1e30}]}, "param_groups"),
        ({"optimizer.7.momentum": torch.ones(2, 10)}, r"optimizer\.7"),
        ({"frame": torch.full((2, 10), 1e30, dtype=torch.float64)}, "frame of the file has numbers that no fit gives"),
        ({"frame": torch.full((2, 10), torch.nan, dtype=torch.float64)}, "frame of the file has numbers"),
        ({"frame": torch.eye(3, 10, dtype=torch.float64)}, "frame of the file does not fit"),
        ({"frame": torch.eye(2, 9, dtype=torch.float64)}, "frame of the file does not fit"),
        ({"frame": torch.eye(2, 10)}, "frame of the file does not fit its other tensors: it is torch.float32"),
        ({"frame": [[1.0] * 10] * 2}, "frame of the file must be a tensor, got list"),
        ({"rest": torch.full((2, 5), 1e60, dtype=torch.float64)}, "rest of the file has numbers"),
        ({"best.frame": torch.full((2, 10), 1e30, dtype=torch.float64)}, "best.frame of the file has numbers"),
        ({"best.loss": -1.0}, "best.loss of the file must be a number of at least 0"),
        ({"epoch": 10**9}, "epoch of the file must be a whole number from 0 to 3"),
        ({"epoch": 3}, "history is of"),
        ({"epoch": -1}, "epoch of the file"),
        ({"epoch": 1.0}, "epoch of the file"),
        ({"batch": -1}, "batch of the file"),
        ({"batch": 10**30}, "batch of the file"),
        ({"stale": -5}, "stale of the file"),
        ({"stale": 2}, "history is of"),
        ({"seconds": -1.0}, "seconds of the file"),
        ({"sums": torch.tensor([torch.nan, 1.0], dtype=torch.float64)}, "sums of the file has numbers"),
        ({"sums": torch.zeros(3, dtype=torch.float64)}, "sums of the file does not fit"),
        ({"history.loss": torch.zeros(7, dtype=torch.float64)}, "history.* does not fit|history is of"),
        ({"history.loss": torch.zeros(0, dtype=torch.float64)}, "history.* does not fit"),
        ({"history.extra": torch.zeros(1, dtype=torch.float64)}, "history.extra"),
        ({"fingerprint": "x"}, "fingerprint of the file must be a dict of texts"),
        ({"fingerprint": {}}, "differs in"),
        ({"fingerprint": {"lr": ["x"]}}, "differs in"),
    ],
)
def test_what_was_changed_is_said(sound, name, changes, message):
    with pytest.raises(ValueError, match=REFUSED) as raised:
        resumed(sound[name], sound[name][2] | changes)
    raised.match(message)


def test_a_frame_on_the_manifold_is_orthonormal(sound):
    frame = 2 * sound["stiefel sgd"][2]["frame"]
    with pytest.raises(ValueError, match=r"its frame is not orthonormal, but off by"):
        resumed(sound["stiefel sgd"], sound["stiefel sgd"][2] | {"frame": frame})


def other_values(value):
    """Return what an attacker would put in the place of a value."""
    others = [None, "x", -1, 10**400, [], {}, [[1.0]], torch.zeros(()), torch.zeros(0, dtype=torch.float64)]
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        others += [value[None], value.to(torch.int64), value.float() if value.dtype == torch.float64 else value.double() + 0.5]
        others += [value.expand(2, *value.shape).contiguous(), torch.full_like(value, torch.nan)]
    return others


def is_refused(call, *arguments):
    try:
        call(*arguments)
    except ValueError as error:
        return 0 < len(str(error)) < 2000
    return False


@pytest.mark.parametrize("name", RUNS)
def test_no_value_can_be_missing_or_of_another_kind(sound, name):
    """Each of the values in turn, by the check alone: a training that goes on would have to be a right one."""
    kept, _, state = sound[name]
    check, n_refused = check_of(kept), 0
    for place, value in state.items():
        if place == "fingerprint":  # which is compared before
            continue
        without = {key: one for key, one in state.items() if key != place}
        assert is_refused(check, without), place
        for other in other_values(value):
            refused = is_refused(check, without | {place: other})
            # A number of steps may be another one, and what was not measured is NaN.
            assert refused or place.endswith(".step") or place.startswith("history."), (place, other)
            n_refused += refused
    assert n_refused > 9 * len(state)


def check_of(kept):
    run = loop._Run(torus(), start(), replace(kept, checkpoint=None, checkpoint_steps=None), None, None, None)
    layout = run.constraint.optimizer_layout(kept)
    return lambda values: loop.RunState.checked(values, kept, layout, run._state())


@n_examples(40)
@given(st.data())
def test_numbers_within_bounds_end_as_a_training_or_an_error(sound, data):
    """What is taken of a changed state is finite in the end, or the training says that it diverged."""
    run = sound[data.draw(st.sampled_from(sorted(RUNS)))]
    state = copy.deepcopy(run[2])
    name = data.draw(st.sampled_from([key for key, value in state.items() if isinstance(value, torch.Tensor)]))
    flat = state[name].view(-1)
    flat[data.draw(st.integers(0, flat.numel() - 1))] = data.draw(st.floats(width=32))
    try:
        trained = resumed(run, state)
    except (ValueError, FloatingPointError):
        return
    for part in (trained.quadrics.quadratic, trained.quadrics.linear, trained.quadrics.constant):
        assert torch.isfinite(part).all()
