"""The overflows that CANN reports in a folder: each with its op's dump, taken apart into files.

Reports come by their time. One that reports no overflow is said and passed over, one that cannot be
read costs no other. Names of files are the original's: `<report>.output.<i>.json` of a report,
`<dump>.input.<i>.npy` and the like of an op's dump.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dumper.errors import DumpError
from ir2tbe.cann.content import Blob, Dump, Tensor
from ir2tbe.cann.file import read
from ir2tbe.cann.folder import DumpFile
from ir2tbe.cann.formats import format_name
from ir2tbe.cann.opdebug import Entry
from ir2tbe.cann.overflow import Match, Tree, match, reports_of

from ..whole import folder_with_room, replacing
from .numbers import Numbers, numbers_of

_ROOM = "make room, or name another -out"
_NAME_BYTES = 255
_LONGEST_ENDING = len(".l1buffer.65535.bin")
_IDS = ("task_id", "stream_id", "context_id", "thread_id")


@dataclass(frozen=True)
class OpTensor:
    """A tensor of an op that overflowed. title: `input.0`. file: the npy's name; None where it was
    not written, for which `error` is why. numbers: None of what are no numbers."""

    title: str
    format: str
    shape: tuple[int, ...]
    dtype: str
    plain: np.dtype | None = None
    numbers: Numbers | None = None
    file: str | None = None
    error: DumpError | None = None


@dataclass
class OpDump:
    """An op's dump after it was taken apart. op_name: as the network has it. errors: why parts of
    it, or the whole, could not be read or written."""

    op_name: str = ""
    tensors: list[OpTensor] = field(default_factory=list)
    errors: list[DumpError] = field(default_factory=list)


@dataclass(frozen=True)
class Overflow:
    """One op that overflowed. number: from 1. entries: the units that report it, all with the same
    ids. match, dump: None where its dump is not there."""

    number: int
    report: DumpFile
    entries: tuple[Entry, ...]
    match: Match | None
    dump: OpDump | None

    @property
    def op_name(self) -> str:
        """The op's name as the network has it, else as its file has it; '' where that is not
        there."""
        if self.match is None or self.dump is None:
            return ""
        return self.dump.op_name or self.match.file.name.op_name


@dataclass(frozen=True)
class Read:
    """A report that was read. overflows: none where its status is 0. notes: what is odd in it.
    errors: why its json could not be written."""

    report: DumpFile
    overflows: tuple[Overflow, ...]
    notes: tuple[str, ...]
    errors: tuple[DumpError, ...]


def overflows(tree: Tree, out: Path, top: int) -> Iterator[Read | DumpError]:
    """Read reports until `top` of them have overflows, and write what they are about to `out`.

    Yields what was wrong in the place of a report that cannot be read. Raises DumpError where
    nothing can be written.
    """
    folder_with_room(out, 0, _ROOM)
    files = _Files(out)
    number = found = 0
    for report in tree.reports:
        try:
            parsed = reports_of(report.path)
        except DumpError as error:
            yield error
            continue
        blocks, errors = [], []
        for i, each in enumerate(parsed):
            try:
                with replacing(files.path(report.path, f".output.{i}.json")) as file:
                    file.write(json.dumps(each.as_json(), indent=4).encode())
            except DumpError as error:
                errors.append(error)
        for entries in _by_ids([entry for each in parsed for entry in each.entries]):
            number += 1
            near = match(entries[0], tree.ops[report.path.parent])
            dump = files.take_apart(near.file.path) if near else None
            blocks.append(Overflow(number, report, entries, near, dump))
        notes = tuple(note for each in parsed for note in each.notes)
        yield Read(report, tuple(blocks), notes, tuple(errors))
        found += bool(blocks)
        if found == top:
            return


def errors_of(found: Sequence[Overflow]) -> list[DumpError]:
    """What was wrong with the dumps of ops, once each although two reports may be about one."""
    dumps = {id(each.dump): each.dump for each in found if each.dump is not None}
    return [error for dump in dumps.values() for error in dump.errors]


def _by_ids(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    """The entries that overflowed, those of one op together."""
    groups: dict[tuple[int | None, ...], list[Entry]] = {}
    for entry in entries:
        if entry.overflowed:
            groups.setdefault(tuple(map(entry.known_id, _IDS)), []).append(entry)
    return [tuple(group) for group in groups.values()]


class _Files:
    """The output folder: names for what is written, and dumps that were taken apart already."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[str, Path] = {}
        self._done: dict[Path, OpDump] = {}

    def path(self, source: Path, ending: str) -> Path:
        """Where a part of a file goes; files of one name in two folders get two names."""
        name = source.name
        if len(name) + _LONGEST_ENDING > _NAME_BYTES:  # the original's way with long names
            name = uuid.uuid3(uuid.NAMESPACE_DNS, name).hex
        if self._names.setdefault(name, source) != source:
            name = f"{name}.{hashlib.sha256(bytes(source)).hexdigest()[:16]}"
        return self._folder / f"{name}{ending}"

    def take_apart(self, source: Path) -> OpDump:
        """Write the tensors of an op's dump as npy, and its buffers and workspaces as bin."""
        if source not in self._done:
            self._done[source] = self._taken_apart(source)
        return self._done[source]

    def _taken_apart(self, source: Path) -> OpDump:
        result = OpDump()
        try:
            dump = read(source)
            result.op_name = dump.op_name
            folder_with_room(self._folder, _bytes(dump), _ROOM)
        except DumpError as error:
            result.errors.append(error)
            return result
        for title, tensor in dump.tensors():
            shown = _written(tensor, title, self.path(source, f".{title}.npy"))
            result.tensors.append(shown)
            if shown.error is not None:
                result.errors.append(shown.error)
        for title, blob in dump.blobs():
            self._write(source, f".{title}.bin", blob, result)
        return result

    def _write(self, source: Path, ending: str, blob: Blob, result: OpDump) -> None:
        try:
            with replacing(self.path(source, ending)) as file:
                file.write(blob.read().data)
        except DumpError as error:
            result.errors.append(error)


def _written(tensor: Tensor, title: str, path: Path) -> OpTensor:
    """Write a tensor as npy, in numpy's own dtype that holds it exactly."""
    form, shape, dtype = format_name(tensor.format), tensor.shape, f"type {tensor.data_type}"
    try:
        kind = tensor.kind
        dtype = kind.name
        values = tensor.values()
        with np.errstate(invalid="ignore"):  # numpy's word on signalling NaN, which stay NaN
            plain = values.astype(kind.plain, copy=False)
            numbers = numbers_of(values, kind) if kind.numeric else None
        with replacing(path) as file:
            np.save(file, plain, allow_pickle=False)
    except DumpError as error:
        return OpTensor(title, form, shape, dtype, error=error)
    return OpTensor(title, form, values.shape, dtype, kind.plain, numbers, path.name)


def _bytes(dump: Dump) -> int:
    """What the files of a dump will take, about; a tensor that cannot be read takes nothing."""
    total = sum(blob.size for blob in (*dump.buffers, *dump.workspaces))
    for tensor in (*dump.inputs, *dump.outputs):
        try:
            total += 128 + int(np.prod(tensor.dims, dtype=object)) * tensor.kind.plain.itemsize
        except DumpError:  # said when it is its turn
            continue
    return total
