"""Which loops measure which dtypes, and what stored bits must be turned into for them.

Floats are read as they are, 64-bit integers as integers, 8-bit elements by how often each pair
occurs. Narrower integers are exact in float64. Of float16 with float32 both are read as float32,
and units in the last place are those of float16, the coarser one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from dumper import dtypes

from . import slots as at
from .measure import Codes, Desk, Floats, Kind, Sixteen, Wide

_PAIRED = ({"int32", "int64"}, {"float16", "float32"})
"""Dtypes that are compared with each other by value, as in the original."""

Prepare = Callable[[np.ndarray], np.ndarray]


class Way(NamedTuple):
    """How a pair of dtypes is measured. mine, golden: what makes of flat stored bits what `kind`
    reads; None where they are that already."""

    kind: Kind
    mine: Prepare | None = None
    golden: Prepare | None = None


def comparable(mine: str, golden: str) -> bool:
    """Whether tensors of these two dtypes (torch's names) are compared by value."""
    return mine == golden or any({mine, golden} == names for names in _PAIRED)


@cache
def way(mine: str, golden: str) -> Way:
    """The way of two `comparable` dtypes that are not complex. Raises KeyError for others."""
    if mine != golden:
        if mine in _PAIRED[0]:
            return Way(Wide(False), *(_as(np.int64, name == "int32") for name in (mine, golden)))
        return Way(
            _HalfWithFloat(), *(_as(np.float32, name == "float16") for name in (mine, golden))
        )
    return Way(*_WAYS[mine]())


def _as(dtype: type, needed: bool) -> Prepare | None:
    return (lambda bits: bits.astype(dtype)) if needed else None


def _viewed(dtype: type) -> tuple[Prepare, Prepare]:
    return (lambda bits: bits.view(dtype),) * 2


def _narrow() -> tuple:
    widened = _as(np.float64, True)
    return Floats(64, has_ulp=False), widened, widened


def _bool() -> tuple:
    def truth(bits: np.ndarray) -> np.ndarray:
        return (bits != 0).view(np.uint8)

    return Codes(np.arange(256), None), truth, truth


def _byte(name: str) -> tuple:
    values = dtypes.as_values(np.arange(256, dtype=np.uint8).view(dtypes.BY_NAME[name].bits), name)
    orders = _orders(name) if name.startswith("float") else None
    return Codes(values.astype(np.float64), orders), *_viewed(np.uint8)


def _orders(name: str) -> np.ndarray:
    """Where each code of a small float stands among its numbers; -0 and 0 are one."""
    codes = np.arange(256)
    if name == "float8_e8m0fnu":  # which has no sign
        return codes
    return np.where(codes < 128, codes, -(codes & 127))


_WAYS: dict[str, Callable[[], tuple]] = {
    "float32": lambda: (Floats(32),),
    "float64": lambda: (Floats(64),),
    "float16": lambda: (Sixteen(half=True), *_viewed(np.int16)),
    "bfloat16": lambda: (Sixteen(half=False), *_viewed(np.int16)),
    "int64": lambda: (Wide(unsigned=False),),
    "uint64": lambda: (Wide(unsigned=True), *_viewed(np.int64)),
    "bool": _bool,
    **dict.fromkeys(("int16", "uint16", "int32", "uint32"), _narrow),
    **{
        name: (lambda name=name: _byte(name))
        for name, dtype in dtypes.BY_NAME.items()
        if dtype.bits.itemsize == 1 and name != "bool"
    },
}


class _HalfWithFloat(Floats):
    """Both as float32; equal is equal by value."""

    def __init__(self) -> None:
        super().__init__(32)

    def first(self, run: dict, desk: Desk, base: int, x: np.ndarray, y: np.ndarray) -> None:
        counts, own = desk.counts, [at.EQUAL, at.ULP_MAX, at.ULP_ABOVE]
        before, ulp = counts[own], desk.sums[at.ULP]
        super().first(run, desk, base, x, y)
        counts[own], desk.sums[at.ULP] = before, ulp
        counts[at.EQUAL] += np.count_nonzero((x == y) | ((x != x) & (y != y)))
        finite = np.isfinite(x) & np.isfinite(y)
        with np.errstate(over="ignore"):  # what half cannot hold is one further than its greatest
            halves = (side[finite].astype(np.float16).view(np.int16) for side in (x, y))
            a, b = (np.where(bits < 0, -(bits & 0x7FFF), bits).astype(np.int32) for bits in halves)
        apart = np.abs(a - b)
        if apart.size:
            counts[at.ULP_MAX] = max(counts[at.ULP_MAX], apart.max())
        counts[at.ULP_ABOVE] += np.count_nonzero(apart > 1)
        desk.sums[at.ULP] += apart.sum(dtype=np.float64)
