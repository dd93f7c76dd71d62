"""The bytes of a file, by offset, for whoever reads many small pieces of it.

A system call a piece would be most of the time it takes to open a dump, whose metadata are some
hundred bytes each. So larger pieces are kept. They are copies: a file that shrinks while it is
mapped would kill the process.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

_BITS = 14
_STEP = 1 << _BITS
_MASK = _STEP - 1
AHEAD = 4096
"""Bytes behind any offset that `around` has, where the file has them."""
_KEPT = 64  # pieces: enough to read the file from its beginning to its end


class Window:
    """Reads one file. Every method raises OSError once it is closed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._number = self._file.fileno()
        self._pieces: dict[int, bytes] = {}

    def close(self) -> None:
        """Close the file."""
        self._number = -1
        self._file.close()
        self.forget()

    @property
    def number(self) -> int:
        """The file's descriptor."""
        return self._number

    def forget(self) -> None:
        """Give back the memory of what was kept."""
        self._pieces.clear()

    def around(self, at: int) -> tuple[bytes, int]:
        """A piece of the file, and where in it the offset `at` lies; `AHEAD` bytes or more follow,
        but for the end of the file."""
        try:
            return self._pieces[at >> _BITS], at & _MASK
        except KeyError:
            return self._fetch(at >> _BITS), at & _MASK

    def _fetch(self, number: int) -> bytes:
        piece = os.pread(self._number, _STEP + AHEAD, number << _BITS)
        if len(self._pieces) >= _KEPT:
            del self._pieces[next(iter(self._pieces))]  # the oldest
        self._pieces[number] = piece
        return piece

    def read(self, at: int, count: int) -> bytes:
        """The bytes at an offset, of which nothing is kept; raises ValueError when the file ends
        before."""
        piece = self._pieces.get(at >> _BITS) if count <= AHEAD else None
        if piece is None:
            found = os.pread(self._number, count, at)
        else:
            start = at & _MASK
            found = piece[start : start + count]
        if len(found) < count:
            raise ValueError("the file ends before")
        return found

    def read_into(self, array: np.ndarray, at: int) -> int:
        """Fill a contiguous array from the bytes at `at`; returns how many there were."""
        done = os.preadv(self._number, [array], at) if array.nbytes else 0
        if done == array.nbytes:
            return done
        view = memoryview(array.reshape(-1).view(np.uint8))
        while done < len(view):
            count = os.preadv(self._number, [view[done:]], at + done)
            if not count:
                break
            done += count
        return done
