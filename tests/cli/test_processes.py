"""The command line as a process: bounded memory, signals, pipes."""

import array
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from pyod_quadric import QuadricDetector
from pyod_quadric.cli.main import end_by_signals, main, run
from tests.support.processes import HANGING

COMMAND = [sys.executable, "-m", "pyod_quadric"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and pipes as POSIX has them")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model"
    QuadricDetector(robust=False).fit(np.random.default_rng(0).normal(size=(300, 64))).save(path)
    return path


def start(*arguments, **streams):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    # Processes that a shell starts in the background ignore Ctrl-C, those of nohup SIGHUP, and so would their children.
    return subprocess.Popen([*COMMAND, *map(str, arguments)], env=ENVIRONMENT, text=True, preexec_fn=hear_signals, **pipes)


def hear_signals():
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def test_the_installed_command_is_this_one():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"pyod-quadric": f"{run.__module__}:{run.__name__}"}


PEAKS = """
import sys
from pyod_quadric.cli.main import main

model, scores, *files = sys.argv[1:]
peaks = []
for rows in files:
    assert main(["score", model, rows, "--output", scores, "--force", "--quiet"]) == 0
    # Not getrusage's peak: that of a child begins with what its parent had.
    peaks.append(int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024)
print(*peaks)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is found where Linux has it")
def test_the_memory_of_score_does_not_grow_with_the_rows(tmp_path, model):
    big = np.lib.format.open_memmap(tmp_path / "big.npy", mode="w+", dtype=np.float32, shape=(300_000, 64))  # 77 MB
    big[:] = 1.0
    big.flush()
    np.save(tmp_path / "small.npy", big[:8192])
    line = ",".join(["0.1234567890123456"] * 64) + "\n"
    for name, n_rows in (("small", 10_000), ("big", 35_000)):  # 12 and 43 MB
        (tmp_path / f"{name}.csv").write_text(",".join(f"c{place}" for place in range(64)) + "\n" + n_rows * line)
    files = [tmp_path / name for name in ("small.npy", "big.npy", "small.csv", "big.csv")]
    command = [sys.executable, "-c", PEAKS, model, tmp_path / "scores.npy", *files]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    few, many, few_lines, many_lines = map(int, done.stdout.split())
    assert many_lines - few_lines < 16 * 2**20
    assert many - few < 16 * 2**20  # resident pages, those of the mapped file included
    assert np.load(tmp_path / "scores.npy").shape == (35_000,)


def unread(pipe):
    """Return how many bytes of what was written to a pipe nobody has read yet."""
    import fcntl
    import termios

    number = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, number)
    return number[0]


SIGNALS = {
    signal.SIGINT: (130, "pyod-quadric: interrupted\n"),
    signal.SIGTERM: (143, "pyod-quadric: ended by SIGTERM\n"),
    signal.SIGHUP: (129, "pyod-quadric: ended by SIGHUP\n"),
}


def in_the_middle_of_score(model, output):
    """Start a process and let it come to where it has begun to write and waits for more rows."""
    process = start("score", model, "-", "--no-header", "--output", output, stdin=subprocess.PIPE)
    process.stdin.write((",".join(["1.5"] * 64) + "\n") * 8192)  # 2 MB, more than is read before the output is opened
    process.stdin.flush()
    while unread(process.stdin):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    assert list(output.parent.iterdir())
    return process


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_the_middle_of_score_leaves_no_half_file(tmp_path, model, number):
    process = in_the_middle_of_score(model, tmp_path / "scores.csv")
    process.send_signal(number)
    _, errors = process.communicate(timeout=HANGING)
    assert (process.returncode, errors) == SIGNALS[number]
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_has_left_is_in_nobodys_way(tmp_path, model):
    process = in_the_middle_of_score(model, tmp_path / "scores.npy")
    process.kill()
    process.communicate(timeout=HANGING)
    assert len(list(tmp_path.iterdir())) == 1
    np.save(tmp_path / "rows.npy", np.full((1, 64), 1.5))
    assert main(["score", str(model), str(tmp_path / "rows.npy"), "-o", str(tmp_path / "scores.npy"), "-q"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.npy", "scores.npy"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_training_leaves_no_half_file(tmp_path, number):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(200, 4)))
    options = ["--epoch-num", 10**5, "--score-function", "mean_distance", "--robust", "no", "--verbose"]
    kept = ["--checkpoint", tmp_path / "state", "--checkpoint-steps", 1]
    process = start("fit", tmp_path / "rows.npy", "--output", tmp_path / "model", *options, *kept)
    assert process.stdout.readline().startswith("epoch 1: ")
    process.send_signal(number)
    _, errors = process.communicate(timeout=HANGING)
    assert (process.returncode, errors) == SIGNALS[number]
    left = {path.name for path in tmp_path.iterdir()}
    assert {"rows.npy", "state"} <= left <= {"rows.npy", "state", "state.previous"}


def test_signals_that_are_ignored_stay_so():
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        end_by_signals()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert callable(signal.getsignal(signal.SIGTERM))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_reader_that_has_enough_is_no_error(tmp_path, model):
    (tmp_path / "rows.csv").write_text((",".join(["1.5"] * 64) + "\n") * 20_000)
    with (tmp_path / "rows.csv").open() as rows:
        process = start("score", model, "-", "--no-header", stdin=rows)
    with process.stdout, process.stderr:
        assert process.stdout.readline() == "row,score,label\n"
        row, score, _ = process.stdout.readline().split(",")
        process.stdout.close()
        assert process.wait(HANGING) == 141
        assert process.stderr.read() == ""
    assert row == "0"
    np.testing.assert_allclose(float(score), QuadricDetector.load(model).decision_function(np.full((1, 64), 1.5)))
