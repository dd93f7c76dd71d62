"""The dispatch mode that sees every aten op and hands it to the recorder.

Nothing here may change what the step computes. The op is called exactly as it came; inputs are
stored before it runs, results after; what dispatch modes break (version counters of in-place
foreach ops) is mended. Storing may fail (disk full): then training goes on, and the failure is said
once.

Two records are one after the other in execution order because all of a step runs on one thread:
autograd's own device threads are switched off inside the context.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .errors import warn
from .interrupt import HeldInterrupt
from .layout import record_path
from .load import Loader, run_on_recorded
from .ops import Op, op_of
from .record import Recorder, tensors_in
from .writer import Writer


class Capture(TorchDispatchMode):
    """Records every op of this thread into one file; in load mode runs them on recorded inputs.

    path: the dump file, created at the first record. environment: stored with it, and again at the
    end, since it may grow. loader: counterparts to feed, or None to record freely.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch wraps the handler to keep dynamo off it, microseconds an op. The context keeps
        # dynamo off everything.
        return False

    def __init__(
        self, path: str, environment: dict[str, Any], loader: Loader | None = None
    ) -> None:
        super().__init__()
        self.path = path
        self._in_optimizer = False
        self._environment = environment
        self._loader = loader
        self._writer: Writer | None = None
        self._recorder: Recorder | None = None
        self._seqid = 0
        self._process = os.getpid()
        self._stopped = False
        self._interrupt = HeldInterrupt()

    def __enter__(self) -> Capture:
        self._interrupt.install()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        try:
            self.finish()
        finally:
            self._interrupt.remove()

    @property
    def made_file(self) -> bool:
        """Whether anything was recorded; a context in which nothing ran leaves no file."""
        return self._recorder is not None

    def enter_optimizer(self, inside: bool) -> None:
        """Ops from here on belong to an optimizer's step, or no longer do."""
        self._in_optimizer = inside

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        op = op_of(func)
        # A forked child (a DataLoader worker) shares the file of its parent and must not touch it.
        if not op.recorded or os.getpid() != self._process:
            return func(*args, **kwargs)
        if self._loader is None:
            return self._record(op, args, kwargs)
        return self._load(op, args, kwargs)

    def _record(self, op: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        if self._stopped:
            return _call(op, args, kwargs)
        values = op.bind(args, kwargs)
        self._seqid += 1
        path = record_path(op.ir, self._seqid)
        self._store("inputs", path, op, values)
        result = _call(op, args, kwargs)
        self._store("outputs", path, op, values, result)
        self._done(op, self._seqid)
        return result

    def _load(self, op: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        values = op.bind(args, kwargs)
        counterpart = self._loader.counterpart(op, values)
        if counterpart is None:
            return _call(op, args, kwargs)
        record, recorded = counterpart
        result, computed = run_on_recorded(op, values, recorded)
        if op.needs_version_bump:
            torch.autograd.graph.increment_version(_counted(op, values))
        self._store("outputs", record.path, op, recorded, computed)
        self._done(op, record.seqid)
        return result

    def _store(self, what: str, record: str, *call: Any) -> None:
        self._guarded(record, self._write, what, record, *call)

    def _done(self, op: Op, seqid: int) -> None:
        line = {"seqid": seqid, "ir": op.ir, "phase": self._phase(), "schema": op.schema}
        self._guarded(record_path(op.ir, seqid), self._close_record, line)

    def _write(self, what: str, *call: Any) -> None:
        if self._recorder is None:
            self._writer = Writer(self.path, self._environment)
            self._recorder = Recorder(self._writer)
        getattr(self._recorder, what)(*call)

    def _close_record(self, line: dict[str, Any]) -> None:
        self._writer.line("index", line)
        self._writer.record_done()

    def _guarded(self, record: str, write: Callable[..., None], *args: Any) -> None:
        """Write to the file; whatever that meets, training goes on.

        Where the file itself failed, recording stops; else the record is listed as omitted.
        """
        if self._stopped:
            return
        try:
            # Our own work is no call of the user's, for none of the user's modes.
            with self._interrupt, torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                write(*args)
        except Exception as reason:  # noqa: BLE001 - no fault of ours may end the user's step
            if self._recorder is not None and not self._writer.failed:
                self._recorder.omit(record, f"{type(reason).__name__}: {reason}")
            else:
                self._stop(record, reason)

    def _stop(self, record: str, reason: Exception) -> None:
        self._stopped = True
        warn(
            f"recording stopped at {record}, training goes on: {type(reason).__name__}: {reason}",
            self.path,
            "what was recorded before is in the file; free space or name another dump_path, "
            "then run again",
        )

    def _phase(self) -> str:
        if torch._C._current_autograd_node() is not None:
            return "backward"
        return "optimizer" if self._in_optimizer else "forward"

    def finish(self) -> None:
        """Close the file, if one was made, as finished unless recording had to stop."""
        writer, self._writer = self._writer, None
        if writer is None or os.getpid() != self._process:
            return
        with self._interrupt:
            if self._loader is not None:
                for ir in self._loader.unmatched:
                    writer.line("unmatched", {"ir": ir})
            try:
                if not self._stopped:
                    writer.environment(self._environment)
                    writer.close()
            except Exception as reason:  # noqa: BLE001 - as in _guarded
                self._stop("the end", reason)
            if self._stopped:
                writer.abandon()
            self._stopped = True
        if self._recorder.omitted:
            warn(
                f"{self._recorder.omitted} values could not be stored, "
                f"the first {self._recorder.first_omitted}",
                self.path,
                "the file lists them all under omitted; everything else is there",
            )


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
