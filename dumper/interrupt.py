"""Signals while a record is being written wait until it is.

Python runs a signal's handler wherever it happens to be, and handlers raise: KeyboardInterrupt on
Ctrl-C, a timeout of the user's on SIGALRM. Inside HDF5's callbacks and weak references that is lost
("Exception ignored in ..."), and half a flush leaves HDF5's state unusable. So inside the context
every signal that Python handles is held back while we write, and handled right after, in the user's
step where it belongs.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class HeldInterrupt:
    """Context manager for the whole step; `with self.held:` around what must not be interrupted."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._depth = 0
        self._came: list[tuple[int, FrameType | None]] = []

    def install(self) -> None:
        """Take over the signals that Python handles, if this is the thread that may."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in signal.valid_signals():
            before = signal.getsignal(number)
            if callable(before) and before != self._handle:
                self._before[number] = before
                signal.signal(number, self._handle)

    def remove(self) -> None:
        """Give them back, unless somebody has taken one since."""
        for number, handler in self._before.items():  # kept: a user may have saved ours, to restore
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        while self._came and self._depth == 0:
            number, frame = self._came.pop(0)
            self._before[number](number, frame)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self._came.append((number, frame))
        else:
            self._before[number](number, frame)
