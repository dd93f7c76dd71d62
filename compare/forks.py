"""Many small units made rows by forked processes, in the order in which they are asked for.

What a small unit costs is Python, of which one thread runs at a time. So processes are forked that
walk the same units in shares, and send the rows of a share, and what is written of them, through a
pipe each; files stay the parent's. Whoever is free takes the next share, the parent too: its number
comes out of a pipe that holds all numbers, so that two cannot take one, and none is waited for. A
child ends with its pipe: when the parent is gone it has nowhere to write. When a child is gone
before its end, the parent ends the others and works for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import sys
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

import numpy as np

from . import child
from .packed import read_rows, write_rows
from .row import Row

Results = list[tuple[Row, Any]]
"""Of a unit: its rows, and what is written of each."""

Share = list[Results]

SHARE = 64
"""Units in a row that are one process's."""

_NUMBER = struct.Struct("<I")

_PIPE = 1 << 20
"""Bytes that a pipe should hold, so that a child need not wait: two shares of three tensors each,
and the numbers of 16 million units; also the most that Linux gives everybody."""

WORTH = 4000
"""Pairs from which on forking pays."""

_MOST = 8
"""Processes: one parent cannot write rows faster than so many measure."""


def can_fork(pairs: int) -> bool:
    """Whether to have processes for so many pairs: several cores, and a system that copies a
    process without trouble."""
    return sys.platform == "linux" and pairs >= WORTH and (os.cpu_count() or 1) > 1


class Forks:
    """Processes that make shares of `shares()`, an iterable of functions that must be the same in
    all. Close it, or use it in `with`. ahead: how many shares may be under way at a time."""

    def __init__(self, shares: Callable[[], Iterable[Callable[[], Share]]]) -> None:
        self._numbers = _all_numbers()
        self._pipes: list[BinaryIO] = []
        self._children: list[int] = []
        self._done: dict[int, Share] = {}
        self._taken: int | None = None  # a share that is the parent's, and not made yet
        count = max(1, min(_MOST, (os.cpu_count() or 1) - 1))
        self.ahead = 4 * count + 4
        with contextlib.suppress(OSError):  # as many as the system allows, or none
            for _ in range(count):
                self._fork(shares)

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def made(self, number: int, own: Callable[[int], Share | None]) -> Share:
        """A share by its number; each once, in order.

        own: makes one here; None of one that the parent does not have yet.
        """
        while number not in self._done:
            if self._receive(wait=False):
                continue
            if self._taken is None:
                self._taken = self._take()
            if self._taken is None or not self._pipes:  # there is nobody else
                self._done[number] = own(number)
            elif (share := own(self._taken)) is not None:
                self._done[self._taken] = share
                self._taken = None
            else:
                self._receive(wait=True)
        return self._done.pop(number)

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        self._pipes.clear()
        for number in self._children:
            child.end(number)
        self._children.clear()
        if self._numbers is not None:
            os.close(self._numbers)
            self._numbers = None

    def _take(self) -> int | None:
        """The next share that nobody has."""
        found = os.read(self._numbers, _NUMBER.size) if self._numbers is not None else b""
        return _NUMBER.unpack(found)[0] if found else None

    def _receive(self, wait: bool) -> bool:
        """Take what children have sent; whether there was anything. wait: until there is."""
        if not self._pipes:
            return False
        poll = select.poll()
        for pipe in self._pipes:
            poll.register(pipe, select.POLLIN)
        ready = {number for number, _ in poll.poll(None if wait else 0)}
        for pipe in [pipe for pipe in self._pipes if pipe.fileno() in ready]:
            try:
                number, share = read_rows(pipe)
            except (EOFError, ValueError, TypeError):
                self.close()
                return True
            if number is None:
                self._pipes.remove(pipe)
                pipe.close()
            else:
                self._done[number] = share
        return bool(ready)

    def _fork(self, shares: Callable[[], Iterable[Callable[[], Share]]]) -> None:
        others = [pipe.fileno() for pipe in self._pipes]  # which would outlive the parent
        number, read = child.begin(lambda file: self._send(shares(), file), *others)
        self._pipes.append(open(read, "rb", buffering=0))
        self._children.append(number)
        _widen(read)

    def _send(self, shares: Iterable[Callable[[], Share]], file: BinaryIO) -> None:
        taken = self._take()
        for number, make in enumerate(shares):
            if number == taken:
                write_rows(number, make(), file)
                taken = self._take()
        write_rows(None, [], file)


def _all_numbers() -> int:
    """A pipe that is full of the numbers from 0 on, four bytes each, to be read one at a time."""
    read, write = os.pipe()
    size = _widen(write)
    os.set_blocking(write, False)
    os.write(write, np.arange(size // _NUMBER.size, dtype="<u4").tobytes())
    os.close(write)
    return read


def _widen(pipe: int) -> int:
    """Make a pipe hold much; how much it holds."""
    with contextlib.suppress(OSError):  # then a child waits now and then
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
