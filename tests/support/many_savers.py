"""Run by test_atomic.py: forked processes save to one place, some of them are killed, others read; what they met, as JSON.

This process imports everything once and starts no thread, so that a fork costs milliseconds.
"""

import json
import os
import signal
import sys
import time
import warnings
from itertools import count, repeat
from pathlib import Path

import numpy as np
import torch

from pyod_quadric import QuadricDetector
from pyod_quadric.storage.checkpoints import read_checkpoint, write_checkpoint

N_WRITERS, N_READERS, N_SAVES, N_KILLS = 4, 2, 30, 10


def detector_of(number):
    rows = np.random.default_rng(number).normal(size=(20 + number, 3))  # files of different lengths
    return QuadricDetector(score_function="linear", robust=False).fit(rows)


def save(folder, detector, number):
    detector.save(folder / "model")
    write_checkpoint(folder / "run.ckpt", {"number": number, "tensor": torch.full((1000 * number,), float(number))})


def read(folder, expected):
    """Read both files once, and raise if either is not as one of the writers has written it."""
    assert QuadricDetector.load(folder / "model").decision_scores_.tobytes() in expected
    state = read_checkpoint(folder / "run.ckpt")
    assert torch.equal(state["tensor"], torch.full((1000 * state["number"],), float(state["number"])))


class Fork:
    """A process that does something; what it says in the end is what went wrong there, or nothing."""

    def __init__(self, work):
        reading, writing = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            try:
                work()
            except BaseException as error:
                os.write(writing, repr(error).encode())
            finally:
                os._exit(0)
        os.close(writing)
        self._told = reading

    def ending(self):
        with os.fdopen(self._told) as told:
            said = told.read()
        os.waitpid(self.process, 0)
        return said


def main(folder):
    torch.set_num_threads(1)
    warnings.simplefilter("error", UserWarning)  # of a damaged checkpoint
    detectors = [detector_of(number) for number in range(1, N_WRITERS + 1)]
    expected = {detector.decision_scores_.tobytes() for detector in detectors}
    save(folder, detectors[0], 1)
    stop = folder.with_name("stop")

    def write(number, times):
        for _ in times:
            save(folder, detectors[number], number + 1)

    def read_until_the_end():
        n_reads = next(n for n in count(1) if read(folder, expected) or stop.exists())
        raise SystemExit(n_reads)

    readers = [Fork(read_until_the_end) for _ in range(N_READERS)]
    writers = [Fork(lambda number=number: write(number, range(N_SAVES))) for number in range(N_WRITERS)]
    rng = np.random.default_rng(0)
    for _ in range(N_KILLS):
        killed = Fork(lambda: write(0, repeat(None)))
        time.sleep(rng.uniform(0, 0.05))  # at any moment
        os.kill(killed.process, signal.SIGKILL)
        killed.ending()
    wrong = [writer.ending() for writer in writers]
    stop.touch()
    reads = [reader.ending() for reader in readers]
    save(folder, detectors[0], 1)
    print(json.dumps({"writers": wrong, "readers": reads, "files": sorted(path.name for path in folder.iterdir())}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
