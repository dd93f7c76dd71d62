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
from functools import partial
from typing import Any, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode

from dumper.acl_config import AclConfig, make_folder, read_config
from dumper.acl_dump import running
from dumper.errors import DumpError, warn
from dumper.ops import Op, op_of
from npu_core import observe, options

from .files import Files
from .tap import all_plain, given_to, seen, undisturbed, watched

T = TypeVar("T")


class Server:
    """One ACL dump at a time; the handler that npu_core calls."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._files: Files | None = None
        self._config: AclConfig | None = None
        self._step = self._calls = 0
        self._counting: Any = None
        self._failed = False
        self._process = os.getpid()
        self._passed: set[str] = set()  # IRs of calls with tensors that CANN has not
        self._said: set[str] = set()  # IRs of which something was said already

    def init(self) -> None:
        """Prepare dumping."""
        if self._counting is None:
            self._counting = register_optimizer_step_post_hook(self._stepped)

    def configure(self, path: str) -> None:
        """Dump what runs on npu from here on. Raises DumpError for a faulty configuration."""
        self.begin(read_config(path), register=options.saturates())
        observe.observe(self.call)

    def begin(self, config: AclConfig, register: bool = False) -> Files:
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
            self._config, self._files, self._failed = config, Files(config), False
            self._process = os.getpid()  # a forked child has no dump
            return self._files

    def finalize(self) -> None:
        """Stop dumping, and say what is not as on the device."""
        observe.observe(None)
        with self._lock:
            files, self._files = self._files, None
        if files is not None:
            self._say(files)

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

    def call(
        self,
        func: torch._ops.OpOverload,
        run: Callable[[], Any],
        args: tuple,
        kwargs: dict,
        record: tuple[str, int] | None = None,
    ) -> Any:
        """What a call returns; its TBE operators are dumped where they are asked for.

        record: IR and seqid that the files are named by.
        """
        config = self._config
        if self._files is None or self._failed or not _takes(config, self._step):
            return run()
        op = op_of(func)
        if op.is_view or os.getpid() != self._process:
            return run()
        given = self._guarded(op, lambda: given_to(op, args, kwargs))
        result, raised = watched(run) if config.dump_debug else (run(), 0)
        if given is None or config.dump_debug and not raised:
            return result
        if not all_plain([*given, result]):
            self._passed.add(op.ir)
        else:
            after = op.bind(args, kwargs)
            self._guarded(op, lambda: self._write(op, given, after, result, raised, record))
        return result

    def _guarded(self, op: Op, work: Callable[[], T]) -> T | None:
        """What our work comes to; whatever that meets, the program goes on."""
        try:
            with self._lock:
                return work()
        except Exception as reason:  # noqa: BLE001 - no fault of ours may end the user's step
            self._fail(op.ir, reason)
        return None

    def _write(
        self,
        op: Op,
        given: list[Any],
        after: list[Any],
        result: Any,
        raised: int,
        record: tuple[str, int] | None,
    ) -> None:
        self._calls += 1
        ir, number = record or running() or (op.ir, self._calls)
        made = seen(op, given, after, result, raised)
        with undisturbed():
            self._files.write(made, ir, number, self._step)

    def _fail(self, ir: str, reason: Exception) -> None:
        self._failed = True
        what = (
            reason.what if isinstance(reason, DumpError) else f"{type(reason).__name__}: {reason}"
        )
        warn(
            f"ACL dump stopped at {ir}, the program goes on: {what}",
            reason.where if isinstance(reason, DumpError) else self._config.dump_path,
            "what was dumped before stands",
        )


class Tapped(TorchDispatchMode):
    """Lets a server see a record that runs on a device that is no npu, as if that had ACL dump."""

    def __init__(self, server: Server, ir: str, seqid: int) -> None:
        super().__init__()
        self._server, self._record = server, (ir, seqid)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        run = partial(func, *args, **kwargs)
        return self._server.call(func, run, args, kwargs, self._record)


def _takes(config: AclConfig, step: int) -> bool:
    return (config.dump_op_switch or config.dump_debug) and config.takes_step(step)


_server = Server()


def handler() -> Server:
    """The handler of this process."""
    return _server
