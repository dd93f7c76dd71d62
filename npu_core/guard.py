"""The device guard, and how an exception in backward gets past it.

Autograd's engine holds a stream guard around every node. While it unwinds from a Python exception
(a tensor hook raised, Ctrl-C came inside a dispatch mode) that guard asks ours for its device type,
which is Python: called with an error pending it fails, in a function that must not, and the process
aborts. So `type_` takes the pending error out of the interpreter, and the call that ran the engine,
which now ends in an error without a cause, raises what was taken.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch

_PRIVATE_USE_1 = torch._C._autograd.DeviceType.PrivateUse1

# Without argument types, whose converters would be calls.
_fetch = ctypes.PYFUNCTYPE(None)(("PyErr_Fetch", ctypes.pythonapi))
_normalize = ctypes.PYFUNCTYPE(None)(("PyErr_NormalizeException", ctypes.pythonapi))
_error = (ctypes.py_object(), ctypes.py_object(), ctypes.py_object())
_kind, _value, _trace = map(ctypes.pointer, _error)
_taken: list[BaseException] = []


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
    _taken.append(_error[1].value.with_traceback(_error[2].value if _error[2] else None))


def raise_what_was_taken() -> None:
    """Let every run of autograd's engine raise the error that the guard had to take."""
    run = torch.autograd.graph._engine_run_backward

    @functools.wraps(run)
    def engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        return _run(run, args, kwargs)

    torch.autograd.graph._engine_run_backward = engine_run_backward
    torch.autograd._engine_run_backward = engine_run_backward


def _run(run: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    before = len(_taken)
    try:
        return run(*args, **kwargs)
    except SystemError:
        if len(_taken) == before:
            raise
        error = _taken[before]
    finally:
        del _taken[before:]
    raise error
