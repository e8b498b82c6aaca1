"""Run by test_loop.py: train in forked processes, kill them at random moments, go on, and print what came of it as JSON.

This process imports everything once, also what torch imports at the first step, and starts no thread, so that a fork costs
milliseconds where a new process costs seconds.
"""

import json
import os
import signal
import sys
import time
from itertools import count
from pathlib import Path

import numpy as np
import torch

from pyod_quadric.storage.checkpoints import read_checkpoint
from pyod_quadric.training import loop
from tests.support.runs import options, start, torus

N_EPOCHS, N_BATCHES = 2, 10  # 600 rows in batches of 64


def child(folder, constraint, pipe):
    """Train from wherever the checkpoint is, tell of each checkpoint that is written, and write the result."""
    write = loop.write_checkpoint

    def write_and_tell(path, state):
        write(path, state)
        os.write(pipe, b".")

    loop.write_checkpoint = write_and_tell
    kept = options(constraint=constraint, epoch_num=N_EPOCHS, checkpoint=folder / "run.ckpt", checkpoint_steps=1)
    result = loop.train(torus(), start(), kept)
    parts = [result.quadrics.quadratic, result.quadrics.linear, result.quadrics.constant]
    content = b"".join(part.numpy().tobytes() for part in parts) + json.dumps(result.history["loss"]).encode()
    (folder / "result").write_bytes(content)


def trained(folder, constraint, n_told=None, delay=0.0):
    """Train in a fork, killed a while after it has told of so many checkpoints; return how many it wrote, and its ending."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.close(reading)
            child(folder, constraint, writing)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        n_written = 0
        if n_told is not None:
            n_written = len(told.read(n_told))
            time.sleep(delay)
            os.kill(process, signal.SIGKILL)
        n_written += len(told.read())  # until the process has ended
    _, status = os.waitpid(process, 0)
    return n_written, os.waitstatus_to_exitcode(status)


def step_of(state):
    return 0 if state is None else state["epoch"] * N_BATCHES + state["batch"]


def main(folder, n_kills):
    torch.set_num_threads(1)
    rng, runs = np.random.default_rng(0), []
    for constraint in ("penalty", "stiefel"):
        first = folder / f"{constraint}.ckpt"
        loop.train(torus(), start(), options(constraint=constraint, epoch_num=1, checkpoint=first))
        read_checkpoint(first)
        whole = folder / constraint
        whole.mkdir()
        started = time.monotonic()
        n_written, ending = trained(whole, constraint)
        seconds = time.monotonic() - started
        assert ending == 0
        n_killed = 0
        for number in count():  # one that has ended just before is not killed, and does not count
            if n_killed == n_kills // 2:
                break
            place = folder / f"{constraint}-{number}"
            place.mkdir()
            moment = rng.uniform(0, n_written)  # in checkpoints, of which one is written at each step
            told, ending = trained(place, constraint, int(moment), seconds / n_written * (moment % 1))
            if ending != -signal.SIGKILL:
                continue
            n_killed += 1
            state = read_checkpoint(place / "run.ckpt")
            written, ended = trained(place, constraint)
            runs.append(
                {
                    "told": told,
                    "found": step_of(state),
                    "all": n_written,
                    "written": written,
                    "ended": ended,
                    "same": (place / "result").read_bytes() == (whole / "result").read_bytes(),
                    "files": sorted(file.name for file in place.iterdir()),
                }
            )
    print(json.dumps(runs))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
