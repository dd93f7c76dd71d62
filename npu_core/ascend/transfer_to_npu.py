"""`from torch_npu.contrib import transfer_to_npu`: scripts written for cuda run on npu.

Importing this module is the transfer, for the rest of the process, as with the original: the names
of torch.cuda lead to torch.npu, `.cuda()` to `.npu()`, backend nccl to hccl, and a device 'cuda'
given to a function that takes devices means 'npu'. Scripts then read npu where they print a device.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
import torch.utils._device

from .. import amp
from . import surface

_CUDA = re.compile(r"cuda(:\d+)?|torch\.cuda\.\w+Tensor")  # whole, so that a path is none
_Device = torch.device

# Functions of torch that a script names a device to, and methods (constructors among them).
_FUNCTIONS = (
    "arange", "as_tensor", "empty", "empty_like", "empty_strided", "eye", "full", "full_like",
    "linspace", "load", "logspace", "ones", "ones_like", "rand", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "randperm", "scalar_tensor", "tensor", "tril_indices",
    "triu_indices", "zeros", "zeros_like", "set_default_device",
)  # fmt: skip
_METHODS = {
    torch.Tensor: ("to", "type", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros"),
    torch.nn.Module: ("to", "to_empty"),
    torch.autocast: ("__init__",),
}


def _npu(value: Any) -> Any:
    """The argument, with npu in place of cuda where it names a device, a type, or a map of them."""
    if isinstance(value, str) and _CUDA.fullmatch(value):
        return value.replace("cuda", "npu")
    if isinstance(value, _Device) and value.type == "cuda":
        return _Device("npu", value.index or 0)
    if isinstance(value, dict):
        return {_npu(k): _npu(v) for k, v in value.items()}
    return value


def _on_npu(function: Callable) -> Callable:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*map(_npu, args), **{k: _npu(v) for k, v in kwargs.items()})

    return call


class _DeviceType(type):
    """Metaclass of what stands in for torch.device: makes real devices, and knows them."""

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.device:
        return _on_npu(_Device)(*args, **kwargs)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _Device)


def _transfer() -> None:
    # `with torch.device(...)` knows the factories by identity; let it learn them before we wrap.
    torch.utils._device._device_constructors()
    torch.device = _DeviceType("device", (), {"__module__": "torch"})
    for name in _FUNCTIONS:
        setattr(torch, name, _on_npu(getattr(torch, name)))
    for owner, names in _METHODS.items():
        for name in names:
            setattr(owner, name, _on_npu(getattr(owner, name)))
    for name, value in vars(surface).items():
        if not name.startswith("_") and hasattr(torch.cuda, name):
            setattr(torch.cuda, name, value)
    _transfer_scalers()
    torch.Tensor.cuda, torch.nn.Module.cuda = torch.Tensor.npu, torch.nn.Module.npu
    torch.Tensor.is_cuda = torch.Tensor.is_npu
    _transfer_distributed()


def _transfer_scalers() -> None:
    torch.cuda.amp.GradScaler = amp.GradScaler
    scaler = torch.amp.GradScaler  # its device is cuda where none is named
    make, init = scaler.__new__, scaler.__init__

    def new(cls: type, device: Any = "npu", *args: Any, **kwargs: Any) -> torch.amp.GradScaler:
        return make(cls, _npu(device), *args, **kwargs)

    init.__defaults__ = tuple(map(_npu, init.__defaults__))
    scaler.__new__, scaler.__init__ = new, _on_npu(init)


def _transfer_distributed() -> None:
    init = torch.distributed.init_process_group

    @functools.wraps(init)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        return init("hccl" if backend == "nccl" else backend, *args, **kwargs)

    torch.distributed.init_process_group = init_process_group


_transfer()
