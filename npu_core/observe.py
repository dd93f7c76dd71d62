"""Who looks at every kernel call on npu: where the emulated device is tapped, as ACL dump does.

It is below autograd, autocast and all modes, on whatever thread the kernel runs, and around planted
faults, so that what is seen is what the caller gets. Views and what PyTorch makes of other ops run
no kernel and are not seen. One observer at a time, since the device has one ACL dump.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

Run = Callable[[], Any]
Observer = Callable[[torch._ops.OpOverload, Run, tuple, dict], Any]
"""Called with the op, what runs it, and its arguments; returns what the call returns."""


class Live:
    """What kernels ask in every call."""

    __slots__ = ("observer",)

    def __init__(self) -> None:
        self.observer: Observer | None = None


live = Live()
_running = threading.local()


def observe(observer: Observer | None) -> None:
    """Let `observer` see every kernel call from here on; None: nobody."""
    live.observer = observer


def asleep() -> bool:
    """Whether this thread is inside an observed call: what the observer calls goes unseen."""
    return getattr(_running, "now", False)


def call(op: torch._ops.OpOverload, kernel: Callable, args: tuple, kwargs: dict) -> Any:
    """What a kernel returns, its call seen by the observer."""
    observer = live.observer
    if observer is None:  # it left meanwhile, on another thread
        return kernel(*args, **kwargs)
    _running.now = True
    try:
        return observer(op, lambda: kernel(*args, **kwargs), args, kwargs)
    finally:
        _running.now = False
