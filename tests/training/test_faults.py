"""Disks that are full and folders that cannot be written to: a clear error, the old file as it was, and nothing beside it."""

import errno
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from pyod_quadric import QuadricDetector
from pyod_quadric.storage.atomic import write_atomically
from pyod_quadric.training.loop import train
from tests.support.circle import TEST, X
from tests.support.disks import limited_size
from tests.support.runs import assert_same, interrupted, options, start, torus

NOBODY = 65534


@contextmanager
def full_disk(path):
    """Let nothing come to the disk."""

    def flushed(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", flushed)
        yield


@contextmanager
def forbidden_folder(path):
    """Let nobody write to the folder, not even root, who becomes somebody else for a while."""
    is_root = os.geteuid() == 0
    path.parent.chmod(0o555)
    try:
        if is_root:
            os.seteuid(NOBODY)
        yield
    finally:
        if is_root:
            os.seteuid(0)
        path.parent.chmod(0o755)


FAULTS = {limited_size: errno.EFBIG, full_disk: errno.ENOSPC, forbidden_folder: errno.EACCES}
faults = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)


@pytest.fixture
def path():
    with tempfile.TemporaryDirectory() as folder:  # others may not enter pytest's own
        Path(folder).chmod(0o755)
        yield Path(folder) / "file"


@contextmanager
def refused(fault, path):
    """Assert that the fault is raised by its number and with the name of the file, and that the folder is as it was."""
    before = contents(path)
    with pytest.raises(OSError, match="it could not be written, and what was there before is as it was") as raised, fault(path):
        yield
    assert raised.value.errno == FAULTS[fault]
    assert raised.value.filename == str(path)
    assert contents(path) == before


def contents(path):
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}


@faults
def test_new_files_are_not_there(fault, path):
    with refused(fault, path):
        write_atomically(path, [b"a" * 900, b"b" * 900])
    assert contents(path) == {}
    write_atomically(path, [b"a" * 900, b"b" * 900])
    assert path.read_bytes() == b"a" * 900 + b"b" * 900


@faults
def test_saved_detectors_stay(fault, path):
    QuadricDetector().fit(X).save(path)
    other = QuadricDetector().fit(TEST)
    with refused(fault, path):
        other.save(path)
    np.testing.assert_array_equal(QuadricDetector.load(path).decision_scores_, QuadricDetector().fit(X).decision_scores_)
    other.save(path)
    np.testing.assert_array_equal(QuadricDetector.load(path).decision_scores_, other.decision_scores_)


@faults
def test_training_stops_at_once_and_goes_on_from_its_checkpoint(fault, path):
    kept = options(checkpoint=path, checkpoint_steps=4)
    with refused(fault, path):
        train(torus(), start(), kept)  # where nothing has been lost yet
    interrupted(torus(), start(), kept, 14)
    assert {"file", "file.previous"} == contents(path).keys()
    with refused(fault, path):
        train(torus(), start(), kept)
    assert_same(train(torus(), start(), kept).quadrics, train(torus(), start(), options()).quadrics)


def test_a_disk_that_becomes_full_in_training_keeps_the_last_checkpoint(path):
    """The optimiser's state comes with the first step, so that later checkpoints are larger than the first one."""
    kept = options(checkpoint=path, checkpoint_steps=1, optimizer_name="adam")
    interrupted(torus(), start(), kept, 0)
    limit = path.stat().st_size
    with limited_size(path, limit), pytest.raises(OSError, match="it could not be written") as raised:
        train(torus(), start(), kept)
    assert raised.value.errno == errno.EFBIG
    assert contents(path).keys() == {"file", "file.previous"}
    assert path.stat().st_size == limit
    assert_same(train(torus(), start(), kept).quadrics, train(torus(), start(), options(optimizer_name="adam")).quadrics)


def test_a_fit_that_cannot_keep_its_checkpoint_leaves_an_earlier_fit(path):
    detector = QuadricDetector(epoch_num=1, batch_size=64, n_quadrics=1).fit(X)
    before = detector.decision_function(TEST)
    with full_disk(path), pytest.raises(OSError, match="No space left on device"):
        detector.set_params(training_options={"checkpoint": path}, score_function="mean_distance").fit(TEST)
    np.testing.assert_array_equal(detector.decision_function(TEST), before)
    assert contents(path) == {}
