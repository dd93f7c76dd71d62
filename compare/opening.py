"""Dumps being opened: shown where that takes long, bounded in memory, two at once.

What takes long is Python, of which one thread runs at a time. So while this process walks through
one dump, a forked one walks through the other. When that fails, for whatever reason, this process
opens the file itself, and says what is wrong with it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from dumper.errors import printable

from . import child

if TYPE_CHECKING:
    from dumper.reader import Dump

_OPENING = 640 << 20
"""Bytes that opening a file may take besides those that follow from its size."""

_WORTH = 1 << 20
"""Bytes of a file from which on another process is worth its start."""


def opening(path: str, checked: bool = False, walked: bytes | None = None) -> Dump:
    """Open a dump, as `open_dump` does, and show it where that takes long."""
    from dumper.reader import open_dump

    from .progress import working

    with working(f"opening {printable(path)}"), _bounded(path):
        return open_dump(path, checked=checked, walked=walked)


@contextlib.contextmanager
def walking(path: str, beside: str) -> Iterator[Callable[[], bytes | None]]:
    """Let another process walk through a dump meanwhile. beside: the dump that is this one's.

    Yields what gives what it found, once, for `opening`; None where it could not.
    """
    walk = _walk(path) if _can_fork(path, beside) else None
    if walk is None:
        yield lambda: None
        return
    with walk:
        yield walk.found


def _can_fork(*paths: str) -> bool:
    return (
        sys.platform == "linux"
        and (os.cpu_count() or 1) > 1
        and all(os.path.getsize(path) >= _WORTH for path in paths)
    )


def _walk(path: str) -> _Walk | None:
    try:
        return _Walk(path)
    except OSError:  # the system allows no more processes, or no more files
        return None


class _Walk:
    """A forked process that walks through a dump."""

    def __init__(self, path: str) -> None:
        from dumper import reader, walked  # once, for both

        def walk(file: BinaryIO) -> None:
            with _bounded(path), reader.open_dump(path) as dump:
                file.write(walked.packed(dump.state, dump.records, dump.skipped, dump.omitted))

        self._child, self._pipe = child.begin(walk)

    def found(self) -> bytes | None:
        """What it found; None where it could not."""
        with open(self._pipe, "rb") as file:
            data = file.read()
        self._pipe = -1
        _, status = os.waitpid(self._child, 0)
        self._child = 0
        return None if status else data

    def __enter__(self) -> _Walk:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
        if self._child:
            child.end(self._child)


@contextlib.contextmanager
def _bounded(path: str) -> Iterator[None]:
    """Memory for what a file says it holds: HDF5 believes some damaged sizes."""
    if sys.platform != "linux":
        yield
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = os.stat(path).st_size if os.path.exists(path) else 0
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + _OPENING + 2 * size
    if before[0] != resource.RLIM_INFINITY:
        limit = min(limit, before[0])
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
