"""Which record of one dump belongs to which of the other: the original comparator's rules.

In a free run the k-th call of an IR belongs to the k-th call of that IR on the other side, by
seqid. A load-mode file bears the seqids of the file that it was made from, so there equal seqids
belong together, and only outputs are compared, because its inputs are the other file's. Devices
name some ops and some arguments differently; two tables and a rule for prefixes say how.

These rules are ordinal: one extra call shifts every later pair of its IR. Pure functions of
records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dumper.layout import Type
from dumper.reader import Record
from dumper.stored import Argument, Tensor

_CONVOLUTIONS = ("CudnnConvolutionBackward", "ThnnConvDepthwise2DBackward")
"""Counted as one IR: together they are what NpuConvolutionBackward is."""

_IRS = {
    "CudnnBatchNormBackward": ("NativeBatchNormBackward",),
    "NativeBatchNormBackward": ("CudnnBatchNormBackward",),
    "CudnnConvolutionBackward": ("NpuConvolutionBackward",),
    "ThnnConvDepthwise2DBackward": ("NpuConvolutionBackward",),
    "NpuConvolutionBackward": _CONVOLUTIONS,
}

_ARGUMENTS = {
    "CudnnBatchNormBackward": {"epsilon": "eps"},
    "NativeBatchNormBackward": {"eps": "epsilon"},
    "CudnnConvolutionBackward": {"self": "input"},
    "ThnnConvDepthwise2DBackward": {"self": "input"},
    "NpuConvolutionBackward": {"input": "self"},
}

_DEVICE_BOUND = {
    Type.DEVICE,
    Type.LAYOUT,
    Type.GENERATOR,
    Type.OPT_MEM_FMT,
    Type.TENSOR_OPTS,
    Type.PARTS,
}
"""Arguments that may differ between devices without changing what is computed."""

_PATH = re.compile(r"(?P<record>/[^/]+/[0-9]{1,18})(/(?P<side>input|output)(/.*)?)?", re.DOTALL)

_CPU, _CUDA = 0, 1


class Pair(NamedTuple):
    """Two values that belong together, or one that has no partner, with the reason.

    index: seqid of my record; one past my last for what only golden has. record: mine. Where there
    is no value on either side, the row is about a whole record without partner, or, `omitted`,
    about something that a writer left out; my_path and golden_path are where it would be.
    """

    index: int
    record: Record | None
    side: str | None
    mine: Tensor | Argument | None
    golden: Tensor | Argument | None
    my_path: str | None
    golden_path: str | None
    reason: str = ""
    omitted: bool = False


Omitted = Sequence[tuple[str, str]]
"""(path, reason) of what the writer of a file left out."""


def pair(
    mine: Sequence[Record],
    golden: Sequence[Record],
    *,
    golden_device: int | None,
    by_seqid: bool,
    omitted: tuple[Omitted, Omitted] = ((), ()),
    complete: bool = False,
) -> Iterator[Pair]:
    """Pair the values of two dumps; everything compared appears exactly once.

    mine, golden: records in seqid order. golden_device: `DeviceType` of golden's tensors. by_seqid:
    one of the files was made in load mode. omitted: mine, golden's. complete: an argument that is
    not in a file is None. Yields in the order of `index`, inputs before outputs, what only golden
    has last; arguments only with a partner, or where they are known to have none.
    """
    sides = ("output",) if by_seqid else ("input", "output")
    left, right = _by_record(omitted[0]), _by_record(omitted[1])
    mine, golden = _with_lost(mine, left), _with_lost(golden, right)
    partners = match_records(mine, golden, golden_device=golden_device, by_seqid=by_seqid)
    used: set[str] = set()
    for record in mine:
        partner = partners.get(record.path)
        rows = []
        if partner:
            gone = left.get(record.path, {}), right.get(partner.path, {})
            rows = list(_values(record, partner, sides, gone, complete))
        if any(isinstance(row.mine, Tensor) and row.golden for row in rows):
            used.add(partner.path)
            yield from rows
            continue
        for side in (None, *sides):
            yield from _left_out(record.seqid, record, side, left.get(record.path, {}), {})
        if any(_of(record, side) for side in sides):
            reason = f"No data match with op:{record.ir} in golden dump data."
            yield Pair(record.seqid, record, None, None, None, None, None, reason)
    after = mine[-1].seqid + 1 if mine else 1
    for record in golden:
        if record.path in used:
            continue
        for side in (None, *sides):
            yield from _left_out(after, None, side, {}, right.get(record.path, {}))
        if any(_of(record, side) for side in sides):
            reason = f"No data match with {record.path} in my dump data."
            yield Pair(after, None, None, None, None, None, record.path, reason)
    yield from _left_out(after, None, None, left.get(None, {}), right.get(None, {}))


def match_records(
    mine: Sequence[Record],
    golden: Sequence[Record],
    *,
    golden_device: int | None,
    by_seqid: bool,
) -> dict[str, Record]:
    """Golden's record for each of mine, by my record's path; equal names before mapped ones."""
    keys = _by_seqid if by_seqid else _by_count
    free = {}
    for record, key in zip(golden, keys(golden), strict=True):
        free.setdefault((record.ir, key), record)
    found: dict[str, Record] = {}
    rest = []
    for record, key in zip(mine, keys(mine), strict=True):
        same = free.pop((record.ir, key), None)
        if same is not None:
            found[record.path] = same
        else:
            rest.append((record, key))
    for record, key in rest:
        for name in _other_names(record.ir, golden_device):
            other = free.pop((name, key), None)
            if other is not None:
                found[record.path] = other
                break
    return found


def _by_seqid(records: Sequence[Record]) -> Iterator[int]:
    return (record.seqid for record in records)


def _by_count(records: Sequence[Record]) -> Iterator[int]:
    counts: dict[str, int] = {}
    for record in records:
        name = _CONVOLUTIONS[0] if record.ir in _CONVOLUTIONS else record.ir
        counts[name] = counts.get(name, -1) + 1
        yield counts[name]


def _other_names(ir: str, golden_device: int | None) -> Iterator[str]:
    yield from _IRS.get(ir, ())
    if ir.startswith("Npu"):
        prefix = {_CPU: "Thnn", _CUDA: "Cudnn"}.get(golden_device)
        if prefix:
            yield prefix + ir.removeprefix("Npu")
    for prefix in ("Thnn", "Cudnn"):
        if ir.startswith(prefix):
            yield "Npu" + ir.removeprefix(prefix)


_Gone = dict[str | None, list[tuple[str, str]]]
"""What was left out of one record: (path, reason) by side; None is the whole record."""


def _by_record(omitted: Omitted) -> dict[str | None, _Gone]:
    """What was left out, by the path of its record; by None where that is no record's path."""
    found: dict[str | None, _Gone] = {}
    for path, reason in omitted:
        match = _PATH.fullmatch(path)
        record, side = (match["record"], match["side"]) if match else (None, None)
        found.setdefault(record, {}).setdefault(side, []).append((path, reason))
    return found


