"""One of two processes of tests/parallel/test_peers.py: fit together, with one that is missing, fails, or ends."""

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from pyod_quadric import QuadricDetector
from pyod_quadric.model import moments
from pyod_quadric.parallel import peers

ROWS = np.random.default_rng(0).normal(size=(60, 3))
SECONDS = 3.0  # of time-out, from where a process is missing on


def in_the_middle(action):
    """Let an action come before the sums over all processes of a fit."""
    gathered = moments.gathered

    def acting(tensor):
        action()
        return gathered(tensor)

    moments.gathered = acting


def shorten():
    """Shorten the time-outs of the group and of its store."""
    dist.distributed_c10d._get_default_store().set_timeout(timedelta(seconds=SECONDS))
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=SECONDS), dist.group.WORLD)


def interrupt():
    raise KeyboardInterrupt


def answer_to(call):
    """Return what came of a fit."""
    try:
        call(ROWS)
    except (RuntimeError, KeyboardInterrupt) as error:
        return f"{type(error).__name__}: {error}"
    return "fitted"


def meetings(rank):
    """Fit with what does no harm, and with what is noticed at the beginning."""
    found = {"threads": answer_to(QuadricDetector().fit)}
    known, peers.__version__ = peers.__version__, f"0.{rank}"
    found["version"] = answer_to(QuadricDetector().fit)
    peers.__version__ = known
    found["function"] = answer_to(QuadricDetector().partial_fit if rank else QuadricDetector().fit)
    shorten()
    found["absent"] = "silent" if rank else answer_to(QuadricDetector().fit)
    return found


def main(what, folder):
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1 + rank)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    dist.barrier()
    if what == "raises":
        in_the_middle(interrupt if rank == 1 else shorten)
    elif what == "killed" and rank == 1:
        in_the_middle(lambda: os.kill(os.getpid(), signal.SIGKILL))
    found = meetings(rank) if what == "meetings" else answer_to(QuadricDetector().fit)
    part = Path(folder) / f"{rank}.part"
    part.write_text(json.dumps(found))
    part.rename(part.with_suffix(".json"))
    while what != "killed" and not (Path(folder) / f"{1 - rank}.json").exists():
        time.sleep(0.05)  # no process ends before the other has its answer
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
