"""Room on the disk: a dump must never be what fills it.

A full disk ends more than a dump: checkpoints and logs fail with it. So recording stops while 1 GiB
is still free. Asking the file system costs a system call, so it is asked again only after some
megabytes, or when those come near the end.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from .errors import warn

RESERVE = 1 << 30
"""Bytes that stay free for others."""

_ASK_EVERY = 16 << 20  # bytes: others write to the disk too


def free_bytes(path: str) -> int:
    """What a user may still write on the file system that holds the file `path`."""
    found = os.statvfs(os.path.dirname(os.path.abspath(path)))
    return found.f_bavail * found.f_frsize


class Room:
    """How much one growing file may still take. free: tells the free bytes for a path."""

    def __init__(self, path: str, free: Callable[[str], int] = free_bytes) -> None:
        self._path = path
        self._free = free
        self.at_start = self._left = free(path)
        self._taken = 0  # by this file
        self._unseen = 0  # of that, since the file system was asked
        self._warned = False

    def take(self, count: int) -> None:
        """Say that `count` bytes are about to be written.

        Raises OSError (ENOSPC) instead, if they would leave less than RESERVE free.
        """
        if self._unseen >= _ASK_EVERY or self._left - self._unseen - count < RESERVE:
            self._unseen = 0
            self._left = self._free(self._path)
            if self._left - self._unseen - count < RESERVE:
                raise OSError(errno.ENOSPC, "less than 1 GiB would be left on this disk")
        self._unseen += count
        self._taken += count
        if not self._warned and self._taken > self.at_start // 2:
            self._warned = True
            warn(
                f"this dump has taken half of the {self.at_start / 1e9:.1f} GB that were free",
                self._path,
                "recording stops before the last 1 GiB; keep fewer ops, phases or steps, or set "
                "max_bytes",
            )
