"""Devices by name, and tensors on their way to them."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def moved(batches: Iterable[Tensor], device: torch.device) -> Iterator[Tensor]:
    """Move batches to a device; to CUDA asynchronously from pinned memory, one batch ahead."""
    if device.type != "cuda":
        yield from (batch.to(device) for batch in batches)
        return
    ahead = None
    for batch in batches:
        following = (batch.pin_memory() if batch.device.type == "cpu" else batch).to(device, non_blocking=True)
        if ahead is not None:
            yield ahead
        ahead = following
    if ahead is not None:
        yield ahead


def device_of(name: str | None) -> torch.device:
    """Return the device of that name, by default a CUDA device if there is one, or raise a ValueError if there is none."""
    found = torch.cuda.is_available()
    local = int(os.environ.get("LOCAL_RANK", 0)) if dist.is_available() and dist.is_initialized() else 0  # each process its own
    try:
        device = torch.device(name or (f"cuda:{local}" if found else "cpu"))
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device must be None or a name such as 'cpu' or 'cuda:0', got {name!r}") from error
    if device.type == "cuda" and not found:
        raise ValueError(f"there is no CUDA device here, but device is {name!r}; device=None takes what there is")
    return device


def on_device(part: Any, device: torch.device, copy: bool = False) -> Any:
    """Return a tensor, or a dataclass, tuple or list with tensors in it, on a device; with ``copy`` in memory of its own."""
    if isinstance(part, Tensor):
        order = torch.contiguous_format if copy else torch.preserve_format  # as from a file, so that rounding is the same
        return part.to(device, copy=copy, memory_format=order)
    if isinstance(part, list | tuple):
        parts = [on_device(item, device, copy) for item in part]
        return type(part)(*parts) if hasattr(part, "_fields") else type(part)(parts)
    if not is_dataclass(part) or isinstance(part, type):
        return part
    return replace(part, **{field.name: on_device(getattr(part, field.name), device, copy) for field in fields(part)})
