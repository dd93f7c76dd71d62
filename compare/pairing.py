"""Which record of one dump belongs to which of the other: the original comparator's rules.

In a free run the k-th call of an IR belongs to the k-th call of that IR on the other side, by
seqid. A load-mode file bears the seqids of the file that it was made from, so there equal seqids
belong together, and only outputs are compared, because its inputs are the other file's. Devices
name some ops and some arguments differently; two tables and a rule for prefixes say how.

These rules are ordinal: one extra call shifts every later pair of its IR. Records of gradients and
updated parameters belong together by name. A tensor that a file only describes (a stub) has a place
in its record like any other: what is described because it is a view is the other side's view too,
and is no row. Pure functions of records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

from dumper.index import VIEW, WITHOUT_DATA, Stub
from dumper.layout import VALUES, Type, unescape
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
    Type.OBJECT,
}
"""Arguments that may differ between devices without changing what is computed."""

_PATH = re.compile(r"(?P<record>/[^/]+/[0-9]{1,18})(/(?P<side>input|output)(/.*)?)?", re.DOTALL)

_CPU, _CUDA = 0, 1


class Pair(NamedTuple):
    """Two values that belong together, or one that has no partner, with the reason.

    index: seqid of my record; one past my last for what only golden has. record: mine; partner:
    golden's. A value is a stub where the file only describes it. Where there is no value on either
    side, the row is about a whole record without partner, or, `omitted`, about something that a
    writer left out; my_path and golden_path are where it would be.
    """

    index: int
    record: Record | None
    side: str | None
    mine: Tensor | Argument | Stub | None
    golden: Tensor | Argument | Stub | None
    my_path: str | None
    golden_path: str | None
    reason: str = ""
    omitted: bool = False
    partner: Record | None = None


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
    sides = _sides(by_seqid)
    left, right = _by_record(omitted[0]), _by_record(omitted[1])
    mine, golden = _with_lost(mine, left), _with_lost(golden, right)
    partners = match_records(mine, golden, golden_device=golden_device, by_seqid=by_seqid)
    used: set[str] = set()
    for record in mine:
        partner = partners.get(record.path)
        if partner and _share(record, partner, sides):
            gone = left.get(record.path, {}), right.get(partner.path, {})
            used.add(partner.path)
            yield from _values(record, partner, sides, gone, complete)
            continue
        for side in (None, *sides):
            yield from _left_out(record.seqid, record, side, left.get(record.path, {}), {})
        if any(map(_has_data, _values_of(record, sides))):
            reason = f"No data match with op:{record.ir} in golden dump data."
            yield Pair(record.seqid, record, None, None, None, None, None, reason)
    after = mine[-1].seqid + 1 if mine else 1
    for record in golden:
        if record.path in used:
            continue
        for side in (None, *sides):
            yield from _left_out(after, None, side, {}, right.get(record.path, {}))
        if any(map(_has_data, _values_of(record, sides))):
            reason = f"No data match with {record.path} in my dump data."
            yield Pair(after, None, None, None, None, None, record.path, reason)
    yield from _left_out(after, None, None, left.get(None, {}), right.get(None, {}))


def partner_of(
    record: Record,
    mine: Sequence[Record],
    golden: Sequence[Record],
    *,
    golden_device: int | None,
    by_seqid: bool,
    omitted: tuple[Omitted, Omitted] = ((), ()),
) -> Record | None:
    """The record of golden that `pair` compares one of mine with; arguments as of `pair`."""
    mine, golden = (
        _with_lost(records, _by_record(notes))
        for records, notes in zip((mine, golden), omitted, strict=True)
    )
    partners = match_records(mine, golden, golden_device=golden_device, by_seqid=by_seqid)
    found = partners.get(record.path)
    return found if found and _share(record, found, _sides(by_seqid)) else None


def pair_values(record: Record, partner: Record, *, by_seqid: bool) -> Iterator[Pair]:
    """What `pair` yields of two records that belong together, but for what was left out."""
    return _values(record, partner, _sides(by_seqid), ({}, {}), complete=False)


def _sides(by_seqid: bool) -> tuple[str, ...]:
    return ("output",) if by_seqid else ("input", "output")


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


def _by_seqid(records: Sequence[Record]) -> Iterator[Hashable]:
    return _by(records, lambda record: record.seqid)


def _by_count(records: Sequence[Record]) -> Iterator[Hashable]:
    counts: dict[str, int] = {}

    def count(record: Record) -> int:
        name = _CONVOLUTIONS[0] if record.ir in _CONVOLUTIONS else record.ir
        counts[name] = counts.get(name, -1) + 1
        return counts[name]

    return _by(records, count)


def _by(records: Sequence[Record], key: Callable[[Record], int]) -> Iterator[Hashable]:
    """What calls are told apart by, and values by name and step."""
    for record in records:
        if record.phase in VALUES:
            names = [*record.entry.names.values(), *map(unescape, _of(record, "output"))]
            yield names[0] if names else None, record.entry.step
        else:
            yield key(record)


def _other_names(ir: str, golden_device: int | None) -> Iterator[str]:
    yield from _IRS.get(ir, ())
    if ir.startswith("Npu"):
        prefix = {_CPU: "Thnn", _CUDA: "Cudnn"}.get(golden_device)
        if prefix:
            yield prefix + ir.removeprefix("Npu")
    for prefix in ("Thnn", "Cudnn"):
        if ir.startswith(prefix):
            yield "Npu" + ir.removeprefix(prefix)


_Value = Tensor | Argument | Stub | None

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


def _share(record: Record, partner: Record, sides: Sequence[str]) -> bool:
    """Whether two records have anything in common by which they can be one call."""
    for side in sides:
        theirs = set(_names(partner, side))
        if any(n in theirs or _renamed(record.ir, n) in theirs for n in _names(record, side)):
            return True
    return False


def _values(
    record: Record,
    partner: Record,
    sides: Sequence[str],
    gone: tuple[_Gone, _Gone],
    complete: bool,
) -> Iterator[Pair]:
    noted = [{path for found in each.values() for path, _ in found} for each in gone]
    left = {(side, name): value for side in sides for name, value in _of(partner, side).items()}

    def paired(side: str, mine: _Value, golden: _Value, names: tuple[str, str]) -> Iterator[Pair]:
        """One row, unless a note says already that a side left it out, or by choice it did."""
        paths = [f"{r.path}/{side}/{n}" for r, n in zip((record, partner), names, strict=True)]
        reasons = {value.reason for value in (mine, golden) if isinstance(value, Stub)}
        if VIEW in reasons or any(map(set.__contains__, noted, paths)):
            return
        if mine is None or golden is None:
            missing, name = (record, names[0]) if mine is None else (partner, names[1])
            if f"{side}/{name}" in missing.entry.values:  # there, but not kept at this level
                return
        yield _paired(record, partner, side, (mine, golden), paths)

    yield from _left_out(record.seqid, record, None, *gone)
    for side in sides:
        yield from _left_out(record.seqid, record, side, *gone)
        for name, value in _of(record, side).items():
            other = name if (side, name) in left else _renamed(record.ir, name)
            yield from paired(side, value, left.pop((side, other), None), (name, other))
        yield from _arguments(record, partner, side, complete)
    for (side, name), value in left.items():  # in the end, as in the original's csv
        yield from paired(side, None, value, (name, name))


def _arguments(record: Record, partner: Record, side: str, complete: bool) -> Iterator[Pair]:
    """What is no tensor: arguments, results, and what the parts of a sparse tensor make up."""
    complete = complete and record.has_inputs and partner.has_inputs  # else by choice left out
    left = dict(_others(partner, side))
    for name, argument in _others(record, side).items():
        other = left.pop(name, None) or left.pop(_renamed(record.ir, name), None)
        bound = argument.type in _DEVICE_BOUND or (other and other.type in _DEVICE_BOUND)
        parts = argument.type == Type.PARTS and other and other.type == Type.PARTS
        if parts or (not bound and (other or complete)):
            paths = argument.path, other.path if other else None
            yield _paired(record, partner, side, (argument, other), paths)
    for other in left.values():
        if complete and other.type not in _DEVICE_BOUND:
            yield _paired(record, partner, side, (None, other), (None, other.path))


def _paired(
    record: Record,
    partner: Record,
    side: str,
    values: tuple[_Value, _Value],
    paths: Sequence[str | None],
) -> Pair:
    mine, golden = values
    reason = ""
    if golden is None:
        reason, paths = f"No data match with {paths[0]} in golden dump data.", (paths[0], None)
    elif mine is None:
        reason, paths = f"No data match with {paths[1]} in my dump data.", (None, paths[1])
    return Pair(record.seqid, record, side, mine, golden, *paths, reason, partner=partner)


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


def _of(record: Record, side: str) -> dict[str, Tensor | Stub]:
    """The tensors of one side by name, and after them those that are described only."""
    found: dict[str, Tensor | Stub] = {
        tensor.name: tensor for tensor in (record.inputs if side == "input" else record.outputs)
    }
    for key, stub in record.entry.stubs.items():
        at, _, name = key.partition("/")
        if at == side:
            found.setdefault(name, stub)
    return found


def _names(record: Record, side: str) -> Iterator[str]:
    """All that a side has, kept in the file or not."""
    yield from _of(record, side)
    yield from _others(record, side)
    for key in record.entry.values:
        at, _, name = key.partition("/")
        if at == side:
            yield name


def _values_of(record: Record, sides: Sequence[str]) -> Iterator[Tensor | Stub]:
    return (value for side in sides for value in _of(record, side).values())


def _has_data(value: Tensor | Stub) -> bool:
    """Whether a record without partner is worth a row for this; a view is not."""
    return isinstance(value, Tensor) or value.reason in WITHOUT_DATA


def _others(record: Record, side: str) -> dict[str, Argument]:
    return record.arguments if side == "input" else record.results
