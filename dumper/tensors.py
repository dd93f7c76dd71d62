"""Tensors to stored bits and back, on any device.

What is stored is the tensor's value as `.contiguous()` on the CPU would show it, as bits:
reinterpreted as integers where numpy has no such dtype, so that NaN payloads and -0 survive. The
stride a live tensor had is kept beside it, since the order of a reduction, and so its last bit, can
hang on it.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from . import dtypes
from .layout import DEVICE_CODES
from .writer import TensorAttributes

TORCH_DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in dtypes.BY_NAME if hasattr(torch, name)
}
_TABLE = {TORCH_DTYPES[name]: dtypes.BY_NAME[name] for name in TORCH_DTYPES}
_VIEWED_AS = {
    dtype: {1: torch.uint8, 2: torch.int16}[row.bits.itemsize]
    for dtype, row in _TABLE.items()
    if row.name.startswith(("bfloat", "float8", "bool"))
}
_C10_DEVICES = (
    "cpu cuda mkldnn opengl opencl ideep hip fpga maia xla vulkan metal xpu mps meta hpu ve lazy "
    "ipu mtia privateuseone"
).split()


class Unstorable(Exception):
    """This tensor has no values that could be stored; the text says why.

    expected: it has none by its nature (a meta tensor), so nothing is lost.
    """

    def __init__(self, reason: str, expected: bool = False) -> None:
        super().__init__(reason)
        self.expected = expected


def row_of(tensor: torch.Tensor) -> dtypes.DType:
    """The table row of a dense tensor's dtype. Raises Unstorable for what has no dense values."""
    if tensor.is_meta:
        raise Unstorable("meta", expected=True)
    row = _TABLE.get(tensor.dtype)
    if row is None:
        raise Unstorable(f"dtype {tensor.dtype} is not stored")
    return row


def bits_of(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's value as a C-contiguous array of its table row's `bits`. Raises Unstorable."""
    row = row_of(tensor)
    if tensor._is_zerotensor():  # autograd's undefined zeros: no memory behind them
        return np.zeros(tuple(tensor.shape), row.bits)
    plain = tensor.detach()
    if plain.is_conj():
        plain = plain.resolve_conj()
    if plain.is_neg():
        plain = plain.resolve_neg()
    if not plain.is_cpu:
        plain = plain.cpu()
    plain = plain.contiguous()
    viewed = _VIEWED_AS.get(plain.dtype)
    if viewed is not None:
        plain = plain.view(viewed)
    if plain.is_complex():
        plain = torch.view_as_real(plain)
        return _numpy(plain).view(row.bits).reshape(tuple(tensor.shape))
    return _numpy(plain).view(row.bits)


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    # Not tensor.numpy(): it makes the live storage unresizable for good, and out= then fails.
    return np.from_dlpack(tensor)


def attributes_of(tensor: torch.Tensor) -> TensorAttributes:
    """Device, NPU format and live stride of a tensor."""
    stride = None if tensor.is_contiguous() else tensor.stride()
    offset = 0 if tensor.is_meta else tensor.storage_offset()
    return TensorAttributes(device_code(tensor.device), _format_of(tensor), stride, offset)


def device_code(device: torch.device) -> int:
    """The `DeviceType` of a torch device: cpu 0, cuda 1, npu 10, any other its c10 number."""
    code = DEVICE_CODES.get(device.type)
    if code is not None:
        return code
    return _C10_DEVICES.index(device.type) if device.type in _C10_DEVICES else len(_C10_DEVICES) - 1


def _format_of(tensor: torch.Tensor) -> int:
    """The ACL storage format of an npu tensor; 0 (NCHW) elsewhere, as the original wrote it."""
    if tensor.device.type != "npu":
        return 0
    backend = sys.modules.get("torch_npu") or torch.npu
    return int(backend.get_npu_format(tensor))


def tensor_of(
    bits: np.ndarray, name: str, stride: tuple[int, ...] | None, device: torch.device
) -> torch.Tensor:
    """Make the tensor with value `bits` and dtype `name` on `device`, laid out with `stride`."""
    value = _with_dtype(bits, TORCH_DTYPES[name]).to(device)
    return value if stride is None else _restride(value, stride)


def _with_dtype(bits: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    if bits.size == 0:
        return torch.empty(bits.shape, dtype=dtype)
    flat = np.require(bits, requirements=["C", "W"]).reshape(-1)
    if dtype.is_complex:
        pairs = flat.view(bits.dtype[0]).reshape(*bits.shape, 2)
        return torch.view_as_complex(torch.from_numpy(pairs))
    # torch has no unsigned 16-bit numpy bridge for bfloat16; its bits pass as signed.
    plain = flat.view(np.int16) if dtype is torch.bfloat16 else flat
    return torch.from_numpy(plain).view(dtype).reshape(bits.shape)


def _restride(value: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """Lay `value` out with `stride`; expanded dimensions (stride 0) come back expanded."""
    if len(stride) != value.dim():
        return value
    base = value
    for dim, step in enumerate(stride):
        if step == 0 and base.shape[dim] > 1:
            base = base.narrow(dim, 0, 1)
    laid = torch.empty_strided(base.shape, stride, dtype=value.dtype, device=value.device)
    if not _overlaps(laid):
        laid.copy_(base)
        return laid.expand(value.shape)
    # Elements share memory (as_strided, unfold): values alone cannot tell in which way.
    return value


def own_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, gaps included, in memory that may be resized."""
    if _overlaps(tensor):
        return tensor.clone()
    copy = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    return copy.copy_(tensor)


def _overlaps(tensor: torch.Tensor) -> bool:
    """True where two indices may mean the same element, dimensions of size 1 aside."""
    reach = 1
    for step, size in sorted(
        (step, size) for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1
    ):
        if step < reach:
            return True
        reach = step * (size - 1) + reach
    return False
