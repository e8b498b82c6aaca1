"""A device that is not the CPU, without an accelerator: tensors that claim to be elsewhere, and compute.

Their numbers are in a CPU tensor inside, but like CUDA's they cannot meet tensors of the CPU in one operation, nor become
arrays before they are copied to the CPU. The device is called "meta", the one name that every build of torch lets pass.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = "meta"
COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
INDEXING = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default)  # whose indices may be on the CPU


class ElsewhereTensor(Tensor):
    """A tensor on the other device."""

    @staticmethod
    def __new__(cls, inner: Tensor) -> "ElsewhereTensor":
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        return Tensor._make_wrapper_subclass(cls, inner.shape, **layout, device=DEVICE)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _computed(function, args, kwargs or {})


class Elsewhere(TorchDispatchMode):
    """Inside of this context, tensors can be moved to the other device, and made there."""

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _computed(function, args, kwargs or {})


def _computed(function: Any, args: tuple, kwargs: dict) -> Any:
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    are_elsewhere = [isinstance(tensor, ElsewhereTensor) for tensor in tensors]
    mixed = any(are_elsewhere) and any(tensor.ndim and not there for tensor, there in zip(tensors, are_elsewhere, strict=True))
    if mixed and function not in COPIES and not (function in INDEXING and are_elsewhere[0]):
        raise RuntimeError(f"{function} got tensors on different devices")
    device = kwargs.get("device")
    there = any(are_elsewhere) if device is None else torch.device(device).type == DEVICE
    inside = {**kwargs, "device": "cpu"} if device is not None else kwargs
    result = function(*tree_map(_inner, args), **tree_map(_inner, inside))
    for argument in (*args, *kwargs.values()):  # what was changed in place is returned itself
        if isinstance(argument, Tensor) and _inner(argument) is result:
            return argument
    return tree_map(lambda leaf: ElsewhereTensor(leaf) if there and isinstance(leaf, Tensor) else leaf, result)


def _inner(leaf: Any) -> Any:
    return leaf.inner if isinstance(leaf, ElsewhereTensor) else leaf
