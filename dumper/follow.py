"""How a tracker learns which modules and torch functions run: what torch must be told for it.

Modules by way of `nn.Module.__call__`, which is replaced while the context stands: hooks would
change in-place models, and switch fast paths off. Functions by a TorchFunctionMode. While one is
on, torch holds every tensor for an overridden one, and three inference modules then leave their
fast path for other kernels, so around those it is taken off. The autograd engine and checkpoint are
wrapped by the names that torch itself calls them by.

The replacements are process-wide and ask for the tracker of their own thread; without one they do
nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.jit._trace
import torch.utils.checkpoint
from torch import nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import _pop_mode_temporarily

from .errors import warn
from .scopes import Tracker

_KEPT = 10_000
_CALLS: dict[Any, str | None] = {}  # public name of a function; None: it runs no op
_OPS = ("T", "H", "mT", "mH", "real", "imag")  # the attributes that do
_FAST = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)

_local = threading.local()


def tracker_here() -> Tracker | None:
    """The tracker of this thread, if it is being followed."""
    mode = getattr(_local, "mode", None)
    return None if mode is None else mode.tracker


class Calls(TorchFunctionMode):
    """Tells a tracker which torch function is called from outside torch."""

    def __init__(self, tracker: Tracker) -> None:
        super().__init__()
        self.tracker = tracker

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        try:
            name = _CALLS[func]
        except KeyError:
            name = _remember(func)
        if name is None or not self.tracker.enter_call(name):
            return func(*args, **(kwargs or {}))
        result = None
        try:
            result = func(*args, **(kwargs or {}))
            return result
        finally:
            self.tracker.leave_call(result)


def _remember(func: Any) -> str | None:
    if len(_CALLS) >= _KEPT:
        _CALLS.clear()
    name = resolve_name(func)
    if name is None:
        module = getattr(func, "__module__", None) or "torch"
        name = f"{module}.{getattr(func, '__qualname__', type(func).__name__)}"
    stem, _, access = name.rpartition(".")
    if access in ("__get__", "__set__", "__delete__"):
        name = stem if access == "__get__" and stem.rpartition(".")[2] in _OPS else None
    _CALLS[func] = name
    return name


@contextmanager
def followed(tracker: Tracker) -> Iterator[None]:
    """Let `tracker` follow this thread."""
    _local.mode = mode = Calls(tracker)
    try:
        with mode:
            yield
    finally:
        _local.mode = None


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Let `make(original)` stand for `owner.name`."""
    original = getattr(owner, name)
    ours = make(original)
    setattr(owner, name, ours)
    try:
        yield
    finally:
        if getattr(owner, name) is ours:  # else somebody replaced it since
            setattr(owner, name, original)


@contextmanager
def following() -> Iterator[None]:
    """The replacements in torch that serve every followed thread."""
    checkpoint = torch.utils.checkpoint
    with (
        replaced(nn.Module, "__call__", _module_call),
        replaced(torch.autograd, "_engine_run_backward", _engine_run),
        replaced(checkpoint, "_checkpoint_without_reentrant_generator", _without_reentrant),
        replaced(checkpoint, "CheckpointFunction", _Reentrant),
        replaced(torch.jit._trace, "_trace_impl", _unfollowed),
    ):
        yield


def _module_call(original: Callable[..., Any]) -> Callable[..., Any]:
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        mode = getattr(_local, "mode", None)
        if mode is None:
            return original(self, *args, **kwargs)
        tracker = mode.tracker
        tracker.enter_module(self)
        result = None
        try:
            if isinstance(self, _FAST) and not self.training:
                result = _on_fast_path(mode, original, self, args, kwargs)
            else:
                result = original(self, *args, **kwargs)
            return result
        finally:
            tracker.leave_module(self, result)

    return __call__


def _on_fast_path(
    mode: Calls, original: Callable[..., Any], module: nn.Module, args: tuple, kwargs: dict
) -> Any:
    if torch.overrides._get_current_function_mode() is not mode:
        # Not on top: off already, or below a mode of the user's that has the same effect.
        return original(module, *args, **kwargs)
    ours = mode.tracker.enter_call(f"torch.nn.{type(module).__name__}")
    result = None
    try:
        with torch.overrides._pop_mode_temporarily():
            result = original(module, *args, **kwargs)
            return result
    finally:
        if ours:
            mode.tracker.leave_call(result)


def _engine_run(original: Callable[..., Any]) -> Callable[..., Any]:
    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        mode = getattr(_local, "mode", None)
        if mode is None:
            return original(*args, **kwargs)
        # Off while `Tensor.backward` runs, and wanted: hooks and recomputation call functions.
        off = torch.overrides._get_current_function_mode() is not mode
        with mode.tracker.outside_calls(), mode if off else nullcontext():
            return original(*args, **kwargs)

    return _engine_run_backward


def _again(tracker: Tracker | None, function: Callable[..., Any]) -> Callable[..., Any]:
    """What runs `function` under the names of the region that begins now."""
    if tracker is None:
        return function
    region = tracker.region()

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        with tracker.recompute(region):
            return function(*args, **kwargs)

    return recomputed


def _without_reentrant(original: Callable[..., Any]) -> Callable[..., Any]:
    def _checkpoint_without_reentrant_generator(
        fn: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Generator[Any, Any, Any]:
        return original(_again(tracker_here(), fn), *args, **kwargs)

    return _checkpoint_without_reentrant_generator


def _unfollowed(original: Callable[..., Any]) -> Callable[..., Any]:
    def _trace_impl(*args: Any, **kwargs: Any) -> Any:
        """torch.jit.trace: under any mode it takes results for constants."""
        mode = getattr(_local, "mode", None)
        if mode is None or torch.overrides._get_current_function_mode() is not mode:
            return original(*args, **kwargs)
        warn(
            "ops that torch.jit.trace runs are not recorded",
            "torch.jit.trace",
            "trace before the context, or dump the module without tracing it",
        )
        _local.mode = None
        try:
            with torch.overrides._pop_mode_temporarily(), _pop_mode_temporarily():
                return original(*args, **kwargs)
        finally:
            _local.mode = mode

    return _trace_impl


class _Reentrant:
    """Stands where torch looks up CheckpointFunction; only `apply` differs."""

    def __init__(self, original: type[torch.autograd.Function]) -> None:
        self._original = original

    def apply(self, function: Callable[..., Any], *args: Any) -> Any:
        again = _again(tracker_here(), function)
        runs = 0

        def run(*inputs: Any) -> Any:
            nonlocal runs
            runs += 1
            return (function if runs == 1 else again)(*inputs)

        return self._original.apply(run, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)
