"""The dispatch mode that sees every aten op and hands it to the session.

Nothing here may change what the step computes. The op is called exactly as it came; inputs are
stored before it runs, results after; what dispatch modes break (version counters of in-place
foreach ops) is mended.

Records are in execution order because backward runs on the thread that calls it: autograd's own
device threads are switched off inside the context. A thread that the step starts has a mode of its
own, which writes into the same session.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.overrides import _get_current_function_mode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import tree_map

from .feed import run_on
from .follow import Calls, followed, following, replaced
from .load import described
from .ops import Op, op_of
from .record import Call, tensors_in
from .scopes import Tracker
from .session import Session


class Capture(TorchDispatchMode):
    """Records every op of one thread."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch wraps the handler to keep dynamo off it, microseconds an op. The context keeps
        # dynamo off everything.
        return False

    def __init__(self, session: Session, tracker: Tracker) -> None:
        super().__init__()
        self._session = session
        self.tracker = tracker
        self._thread = session.thread()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return self._inside(func, args, kwargs)
        op, session = op_of(func), self._session
        if not op.recorded or session.idle or session.paused or not session.ours:
            return _call(op, args, kwargs)
        if op.is_view and not session.recording:
            self.tracker.passed()
            session.passed()
            return func(*args, **kwargs)
        values = op.bind(args, kwargs)
        place = self.tracker.place()
        if session.loader is not None:
            return self._load(op, values, place, args, kwargs)
        call = Call(op, values, session.next_seqid(), place, session.step, self._thread)
        session.inputs(call)
        try:
            result = _call(op, args, kwargs)
        except BaseException:
            session.failed(call)
            raise
        if op.arrives_later and op.waits(values):
            _wait(result)
        session.outputs(call, result)
        return result

    def _inside(self, func: HigherOrderOperator, args: tuple, kwargs: dict[str, Any]) -> Any:
        """An operator over functions (`torch.cond`): what counts is the ops of the functions."""

        def seen(value: Any) -> Any:
            if not callable(value) or isinstance(value, torch.Tensor | type):
                return value

            def run(*inputs: Any, **named: Any) -> Any:
                with self:
                    return value(*inputs, **named)

            return run

        args, kwargs = tree_map(seen, (args, kwargs))
        return func(*args, **kwargs)

    def _load(
        self, op: Op, values: list[Any], place: tuple, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        session, loader = self._session, self._session.loader
        feed = loader.seek(op, values, place, session.step, self._thread, session.names)
        computed = None
        if feed.given is not None and not op.is_view:
            try:
                acl = session.acl_for(op.ir, place[0], place[1].module)
                result, computed = run_on(op, values, feed.given, feed.record, feed.drawn, acl)
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                loader.failed(feed, error)
                feed = feed._replace(record=None, given=None)
        if feed.given is None or op.is_view:
            result = _call(op, args, kwargs)
            if feed.given is not None:
                computed = op.call(feed.given)
        elif op.needs_version_bump:
            torch.autograd.graph.increment_version(_counted(op, values))
        loader.made(feed, op, values, result)
        if feed.record is not None:
            given = values if feed.given is None else feed.given
            call = Call(op, given, feed.record.seqid, place, session.step, self._thread)
            if feed.given is None:
                call.stubs = described(op, result)
                session.failed(call)
            else:
                session.outputs(call, computed)
        if op.written:
            # The live tensors changed too, which the recorder cannot know: of an op without a
            # counterpart it sees nothing, of another one the recorded stand-ins.
            session.forget()
        return result


@contextmanager
def capturing(session: Session) -> Iterator[Tracker]:
    """Record this thread, and those that are started inside, into the session.

    Yields the tracker of this thread. Nothing of torch is changed any more afterwards.
    """
    with (
        # Compiled functions run as written inside the context, and compiled again after it. Without
        # this fullgraph=True raises, and what is first run in here stays eager for good.
        torch.compiler.set_stance("force_eager"),
        _deeper(),
        following(),
        replaced(threading.Thread, "_bootstrap_inner", partial(_captured, session)),
        _this_thread(session) as tracker,
    ):
        yield tracker


@contextmanager
def _deeper() -> Iterator[None]:
    """Our frames between the model's must not be what makes a deep model too deep."""
    before = sys.getrecursionlimit()
    ours = before + before // 2 + 200
    sys.setrecursionlimit(ours)
    try:
        yield
    finally:
        if sys.getrecursionlimit() == ours:  # else somebody set it since
            sys.setrecursionlimit(before)


def on_top(tracker: Tracker) -> bool:
    """Whether the modes of this thread's tracker can be left: none of the user's lies over them."""
    dispatch, function = _get_current_dispatch_mode(), _get_current_function_mode()
    return (
        isinstance(dispatch, Capture)
        and dispatch.tracker is tracker
        and isinstance(function, Calls)
        and function.tracker is tracker
    )


@contextmanager
def _this_thread(session: Session) -> Iterator[Tracker]:
    tracker = Tracker(session.names, session.trackers, session.modes)
    if session.choice.level != "op":
        tracker.on_leave = session.leaving
    if session.watch is not None:
        tracker.on_pass = session.end_pass
    # One thread, so one order of ops and one sequence of autograd node numbers.
    with (
        torch.autograd.set_multithreading_enabled(False),
        followed(tracker),
        Capture(session, tracker),
    ):
        yield tracker
    tracker.finished = True


def _captured(session: Session, original: Callable[..., None]) -> Callable[..., None]:
    """Modes belong to threads: let every thread that starts in here enter one."""

    def _bootstrap_inner(thread: threading.Thread) -> None:
        if session.stopped or not session.ours:
            return original(thread)
        with _this_thread(session):
            return original(thread)

    return _bootstrap_inner


def _call(op: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
    if not op.needs_version_bump:
        return op.func(*args, **kwargs)
    # What torch leaves undone for in-place foreach ops while a dispatch mode is on.
    written = _counted(op, op.bind(args, kwargs))
    before = [tensor._version for tensor in written]
    result = op.func(*args, **kwargs)
    for tensor, version in zip(written, before, strict=True):
        if tensor._version == version:
            torch.autograd.graph.increment_version(tensor)
    return result


def _counted(op: Op, values: list[Any]) -> list[torch.Tensor]:
    """The tensors a call writes that have a version counter."""
    return [t for i in op.written for t in tensors_in(values[i]) if not t.is_inference()]


def _wait(result: Any) -> None:
    """Let a collective finish, so that what is recorded is what it made."""
    for part in result if isinstance(result, (list, tuple)) else (result,):
        if isinstance(part, torch.ScriptObject) and "Work" in str(part._type()):
            torch.distributed.Work.unbox(part).wait()
