"""What `torch.npu.init_dump`, `set_dump` and `finalize_dump` do on the emulated npu.

The emulator knows no dump files: this is the handler that it loads, and the observer that it is
given while a dump is on. A dump that fails is said once, and the program goes on without it.

CANN counts the iterations of a model (`dump_step`, and the folder data_index); what runs op by op
has none. Here one ends with every `optimizer.step()`, from the first `init_dump` of the process on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode

from dumper.acl_config import AclConfig, make_folder, read_config
from dumper.acl_dump import elsewhere, running
from dumper.errors import DumpError, warn
from dumper.ops import Op, op_of
from npu_core import observe, options

from ..cann.folder import DumpFile
from .files import Files
from .tap import all_plain, given_to, seen, undisturbed, watched

T = TypeVar("T")


@dataclass
class _Dump:
    """A dump that is on. failed: it is, but for nothing more."""

    config: AclConfig
    files: Files
    failed: bool = False


class Server:
    """One ACL dump at a time; the handler that npu_core calls.

    written: the files since somebody took them, between two calls of `keep`.
    """

    def __init__(self) -> None:
        self.written: list[DumpFile] = []
        self._keeps = False
        self._dump: _Dump | None = None
        self._failure: DumpError | None = None
        self._step = self._calls = 0
        self._counting: Any = None
        self._passed: set[str] = set()  # IRs of calls with tensors that CANN has not
        self._said: set[str] = set()  # IRs of which something was said already
        self.forget()

    def forget(self) -> None:
        """Have no dump, as a forked child: it has neither the device nor the threads."""
        self._lock, self._dump = threading.RLock(), None

    def keep(self, files: bool) -> None:
        """List the files that are written from here on, or no more."""
        self.written, self._keeps = [], files

    def init(self) -> None:
        """Prepare dumping."""
        if self._counting is None:
            self._counting = register_optimizer_step_post_hook(self._stepped)

    def configure(self, path: str) -> None:
        """Dump what runs on npu from here on. Raises DumpError for a faulty configuration."""
        self.begin(read_config(path), register=options.saturates())
        observe.observe(self.call)

    def begin(self, config: AclConfig, register: bool = False) -> None:
        """Write into a folder of this configuration from here on.

        register: the device notes overflows. Raises DumpError for a folder that cannot be made.
        """
        make_folder(config)
        if config.dump_debug and not register:
            warn(
                "dump_debug is on, and this device has no status register in use: nothing will be "
                "dumped",
                config.path,
                "leave it out; an overflow check finds infinities and NaN",
            )
        if not (config.dump_op_switch or config.dump_debug):
            warn(
                "dump_op_switch is off, so no op is dumped",
                config.path,
                'set "dump_op_switch": "on"',
            )
        with self._lock:
            self._dump = _Dump(config, Files(config))

    def finalize(self) -> None:
        """Stop dumping, and say what is not as on the device. Raises the DumpError of a record's
        dump that failed, which nobody was told of."""
        observe.observe(None)
        with self._lock:
            dump, self._dump = self._dump, None
        failure = self.take_failure()
        if dump is not None:
            self._say(dump.files)
        if failure is not None:
            raise failure

    def take_failure(self) -> DumpError | None:
        """How a record's dump failed, if one did since this was asked last."""
        failure, self._failure = self._failure, None
        return failure

    def call(
        self, func: torch._ops.OpOverload, run: Callable[[], Any], args: tuple, kwargs: dict
    ) -> Any:
        """What a call returns; its TBE operators are dumped where they are asked for."""
        dump = self._dump
        if dump is None or dump.failed or not _takes(dump.config, self._step) or elsewhere():
            return run()
        op = op_of(func)
        if op.is_view:
            return run()
        debug = dump.config.dump_debug
        given = self._guarded(dump, op, lambda: given_to(op, args, kwargs))
        result, raised = watched(run) if debug else (run(), 0)
        if given is None or debug and not raised:
            return result
        if not all_plain([*given, result]):
            self._passed.add(op.ir)
        else:
            after = op.bind(args, kwargs)
            self._guarded(dump, op, lambda: self._write(dump, op, given, after, result, raised))
        return result

    def _guarded(self, dump: _Dump, op: Op, work: Callable[[], T]) -> T | None:
        """What our work comes to; whatever that meets, the program goes on."""
        try:
            with self._lock:
                return work()
        except Exception as reason:  # noqa: BLE001 - no fault of ours may end the user's step
            dump.failed = True
            self._fail(dump, op.ir, reason)
        return None

    def _write(
        self, dump: _Dump, op: Op, given: list[Any], after: list[Any], result: Any, raised: int
    ) -> None:
        self._calls += 1
        ir, number = running() or (op.ir, self._calls)
        made = seen(op, given, after, result, raised)
        with undisturbed():
            written = dump.files.write(made, ir, number, self._step)
        if self._keeps:
            self.written += written

    def _fail(self, dump: _Dump, ir: str, reason: Exception) -> None:
        """Say that the dump ended; of a record's, whoever runs it is told when it ends."""
        if isinstance(reason, DumpError):
            what, where = reason.what, reason.where
        else:
            what, where = f"{type(reason).__name__}: {reason}", dump.config.dump_path
        failure = DumpError(
            f"ACL dump stopped at {ir}, the program goes on: {what}",
            where,
            "what was dumped before stands",
        )
        if running() is not None:
            self._failure = failure
        else:
            warn(failure.what, failure.where, failure.todo)

    def _say(self, files: Files) -> None:
        """Say, once an IR, what is not as the device would have it."""
        stand_ins = sorted(files.stand_ins.keys() - self._said)
        if stand_ins:
            warn(
                f"one TBE operator stands for all that these ops run: {', '.join(stand_ins)}",
                files.root,
                "take their inputs and outputs; how they come about is not shown",
            )
        passed = sorted(self._passed - self._said)
        if passed:
            warn(
                f"sparse, nested or quantized tensors are not dumped: of {', '.join(passed)}",
                files.root,
                "compare them in an HDF5 dump",
            )
        if files.omitted:
            warn(
                f"{files.omitted} tensors were left out, the first {files.first_omitted}",
                files.root,
                "compare them in an HDF5 dump",
            )
        self._said.update(stand_ins, passed)

    def _stepped(self, *_: Any) -> None:
        self._step += 1


class Tapped(TorchDispatchMode):
    """Lets a server see what runs on a device that is no npu, as if that had ACL dump."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        return self._server.call(func, partial(func, *args, **kwargs), args, kwargs)


def _takes(config: AclConfig, step: int) -> bool:
    return (config.dump_op_switch or config.dump_debug) and config.takes_step(step)


_server = Server()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_server.forget)


def handler() -> Server:
    """The handler of this process."""
    return _server
