"""What two records that belong together have in common: their values, one by one, by name.

A tensor that a file only describes (a stub) has a place in its record like any other: what is
described because it is a view is the other side's view too, and is no row. The fork's devices name
some arguments differently; a table says how. Pure functions of records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dumper.index import VIEW, WITHOUT_DATA, Stub
from dumper.layout import Type
from dumper.reader import Record
from dumper.stored import Argument, Tensor

from .alignment import Match

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


class Pair(NamedTuple):
    """Two values that belong together, or one that has no partner, with the reason.

    index: seqid of my record; one past my last for what only golden has. record: mine; partner:
    golden's. A value is a stub where the file only describes it. Where there is no value on either
    side, the row is about a whole record without partner, or, `omitted`, about something that a
    writer left out; my_path and golden_path are where it would be. leaf: of an input that came from
    outside of the run, the name of the parameter it is, '' of another; None of what some op made.
    match: by which the records belong together.
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
    leaf: str | None = None
    match: Match | None = None

    def of(self, leaf: str | None, match: Match) -> Pair:
        """The same pair of a match."""
        return Pair(*self[:-2], leaf, match)  # `_replace` takes three times as long


Omitted = Sequence[tuple[str, str]]
"""(path, reason) of what the writer of a file left out."""


_Value = Tensor | Argument | Stub | None

Gone = dict[str | None, list[tuple[str, str]]]
"""What was left out of one record: (path, reason) by side; None is the whole record."""


def gone_by_record(omitted: Omitted) -> dict[str | None, Gone]:
    """What was left out, by the path of its record; by None where that is no record's path."""
    found: dict[str | None, Gone] = {}
    for path, reason in omitted:
        match = _PATH.fullmatch(path)
        record, side = (match["record"], match["side"]) if match else (None, None)
        found.setdefault(record, {}).setdefault(side, []).append((path, reason))
    return found


def share(record: Record, partner: Record, sides: Sequence[str]) -> bool:
    """Whether two records have anything in common by which they can be one call."""
    results = record.outputs, partner.outputs
    if "output" in sides and all(results) and results[0][0].name == results[1][0].name:
        return True  # as nearly always
    for side in sides:
        theirs = set(_names(partner, side))
        if any(n in theirs or _renamed(record.ir, n) in theirs for n in _names(record, side)):
            return True
    return False


def values_of_two(
    record: Record,
    partner: Record,
    sides: Sequence[str],
    gone: tuple[Gone, Gone],
    complete: bool,
) -> Iterator[Pair]:
    """The pairs of two records, inputs before outputs, what only the partner has last.

    gone: what was left out of each. complete: an argument that is not in a file is None.
    """
    noted = [{path for found in each.values() for path, _ in found} for each in gone]
    theirs = {side: tensors_of(partner, side) for side in sides}

    def paired(side: str, mine: _Value, golden: _Value, name: str, other: str) -> Pair | None:
        """One pair, unless a note says already that a side left it out, or by choice it did."""
        paths = f"{record.path}/{side}/{name}", f"{partner.path}/{side}/{other}"
        for value, path, left in zip((mine, golden), paths, noted, strict=True):
            if path in left or (isinstance(value, Stub) and value.reason == VIEW):
                return None
        if mine is None or golden is None:
            missing, its = (record, name) if mine is None else (partner, other)
            if f"{side}/{its}" in missing.entry.values:  # there, but not kept at this level
                return None
        return _paired(record, partner, side, (mine, golden), paths)

    yield from left_out(record.seqid, record, None, *gone)
    for side in sides:
        yield from left_out(record.seqid, record, side, *gone)
        ours, left = tensors_of(record, side), theirs[side]
        others = _counterparts(record, partner, ours, left)
        for name, value in ours.items():
            other = others.get(name, name)
            if found := paired(side, value, left.pop(other, None), name, other):
                yield found
        if _others(record, side) or _others(partner, side):
            yield from _arguments(record, partner, side, complete)
    for side, left in theirs.items():
        for name, value in left.items():  # in the end, as in the original's csv
            if found := paired(side, None, value, name, name):
                yield found


def _counterparts(
    record: Record,
    partner: Record,
    mine: dict[str, Tensor | Stub],
    golden: dict[str, Tensor | Stub],
) -> dict[str, str]:
    """Golden's names of my tensors of one side, where they are not the same ones.

    Ops of two names (one in place, say) may name what they return differently: what is left is
    taken in order, by shape.
    """
    missing = [name for name in mine if name not in golden]
    if not missing:
        return {}
    found = {name: _renamed(record.ir, name) for name in missing}
    if record.ir == partner.ir:
        return found
    free = [name for name in golden if name not in mine and name not in found.values()]
    for name in missing:
        if found[name] in golden:
            continue
        alike = (other for other in free if golden[other].shape == mine[name].shape)
        if (other := next(alike, None)) is not None:
            free.remove(other)
            found[name] = other
    return found


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


def left_out(
    index: int, record: Record | None, side: str | None, mine: Gone, golden: Gone
) -> Iterator[Pair]:
    """What was left out of one side of a record, or, where that is None, of the whole record."""
    for path, why in mine.get(side, ()):
        reason = f"left out of my dump: {why}"
        yield Pair(index, record, side, None, None, path, None, reason, omitted=True)
    for path, why in golden.get(side, ()):
        reason = f"left out of golden: {why}"
        yield Pair(index, record, side, None, None, None, path, reason, omitted=True)


def _renamed(ir: str, name: str) -> str:
    parent, slash, last = name.rpartition("/")
    return parent + slash + _ARGUMENTS.get(ir, {}).get(last, last)


def tensors_of(record: Record, side: str) -> dict[str, Tensor | Stub]:
    """The tensors of one side by name, and after them those that are described only."""
    tensors = record.inputs if side == "input" else record.outputs
    found: dict[str, Tensor | Stub] = {tensor.name: tensor for tensor in tensors}
    for key, stub in record.entry.stubs.items():
        at, _, name = key.partition("/")
        if at == side:
            found.setdefault(name, stub)
    return found


def _names(record: Record, side: str) -> Iterator[str]:
    """All that a side has, kept in the file or not."""
    yield from tensors_of(record, side)
    yield from _others(record, side)
    for key in record.entry.values:
        at, _, name = key.partition("/")
        if at == side:
            yield name


def values_of(record: Record, sides: Sequence[str]) -> Iterator[Tensor | Stub]:
    """The tensors of some sides, those that are described only too."""
    return (value for side in sides for value in tensors_of(record, side).values())


def has_data(value: Tensor | Stub) -> bool:
    """Whether a record without partner is worth a row for this; a view is not."""
    return isinstance(value, Tensor) or value.reason in WITHOUT_DATA


def _others(record: Record, side: str) -> dict[str, Argument]:
    return record.arguments if side == "input" else record.results
