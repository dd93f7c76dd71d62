"""Two tensors of two files as a source of pieces, read into memory that is used again.

A piece is measured while the second cache still has it. What is small enough stays for the second
pass; what is larger is read twice, so that the size of a tensor does not matter. Fresh memory for
each tensor would cost more than reading it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from dumper import dtypes
from dumper.stored import Tensor

from .kinds import Prepare, Way
from .measure import Piece

PIECE = 1 << 16
"""Elements that are read and measured at a time."""

PART = 1 << 24
"""Elements that one thread takes of a large tensor."""

_ROOM = 256 << 20
"""Bytes that all threads together keep tensors in."""

_KEPT = min(4 << 20, _ROOM // (2 * (os.cpu_count() or 1)))
"""Bytes of a tensor up to which it stays in memory for the second pass."""


class _Rooms(threading.local):
    """A thread's memory for either side."""

    def __init__(self) -> None:
        size = max(_KEPT, PIECE * 8)
        self.sides = tuple(np.empty(size, np.uint8) for _ in range(2))


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

    def __init__(self, mine: Tensor, golden: Tensor, way: Way, size: int) -> None:
        self.size = size
        self._sides = tuple(
            _Side(tensor, prepare) for tensor, prepare in ((mine, way.mine), (golden, way.golden))
        )
        self._holder: int | None = None  # the thread whose room has the elements

    @property
    def parts(self) -> Sequence[Callable[[], Iterator[Piece]]]:
        """One that stays in memory, or several that threads may share out."""
        if self.size * max(side.itemsize for side in self._sides) <= _KEPT:
            return (self._kept,)
        starts = range(0, self.size, PART)
        return [partial(self._passing, start, min(start + PART, self.size)) for start in starts]

    def values(self, index: int) -> tuple[object, object]:
        """Both elements at a flat index, as Python numbers."""
        if self._holder == threading.get_ident():
            return tuple(
                side.number(room[index * side.itemsize : (index + 1) * side.itemsize])
                for room, side in zip(_rooms.sides, self._sides, strict=True)
            )
        return tuple(side.value(index) for side in self._sides)

    def _kept(self) -> Iterator[Piece]:
        held = self._holder == threading.get_ident()
        rooms = [
            room[: self.size * side.itemsize].view(side.stored)
            for room, side in zip(_rooms.sides, self._sides, strict=True)
        ]
        for start in range(0, self.size, PIECE):
            pieces = [room[start : start + PIECE] for room in rooms]
            if not held:
                for side, piece in zip(self._sides, pieces, strict=True):
                    side.read(piece, start)
            yield (
                start,
                *(side.made(piece) for side, piece in zip(self._sides, pieces, strict=True)),
            )
        self._holder = threading.get_ident()

    def _passing(self, begin: int, end: int) -> Iterator[Piece]:
        rooms = [
            room[: PIECE * side.itemsize].view(side.stored)
            for room, side in zip(_rooms.sides, self._sides, strict=True)
        ]
        for start in range(begin, end, PIECE):
            pieces = [room[: min(PIECE, end - start)] for room in rooms]
            for side, piece in zip(self._sides, pieces, strict=True):
                side.read(piece, start)
            yield (
                start,
                *(side.made(piece) for side, piece in zip(self._sides, pieces, strict=True)),
            )


class _Side:
    """One tensor: how its elements are read, and made what the loops read."""

    def __init__(self, tensor: Tensor, prepare: Prepare | None) -> None:
        self.stored = tensor.stored
        self.itemsize = tensor.stored.itemsize
        self.read = tensor.read_into
        self._tensor = tensor
        own = dtypes.BY_NAME[tensor.dtype].bits == tensor.stored
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
        """What the bytes of one stored element mean."""
        bits = self._tensor.bits_of(element.view(self.stored))
        if self._tensor.dtype == "bool":
            return bool(bits[0])
        value = dtypes.as_values(bits, self._tensor.dtype)[0]
        return value.item() if value.dtype.kind in "iuf" else float(value)
