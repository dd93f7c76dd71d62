"""One dump file being made: records numbered and written, and what happens when that fails.

Training's own outcome stands whatever happens here. Where the file itself failed (a full disk),
recording stops, once and loudly; where one value cannot be stored, it is listed as omitted.

Several threads may run ops; each writes its records under one lock, which is never held while an op
runs.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .acl_dump import AclDump
from .choice import Choice
from .errors import warn
from .interrupt import HeldInterrupt
from .layout import record_path
from .load import Loader
from .modes import Modes
from .names import Names
from .overflow import ranges, scales
from .overflow.events import TEXT as OVERFLOWS
from .overflow.findings import Findings
from .overflow.seen import Look
from .overflow.watch import Watch
from .record import Call, Recorder
from .scopes import Tracker
from .writer import Writer


class Session:
    """Writes the records of one run into one file, or into one after the other.

    path: the file, created at the first record. environment: stored with it, and again at the end,
    since it may grow. make: makes the writer. loader: recorded inputs to feed, or None to record
    freely. recording: whether calls are stored; otherwise they are only looked at. watch: looks for
    overflow, findings: what it found; None where nobody asked. acl: dumps the ops of a load run on
    the device as well. paused: nothing is recorded for now. trackers: of all threads that are
    followed. modes: what they have seen.
    """

    def __init__(
        self,
        path: str,
        environment: dict[str, Any],
        choice: Choice,
        names: Names,
        loader: Loader | None = None,
        make: Callable[[str, dict[str, Any]], Writer] = Writer,
    ) -> None:
        self.choice = choice
        self.names = names
        self.loader = loader
        self.step = 0
        self.paused = False
        self.trackers: list[Tracker] = []
        self.modes = Modes()
        self.interrupt = HeldInterrupt()
        self.calls = 0  # ops that were recorded so far
        self.watch: Watch | None = None
        self.findings: Findings | None = None
        self.acl: AclDump | None = None
        self.recording = True
        self.stopped_silently = False
        self._environment = environment
        self._make = make
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._main = threading.get_ident()
        self._threads = {self._main: 0}
        self.begin(path)

    def begin(self, path: str) -> None:
        """Let the next record be the first of a file at `path`."""
        self.path = path
        self.stopped = False
        self._writer: Writer | None = None
        self._recorder: Recorder | None = None
        self._seqid = 0

    @property
    def idle(self) -> bool:
        """Whether nothing takes anything any more: no file, and no check."""
        return self.stopped and self.watch is None

    @property
    def made_file(self) -> bool:
        """Whether anything was recorded; a context in which nothing ran leaves no file."""
        return self._recorder is not None

    @property
    def ours(self) -> bool:
        """Whether this is the process that began the file; a forked child must not touch it."""
        return os.getpid() == self._process

    def acl_for(self, ir: str, phase: str, module: str | None) -> AclDump | None:
        """What dumps an op on the device too, if it is wanted: the choice holds there as well."""
        if self.acl is None or not self.choice.takes(ir, phase, module):
            return None
        return self.acl

    def next_seqid(self) -> int:
        """The number of the op that is being called."""
        with self._lock:
            self._seqid += 1
            return self._seqid

    def thread(self) -> int:
        """This thread's number in the file, in order of appearance; 0 began the dump."""
        ident = threading.get_ident()
        number = self._threads.get(ident)
        if number is None:
            number = self._threads[ident] = len(self._threads)
        return number

    def check(self, watch: Watch, findings: Findings, recording: bool, silent: bool) -> None:
        """Look for overflow from here on. recording: whether everything is recorded as well.
        silent: nothing is to be written."""
        self.watch, self.findings, self.recording = watch, findings, recording
        self.stopped = self.stopped_silently = silent

    def passed(self) -> None:
        """An op is called that only views, and nothing is recorded: it counts."""
        self.next_seqid()
        self.calls += 1

    def inputs(self, call: Call) -> None:
        """Store what a call was given."""
        if self.recording:
            self._guarded(call.path, lambda recorder: recorder.inputs(call))
        if self.watch is not None and (call.op.written or self.watch.reads_register):
            call.look = self._checked(self.watch.before, call)

    def outputs(self, call: Call, result: Any) -> None:
        """Store what a call made. Raises RuntimeError for an overflow under anomaly detection."""
        self.calls += 1
        if self.recording:
            self._store_outputs(call, result)
        if self.watch is not None:
            self._checked(self.watch.after, call, call.look, result)
            call.look = None
            if self.findings.error is not None:
                self._raise()

    def end_pass(self) -> None:
        """A run of autograd's engine has ended. Raises RuntimeError as `outputs` does."""
        if self.watch is not None:
            self._checked(self.watch.end_pass)
            self._raise()

    def _raise(self) -> None:
        if self.findings.error is not None:
            raise RuntimeError(self.findings.take_error())

    def _store_outputs(self, call: Call, result: Any) -> None:
        def write(recorder: Recorder) -> None:
            recorder.outputs(call, result)
            recorder.done(call)

        self._guarded(call.path, write)

    def failed(self, call: Call) -> None:
        """The op raised; its record ends without outputs."""
        if self.recording:
            self._guarded(call.path, lambda recorder: recorder.done(call))

    def overflowed(self, look: Look, lines: list[str]) -> None:
        """A call overflowed: store it as it was, unless it is stored anyway, and what is said of
        it."""
        if not self.recording:
            call = look.call
            place = call.phase, call.scope, call.node
            again = Call(call.op, look.given, call.seqid, place, call.step, call.thread)
            self.forget()  # what was written between two overflows was not seen by the recorder
            self._guarded(again.path, lambda recorder: recorder.inputs(again))
            again.values = look.after
            self._store_outputs(again, look.result)
        self._say(OVERFLOWS, lines)
        self._guarded(OVERFLOWS, lambda _: self._writer.flush())  # a kill must not take it

    def _say(self, text: str, lines: Iterable[str]) -> None:
        def write(_: Recorder) -> None:
            for line in lines:
                self._writer.line(text, line)

        self._guarded(text, write)

    def _checked(self, look: Callable[..., Any], *given: Any) -> Any:
        """Look for overflow; whatever that meets, training goes on."""
        try:
            with self._lock, torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                return look(*given)
        except Exception as reason:  # noqa: BLE001 - no fault of ours may end the user's step
            self.watch = None
            warn(
                f"the overflow check stopped, training goes on: {type(reason).__name__}: {reason}",
                self.path,
                "what was found before stands; what came after is not known",
            )

    def values(self, phase: str, found: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Store named tensors as records of their own: phase `grad` or `update`."""
        if self.watch is not None and phase == "grad":
            found = list(found)
            self._checked(self.watch.gradients, found, self.step)
        for name, tensor in found:
            seqid = self._seqid_of(phase, name)  # counted in any case: ops are numbered alike
            if seqid is None or not self.recording:
                continue
            self._guarded(
                record_path(phase, seqid),
                lambda recorder, n=name, t=tensor, s=seqid: recorder.value(
                    phase, s, self.step, n, t
                ),
            )

    def leaving(self, tensors: Iterable[torch.Tensor]) -> None:
        """Tensors leave the call or module that made them."""
        if self._recorder is not None:
            for tensor in tensors:
                self._guarded("a result", lambda recorder, t=tensor: recorder.leaving(t))

    def forget(self) -> None:
        """Ops go unseen from here on: no value may be linked to an earlier one."""
        if self._recorder is not None:
            self._recorder.forget()

    def forget_all(self) -> None:
        """The same, of the overflow check too."""
        self.forget()
        if self.watch is not None:
            self._checked(self.watch.forget)

    def new_step(self) -> None:
        """Another step begins."""
        if self.watch is not None:
            self._checked(self.watch.new_step)

    def finish(self) -> None:
        """Close the file, if one was made, as finished unless recording had to stop."""
        if self.loader is not None and self.loader.unmatched and self._recorder is None:
            self._guarded("the end", lambda _: None)  # the list of what did not match has a file
        if self.watch is not None and self.ours:
            self._end_check()
        writer, self._writer = self._writer, None
        if writer is None or not self.ours:
            return
        with self.interrupt, self._lock:
            try:
                if not self.stopped:
                    if self.loader is not None:
                        self.loader.write_unmatched(writer)
                    writer.environment({**self._environment, **self.modes.facts()})
                    writer.close()
            except Exception as reason:  # noqa: BLE001 - as in _guarded
                self._stop("the end", reason)
            if self.stopped:
                writer.abandon()
            self.stopped = True
        if self._recorder.omitted:
            warn(
                f"{self._recorder.omitted} values could not be stored, "
                f"the first {self._recorder.first_omitted}",
                self.path,
                "the file lists them all under omitted; everything else is there",
            )

    def _end_check(self) -> None:
        self._checked(self.watch.finish)
        if self.watch is None or (self._recorder is None and not self.findings.arrived):
            return
        self._say(OVERFLOWS, self.findings.take_lines())
        self._checked(self._say_ranges)

    def _say_ranges(self) -> None:
        self._say(ranges.TEXT, map(_line, map(ranges.facts_of, self.watch.ranges())))
        found = self.watch.loss_scale()
        if found is not None:
            self._say(scales.TEXT, [_line(scales.facts_of(found))])

    def _seqid_of(self, phase: str, name: str) -> int | None:
        if self.loader is None:
            return self.next_seqid()
        return self.loader.value(phase, name, self.step)

    def _guarded(self, record: str, write: Callable[[Recorder], None]) -> None:
        """Write to the file; whatever that meets, training goes on.

        Signals reach the main thread only, and there alone they are held back. What their handlers
        raise afterwards is the user's.
        """
        if self.stopped:
            return
        if threading.get_ident() == self._main:
            with self.interrupt:
                self._attempt(record, write)
        else:
            self._attempt(record, write)

    def _attempt(self, record: str, write: Callable[[Recorder], None]) -> None:
        try:
            # Our own work is no call of the user's, for none of the user's modes.
            with self._lock, torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                write(self._open())
        except Exception as reason:  # noqa: BLE001 - no fault of ours may end the user's step
            if self._recorder is not None and not self._writer.failed:
                self._recorder.omit(record, f"{type(reason).__name__}: {reason}")
            else:
                self._stop(record, reason)

    def _open(self) -> Recorder:
        if self._recorder is None:
            self._writer = self._make(self.path, self._environment)
            loading = self.loader is not None
            self._recorder = Recorder(self._writer, self.choice, self.names, loading)
        return self._recorder

    def _stop(self, record: str, reason: Exception) -> None:
        self.stopped = True
        warn(
            f"recording stopped at {record}, training goes on: {type(reason).__name__}: {reason}",
            self.path,
            "what was recorded before is in the file; free space or name another dump_path, "
            "then run again",
        )


def _line(facts: dict[str, Any]) -> str:
    return json.dumps(facts, separators=(",", ":"))
