"""Streams and events of the emulated device: one queue whose work is done when a call returns.

There is nothing to wait for, so waiting returns at once. An event keeps the host's clock, and
`elapsed_time` is real wall time of the emulation; it says nothing about a chip.
"""

from __future__ import annotations

import threading
import time

import torch

from .. import memory

Device = int | str | torch.device | None


def index(device: Device) -> int:
    """The index a device argument means. Raises RuntimeError for one that is not emulated."""
    if device is None:
        return 0
    if not isinstance(device, int):
        given = torch.device(device)
        if given.type != "npu":
            raise RuntimeError(f"expected an npu device, got {given}: name npu or npu:0")
        device = given.index or 0
    memory.check_index(device)
    return device


class Stream(torch.Stream):
    """A queue of the device. All streams share one order, so two of them compare equal."""

    def __new__(cls, device: Device = None, priority: int = 0) -> Stream:
        return super().__new__(cls, device=torch.device("npu", index(device)), priority=priority)

    @property
    def npu_stream(self) -> int:
        """The stream's number, as the real device's handle: 0."""
        return self.stream_id

    def synchronize(self) -> None:
        """Wait for the stream: nothing is ever pending."""

    def query(self) -> bool:
        """True: all work is done."""
        return True

    def wait_event(self, event: Event) -> None:
        """Let later work wait for an event: it has happened."""

    def wait_stream(self, stream: torch.Stream) -> None:
        """Let later work wait for another stream: it has nothing pending."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event (a new one if None) on this stream; returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event


class Event:
    """A mark in a stream, with the host's time where `enable_timing` is set."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self._timing, self._at = enable_timing, None

    def record(self, stream: torch.Stream | None = None) -> None:
        """Take the time now: all work before is done."""
        self._at = time.perf_counter_ns()

    def query(self) -> bool:
        """True: what was recorded has happened."""
        return True

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Let a stream wait for this event: it has happened."""

    def synchronize(self) -> None:
        """Wait for this event: it has happened."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds of wall time from this event to `end_event`.

        Raises RuntimeError if one has no timing or was not recorded.
        """
        for event in (self, end_event):
            if not event._timing:
                raise RuntimeError("make both events with enable_timing=True to measure time")
            if event._at is None:
                raise RuntimeError("both events must be recorded before the time is asked")
        return (end_event._at - self._at) / 1e6


_default: Stream | None = None
_current = threading.local()


def default_stream(device: Device = None) -> Stream:
    """The stream in use where none was chosen."""
    global _default
    index(device)
    if _default is None:
        _default = Stream()
    return _default


def current_stream(device: Device = None) -> Stream:
    """The stream this thread has chosen, else the default one."""
    index(device)
    return getattr(_current, "stream", None) or default_stream()


def set_stream(stream: Stream | None) -> None:
    """Choose a stream for this thread; None leaves the choice as it is."""
    if stream is not None:
        _current.stream = stream


class StreamContext:
    """Context manager that chooses a stream for the block; None chooses nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        self._before = current_stream()
        set_stream(self.stream)

    def __exit__(self, *exc: object) -> None:
        set_stream(self._before)


stream = StreamContext
