"""Many small units made rows by forked processes, in the order in which they are asked for.

What a small unit costs is Python, of which one thread runs at a time. So processes are forked that
walk the same units and send the rows of their share, 256 units at a time, through a pipe each;
files stay the parent's. A child ends with its pipe: when the parent is gone it has nowhere
to write, and when a child is gone its pipe is at its end and the parent works for itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

from .packed import read_rows, write_rows
from .row import Row

SHARE = 256
"""Units in a row that are one process's."""

WORTH = 4000
"""Pairs from which on forking pays."""

_MOST = 8
"""Processes: one parent cannot write rows faster than so many measure."""


def can_fork(pairs: int) -> bool:
    """Whether to have processes for so many pairs: several cores, and a system that copies a
    process without trouble."""
    return sys.platform == "linux" and pairs >= WORTH and (os.cpu_count() or 1) > 1


class Forks:
    """Processes that run `work()`, an iterator that must be the same in all, and keep what is their
    share of its results. Close it, or use it in `with`."""

    def __init__(self, work: Callable[[Callable[[int], bool]], Iterator[list[Row]]]) -> None:
        self._pipes: list[BinaryIO | None] = []
        self._children: list[int] = []
        self._count = 0
        self._share: list[list[Row]] = []
        number = max(1, min(_MOST, (os.cpu_count() or 1) - 1))
        for i in range(number):
            self._fork(i, number, work)

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next(self) -> list[Row] | None:
        """The rows of the next unit; None where its process could not tell."""
        at = self._count % SHARE
        if not at:
            self._share = self._read(self._count // SHARE % len(self._pipes))
        self._count += 1
        return self._share[at] if at < len(self._share) else None

    def close(self) -> None:
        """End the processes."""
        for pipe in filter(None, self._pipes):
            pipe.close()
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self._children.clear()

    def _fork(
        self, i: int, number: int, work: Callable[[Callable[[int], bool]], Iterator[list[Row]]]
    ) -> None:
        read, write = os.pipe()
        child = os.fork()
        if child:
            os.close(write)
            self._pipes.append(open(read, "rb"))
            self._children.append(child)
            return
        status = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent closes the pipe then
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.close(read)
            for pipe in filter(None, self._pipes):  # or a pipe would outlive the parent
                os.close(pipe.fileno())
            with open(write, "wb", buffering=0) as file:
                _send(work(lambda count: count // SHARE % number == i), file)
            status = 0
        finally:
            os._exit(status)  # nothing of the parent's is flushed or cleaned up here

    def _read(self, i: int) -> list[list[Row]]:
        pipe = self._pipes[i]
        if pipe is None:
            return []
        try:
            return read_rows(pipe)
        except (EOFError, ValueError, TypeError):
            pipe.close()
            self._pipes[i] = None
            return []


def _send(results: Iterator[list[Row]], file: BinaryIO) -> None:
    share = []
    for result in results:
        share.append(result)
        if len(share) == SHARE:
            write_rows(share, file)
            share = []
    write_rows(share, file)
