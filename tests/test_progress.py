"""A fit says where it is and where its time went, to whoever asks, and is silent otherwise."""

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count as numbers
from threading import Barrier

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from pyod_quadric import QuadricDetector, TrainingOptions, progress, random_quadrics, train
from pyod_quadric.cli.main import main
from pyod_quadric.data.batches import LoaderBatches, PassBatches, RowBatches
from pyod_quadric.data.rows import rows_of
from pyod_quadric.progress import count, counted, is_reported, reported, stage
from tests.support.circle import X

CLOSED_FORM = ["preparation", "copies", "moments", "groups", "row weights", "linear part", "closed form", "evidence"]
SCORED = ["neighbours", "held-out scores"]
trees = st.recursive(st.just([]), lambda inner: st.lists(st.tuples(st.sampled_from("abc"), inner), max_size=3), max_leaves=8)


def run(tree):
    for name, inner in tree:
        with stage(name):
            run(inner)


def n_stages(tree):
    return sum(1 + n_stages(inner) for _, inner in tree)


@given(tree=trees)
def test_the_outer_stages_have_the_time_of_those_inside(tree):
    """The clock goes on by one whenever it is looked at: at the begin of each stage, at its end, and once in between."""
    with pytest.MonkeyPatch.context() as patch:
        ticks = numbers()
        patch.setattr(progress, "monotonic", lambda: float(next(ticks)))
        with reported() as timings:
            run(tree)
    expected = {}
    for name, inner in tree:
        expected[name] = expected.get(name, 0) + 2 + 3 * n_stages(inner)
    assert timings == expected
    assert not is_reported()


@given(parts=st.lists(st.integers()), total=st.none() | st.integers(0, 9), taken=st.integers(0, 9), shown=st.booleans())
def test_counting_changes_nothing(parts, total, taken, shown):
    with reported(shown), stage("counting"), count(3, "things") as outer:
        assert list(counted(parts, total, "parts")) == parts
        some = counted(parts, total, "parts")
        assert [next(some) for _ in parts[:taken]] == parts[:taken]
        some.close()  # in the middle
        outer.advance(2)
    assert outer.n_done == 2
    assert list(counted(parts, total, "parts")) == parts


def lines(err):
    """Return what stood on the line at one time or another, and what was left."""
    return [text.strip() for text in err.replace("\n", "\r").split("\r") if text.strip()]


def test_lines_claim_what_is_known(capsys):
    with reported(shown=True), stage("known"), stage("inside"):
        list(counted("abcd", 4, "letters"))
    known = lines(capsys.readouterr().err)
    assert known[0].startswith("known [00:")
    assert known[-2].startswith("known, inside: 100%")
    assert "4/4 [" in known[-2]
    assert "letters" in known[-2]
    with reported(shown=True), stage("unknown"):
        list(counted("abcd", None, "letters"))
    unknown = lines(capsys.readouterr().err)
    assert any("unknown: 4letters [" in line for line in unknown)
    assert not any("%" in line or "?<" in line for line in unknown)


def test_a_count_goes_on_after_one_inside(capsys):
    with reported(shown=True), stage("outer"), count(10, "things", n_done=3) as done:
        list(counted("ab", 2, "letters"))
        done.advance()
    assert "4/10" in lines(capsys.readouterr().err)[-1]


def test_a_failure_ends_its_line(capsys, monkeypatch):
    monkeypatch.setattr(progress, "KEPT_SECONDS", 0)
    with pytest.raises(KeyboardInterrupt), reported(shown=True) as timings, stage("first"), stage("second"):
        raise KeyboardInterrupt
    assert list(timings) == ["first"]
    assert not capsys.readouterr().err.endswith("\n")
    with reported(shown=True), stage("next"):
        pass
    assert lines(capsys.readouterr().err)[-1] == "next: 0.0 s"


def test_a_terminal_that_does_not_know_its_width_has_lines_too():
    """A new pseudo-terminal has 0 columns, and so have those of ``docker run -t`` and ``script`` without a terminal around."""
    pty = pytest.importorskip("pty")
    code = """
import sys
from pyod_quadric.progress import counted, reported, stage
with reported(shown=True), stage("known"):
    list(counted("abcd", 4, "letters"))
print("over", file=sys.stderr)
"""
    ours, theirs = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True)
        written = b""
        while b"over" not in written:  # what is written may come a little later, in parts
            written += os.read(ours, 4096)
    finally:
        os.close(theirs)
        os.close(ours)
    assert any(line.startswith("known: 100%") and "4/4 [" in line for line in lines(written.decode())), written


def test_threads_report_apart():
    both = Barrier(2)

    def work(name):
        with ExitStack() as stack:
            timings = stack.enter_context(reported())
            with stage(name):
                both.wait()
            both.wait()
        return list(timings)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, "ab")) == [["a"], ["b"]]


# Fits


