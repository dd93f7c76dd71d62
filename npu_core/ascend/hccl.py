"""Backend `hccl` of torch.distributed, emulated with gloo.

Memory of the device is the host's, so a collective on npu tensors is gloo's on their CPU aliases:
results land in the same memory. One host device per process: every rank's device is npu:0.
Unlike the real one, a group also takes CPU tensors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from .. import memory

_CPU_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def register(library: torch.library.Library) -> None:
    """Let init_process_group take `hccl`, and collectives npu tensors; library: of c10d."""
    if not distributed.is_available():
        return
    distributed.Backend.register_backend("hccl", _make_gloo, devices=["npu", "cpu"])
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")  # we do override
        for full in torch._C._dispatch_get_all_op_names():
            if full.startswith("c10d::") and has(full, "PrivateUse1"):
                name = full.removeprefix("c10d::")
                library.m.impl(name, "PrivateUse1", _kernel(getattr(torch.ops.c10d, name)), False)


def _make_gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    return distributed.ProcessGroupGloo(store, rank, size, timeout=timeout)


def _kernel(packet: torch._ops.OpOverloadPacket) -> Callable:
    """The collective on CPU aliases; the tensors it returns are the caller's own."""
    op = packet.default

    def kernel(*args: Any, **kwargs: Any) -> Any:
        result = op._handle.redispatch_boxed(_CPU_KEY, *map(_alias, args), **kwargs)
        return (args[0], *result[1:]) if isinstance(result, tuple) else result

    return kernel


def _alias(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return memory.to_cpu_or_keep(value)
    if isinstance(value, list | tuple):
        return [_alias(v) for v in value]
    return value