def _with_lost(records: Sequence[Record], gone: dict[str | None, _Gone]) -> Sequence[Record]:
    """The records, and those of which nothing is left but the note that they were omitted."""
    known = {record.path for record in records}
    lost = [
        Record(ir, int(seqid), path, (), (), {}, False)
        for path in gone
        if path is not None and path not in known
        for ir, seqid in [path[1:].split("/")]
    ]
    if not lost:
        return records
    return sorted([*records, *lost], key=lambda record: (record.seqid, record.ir, record.path))


def _values(
    record: Record,
    partner: Record,
    sides: Sequence[str],
    gone: tuple[_Gone, _Gone],
    complete: bool,
) -> Iterator[Pair]:
    left = {(side, tensor.name): tensor for side in sides for tensor in _of(partner, side)}
    yield from _left_out(record.seqid, record, None, *gone)
    for side in sides:
        yield from _left_out(record.seqid, record, side, *gone)
        for tensor in _of(record, side):
            other = left.pop((side, tensor.name), None)
            if other is None:
                other = left.pop((side, _renamed(record.ir, tensor.name)), None)
            yield _paired(record, side, tensor, other)
        if side == "input":
            yield from _arguments(record, partner, complete)
    for (side, _), tensor in left.items():  # in the end, as in the original's csv
        yield _paired(record, side, None, tensor)


def _arguments(record: Record, partner: Record, complete: bool) -> Iterator[Pair]:
    left = dict(partner.arguments)
    for name, argument in record.arguments.items():
        other = left.pop(name, None) or left.pop(_renamed(record.ir, name), None)
        bound = argument.type in _DEVICE_BOUND or (other and other.type in _DEVICE_BOUND)
        if not bound and (other or complete):
            yield _paired(record, "input", argument, other)
    for other in left.values():
        if complete and other.type not in _DEVICE_BOUND:
            yield _paired(record, "input", None, other)


def _paired(
    record: Record,
    side: str,
    mine: Tensor | Argument | None,
    golden: Tensor | Argument | None,
) -> Pair:
    reason = ""
    if golden is None:
        reason = f"No data match with {mine.path} in golden dump data."
    elif mine is None:
        reason = f"No data match with {golden.path} in my dump data."
    paths = mine.path if mine else None, golden.path if golden else None
    return Pair(record.seqid, record, side, mine, golden, *paths, reason)


def _left_out(
    index: int, record: Record | None, side: str | None, mine: _Gone, golden: _Gone
) -> Iterator[Pair]:
    for path, why in mine.get(side, ()):
        reason = f"left out of my dump: {why}"
        yield Pair(index, record, side, None, None, path, None, reason, omitted=True)
    for path, why in golden.get(side, ()):
        reason = f"left out of golden: {why}"
        yield Pair(index, record, side, None, None, None, path, reason, omitted=True)


def _renamed(ir: str, name: str) -> str:
    parent, slash, last = name.rpartition("/")
    return parent + slash + _ARGUMENTS.get(ir, {}).get(last, last)


def _of(record: Record, side: str) -> tuple[Tensor, ...]:
    return record.inputs if side == "input" else record.outputs
