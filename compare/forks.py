"""Many small units made rows by forked processes, in the order in which they are asked for.

What a small unit costs is Python, of which one thread runs at a time. So processes are forked that
walk the same units and send the rows of their share, and what is written of them, 64 units at a
time, through a pipe each; files stay the parent's, which takes a share too, as much as reading the
others' leaves it time for. A child ends with its pipe: when the parent is gone it has nowhere to
write, and when a child is gone its pipe is at its end and the parent works for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from .packed import read_rows, write_rows
from .row import Row

Results = list[tuple[Row, Any]]
"""Of a unit: its rows, and what is written of each."""

Work = Callable[[Callable[[int], bool]], Iterator[Results]]

SHARE = 64
"""Units in a row that are one process's."""

_TURNS = 5
"""Of shares that a child takes where the parent takes that many, less one for each child: a row of
a child's costs the parent a fifth of one of its own."""

_PIPE = 1 << 20
"""Bytes that a pipe should hold, so that a child need not wait: two shares of three tensors each;
also the most that Linux gives everybody."""

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

    def __init__(self, work: Work) -> None:
        self._pipes: list[BinaryIO | None] = []
        self._children: list[int] = []
        self._count = 0
        self._share: list[Results] = []
        number = max(1, min(_MOST, (os.cpu_count() or 1) - 1))
        self._turns = turns(number)
        for i in range(number):
            self._fork(i, work)

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next(self) -> Results | None:
        """The next unit's; None where it is the parent's own, or its process could not tell."""
        at = self._count % SHARE
        if not at:
            owner = self._owner(self._count)
            self._share = [] if owner is None else self._read(owner)
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

    def _owner(self, count: int) -> int | None:
        return self._turns[count // SHARE % len(self._turns)]

    def _fork(self, i: int, work: Work) -> None:
        read, write = os.pipe()
        with contextlib.suppress(OSError):  # then a child waits now and then
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE)
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
                _send(work(lambda count: self._owner(count) == i), file)
            status = 0
        finally:
            os._exit(status)  # nothing of the parent's is flushed or cleaned up here

    def _read(self, i: int) -> list[Results]:
        pipe = self._pipes[i]
        if pipe is None:
            return []
        try:
            return read_rows(pipe)
        except (EOFError, ValueError, TypeError):
            pipe.close()
            self._pipes[i] = None
            return []


def turns(children: int) -> list[int | None]:
    """Whose share comes when, again and again; None is the parent's, which begins."""
    weights = {None: max(0, _TURNS - children), **dict.fromkeys(range(children), _TURNS)}
    due = [((k + 0.5) / weight, i is not None, i) for i, weight in weights.items()
           for k in range(weight)]  # fmt: skip
    return [i for _, _, i in sorted(due, key=lambda turn: turn[:2])]


def _send(results: Iterator[Results], file: BinaryIO) -> None:
    share = []
    for result in results:
        share.append(result)
        if len(share) == SHARE:
            write_rows(share, file)
            share = []
    write_rows(share, file)
