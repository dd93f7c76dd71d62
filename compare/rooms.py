"""Memory that tensors are read into and measured in, a thread's own and used again: fresh memory
for each would cost more than reading it.

It is in huge pages where the system has them: into small ones the kernel copies at two thirds of
the rate on a virtual machine (7 against 11 GB/s, measured).
"""

from __future__ import annotations

import contextlib
import mmap
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

_HUGE = 2 << 20
"""Bytes of a huge page."""


class Rooms(threading.local):
    """A thread's memory for either side."""

    def __init__(self) -> None:
        size = max(KEPT, PIECE)
        self.sides = _memory(size), _memory(size)
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


def _memory(size: int) -> np.ndarray:
    if size < _HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(size, np.uint8)
    # private, or forked processes would measure in one memory
    whole = mmap.mmap(-1, size + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        whole.madvise(mmap.MADV_HUGEPAGE)
    found = np.frombuffer(whole, np.uint8)
    start = -address(found) % _HUGE
    return found[start : start + size]


own = Rooms()
