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
from .layout import DEVICE_CODES, contiguous_stride
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


def dtype_name(dtype: torch.dtype) -> str:
    """torch's name of a dtype, as files have it: `float32`."""
    return str(dtype).removeprefix("torch.")


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The memory of a tensor; None for a tensor that has none of its own (sparse)."""
    if tensor.layout is not torch.strided:
        return None
    try:
        return tensor.untyped_storage()
    except RuntimeError:
        return None


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


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether `bits_of` shows the tensor's own memory and copies nothing."""
    return tensor.is_cpu and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


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
    bits: np.ndarray,
    name: str,
    stride: tuple[int, ...] | None,
    device: torch.device,
    offset: int = 0,
) -> torch.Tensor:
    """Make the tensor with value `bits` and dtype `name` on `device`.

    stride: its strides, None for contiguous. offset: where it begins in its storage, in elements:
    `as_strided` counts from there, and how fast kernels group elements hangs on it. Expanded and
    overlapping dimensions share memory as the live ones did; gaps hold zeros. The memory is torch's
    own, so that it may be resized. Raises ValueError for strides that no tensor of this shape has.
    """
    dtype = TORCH_DTYPES[name]
    if stride is None:
        stride = contiguous_stride(bits.shape)
    if len(stride) != bits.ndim or min((*stride, offset), default=0) < 0:
        raise ValueError(f"no tensor of shape {bits.shape} has stride {stride}, offset {offset}")
    memory = bits.reshape(-1)
    if offset or stride != contiguous_stride(bits.shape):
        memory = np.zeros(offset + _reach(bits.shape, stride), bits.dtype)
        if bits.size:
            # Not torch: where elements share memory it refuses; numpy writes equal values twice.
            steps = [step * bits.itemsize for step in stride]
            np.lib.stride_tricks.as_strided(memory[offset:], bits.shape, steps)[...] = bits
    flat = _with_dtype(memory, dtype).to(device, copy=True)
    # Without `data` it were a view of a flat tensor, which npu cannot hold in some formats.
    return flat.as_strided(bits.shape, stride, offset).data


def _reach(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """Elements of memory from a tensor's first to its last."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


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
