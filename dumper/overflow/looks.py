"""Which elements of a tensor show an overflow: infinite, NaN, or the largest number of their dtype.

Only comparisons and bit operations: on an npu in saturation mode arithmetic on an infinity would
itself saturate, and set the very register that is being read. The 8-bit floats have no comparisons
(nor `isfinite`), so their codes are compared instead.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch


class _Codes(NamedTuple):
    """Codes of an 8-bit float, after `kept` bits: from `bad` to `last` is no number; `largest`."""

    kept: int
    bad: int
    last: int
    limit: int
    kept_of_limit: int = 0x7F


_CODES = {
    torch.float8_e4m3fn: _Codes(0x7F, 0x7F, 0x7F, 0x7E),
    torch.float8_e5m2: _Codes(0x7F, 0x7C, 0x7F, 0x7B),
    torch.float8_e4m3fnuz: _Codes(0xFF, 0x80, 0x80, 0x7F),  # -0's code is its only NaN
    torch.float8_e5m2fnuz: _Codes(0xFF, 0x80, 0x80, 0x7F),
}
if hasattr(torch, "float8_e8m0fnu"):  # torch 2.7: a scale, which has no sign
    _CODES[torch.float8_e8m0fnu] = _Codes(0xFF, 0xFF, 0xFF, 0xFE, 0xFF)


def nonfinite(tensor: torch.Tensor) -> torch.Tensor:
    """Where a tensor is infinite or NaN: bool, of its shape, on its device.

    Any dtype; integers and bools never are. A complex number is where either part is.
    """
    if tensor.is_complex():
        return nonfinite(_parts(tensor)).any(-1)
    codes = _CODES.get(tensor.dtype)
    if codes is not None:
        bits = tensor.view(torch.uint8) & codes.kept
        return (bits >= codes.bad) & (bits <= codes.last)
    if not _has_limit(tensor):
        return torch.zeros_like(tensor, dtype=torch.bool)
    return ((tensor > -math.inf) & (tensor < math.inf)).logical_not_()


def at_limit(tensor: torch.Tensor) -> torch.Tensor:
    """Where a tensor is its dtype's largest number, of either sign: bool, of its shape.

    Float dtypes and complex ones; nowhere for others, whose limits are no sign of an overflow.
    """
    if tensor.is_complex():
        return at_limit(_parts(tensor)).any(-1)
    codes = _CODES.get(tensor.dtype)
    if codes is not None:
        return (tensor.view(torch.uint8) & codes.kept_of_limit) == codes.limit
    if not _has_limit(tensor):
        return torch.zeros_like(tensor, dtype=torch.bool)
    largest = torch.finfo(tensor.dtype).max
    return (tensor == largest) | (tensor == -largest)


def first(mask: torch.Tensor) -> tuple[int, ...] | None:
    """Index of the first true element in C order; None where there is none.

    mask: bool, on any device; only two numbers of it come to the host.
    """
    if not mask.numel():
        return None
    flat = mask.reshape(-1).view(torch.uint8)
    at = int(flat.argmax())  # the first of equal ones
    return index_at(mask.shape, at) if flat[at].item() else None


def index_at(shape: tuple[int, ...], at: int) -> tuple[int, ...]:
    """Index of the element that is number `at` in C order."""
    index = []
    for size in reversed(shape):
        at, place = divmod(at, size)
        index.append(place)
    return tuple(reversed(index))


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj().resolve_neg())


def _has_limit(tensor: torch.Tensor) -> bool:
    # float4_e2m1fn_x2 holds two numbers an element, has no infinity, and saturates by design.
    return tensor.is_floating_point() and tensor.element_size() > 1
