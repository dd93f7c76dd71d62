"""One op under ACL dump: the device itself writes what its TBE operators took and made.

Used by load mode (`load_with_acl_dump=True`) and by whoever runs a single record. `torch.npu` is
the vendor's or the emulator's; both have these calls, and the order of them is the original's. The
device is waited for on both sides, or the dump would hold ops that came before, and lack the end of
this one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, TypeVar

import torch

from .acl_config import AclConfig, make_folder, read_config
from .errors import DumpError, first_line, warn
from .record import tensors_in

NAME = "acl.json"
"""The configuration's name, in the working directory."""

_REFUSALS = (DumpError, RuntimeError, OSError, ValueError, AssertionError)
# What the calls raise: the emulator the first, torch_npu the others.

T = TypeVar("T")

_one = threading.RLock()  # the device has one dump, for all threads


class _Running:
    """Which record's op runs under ACL dump, and on which thread."""

    record: tuple[str, int] | None = None
    thread: int | None = None

    def begin(self, ir: str, seqid: int) -> None:
        if self.record is not None:
            raise RuntimeError("ACL dump of one op inside that of another")
        self.record, self.thread = (ir, seqid), threading.get_ident()

    def end(self) -> None:
        self.record = self.thread = None


_running = _Running()


def runs_on_npu(values: Iterable[Any]) -> bool:
    """Whether a call with these arguments is one that an npu runs."""
    return any(
        value.type == "npu"
        if isinstance(value, torch.device)
        else any(tensor.device.type == "npu" for tensor in tensors_in(value))
        for value in values
    )


def running() -> tuple[str, int] | None:
    """IR and sequence id of the record whose op runs under ACL dump on this thread, if one does."""
    return _running.record if _running.thread == threading.get_ident() else None


def elsewhere() -> bool:
    """Whether the dump is on for the op of a record that another thread runs: what runs here is not
    its business."""
    return _running.thread not in (None, threading.get_ident())


@contextmanager
def named(ir: str, seqid: int) -> Iterator[None]:
    """Let `running` tell of a record within the block; nothing is dumped by that.

    Raises RuntimeError inside such a block.
    """
    _running.begin(ir, seqid)
    try:
        yield
    finally:
        _running.end()


class DumpFailed(DumpError):
    """The dump itself failed, which no later op will change."""


class AclDump:
    """Runs ops under ACL dump, one at a time.

    config_path: CANN's configuration. Whatever can be known to fail is said here: RuntimeError
    where there is no npu, where ACL_DUMP_DATA=1 dumps the whole process and where a dump is on
    already; DumpError for a configuration that is not there, is faulty or dumps no single ops, and
    for a folder that cannot be made.
    """

    def __init__(self, config_path: str | os.PathLike[str] = NAME) -> None:
        npu = _npu()
        if os.environ.get("ACL_DUMP_DATA") == "1":
            raise RuntimeError(
                "environment variable ACL_DUMP_DATA should be 0 when set load_with_acl_dump=True"
            )
        if _is_dumping(npu):
            raise RuntimeError(
                "an ACL dump is on already, and a process has one: call torch.npu.finalize_dump() "
                "first, and leave torch.npu.init_dump() and set_dump() out"
            )
        self.config = read_config(config_path)
        _check(self.config)
        make_folder(self.config)
        self._npu, self._failed, self._ran = npu, False, 0

    @contextmanager
    def around(self, ir: str, seqid: int) -> Iterator[None]:
        """Dump the ops of the block, as those of the record `ir`/`seqid`.

        Raises DumpFailed where the dump cannot be begun or ended; what the block raises goes first.
        """
        with _one:
            self._begin(ir, seqid)
            try:
                yield
            except BaseException:
                try:
                    self._end()
                except DumpError as error:
                    warn(error.what, error.where, error.todo)
                raise
            self._end()

    def call(self, ir: str, seqid: int, run: Callable[[], T]) -> T:
        """What `run` returns, run as `around` does; without a dump once that has failed.

        Raises only what `run` raises: the first failure of the dump is said, then there is none.
        """
        with _one:
            if self._failed or not self._attempt(lambda: self._begin(ir, seqid)):
                return run()
            try:
                return run()
            finally:
                self._attempt(self._end)
                self._ran += 1

    def report(self) -> None:
        """Say once how many ops `call` ran under the dump, and where it is."""
        if not (self._ran or self._failed):
            warn(
                "no op that found its counterpart ran on npu, so nothing was dumped there",
                self.config.dump_path,
                "put the model on npu, or load a file that holds ops of this step",
            )
            return
        sys.stderr.write(
            f"torch.utils.dumper: {self._ran} ops ran under ACL dump ({self.config.dump_path})\n"
        )

    def _attempt(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except DumpError as error:
            self._failed = True
            warn(
                f"{error.what}; no further op is dumped, training goes on", error.where, error.todo
            )
        return not self._failed

    def _begin(self, ir: str, seqid: int) -> None:
        _running.begin(ir, seqid)
        npu = self._npu
        try:
            npu.synchronize()
            npu.init_dump()
            npu.set_dump(str(self.config.path))
            npu.synchronize()
        except BaseException as error:
            with suppress(*_REFUSALS):  # of what was not begun: the reason is the error before
                npu.finalize_dump()
            _running.end()
            if isinstance(error, _REFUSALS):
                raise self._refusal("begun", ir, seqid, error) from error
            raise

    def _end(self) -> None:
        npu = self._npu
        ir, seqid = _running.record
        try:
            try:
                npu.synchronize()
            finally:
                npu.finalize_dump()
            npu.synchronize()
        except _REFUSALS as error:
            raise self._refusal("ended", ir, seqid, error) from error
        finally:
            _running.end()

    def _refusal(self, what: str, ir: str, seqid: int, error: Exception) -> DumpFailed:
        said = error.what if isinstance(error, DumpError) else first_line(error)
        return DumpFailed(
            f"the ACL dump of {ir}/{seqid} cannot be {what} ({said})",
            self.config.dump_path,
            f"see that there is room in this folder and that {self.config.path} is still there",
        )


def _npu() -> ModuleType:
    npu = getattr(torch, "npu", None)
    if npu is None or not npu.is_available():
        raise RuntimeError(
            "ACL dump needs an npu, and there is none: import torch_npu on a machine that has one, "
            "or npu_core, which emulates one"
        )
    return npu


def _is_dumping(npu: ModuleType) -> bool:
    """Whether init_dump was called and finalize_dump not yet: torch_npu keeps that as an option."""
    asked = getattr(npu, "is_dumping", None)  # the emulator's
    if asked is not None:
        return asked()
    native = getattr(sys.modules.get("torch_npu"), "_C", None)
    option = getattr(native, "_npu_getOption", None)
    return option is not None and option("mdldumpswitch") == b"enable"


def _check(config: AclConfig) -> None:
    """Say what would leave the dump empty, or half of what is wanted."""
    if not (config.dump_op_switch or config.dump_debug):
        raise DumpError(
            "dump_op_switch is off, so no single op would be dumped",
            config.path,
            'write "dump_op_switch": "on"',
        )
    if config.dump_list:
        warn(
            "dump_list names models, and an op that runs by itself is of none: it has no effect",
            config.path,
            'write "dump_list": []',
        )
    if config.dump_mode != "all" and not config.dump_debug:
        other = "outputs" if config.dump_mode == "input" else "inputs"
        warn(
            f"dump_mode is {config.dump_mode}, so the {other} of the TBE operators are not dumped",
            config.path,
            'write "dump_mode": "all"',
        )
