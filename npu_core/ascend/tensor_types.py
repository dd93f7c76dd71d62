"""`torch.npu.FloatTensor` and its like: names of a dtype on npu, as old scripts use them.

They make tensors, answer isinstance, and name a target for `tensor.type(...)` and for
`torch.set_default_tensor_type`. torch's own such types are C types it offers no way to add to, so
these are classes whose calls return plain tensors.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

_DTYPES = {
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "DoubleTensor": torch.float64,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}


class _NpuType(type):
    """Metaclass: calling the class makes a tensor, and every fitting npu tensor is an instance."""

    dtype: torch.dtype

    def __call__(cls, *args: Any) -> torch.Tensor:
        """As `torch.FloatTensor(...)`: from sizes, uninitialised; from a sequence, its values."""
        if len(args) == 1 and not isinstance(args[0], int | torch.Size):
            return torch.as_tensor(args[0], dtype=cls.dtype).to("npu")
        sizes = args[0] if len(args) == 1 and isinstance(args[0], torch.Size) else args
        return torch.empty(sizes or (0,), dtype=cls.dtype, device="npu")

    def __instancecheck__(cls, value: object) -> bool:
        return (
            isinstance(value, torch.Tensor)
            and value.device.type == "npu"
            and value.dtype is cls.dtype
        )


# `Tensor.type` reads the target's name from the C name of the class, hence the dots.
TYPES = {
    name: _NpuType(f"torch.npu.{name}", (), {"dtype": dtype, "__module__": "torch.npu"})
    for name, dtype in _DTYPES.items()
}


def claim_default_type() -> None:
    """Let `torch.set_default_tensor_type` take them; called once, at registration."""
    original = torch.set_default_tensor_type

    @functools.wraps(original)
    def set_default_tensor_type(t: Any) -> None:
        kind = TYPES.get(t.removeprefix("torch.npu.")) if isinstance(t, str) else t
        if isinstance(kind, _NpuType):
            torch.set_default_dtype(kind.dtype)
            torch.set_default_device("npu")
            return
        original(t)
        if torch.get_default_device().type == "npu":
            torch.set_default_device(None)

    torch.set_default_tensor_type = set_default_tensor_type
