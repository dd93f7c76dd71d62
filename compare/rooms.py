"""Memory that tensors are read into and measured in, a thread's own and used again: fresh memory
for each would cost more than reading it."""

from __future__ import annotations

import os
import threading

import numpy as np

from .measure import address

PIECE = 1 << 20
"""Bytes of either side that are read and measured at a time."""

_ROOM = 256 << 20
"""Bytes that all threads together keep tensors in."""

KEPT = min(4 << 20, _ROOM // (2 * (os.cpu_count() or 1)))
"""Bytes of a tensor up to which it stays in memory for the second pass."""


class Rooms(threading.local):
    """A thread's memory for either side."""

    def __init__(self) -> None:
        size = max(KEPT, PIECE)
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


own = Rooms()
