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
from .extent import LARGEST

_PLACES = frozenset(
    "fill full full_like new_full masked_fill where scalar_tensor constant_pad_nd index_fill "
    "scatter clamp clamp_min clamp_max hardtanh nan_to_num threshold".split()
)
"""Ops that put a number of the program's where elements are, by their name without underscore."""


def asked_for(op: Op, values: list[Any], stored: float | None, dtype: torch.dtype) -> bool:
    """Whether a call's own arguments name the number `stored`, infinite or a dtype's largest.

    A number beyond the dtype names its infinity.
    """
    if stored is None or op.base not in _PLACES:
        return False
    return any(_names(value, stored, LARGEST[dtype]) for value in values)


def _names(value: Any, stored: float, largest: float) -> bool:
    if not isinstance(value, float | int) or isinstance(value, bool):
        return False
    if math.isnan(stored):
        return value != value
    return abs(value) >= largest and math.copysign(1, value) == math.copysign(1, stored)


def is_mask(low: float, high: float, largest: float) -> bool:
    """Whether a tensor of this extent is like a mask: the lowest number, or -infinity, and nothing
    else out of the common."""
    return low <= -largest and high < largest
