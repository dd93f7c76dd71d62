"""Which loops measure which dtypes, and what stored bits must be turned into for them.

Floats are read as they are, 64-bit integers as integers, 8-bit elements by how often each pair
occurs. Narrower integers are exact in float64. Two float dtypes are read as one that holds both,
and units in the last place are those of the coarser one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from dumper import dtypes

from . import slots as at
from .measure import Codes, Desk, Floats, Kind, Sixteen, Wide

_INTEGERS = {"int32", "int64"}
_FLOATS = ("bfloat16", "float16", "float32", "float64")
"""Dtypes that are compared with each other by value; the floats from the coarsest on. The original
did so for float16 with float32 and the integers; under autocast others meet too."""

Prepare = Callable[[np.ndarray], np.ndarray]


class Way(NamedTuple):
    """How a pair of dtypes is measured. mine, golden: what makes of flat stored bits what `kind`
    reads; None where they are that already."""

    kind: Kind
    mine: Prepare | None = None
    golden: Prepare | None = None


def comparable(mine: str, golden: str) -> bool:
    """Whether tensors of these two dtypes (torch's names) are compared by value."""
    if mine == golden:
        return True
    pair = {mine, golden}
    return pair <= _INTEGERS or pair <= set(_FLOATS)


@cache
def way(mine: str, golden: str) -> Way:
    """The way of two `comparable` dtypes that are not complex. Raises KeyError for others."""
    if mine != golden:
        pair = mine, golden
        if mine in _INTEGERS:
            return Way(Wide(False), *(_as(np.int64, name == "int32") for name in pair))
        wide = 64 if "float64" in pair else 32
        coarse = min(pair, key=_FLOATS.index)
        return Way(_Mixed(wide, coarse), *(_widened(name, wide) for name in pair))
    return Way(*_WAYS[mine]())


def _as(dtype: type, needed: bool) -> Prepare | None:
    return (lambda bits: bits.astype(dtype)) if needed else None


def _widened(name: str, wide: int) -> Prepare | None:
    """What makes floats of another dtype of stored ones."""
    if name == f"float{wide}":
        return None

    def widened(bits: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):  # of a signalling NaN, which becomes a quiet one
            return dtypes.as_values(bits, name).astype(f"f{wide // 8}")

    return widened


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


class _Mixed(Floats):
    """Two float dtypes, both widened to one that holds them; equal is equal by value, and units in
    the last place are those of the coarser dtype."""

    def __init__(self, wide: int, coarse: str) -> None:
        super().__init__(wide)
        self._coarse = coarse

    def first(self, run: dict, desk: Desk, base: int, x: np.ndarray, y: np.ndarray) -> None:
        counts, own = desk.counts, [at.EQUAL, at.ULP_MAX, at.ULP_ABOVE]
        before, ulp = counts[own], desk.sums[at.ULP]
        super().first(run, desk, base, x, y)
        counts[own], desk.sums[at.ULP] = before, ulp
        counts[at.EQUAL] += np.count_nonzero((x == y) | ((x != x) & (y != y)))
        finite = np.isfinite(x) & np.isfinite(y)
        a, b = (self._orders(side[finite]) for side in (x, y))
        apart = np.abs(a - b)
        if apart.size:
            counts[at.ULP_MAX] = max(counts[at.ULP_MAX], apart.max())
        counts[at.ULP_ABOVE] += np.count_nonzero(apart > 1)
        desk.sums[at.ULP] += apart.sum(dtype=np.float64)

    def _orders(self, values: np.ndarray) -> np.ndarray:
        """Where each value stands among the numbers of the coarser dtype, once rounded to it."""
        kind = dtypes.BY_NAME[self._coarse]
        # a value that is beyond it is one further than its greatest
        with np.errstate(over="ignore"):
            if self._coarse == "bfloat16":
                narrow = values.astype(np.float32).astype(_bfloat16())
            else:
                narrow = values.astype(kind.bits)
        size = kind.bits.itemsize
        bits = narrow.view(f"i{size}").astype(np.int64)
        return np.where(bits < 0, -(bits & (2 ** (8 * size - 1) - 1)), bits)


def _bfloat16() -> np.dtype:
    return dtypes.as_values(np.zeros(0, np.uint16), "bfloat16").dtype
