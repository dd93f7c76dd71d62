"""Two tensors of two files as a source of pieces, read into memory that is used again.

A piece is measured while the second cache still has it. What is small enough stays for the second
pass; what is larger is read twice, so that the size of a tensor does not matter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from dumper import dtypes
from dumper.stored import Tensor

from . import rooms
from .direct import measure, plan
from .kinds import Prepare, Way
from .measure import Piece, Sums

PART = 1 << 24
"""Elements that one thread takes of a large tensor."""

_NUMBERS = frozenset(name for name, kind in dtypes.BY_NAME.items() if kind.bits.name == name)
"""Dtypes of which what is stored is the value."""


def can_stream(mine: Tensor, golden: Tensor) -> bool:
    """Whether both can be read in parts, as something that a Way measures."""
    return not any(
        tensor.needs_order or tensor.stored is None or tensor.stored.kind not in "biuf"
        or tensor.dtype not in dtypes.BY_NAME
        for tensor in (mine, golden)
    )  # fmt: skip


class Streams:
    """The first `size` elements of two tensors that `can_stream`, as a Source."""

    __slots__ = ("size", "_itemsize", "_step", "_mine", "_golden", "_only", "_holder")

    def __init__(self, mine: Tensor, golden: Tensor, way: Way, size: int) -> None:
        self.size = size
        self._mine, self._golden = _Side(mine, way.mine), _Side(golden, way.golden)
        self._itemsize = max(self._mine.itemsize, self._golden.itemsize)
        self._step = rooms.PIECE // self._itemsize
        self._only: list[Piece] = []  # all of it, where that is one piece
        self._holder: int | None = None  # the thread whose room has the elements

    @property
    def parts(self) -> Sequence[Callable[[], Iterable[Piece]]]:
        """One that stays in memory, or several that threads may share out."""
        if self.size <= self._step:
            return (self._whole,)
        if self.size * self._itemsize <= rooms.KEPT:
            return (self._kept,)
        for side in (self._mine, self._golden):
            side.check()  # before it is cut into as many parts as it claims to have
        starts = range(0, self.size, PART)
        return [partial(self._passing, start, min(start + PART, self.size)) for start in starts]

    def direct(self, divergence: bool) -> Sums | None:
        """Both passes in one call, where `direct` knows one."""
        planned = None
        if self.size <= PART:
            planned = plan(self._mine.tensor, self._golden.tensor, self.size)
        if planned is None:
            return None
        loop, pair = planned
        kept = self.size * loop.itemsize <= rooms.KEPT
        found = measure(loop, [pair], divergence, kept=kept)[0]
        if found is None:
            return None
        if kept:
            self._holder = threading.get_ident()
        return found.sums

    def values(self, index: int) -> tuple[object, object]:
        """Both elements at a flat index, as Python numbers."""
        sides = self._mine, self._golden
        if self._holder != threading.get_ident():
            return tuple(side.value(index) for side in sides)
        mine, golden = self._mine, self._golden
        x, y = rooms.own.typed(mine.stored)[0], rooms.own.typed(golden.stored)[1]
        return (
            x.item(index) if mine.is_number else mine.number(x[index : index + 1]),
            y.item(index) if golden.is_number else golden.number(y[index : index + 1]),
        )

    def _whole(self) -> list[Piece]:
        if not self._only:
            mine, golden = self._rooms(self.size)
            self._mine.read(mine, 0)
            self._golden.read(golden, 0)
            self._only.append((0, self._mine.made(mine), self._golden.made(golden)))
            self._holder = threading.get_ident()
        return self._only

    def _kept(self) -> Iterator[Piece]:
        held = self._holder == threading.get_ident()
        sides = self._rooms(self.size)
        for start in range(0, self.size, self._step):
            mine, golden = (room[start : start + self._step] for room in sides)
            yield self._piece(start, mine, golden, read=not held)
        self._holder = threading.get_ident()

    def _passing(self, begin: int, end: int) -> Iterator[Piece]:
        sides = self._rooms(self._step)
        for start in range(begin, end, self._step):
            mine, golden = (room[: end - start] for room in sides)
            yield self._piece(start, mine, golden, read=True)

    def _piece(self, start: int, mine: np.ndarray, golden: np.ndarray, read: bool) -> Piece:
        if read:
            self._mine.read(mine, start)
            self._golden.read(golden, start)
        return start, self._mine.made(mine), self._golden.made(golden)

    def _rooms(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """This thread's memory for so many elements of either side."""
        typed = rooms.own.typed
        return typed(self._mine.stored)[0][:count], typed(self._golden.stored)[1][:count]


class _Side:
    """One tensor: how its elements are read, and made what the loops read."""

    __slots__ = (
        "stored", "itemsize", "tensor", "is_number", "read", "check", "_bits_of", "_prepare",
    )  # fmt: skip

    def __init__(self, tensor: Tensor, prepare: Prepare | None) -> None:
        self.stored = tensor.stored
        self.itemsize = tensor.stored.itemsize
        self.read, self.check = tensor.read_into, tensor.check
        self.tensor = tensor
        own = dtypes.BY_NAME[tensor.dtype].bits == tensor.stored
        self.is_number = own and tensor.dtype in _NUMBERS
        self._bits_of = None if own else tensor.bits_of
        self._prepare = prepare

    def made(self, piece: np.ndarray) -> np.ndarray:
        """Stored elements as the loops read them."""
        if self._bits_of:
            piece = self._bits_of(piece)
        return self._prepare(piece) if self._prepare else piece

    def value(self, index: int) -> bool | int | float:
        """One element as a Python number."""
        found = np.empty(1, self.stored)
        self.read(found, index)
        return self.number(found)

    def number(self, element: np.ndarray) -> bool | int | float:
        """What the first of some stored elements means."""
        bits = self.tensor.bits_of(element)
        if self.tensor.dtype == "bool":
            return bool(bits[0])
        value = dtypes.as_values(bits, self.tensor.dtype)[0]
        return value.item() if value.dtype.kind in "iuf" else float(value)
