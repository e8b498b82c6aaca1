"""Several processes that fit one model together, by ``torch.distributed``; without a process group, nothing happens.

All processes can read all rows, and each reads its share of every pass and batch. Sums are added over all processes, and the
first process computes what follows from them, so all hold the same numbers even if their hardware rounds differently.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from pyod_quadric.parallel.devices import on_device

T = TypeVar("T")


def n_ranks() -> int:
    """Return the number of processes.

    Examples
    --------
    >>> n_ranks(), process_rank()
    (1, 0)
    """
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process_rank() -> int:
    """Return the rank of this process, from 0 on."""
    return dist.get_rank() if n_ranks() > 1 else 0


def sum_over_ranks(*tensors: Tensor) -> None:
    """Add up tensors of the same shapes in all processes, in place."""
    if n_ranks() > 1:
        for tensor in tensors:
            dist.all_reduce(tensor)


def gathered(tensor: Tensor) -> Sequence[Tensor]:
    """Return the tensors of all processes, which have one shape, in the order of the processes."""
    if n_ranks() == 1:
        return [tensor]
    everyone = [torch.empty_like(tensor) for _ in range(n_ranks())]
    dist.all_gather(everyone, tensor.contiguous())
    return everyone


def from_all_ranks(thing: T) -> list[T]:
    """Return the objects of all processes, in the order of the processes."""
    everyone: list[Any] = [thing] * n_ranks()
    if n_ranks() > 1:
        dist.all_gather_object(everyone, thing)
    return everyone


def from_first_rank(thing: T, device: torch.device) -> T:
    """Return the object of the first process, with its tensors on a device of this process."""
    return thing if n_ranks() == 1 else on_device(on_first_rank(lambda: on_device(thing, torch.device("cpu"))), device)


def on_first_rank(function: Callable[[], T]) -> T:
    """Call a function in the first process, and return its result or raise its exception in all of them."""
    if n_ranks() == 1:
        return function()
    answer: list[Any] = [None, None]
    if process_rank() == 0:
        try:
            answer[0] = function()
        except Exception as error:  # all processes have to know, or they would wait for each other
            answer[1] = error
    dist.broadcast_object_list(answer, src=0)
    if answer[1] is not None:
        raise answer[1]
    result: T = answer[0]
    return result
