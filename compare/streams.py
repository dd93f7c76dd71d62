"""Two tensors of two files as a source of pieces, read into memory that is used again.

A piece is measured while the second cache still has it. What is small enough stays for the second
pass; what is larger is read twice, so that the size of a tensor does not matter. Fresh memory for
each tensor would cost more than reading it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from dumper import dtypes
from dumper.stored import Tensor

from .kinds import Prepare, Way
from .measure import Piece, Sums, address, own_desk
from .native import loops

PIECE = 1 << 18
"""Elements that are read and measured at a time."""

PART = 1 << 24
"""Elements that one thread takes of a large tensor."""

_DIRECT = {
    "float32": ("direct_32", 4, 0),
    "float64": ("direct_64", 8, 0),
    "float16": ("direct_16", 2, 1),
    "bfloat16": ("direct_16", 2, 0),
}
"""Dtypes that are read and measured in one call: its name, bytes of an element, whether it is
half."""

_NUMBERS = frozenset(name for name, kind in dtypes.BY_NAME.items() if kind.bits.name == name)
"""Dtypes of which what is stored is the value."""

_ROOM = 256 << 20
"""Bytes that all threads together keep tensors in."""

_KEPT = min(4 << 20, _ROOM // (2 * (os.cpu_count() or 1)))
"""Bytes of a tensor up to which it stays in memory for the second pass."""


class _Rooms(threading.local):
    """A thread's memory for either side."""

    def __init__(self) -> None:
        size = max(_KEPT, PIECE * 8)
        self.sides = tuple(np.empty(size, np.uint8) for _ in range(2))
        self.addresses = tuple(map(address, self.sides))
        self._typed: dict[np.dtype, tuple[np.ndarray, np.ndarray]] = {}

    def typed(self, kind: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Both sides' memory as elements of a dtype."""
        found = self._typed.get(kind)
        if found is None:
            found = self._typed[kind] = tuple(
                side[: side.size // kind.itemsize * kind.itemsize].view(kind) for side in self.sides
            )
        return found


_rooms = _Rooms()


def can_stream(mine: Tensor, golden: Tensor) -> bool:
    """Whether both can be read in parts, as something that a Way measures."""
    return not any(
        tensor.needs_order or tensor.stored is None or tensor.stored.kind not in "biuf"
        or tensor.dtype not in dtypes.BY_NAME
        for tensor in (mine, golden)
    )  # fmt: skip


class Streams:
    """The first `size` elements of two tensors that `can_stream`, as a Source."""

    __slots__ = ("size", "_mine", "_golden", "_only", "_holder")

    def __init__(self, mine: Tensor, golden: Tensor, way: Way, size: int) -> None:
        self.size = size
        self._mine, self._golden = _Side(mine, way.mine), _Side(golden, way.golden)
        self._only: list[Piece] = []  # all of it, where that is one piece
        self._holder: int | None = None  # the thread whose room has the elements

    @property
    def parts(self) -> Sequence[Callable[[], Iterable[Piece]]]:
        """One that stays in memory, or several that threads may share out."""
        if self.size <= PIECE:
            return (self._whole,)
        if self.size * max(self._mine.itemsize, self._golden.itemsize) <= _KEPT:
            return (self._kept,)
        for side in (self._mine, self._golden):
            side.check()  # before it is cut into as many parts as it claims to have
        starts = range(0, self.size, PART)
        return [partial(self._passing, start, min(start + PART, self.size)) for start in starts]

    def direct(self, divergence: bool) -> Sums | None:
        """Both passes in one call, of one dtype that lies in both files as the loops read it."""
        mine, golden = self._mine, self._golden
        entry = _DIRECT.get(mine.dtype) if mine.dtype == golden.dtype and mine.own else None
        run = loops().get(entry[0]) if entry and golden.own and 0 < self.size <= PART else None
        places = run and mine.place(), run and golden.place()
        if None in places:
            return None
        _, itemsize, half = entry
        kept = self.size * itemsize <= _KEPT
        desk, (x, y) = own_desk(), _rooms.addresses
        desk.clear()
        run(
            *places[0], *places[1], self.size, PIECE, kept, divergence, half, x, y,
            x, y, x, y, *desk.wide, *desk.wide,
            desk.p, desk.s, desk.c, desk.out, desk.room, desk.at,
        )  # fmt: skip
        if desk.found[0]:
            return None  # the way by pieces says what is wrong, or scales
        if kept:
            self._holder = threading.get_ident()
        return desk.read()

    def values(self, index: int) -> tuple[object, object]:
        """Both elements at a flat index, as Python numbers."""
        sides = self._mine, self._golden
        if self._holder != threading.get_ident():
            return tuple(side.value(index) for side in sides)
        mine, golden = self._mine, self._golden
        x, y = _rooms.typed(mine.stored)[0], _rooms.typed(golden.stored)[1]
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
        rooms = self._rooms(self.size)
        for start in range(0, self.size, PIECE):
            mine, golden = (room[start : start + PIECE] for room in rooms)
            yield self._piece(start, mine, golden, read=not held)
        self._holder = threading.get_ident()

    def _passing(self, begin: int, end: int) -> Iterator[Piece]:
        rooms = self._rooms(PIECE)
        for start in range(begin, end, PIECE):
            mine, golden = (room[: end - start] for room in rooms)
            yield self._piece(start, mine, golden, read=True)

    def _piece(self, start: int, mine: np.ndarray, golden: np.ndarray, read: bool) -> Piece:
        if read:
            self._mine.read(mine, start)
            self._golden.read(golden, start)
        return start, self._mine.made(mine), self._golden.made(golden)

    def _rooms(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """This thread's memory for so many elements of either side."""
        mine, golden = _rooms.typed(self._mine.stored)[0], _rooms.typed(self._golden.stored)[1]
        return mine[:count], golden[:count]


class _Side:
    """One tensor: how its elements are read, and made what the loops read."""

    __slots__ = (
        "stored", "itemsize", "dtype", "own", "is_number", "read", "place", "check",
        "_tensor", "_bits_of", "_prepare",
    )  # fmt: skip

    def __init__(self, tensor: Tensor, prepare: Prepare | None) -> None:
        self.stored = tensor.stored
        self.itemsize = tensor.stored.itemsize
        self.dtype = tensor.dtype
        self.read, self.place, self.check = tensor.read_into, tensor.place, tensor.check
        self._tensor = tensor
        self.own = dtypes.BY_NAME[tensor.dtype].bits == tensor.stored
        self.is_number = self.own and tensor.dtype in _NUMBERS
        self._bits_of = None if self.own else tensor.bits_of
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
        bits = self._tensor.bits_of(element)
        if self._tensor.dtype == "bool":
            return bool(bits[0])
        value = dtypes.as_values(bits, self._tensor.dtype)[0]
        return value.item() if value.dtype.kind in "iuf" else float(value)
