"""Infinities that the program asked for: attention masks above all.

A number that an op puts into a tensor is the program's own; so is a tensor from before the step
that holds the lowest number and no other trouble. They are followed as long as only infinity comes
of them.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..ops import Op
from .extent import LARGEST, REAL

_PLACES = frozenset(
    "fill full full_like new_full masked_fill where scalar_tensor constant_pad_nd index_fill "
    "scatter clamp clamp_min clamp_max hardtanh nan_to_num threshold".split()
)
"""Ops that put a number of the program's where elements are, by their name without underscore."""


def asked_for(op: Op, values: list[Any], stored: float | None, dtype: torch.dtype) -> bool:
    """Whether a call's own arguments name the number `stored`, infinite or a dtype's largest.

    Where an op puts a number in place, one beyond the dtype names its infinity; where it computes
    with one (`mask * -inf`), only infinity does, and the largest number of a dtype.
    """
    if stored is None:
        return False
    least = LARGEST[dtype] if op.base in _PLACES else math.inf
    return any(_names(value, stored, least) for value in values)


def _names(value: Any, stored: float, least: float) -> bool:
    if not isinstance(value, float | int) or isinstance(value, bool):
        return False
    if math.isnan(stored):
        return value != value
    named = abs(value) >= least or abs(value) in _LIMITS
    return named and math.copysign(1, value) == math.copysign(1, stored)


_LIMITS = frozenset(torch.finfo(dtype).max for dtype in REAL)


def is_mask(low: float, high: float, largest: float) -> bool:
    """Whether a tensor of this extent is like a mask: the lowest number, or -infinity, and nothing
    else out of the common."""
    return low <= -largest and high < largest
