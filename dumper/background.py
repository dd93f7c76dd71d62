"""Large values on their way to the file while the step goes on.

Copying a tensor is many times faster than writing it to a file whose pages do not exist yet. So
what may wait is copied into a slot of a bounded pool and a thread writes it; `pwrite` lets go of
Python's lock. Where no slot is free the caller writes its own bytes: both then work on the same
file, no copy is made, and what waits never outgrows its bound. Slots are made when they are first
needed and the one used last is taken first, so that a thread that keeps up touches little memory.

Blocks of the file are set aside ahead of what is written: one extent a few megabytes costs less than
finding a place for every page. They lie behind the file's end, where a kill leaves a few of them.

Only raw bytes come here. HDF5 stays on the calling thread.
"""

from __future__ import annotations

import ctypes
import os
import threading
from queue import SimpleQueue

import numpy as np

SLOT = 1 << 20
"""Bytes that are copied and written at a time."""

_AHEAD = 8 << 20  # bytes set aside at a time
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
_fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
if _fallocate is not None:
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

_BACKLOG = 64 << 20  # more waits only for a step so fast that it outruns the file for good


class BackgroundWrites:
    """Writes to one open file, in the order in which they came.

    memory: bound in bytes on the copies that wait. error: what went wrong on the thread; from then
    on nothing more is written there, and `write` and `wait` raise it.
    """

    def __init__(self, fd: int, memory: int) -> None:
        self.error: OSError | None = None
        self._fd = fd
        self._unmade = min(memory, _BACKLOG) // SLOT
        self._free: list[np.ndarray] = []  # a list's append and pop are whole under Python's lock
        self._queue: SimpleQueue[tuple[int, np.ndarray, int] | threading.Event | None] = (
            SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self._sent = self._done = 0
        self._aside = 0  # blocks of the file before this offset are there
        self._sets_aside = _fallocate is not None

    @property
    def waiting(self) -> int:
        """About how many bytes are not in the file yet."""
        return (self._sent - self._done) * SLOT

    def write(self, at: int, data: np.ndarray) -> None:
        """Write `data`, flat bytes, at offset `at`. They may change as soon as this returns."""
        self._check()
        if self._thread is None and self._unmade and not self._start():
            self._unmade = 0
        self._set_aside(at, at + len(data))
        for start in range(0, len(data), SLOT):
            part = data[start : start + SLOT]
            slot = self._slot()
            if slot is None:
                pwrite(self._fd, memoryview(part), at + start)
            else:
                np.copyto(slot[: len(part)], part)
                self._sent += 1
                self._queue.put((at + start, slot, len(part)))

    def wait(self) -> None:
        """Return when everything is in the file. Raises what went wrong."""
        if self._thread is not None and self._done != self._sent:
            reached = threading.Event()
            self._queue.put(reached)
            reached.wait()
        self._check()

    def stop(self) -> None:
        """End the thread, when it has written or given up what waits."""
        thread, self._thread = self._thread, None
        self._unmade = 0
        self._free.clear()
        if thread is not None:
            self._queue.put(None)
            thread.join()

    def forked(self) -> None:
        """In a forked child: there is no thread here, and what waits is the parent's to write."""
        self._thread = None
        self._unmade = 0
        self._free = []

    def _set_aside(self, start: int, end: int) -> None:
        if end <= self._aside or not self._sets_aside:
            return
        start = max(start, self._aside)
        count = max(_AHEAD, end - start)
        # Refused (file system, quota, disk): whether the bytes fit, their own write tells.
        self._sets_aside = _fallocate(self._fd, _KEEP_SIZE, start, count) == 0
        self._aside = start + count

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def _start(self) -> bool:
        thread = threading.Thread(target=self._run, name="torch-dumper-writes", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread to be had: a limit, or the interpreter is ending
            return False
        self._thread = thread
        return True

    def _slot(self) -> np.ndarray | None:
        if self._free:
            return self._free.pop()
        if not self._unmade:
            return None
        self._unmade -= 1
        return np.empty(SLOT, np.uint8)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            at, slot, count = item
            if self.error is None:
                try:
                    pwrite(self._fd, memoryview(slot)[:count], at)
                except OSError as error:
                    self.error = error
            self._free.append(slot)
            self._done += 1


def pwrite(fd: int, view: memoryview, at: int) -> None:
    """Write all of `view` at offset `at`."""
    while view:
        done = os.pwrite(fd, view, at)
        view, at = view[done:], at + done
