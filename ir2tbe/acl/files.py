"""What ACL dump writes of each call, and where.

    {dump_path}/{time}/{device_id}/{model_id}/{data_index}/
        {op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}

One file a TBE operator. op_name is `<IR>/<number>/<k>` (with `_` in the file's name): the k-th
operator of a call, which in load mode and in a replay has the recorded seqid as its number. An
output that is a result of the call says so: its original_op is the record's dataset. Every file
says that an emulator wrote it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from dumper.acl_config import AclConfig, make_private
from dumper.errors import DumpError
from dumper.tensors import Unstorable
from npu_core import options

from ..cann.content import Dump, Origin, Tensor, tensor_of
from ..cann.folder import DumpFile, write_in
from ..cann.names import DumpName, name_part
from ..cann.opdebug import pack_old
from ..cann.types import BY_NAME
from ..sequences import entry_of
from ..sequences.steps import Port, Step
from .encode import encoded, kind_of
from .stats import table_of
from .tap import Seen

_DEVICE, _MODEL, _STREAM = 0, 0, 0


class _Tasks:
    """Numbers and times of the tasks of this process: later ones have greater ones of both."""

    def __init__(self) -> None:
        self.number = self._time = 0

    def next(self) -> tuple[int, int]:
        """Id and timestamp of the task that runs now."""
        self.number += 1
        self._time = max(time.time_ns() // 1000, self._time + 1)
        return self.number, self._time


_tasks = _Tasks()


class Files:
    """Writes calls into one dump folder. Not for several threads at once.

    omitted: tensors that could not be; first_omitted: which, and why.
    """

    def __init__(self, config: AclConfig) -> None:
        self._config = config
        stamp = time.strftime("%Y%m%d%H%M%S")
        self._root = config.dump_path / stamp / str(_DEVICE) / str(_MODEL)
        self.omitted = 0
        self.first_omitted = ""
        self.stand_ins: dict[str, tuple[str, ...]] = {}  # by IR
        self._call: tuple[str, int] | None = None
        self._of_call = 0  # TBE operators of it so far: a record may be several calls

    @property
    def root(self) -> Path:
        """The folder of all files, those of each step in one of their own."""
        return self._root

    def write(self, seen: Seen, ir: str, number: int, index: int) -> list[DumpFile]:
        """Write the TBE operators of a call, and return their files. number: of the call. index: of
        the step.

        Raises DumpError where the folder cannot be written.
        """
        written = []
        if seen.ran.instead_of is not None:
            self.stand_ins[seen.op.ir] = seen.ran.instead_of
        folder = self._root / str(index)
        chosen = self._overflowed(seen) if self._config.dump_debug else range(len(seen.ran.steps))
        first = self._of_call if self._call == (ir, number) else 0
        self._call, self._of_call = (ir, number), first + len(seen.ran.steps)
        for i in chosen:
            step = seen.ran.steps[i]
            name = f"{ir}/{number}/{first + i}"
            # In the place of a record another op may run: what that returns is no result of it.
            record = f"{ir}/{number}" if ir == seen.op.ir else None
            dump = self._dump(step, seen, name, record)
            kinds = [step.op] if self._config.dump_debug else self._levels(step, seen)
            written += [self._put(folder, kind, name, dump) for kind in kinds]
            if self._config.dump_debug:
                self._report(folder, seen.status)
        return written

    def _levels(self, step: Step, seen: Seen) -> Iterator[str]:
        """By what types an operator is dumped: as itself, and as an aclnn kernel where it is."""
        entry = entry_of(seen.op)
        kernels = entry.aclnn if entry and options.profile() == "910B" else ()
        if self._config.dump_level != "kernel" or not kernels:
            yield step.op
        if self._config.dump_level != "op" and kernels:
            yield f"{kernels[-1]}_{step.op}"

    def _dump(self, step: Step, seen: Seen, name: str, record: str | None) -> Dump:
        whole = self._config.dump_debug or self._config.dump_mode == "all"
        inputs = step.inputs if whole or self._config.dump_mode == "input" else ()
        outputs = step.outputs if whole or self._config.dump_mode == "output" else ()
        said = {"emulator": "npu_core", "profile": options.profile(), **dict(step.attributes)}
        if seen.ran.instead_of is not None:
            said["instead_of"] = seen.ran.instead_of
        return Dump(
            tuple(self._tensors(inputs, seen, record, f"an input of {name}")),
            tuple(self._tensors(outputs, seen, record, f"an output of {name}")),
            op_name=name,
            dump_time=time.time_ns() // 1000,
            attributes=(("attributes", json.dumps(said, default=str)),),
        )

    def _tensors(
        self, ports: tuple[Port, ...], seen: Seen, record: str | None, what: str
    ) -> Iterator[Tensor]:
        for port in ports:
            try:
                yield encoded(replace(port, value=_made(port, seen)), _origin(port, seen, record))
            except Unstorable as error:
                self.omitted += 1
                self.first_omitted = self.first_omitted or f"{what}: {error}"

    def _put(self, folder: Path, kind: str, name: str, dump: Dump) -> DumpFile:
        task, stamp = _tasks.next()
        called = DumpName(name_part(kind), name_part(name), task, _STREAM, stamp)
        _make(folder)
        if self._config.dump_data == "stats":
            path = folder / f"{called}.csv"
            _write_text(path, table_of(dump, self._config.dump_stats))
        else:
            path = write_in(folder, called, dump)
        return DumpFile(path, called)

    def _overflowed(self, seen: Seen) -> list[int]:
        """The operator that overflowed: the first whose output holds what an overflow leaves, else
        the last."""
        if not seen.status or not seen.ran.steps:
            return []
        for i, step in enumerate(seen.ran.steps):
            if any(_at_the_end(_made(port, seen)) for port in step.outputs):
                return [i]
        return [len(seen.ran.steps) - 1]

    def _report(self, folder: Path, bits: int) -> None:
        """Write the Opdebug file of the operator that was written last."""
        ids = {"model_id": _MODEL, "stream_id": _STREAM, "task_id": _tasks.number, "status": bits}
        report = np.frombuffer(pack_old({"AI Core": ids}), "u1")
        dump = Dump(outputs=(tensor_of(report, BY_NAME["uint8"]),), op_name="Node_OpDebug")
        task, stamp = _tasks.next()
        write_in(folder, DumpName("Opdebug", "Node_OpDebug", task, _STREAM, stamp), dump)


def _made(port: Port, seen: Seen) -> torch.Tensor:
    """The value of a port: of a result what the program got, whatever our own comes to."""
    return port.of([tensor for _, tensor in seen.results])


def _origin(port: Port, seen: Seen, record: str | None) -> Origin | None:
    """Which result of the record an output is. Raises Unstorable."""
    if port.result is None or record is None:
        return None
    key, value = seen.results[port.result]
    place = sum(tensor is not None for _, tensor in seen.results[: port.result])
    return Origin(f"{record}/output/{key}", place, kind_of(value).code, int(port.format))


def _at_the_end(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or not tensor.numel():
        return False
    return bool((tensor.abs() >= torch.finfo(tensor.dtype).max).any() | tensor.isnan().any())


def _make(folder: Path) -> None:
    try:
        make_private(folder)
    except OSError as error:
        reason = error.strerror or str(error)
        todo = "name a dump_path that can be written"
        raise DumpError(f"this folder cannot be made ({reason})", folder, todo) from None


def _write_text(path: Path, text: str) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DumpError(f"this cannot be written ({reason})", path, "make room") from None
