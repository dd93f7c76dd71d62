"""Tensors that lie in their files as the loops want them: read and measured in one call.

A small tensor costs the call, not its elements, so that one call takes many of them.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dumper import dtypes
from dumper.stored import Tensor

from . import rooms
from . import slots as at
from .measure import NO_COUNTS, NO_SUMS, Sums, address, own_desk
from .native import loops

MANY = 256
"""Pairs that one call takes."""

_PIECE = 1 << 18
"""Elements of a piece, with what the passes need beside them in the second cache."""

Pair = tuple[int, int, int, int, int]
"""File and place of mine, of golden, and the number of elements."""


class Loop(NamedTuple):
    """What measures a dtype. itemsize: bytes of an element. half: whether it is float16. number:
    makes a Python number of a stored element that was made a float as it stood."""

    name: str
    itemsize: int
    half: bool
    number: Callable[[float], float]


class Found(NamedTuple):
    """What one call found of a pair. worst: both sides of the element at ODD or WORST."""

    sums: Sums
    worst: tuple[float, float]


def _from_half(stored: float) -> float:
    return struct.unpack("<e", struct.pack("<h", int(stored)))[0]


def _from_bfloat16(stored: float) -> float:
    return struct.unpack("<f", struct.pack("<i", int(stored) << 16))[0]


_LOOPS = {
    "float32": Loop("direct_32", 4, False, float),
    "float64": Loop("direct_64", 8, False, float),
    "float16": Loop("direct_16", 2, True, _from_half),
    "bfloat16": Loop("direct_16", 2, False, _from_bfloat16),
}


def plan(mine: Tensor, golden: Tensor, size: int) -> tuple[Loop, Pair] | None:
    """What measures the first `size` elements of two tensors, and where they lie; None where no
    loop reads both. Raises DumpError where a file does not hold what it claims."""
    ours, theirs = mine.claims, golden.claims
    loop = _loop(ours.dtype, theirs.dtype, ours.stored, theirs.stored) if size else None
    places = loop and mine.place(), loop and golden.place()
    return None if None in places else (loop, (*places[0], *places[1], size))


@lru_cache(1 << 8)
def _loop(mine: str, golden: str, *stored: np.dtype | None) -> Loop | None:
    loop = _LOOPS.get(mine) if mine == golden else None
    kinds = {dtypes.BY_NAME[mine].bits} if loop else set()
    return loop if kinds == set(stored) and loop.name in loops() else None


def measure(
    loop: Loop, pairs: Sequence[Pair], divergence: bool, *, kept: bool = True
) -> list[Found | None]:
    """Measure up to MANY pairs. kept: each fits into a room, or it is read twice.

    None of a pair that its files do not hold, or that must be scaled: of which `measure.Kind` knows
    more.
    """
    count, desk, table, (x, y) = len(pairs), own_desk(), _table, rooms.own.addresses
    table.pairs[:count] = pairs
    table.floats[:count] = _NO_FLOATS
    table.counts[:count] = _NO_INTEGERS
    piece = min(_PIECE, rooms.PIECE // loop.itemsize)
    loops()[loop.name](
        table.p, count, piece, kept, divergence, loop.half, x, y, x, y, x, y,
        *desk.wide, *desk.wide, desk.p, table.f, table.c, desk.room,
    )  # fmt: skip
    found: list[Found | None] = []
    rows = zip(table.floats[:count].tolist(), table.counts[:count].tolist(), strict=True)
    for floats, counts in rows:
        if counts[at.COUNTS]:
            found.append(None)
            continue
        sums = Sums(floats[: at.SUMS], counts, floats[at.SUMS : at.WORST_X])
        found.append(
            Found(sums, (loop.number(floats[at.WORST_X]), loop.number(floats[at.WORST_Y])))
        )
    return found


_NO_FLOATS = np.concatenate([NO_SUMS, np.zeros(at.FLOATS - at.SUMS)])
_NO_INTEGERS = np.append(NO_COUNTS, 0)


class _Table(threading.local):
    """A thread's arrays for that, and their addresses."""

    def __init__(self) -> None:
        self.pairs = np.empty((MANY, 5), np.int64)
        self.floats = np.empty((MANY, at.FLOATS))
        self.counts = np.empty((MANY, at.INTEGERS), np.int64)
        self.p, self.f, self.c = map(address, (self.pairs, self.floats, self.counts))


_table = _Table()
