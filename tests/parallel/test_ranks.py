"""Two real processes fit what one process fits, hold the same numbers, and go on after one of them is killed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from pyod_quadric import QuadricDetector
from tests.support.distributed_fit import SETTINGS, data_of, trained, trained_with_checkpoints
from tests.support.processes import HANGING

ROOT = Path(__file__).parents[2]


def run(*arguments):
    """Start two processes by torchrun, and return what they have printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", *map(str, arguments)]
    network = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform.startswith("linux") else {}  # whatever the name of the host means
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | network
    environment.pop("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", None)  # restarts need no help
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANGING)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout


def torchrun(folder, what, *arguments):
    """Run the script in two processes, and return what each of them has written."""
    run(*arguments, "-m", "tests.support.distributed_fit", what, folder)
    return [json.loads((folder / f"{what}-{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return torchrun(tmp_path_factory.mktemp("fits"), "fits")


def test_both_processes_hold_the_same_numbers(both):
    assert both[0] == both[1]
    assert both[0]["refused"]


def test_all_follow_the_first_process(both):
    alone = trained(data_of("default") - 3)
    np.testing.assert_allclose(both[0]["own start"], alone.quadrics.quadratic, atol=1e-9)
    assert len(both[0]["unseeded"]) == 301
    assert len(both[0]["unseeded stream"]) == 100


def test_all_processes_hear_of_rows_that_one_of_them_cannot_use(both):
    assert re.search(r"row 3 of .*spoilt.* holds NaN", both[0]["NaN in one share"])


def test_a_stream_that_all_processes_see(both):
    detector = QuadricDetector(window=200)
    for chunk in np.split(data_of("default"), [100, 150, 260]):
        detector.partial_fit(chunk)
    np.testing.assert_allclose(both[0]["stream"], detector.decision_scores_, rtol=1e-5)


def test_all_processes_hear_that_the_first_one_cannot_write(both):
    assert both[0]["full disk"] == "No space left on device"


@pytest.mark.parametrize("function", ["fit", "trained"])
def test_rows_that_the_processes_do_not_share_are_refused(both, function):
    assert "process 0 has 301 rows of 6 features, process 1 has 300 of 6" in both[0][f"{function}: other rows"]
    assert "with other values" in both[0][f"{function}: other values"]
    assert "several processes cannot share a loader" in both[0][f"{function}: loader"]


@pytest.mark.filterwarnings("ignore:.*quadrics that were asked for")
@pytest.mark.parametrize("name", SETTINGS)
def test_two_processes_fit_what_one_does(both, name):
    alone = QuadricDetector(**SETTINGS[name]).fit(data_of(name))
    found = both[0][name]
    np.testing.assert_allclose(found["scores"], alone.decision_scores_, rtol=1e-5)
    assert found["threshold"] == pytest.approx(alone.threshold_, rel=1e-5)
    np.testing.assert_allclose(found["held_out_loss"], alone.history_["held_out_loss"], rtol=1e-5)


def test_absurd_rows_are_the_farthest_outliers_in_both_processes(both):
    """Their size is rounding in the sums of the first round, which depend on the number of processes."""
    alone = QuadricDetector().fit(data_of("absurd rows")).decision_scores_
    assert set(np.argsort(both[0]["absurd rows"])[-2:]) == {7, 250}
    assert spearmanr(both[0]["absurd rows"], alone).statistic > 0.95


def test_after_a_kill_training_goes_on_from_the_checkpoint(tmp_path):
    whole, interrupted = tmp_path / "whole", tmp_path / "interrupted"
    whole.mkdir()
    interrupted.mkdir()
    expected = torchrun(whole, "killed")
    (interrupted / "kill").touch()
    found = torchrun(interrupted, "killed", "--max-restarts=1")
    assert not (interrupted / "kill").exists()  # it was killed
    with pytest.raises(ValueError, match="differs in the number of processes"):
        trained_with_checkpoints(interrupted / "run.ckpt")
    assert found[0]["frame"] == found[1]["frame"] == expected[0]["frame"]
    assert found[0]["n_steps"] < expected[0]["n_steps"] == 30  # 10 batches in each of 3 epochs, and the first ones were kept


def test_the_command_line_in_two_processes_writes_one_model(tmp_path):
    (tmp_path / "shards").mkdir()
    rows = data_of("default")
    for number, part in enumerate(np.split(rows, [100, 210])):
        np.save(tmp_path / "shards" / f"{number}.npy", part)
    printed = run("-m", "pyod_quadric", "fit", tmp_path / "shards", "--output", tmp_path / "model.safetensors")
    assert printed.count("fitted to 301 rows") == 1  # the other process is silent
    found = QuadricDetector.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(found.decision_scores_, QuadricDetector().fit(rows).decision_scores_, rtol=1e-5)
