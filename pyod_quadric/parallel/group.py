"""The process group of a command that torchrun has started several times."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", **_own_part_of_the_store())
    try:
        yield
    finally:
        _LEFT.append(dist.group.WORLD)
        dist.destroy_process_group()


def _own_part_of_the_store() -> dict[str, Any]:
    """Return how to meet the other processes without what ended ones have left behind, where torchrun does not see to that.

    Processes that torchrun starts again have the store of those before them. There they find addresses at which nobody is any
    more, and fail, or wait for ever. On one machine, the number of restarts tells the attempts apart; on several, each has
    its own.
    """
    shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and os.environ.get("GROUP_WORLD_SIZE") == "1"
    if not shared:
        return {}
    host, port, n_restarts = (os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"))
    rank, n_ranks = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    stores: Any = dist  # which declares no types of these
    store = stores.TCPStore(host, int(port), n_ranks, is_master=False, timeout=stores.constants.default_pg_timeout)
    return {"store": stores.PrefixStore(f"pyod_quadric/attempt {n_restarts}", store), "rank": rank, "world_size": n_ranks}
