"""Ctrl-C while a record is being written waits until it is.

Python raises KeyboardInterrupt wherever it happens to be. Inside HDF5's callbacks and weak
references it is lost ("Exception ignored in ..."), and half a flush leaves HDF5's state unusable.
So inside the context SIGINT is held back while we write, and raised right after, in the user's step
where it belongs.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class HeldInterrupt:
    """Context manager for the whole step; `with self.held:` around what must not be interrupted."""

    def __init__(self) -> None:
        self._before: Any = None
        self._depth = 0
        self._came: tuple[int, FrameType | None] | None = None

    def install(self) -> None:
        """Take over SIGINT, if this is the thread that may and Python handles it at all."""
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):
                self._before = before
                signal.signal(signal.SIGINT, self._handle)

    def remove(self) -> None:
        """Give SIGINT back, unless somebody has taken it since."""
        if self._before is not None and signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, self._before)
        self._before = None

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._came is not None and self._depth == 0:
            came, self._came = self._came, None
            self._before(*came)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self._came = number, frame
        else:
            self._before(number, frame)
