"""The smallest and the largest element of a tensor, in one pass over it, on any device.

Both are NaN if an element is: one reduction finds every overflow. Dtypes without a kernel for it
(float8) go through one that holds all of their numbers; complex numbers are their parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..parts import is_plain

Extent = tuple[float, float]

NARROW = {
    dtype: torch.float32 if str(dtype).endswith("e8m0fnu") else torch.float16
    for name in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")
    if (dtype := getattr(torch, f"float8_{name}", None)) is not None
}
"""Dtypes without reductions of their own, and one that holds all of their numbers."""

PARTS = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
"""Complex dtypes, and that of their parts."""

REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

LARGEST: dict[torch.dtype, float] = {
    dtype: torch.finfo(PARTS.get(dtype, dtype)).max for dtype in (*REAL, *NARROW, *PARTS)
}
"""The largest number of each dtype that is looked at."""


def is_looked_at(tensor: torch.Tensor) -> bool:
    """Whether a tensor has floating-point values here."""
    if tensor.dtype not in LARGEST or tensor.is_meta or not tensor.numel():
        return False
    return is_plain(tensor)


def extent_of(tensor: torch.Tensor) -> Extent:
    """(smallest, largest) element; both NaN if one is. Waits for the device."""
    if tensor.dtype not in REAL or tensor.is_neg():
        tensor = _plain(tensor)
    low, high = torch.aminmax(tensor)
    found = low.item(), high.item()
    return found if tensor.is_cpu else _unsaturated(tensor, found)


def _unsaturated(tensor: torch.Tensor, found: Extent) -> Extent:
    """The same where a reduction saturates itself: comparisons do not."""
    if tensor.device.type != "npu" or torch.npu.utils.is_support_inf_nan():
        return found
    if (tensor != tensor).any():
        return math.nan, math.nan
    low, high = found
    if (tensor == -math.inf).any():
        low = -math.inf
    if (tensor == math.inf).any():
        high = math.inf
    return low, high


def largest_of(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The largest absolute value of each, as float32 or wider on their device; does not wait."""
    by_dtype: dict[torch.dtype, list[int]] = {}
    plain = [_plain(tensor) for tensor in tensors]
    for place, tensor in enumerate(plain):
        by_dtype.setdefault(tensor.dtype, []).append(place)
    found: list[torch.Tensor | None] = [None] * len(plain)
    for places in by_dtype.values():
        for place, norm in zip(
            places, torch._foreach_norm([plain[i] for i in places], math.inf), strict=True
        ):
            found[place] = norm.double()
    return torch.stack(found)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in a dtype that reductions take."""
    if tensor.dtype in NARROW:
        return tensor.to(NARROW[tensor.dtype])
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor.resolve_neg() if tensor.is_neg() else tensor
