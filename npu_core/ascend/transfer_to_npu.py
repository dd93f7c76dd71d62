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

# Matched whole, so that a path is none of them.
_CUDA = re.compile(r"cuda(:\d+)?|torch\.cuda\.\w+Tensor|(cpu:gloo,)?(cuda:)?nccl")
_Device = torch.device

# What a script names a device or a backend to, by owner: functions, methods, constructors.
_NAMES = {
    torch: (
        "arange", "as_tensor", "asarray", "bartlett_window", "blackman_window", "empty",
        "empty_like", "empty_strided", "eye", "full", "full_like", "get_autocast_dtype",
        "hamming_window", "hann_window", "is_autocast_enabled", "kaiser_window", "linspace", "load",
        "logspace", "normal", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like",
        "randn", "randn_like", "randperm", "range", "scalar_tensor", "set_default_device",
        "set_default_tensor_type", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
    ),
    torch.fft: ("fftfreq", "rfftfreq"),
    torch.amp: ("custom_bwd", "custom_fwd"),
    torch.Tensor: ("to", "type", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros"),
    torch.nn.Module: ("to", "to_empty"),
    torch.autocast: ("__init__",),
    torch.distributed: ("init_process_group", "new_group"),
}  # fmt: skip


def _npu(value: Any) -> Any:
    """The argument, with npu for cuda where it names a device, a type, a backend, a map of them."""
    if isinstance(value, str) and _CUDA.fullmatch(value):
        return value.replace("cuda", "npu").replace("nccl", "hccl")
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
    for owner, names in _NAMES.items():
        for name in names:
            setattr(owner, name, _on_npu(getattr(owner, name)))
    for name, value in vars(surface).items():
        # torch.cuda.amp stays the module it is: torch's own code looks into its parts
        if not name.startswith("_") and name != "amp" and hasattr(torch.cuda, name):
            setattr(torch.cuda, name, value)
    for name in amp.__all__:
        setattr(torch.cuda.amp, name, getattr(amp, name))
    _transfer_scalers()
    torch.Tensor.cuda, torch.nn.Module.cuda = torch.Tensor.npu, torch.nn.Module.npu
    torch.Tensor.is_cuda = torch.Tensor.is_npu
    torch.distributed.is_nccl_available = torch.distributed.is_gloo_available  # hccl is gloo here


def _transfer_scalers() -> None:
    scaler = torch.amp.GradScaler  # its device is cuda where none is named
    make, init = scaler.__new__, scaler.__init__

    def new(cls: type, device: Any = "npu", *args: Any, **kwargs: Any) -> torch.amp.GradScaler:
        return make(cls, _npu(device), *args, **kwargs)

    init.__defaults__ = tuple(map(_npu, init.__defaults__))
    scaler.__new__, scaler.__init__ = new, _on_npu(init)


_transfer()
