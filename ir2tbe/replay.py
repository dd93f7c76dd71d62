"""A recorded op run again under ACL dump, without its model or script.

On npu, the vendor's or the emulated one, `torch.npu` is asked for the dump, as load mode does. On
any other device the op is run as it is there, and shown as the TBE operators that an npu would have
run: what each of them should have made, to hold against what it did make.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from dumper.acl_config import read_config
from dumper.acl_dump import AclDump, DumpFailed, named
from dumper.errors import DumpError, first_line
from dumper.layout import VALUES
from dumper.ops import op_of, overload_named
from dumper.reader import Record
from dumper.replay import Replayed, replay
from dumper.tensors import Unstorable, bits_of

from .acl.serve import Server, Tapped, handler
from .cann.folder import DumpFile, Missed, walk
from .sequences import results_of

NPU = "npu"


class Outcome(NamedTuple):
    """A record that was run again. files: the dump files that came of it, in order of time.
    same: whether its results are the recorded ones, bit for bit; None where they are not known."""

    record: Record
    files: list[DumpFile]
    same: bool | None


def runs(record: Record) -> bool:
    """Whether a record is of an op that a device runs: a value of a step is none, nor is a view,
    which the device never sees."""
    if record.ir in VALUES:
        return False
    func = overload_named(record.ir)
    return func is None or not op_of(func).is_view


class Replays:
    """Runs records on one device. folder: of all dump files. label: the device, in words.

    config: path of acl.json. Raises DumpError for a device that another dump is on for, and a
    faulty configuration.
    """

    def __init__(self, device: torch.device, config: Path) -> None:
        self.device, self.label = device, str(device)
        asked = read_config(config)
        self.folder = asked.dump_path
        self._dump: AclDump | None = None
        self._server: Server | None = None  # ours, where it is not the vendor that dumps
        if device.type == NPU:
            self._dump = _acl_dump(config)
            self.label = torch.npu.get_device_name()
            if _is_emulated():
                self._server = handler()
        else:
            self._server = Server()
            self._server.begin(asked)

    def run(self, records: list[Record]) -> Iterator[Outcome | DumpError]:
        """Run records one after the other; of one that cannot be run, why.

        Raises DumpFailed where nothing can be dumped any more.
        """
        if self._server is None:
            yield from self._run(records)
            return
        self._server.keep(True)
        try:
            yield from self._run(records)
        finally:
            self._server.keep(False)
            if self._dump is None:  # else `torch.npu` has done it
                self._server.finalize()

    def _run(self, records: list[Record]) -> Iterator[Outcome | DumpError]:
        known = set(self._vendors())
        for record in records:
            try:
                done = self._replayed(record)
            except DumpFailed:
                raise
            except DumpError as error:
                yield error
                continue
            if self._server is not None:
                found, self._server.written = self._server.written, []
            else:
                found = [file for file in self._vendors() if file not in known]
                known.update(found)
                found.sort(key=lambda file: (file.name.timestamp, file.name.task_id))
            yield Outcome(record, found, _is_same(record, done))

    def _replayed(self, record: Record) -> Replayed:
        try:
            return replay(record, self.device, lambda: self._around(record))
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
            reason = first_line(error).partition(". ")[0]  # torch goes on for paragraphs
            raise DumpError(
                f"this op does not run on {self.label} ({reason})",
                record.path,
                "run it where it was recorded, or leave it out with -op",
            ) from None

    def _around(self, record: Record) -> AbstractContextManager[None]:
        if self._dump is not None:
            return self._dump.around(record.ir, record.seqid)
        return self._tapped(record)

    @contextmanager
    def _tapped(self, record: Record) -> Iterator[None]:
        with named(record.ir, record.seqid), Tapped(self._server):
            yield
        if (failure := self._server.take_failure()) is not None:
            raise DumpFailed(failure.what, failure.where, failure.todo)

    def _vendors(self) -> list[DumpFile]:
        """The files that are there, where the vendor's dump makes them."""
        if self._server is not None or not self.folder.is_dir():
            return []
        return [file for _, files in walk(self.folder, Missed()) for file in files]


def device_named(name: str, option: str = "--device") -> torch.device:
    """A device that ops run on; npu is emulated where there is none. Raises DumpError."""
    try:
        if name.partition(":")[0] == NPU and not hasattr(torch, NPU):
            import npu_core

            npu_core.register()
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ValueError, ImportError) as error:
        raise DumpError(
            f"there is no such device here ({first_line(error).partition('. ')[0]})",
            f"{option} {name}",
            "name npu (emulated where there is none), cpu, or another that torch has",
        ) from None
    if device.type == "meta":
        what = "tensors of this device have no values"
        raise DumpError(what, f"{option} {name}", "name one that computes, such as npu or cpu")
    return device


def _is_emulated() -> bool:
    return hasattr(torch.npu, "_npu_core_device")


def _acl_dump(config: Path) -> AclDump:
    if os.environ.get("ACL_DUMP_DATA") == "1":
        what = "ACL_DUMP_DATA=1 dumps the whole process, and not what is replayed alone"
        raise DumpError(what, "the environment", "unset ACL_DUMP_DATA")
    try:
        return AclDump(config)
    except RuntimeError as error:
        todo = "end that dump, or use another process"
        raise DumpError(first_line(error), "the npu of this process", todo) from None


def _is_same(record: Record, done: Replayed) -> bool | None:
    made = dict(results_of(done.op, done.values, done.result))
    outputs = record.outputs
    if not outputs or any(each.uninitialised or made.get(each.name) is None for each in outputs):
        return None
    try:
        pairs = [(bits_of(made[each.name]), each.bits()) for each in record.outputs]
    except Unstorable:
        return None
    return all(a.shape == b.shape and np.array_equal(_bytes(a), _bytes(b)) for a, b in pairs)


def _bytes(bits: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(bits).reshape(-1).view(np.uint8)
