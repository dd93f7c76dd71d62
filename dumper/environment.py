"""What a dump tells about the run it came from: a closed list, nothing that names people or
machines.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np
import torch

from .tensors import dtype_name


def describe_run(mode: str) -> dict[str, Any]:
    """Versions, devices and the flags that change numerics. mode: `dump` or `load`."""
    found: dict[str, Any] = {
        "mode": mode,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "h5py": h5py.version.version,
        "hdf5": h5py.version.hdf5_version,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "default_dtype": dtype_name(torch.get_default_dtype()),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        "fp16_reduced_precision": _reduced("fp16"),
        "bf16_reduced_precision": _reduced("bf16"),
    }
    if world_size() > 1:
        found["rank"], found["world_size"] = rank(), world_size()
    if torch.cuda.is_available():
        found["cuda"] = {"version": torch.version.cuda, "device": torch.cuda.get_device_name()}
    npu = getattr(torch, "npu", None)
    if npu is not None and npu.is_available():
        found["npu"] = {"device": npu.get_device_name(), "torch_npu": _version_of("torch_npu")}
        for kind in ("matmul", "conv"):
            allowed = getattr(getattr(npu, kind, None), "allow_hf32", None)  # not in every version
            if allowed is not None:
                found["npu"][f"{kind}_allow_hf32"] = bool(allowed)
    return found


def _reduced(kind: str) -> bool:
    """Whether products of a narrow dtype may be added up in that dtype on cuda."""
    found = getattr(torch.backends.cuda.matmul, f"allow_{kind}_reduced_precision_reduction")
    return bool(found[0] if isinstance(found, tuple) else found)


def rank() -> int:
    """This process's number among those of a distributed run; 0 outside of one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return _number("RANK", 0)


def world_size() -> int:
    """How many processes the distributed run has; 1 outside of one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return _number("WORLD_SIZE", 1)


def _number(variable: str, default: int) -> int:
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else default


@contextmanager
def faults_listed(environment: dict[str, Any]) -> Iterator[None]:
    """Keep environment["npu"]["faults"] true: wrong ops planted in the emulated npu, also later.

    Each as its op, change (the kind, or the callable's name), nth, when (a name) and seed. Nothing
    is listed where npu_core did not register the device; it is never imported for this.
    """
    emulator = getattr(getattr(torch, "npu", None), "_npu_core_device", None)
    if emulator is None:
        yield
        return
    with emulator.faults.witnessed(environment["npu"].setdefault("faults", [])):
        yield


def _version_of(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__version__", None)
