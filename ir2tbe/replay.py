"""A recorded op run again under ACL dump, without its model or script.

On npu, the vendor's or the emulated one, `torch.npu` is asked for the dump, as load mode does. On
any other device the op is run as it is there, and shown as the TBE operators that an npu would have
run: what each of them should have made, to hold against what it did make.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from dumper.acl_config import read_config
from dumper.acl_dump import AclDump
from dumper.errors import DumpError, first_line
from dumper.layout import VALUES
from dumper.ops import op_of, overload_named
from dumper.reader import Record
from dumper.replay import Replayed, replay
from dumper.tensors import Unstorable, bits_of

from .acl.serve import Server, Tapped
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

    device: as torch names it. config: path of acl.json. Raises DumpError for a device that is not
    there, one that another dump is on for, and a faulty configuration.
    """

    def __init__(self, device: str, config: Path) -> None:
        self.device = _device(device)
        self.label = device
        self._dump = self._server = None
        asked = read_config(config)
        self.folder = asked.dump_path
        if self.device.type == NPU:
            self._dump = _acl_dump(config)
            self.label = torch.npu.get_device_name()
        else:
            self._server = Server()
            self._server.begin(asked)

    def run(self, records: list[Record]) -> Iterator[Outcome | DumpError]:
        """Run records one after the other; of one that cannot be run, why."""
        known = {file.path for file in _files(self.folder)}
        for record in records:
            try:
                done = self._replayed(record)
            except DumpError as error:
                yield error
                continue
            found = [file for file in _files(self.folder) if file.path not in known]
            known.update(file.path for file in found)
            found.sort(key=lambda file: (file.name.timestamp, file.name.task_id))
            yield Outcome(record, found, _is_same(record, done))
        if self._server is not None:
            self._server.finalize()

    def _replayed(self, record: Record) -> Replayed:
        try:
            return replay(record, self.device, lambda: self._around(record))
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
            raise DumpError(
                f"this op does not run on {self.label} ({first_line(error)})",
                record.path,
                "run it where it was recorded, or leave it out with -op",
            ) from None

    def _around(self, record: Record) -> AbstractContextManager:
        if self._dump is not None:
            return self._dump.around(record.ir, record.seqid)
        return Tapped(self._server, record.ir, record.seqid)


def _device(name: str) -> torch.device:
    try:
        if name.partition(":")[0] == NPU and not hasattr(torch, NPU):
            import npu_core

            npu_core.register()
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ValueError, ImportError) as error:
        raise DumpError(
            f"there is no such device here ({first_line(error)})",
            f"--device {name}",
            "name npu (emulated where there is none), cpu, or another that torch has",
        ) from None
    return device


def _acl_dump(config: Path) -> AclDump:
    try:
        return AclDump(config)
    except RuntimeError as error:
        todo = "end that dump, or unset the variable"
        raise DumpError(first_line(error), "the npu of this process", todo) from None


def _files(folder: Path) -> list[DumpFile]:
    if not folder.is_dir():
        return []
    return [file for _, files in walk(folder, Missed()) for file in files]


def _is_same(record: Record, done: Replayed) -> bool | None:
    made = dict(results_of(done.op, done.values, done.result))
    if not record.outputs or any(made.get(tensor.name) is None for tensor in record.outputs):
        return None
    try:
        pairs = [(bits_of(made[each.name]), each.bits()) for each in record.outputs]
    except Unstorable:
        return None
    return all(a.shape == b.shape and np.array_equal(_bytes(a), _bytes(b)) for a, b in pairs)


def _bytes(bits: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(bits).reshape(-1).view(np.uint8)
