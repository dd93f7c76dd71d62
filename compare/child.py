"""A forked process that does one thing and sends what it found through a pipe.

It has the parent's memory as it was, so that nothing need be handed to it. It ends with its pipe:
when the parent is gone it has nowhere to write.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import BinaryIO

_THREADS = "OPENBLAS_NUM_THREADS"
"""Read by numpy's OpenBLAS when it is loaded."""


def begin(work: Callable[[BinaryIO], None], *others: int) -> tuple[int, int]:
    """Fork a process that runs `work`, which writes to the file that it is given.

    others: descriptors that the process must not keep open. Returns its number, which `end` takes,
    and the descriptor that what it writes is read from. Raises OSError where the system allows no
    more processes, or no more files.
    """
    read, write = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(read)
        os.close(write)
        raise
    if child:
        os.close(write)
        return child, read
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent closes the pipe then
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        for number in (read, *others):
            os.close(number)
        with open(write, "wb") as file:
            work(file)
        status = 0
    finally:
        os._exit(status)  # nothing of the parent's is flushed or cleaned up here


def import_numpy() -> None:
    """Import numpy without threads for products of matrices, of which comparing makes none.

    They take processor time while they wait for work, and each fork stops them.
    """
    asked = _THREADS in os.environ
    os.environ.setdefault(_THREADS, "1")
    try:
        import numpy  # noqa: F401 - loads it
    finally:
        if not asked:  # what is started from here decides for itself
            del os.environ[_THREADS]


def end(child: int) -> None:
    """End a process, whatever it does."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
