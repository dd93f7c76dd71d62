"""How long HDF5 may take for one thing it is asked about a file.

On some damaged files it goes round for ever, in C, where no handler of Python's runs and Ctrl-C
does nothing. A program that only reads files lets the system end it then, and has another process
say so; nothing else sets a limit.
"""

from __future__ import annotations

import signal

_seconds = 0.0


def limit(seconds: float) -> None:
    """From now on SIGALRM ends this process when a single question takes longer."""
    global _seconds
    _seconds = seconds


class _Patience:
    def __enter__(self) -> None:
        if _seconds:
            signal.setitimer(signal.ITIMER_REAL, _seconds)

    def __exit__(self, *_: object) -> None:
        if _seconds:
            signal.setitimer(signal.ITIMER_REAL, 0)


patience = _Patience()
"""`with patience:` around what HDF5 is asked."""
