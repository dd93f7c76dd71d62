"""The device guard, and what our device needs of autograd's engine.

An exception in backward must get past the guard.
Autograd's engine holds a stream guard around every node. While it unwinds from a Python exception
(a tensor hook raised, Ctrl-C came inside a dispatch mode) that guard asks ours for its device type,
which is Python: called with an error pending it fails, in a function that must not, and the process
aborts. So `type_` takes the pending error out of the interpreter, and the call that ran the engine,
which now ends in an error without a cause, raises what was taken. The engine's threads serve every
caller; what tells them apart is thread-local state, which the engine carries to its threads.

The engine makes one thread a device at its first run and none later. If a backward ran before the
device was registered there is no thread for npu, and the engine fails an assertion. So then all of
backward runs on the caller's thread, as `torch.autograd.set_multithreading_enabled(False)` has it.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

_PRIVATE_USE_1 = torch._C._autograd.DeviceType.PrivateUse1

# Without argument types, whose converters would be calls.
_fetch = ctypes.PYFUNCTYPE(None)(("PyErr_Fetch", ctypes.pythonapi))
_release = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", ctypes.pythonapi))
_normalize = ctypes.PYFUNCTYPE(None)(("PyErr_NormalizeException", ctypes.pythonapi))
_error = (ctypes.py_object(), ctypes.py_object(), ctypes.py_object())
_kind, _value, _trace = map(ctypes.pointer, _error)
_TAKEN = "npu_core: errors taken"  # in thread-local state: a list for each run of the engine


class Guard(torch._C._acc.DeviceGuard):
    """Tells PyTorch which device type we are; there is one device and one stream."""

    def type_(self, take=_fetch, k=_kind, v=_value, t=_trace, error=_error[0], us=_PRIVATE_USE_1):
        # With an error pending every call fails that does not take it away, and every look-up may:
        # so this call comes first, and all its names are arguments.
        take(k, v, t)
        if error:
            _keep()
        return us


def _keep() -> None:
    _normalize(_kind, _value, _trace)
    error = _error[1].value.with_traceback(_error[2].value if _error[2] else None)
    for part in _error:
        if part:
            _release(part.value)  # fetching made the reference ours
    taken = _taken_here()
    if taken is not None:  # always, unless C++ ran the engine
        taken.append(error)


def _taken_here() -> list[BaseException] | None:
    """The errors taken from the run of the engine that this thread works for."""
    return torch._C._get_obj_in_tls(_TAKEN) if torch._C._is_key_in_tls(_TAKEN) else None


def wrap_engine() -> None:
    """Let every run of autograd's engine find a thread, and raise the error the guard had to take.

    Called once, when the device is registered.
    """
    run = torch.autograd.graph._engine_run_backward
    without_thread = _WithoutThread(run)

    @functools.wraps(run)
    def engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        if without_thread():
            with torch.autograd.set_multithreading_enabled(False):
                return _run(run, args, kwargs)
        return _run(run, args, kwargs)

    torch.autograd.graph._engine_run_backward = engine_run_backward
    torch.autograd._engine_run_backward = engine_run_backward


class _WithoutThread:
    """Asks whether a backward ran before the device was registered.

    The engine counts its runs over the whole process and tells each its number, from 0. So at the
    first backward since then we run one of our own before it, over a leaf and no op.
    """

    def __init__(self, run: Callable) -> None:
        self.run, self.lock = run, threading.Lock()
        self.answer: bool | None = None
        self.leaf = torch.zeros(1, device="cpu", requires_grad=True)
        self.gradient = torch.zeros(1, device="cpu")

    def __call__(self) -> bool:
        if self.answer is None:
            with self.lock:
                if self.answer is None:
                    self.answer = self._first_run() > 0
        return self.answer

    def _first_run(self) -> int:
        seen: list[int] = []
        hook = self.leaf.register_hook(lambda _: seen.append(torch._C._current_graph_task_id()))
        leaves = (self.leaf,)
        self.run(leaves, (self.gradient,), False, False, leaves, accumulate_grad=False)
        hook.remove()
        return seen[0]


def _run(run: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    taken: list[BaseException] = []
    outer = _taken_here()  # a run within a run, as checkpoint's
    torch._C._stash_obj_in_tls(_TAKEN, taken)
    try:
        return run(*args, **kwargs)
    except SystemError:
        if not taken:
            raise
    finally:
        torch._C._stash_obj_in_tls(_TAKEN, outer)
    raise taken.pop(0)  # out of the list: this frame is in its traceback