@pytest.mark.parametrize(
    ("settings", "stages"),
    [
        ({}, CLOSED_FORM + SCORED),
        ({"epoch_num": 1}, [*CLOSED_FORM, "training", *SCORED]),
        ({"score_function": "linear", "robust": False}, [*CLOSED_FORM[:4], "linear part", "held-out scores"]),
    ],
    ids=str,
)
def test_timings_say_where_the_time_went(settings, stages):
    detector = QuadricDetector(**settings).fit(X)
    assert list(detector.timings_) == stages
    assert all(seconds >= 0 for seconds in detector.timings_.values())


def test_a_loader_is_read_before():
    detector = QuadricDetector().fit(DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=50))
    assert list(detector.timings_) == ["reading", *CLOSED_FORM, *SCORED]


def test_timings_are_of_the_latest_fit(tmp_path):
    detector = QuadricDetector().fit(X)
    first = detector.timings_
    detector.partial_fit(X[:1])  # which is no reason to fit again
    assert detector.timings_ is first
    with pytest.raises(ValueError, match="holds NaN"):
        detector.fit(X * np.nan)
    assert detector.timings_ is first
    assert pickle.loads(pickle.dumps(detector)).timings_ == first
    detector.save(tmp_path / "model")
    assert QuadricDetector.load(tmp_path / "model").timings_ == {}


@pytest.mark.parametrize("settings", [{"verbose": 0}, {"verbose": False}, {"verbose": 2}])
def test_without_a_wish_for_it_there_are_no_bars(settings, capsys, monkeypatch):
    monkeypatch.setattr(progress, "_line_class", lambda: 1 / 0)
    QuadricDetector(**settings).fit(X).decision_function(X)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("verbose", [1, True])
def test_all_stages_are_shown(verbose, capsys):
    detector = QuadricDetector(verbose=verbose, epoch_num=2, n_folds=3).fit(X)
    out, err = capsys.readouterr()
    assert out == ""
    for name in detector.timings_:
        assert any(line.startswith(name) for line in lines(err)), name
    for line in (
        "row weights, round 1 of at most 6, held-out scores: 100%",
        "closed form: 100%",
        "training, penalty: 100%",
        "training, without fold 3 of 3, penalty: 100%",
        "held-out scores: 100%",
    ):
        assert any(found.startswith(line) for found in lines(err)), line
    assert any(line.startswith("training: ") and "epoch=2/2, loss=" in line for line in lines(err))  # which is left


def test_steps_are_claimed_only_where_training_does_not_stop_early(capsys):
    rows, start = torch.from_numpy(X), random_quadrics(2, 3, torch.Generator().manual_seed(0))
    train(rows, start, TrainingOptions(verbose=1, epoch_num=2, batch_size=50))
    assert "8/8 [" in capsys.readouterr().err
    train(rows, start, TrainingOptions(verbose=1, epoch_num=2, batch_size=50, patience=1, validation_fraction=0.5))
    err = capsys.readouterr().err
    assert "4steps [" in err
    assert "%" not in err


def test_a_resumed_training_begins_where_it_was(tmp_path, capsys):
    rows, start = torch.from_numpy(X), random_quadrics(2, 3, torch.Generator().manual_seed(0))
    options = {"batch_size": 50, "checkpoint": tmp_path / "run.ckpt", "epoch_num": 2}
    train(rows, start, TrainingOptions(**options))
    train(rows, start, TrainingOptions(**options, verbose=1))
    assert "8/8 [" in capsys.readouterr().err


def test_batches_of_an_epoch_are_counted():
    rows = rows_of(X)
    loader = DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=30)
    for batches in (RowBatches(rows, 30, 0), RowBatches(rows, 30, 0, one_in=4), PassBatches(rows_of(loader), 30, 0)):
        assert batches.n_batches() == len(list(batches.epoch(0)))
    assert LoaderBatches(loader, 0).n_batches() == len(loader)
    assert LoaderBatches(iter([]), 0).n_batches() is None


def test_nothing_is_settled_for_other_packages():
    """Neither how multiprocessing starts processes, nor are there threads; not even when bars are shown."""
    code = """
import multiprocessing, threading
import numpy as np
from pyod_quadric import QuadricDetector

for verbose in (0, 1):
    QuadricDetector(verbose=verbose).fit(np.random.default_rng(0).normal(size=(50, 3)))
    assert multiprocessing.get_start_method(allow_none=True) is None
    assert threading.enumerate() == [threading.main_thread()]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "held-out scores" in done.stderr


def test_the_command_shows_it_on_a_terminal(tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "rows.npy", X)
    monkeypatch.chdir(tmp_path)
    score = ["score", "model", "rows.npy", "-o", "scores.csv", "--force"]
    for is_terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
        assert main(["fit", "rows.npy", "-o", "model", "--force"]) == 0
        assert ("held-out scores: 100%" in capsys.readouterr().err) == is_terminal
        assert main(score) == 0
        assert ("scores: 100%" in capsys.readouterr().err) == is_terminal
        assert main([*score, "--quiet"]) == 0
        assert capsys.readouterr().err == ""
