"""The process group of a command that torchrun has started several times."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

# Groups that were left. Until torch 2.8 a group that is freed waits for its threads while it holds Python's lock. A thread that
# frees a tensor at that moment wants the lock, too, and both wait for ever. What is kept is not freed.
_LEFT: list[dist.ProcessGroup | None] = []


@contextmanager
def process_group() -> Iterator[None]:
    """Join the other processes, where torchrun says that there are any, and leave them at the end.

    Examples
    --------
    >>> with process_group():
    ...     dist.is_initialized()
    False
    """
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ
    if alone or dist.is_initialized():
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))  # this process's own, for nccl
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
    finally:
        _LEFT.append(dist.group.WORLD)
        dist.destroy_process_group()
