"""What of golden a tensor of mine belongs to, and how two folders of CANN dumps are paired.

Operators pair by type and name, the k-th of that name with the k-th in order of execution, within
one subfolder and device before all others, so that devices and models stay apart; what is left
pairs by name alone. So nothing is dropped that ran twice, as the steps of a training do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dumper.errors import DumpError
from ir2tbe.cann.content import Dump, Tensor

from ..files import FileTensor
from .plain import dtype_of
from .scan import Folder, OpFile

BY_TYPE_AND_NAME, BY_NAME, BY_ORIGIN, BY_RULES, BY_RECORD = (
    "type and name", "name", "original op", "fusion rules", "record",
)  # fmt: skip
"""What the column PairedBy says."""

_LONGEST = 1024

UNINITIALISED = "uninitialised"
"""Code of a pair whose values no op has written."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side's tensor. op: its operator, record or file's stem. label: `<op>:output:0`. path: of
    its file or in its file. tensor: None where only that it is there is known."""

    op: str
    label: str
    path: str
    tensor: Tensor | FileTensor | None = field(default=None, repr=False)

    @property
    def dtype(self) -> str | None:
        """Name of the dtype."""
        if isinstance(self.tensor, Tensor):
            return dtype_of(self.tensor)
        return None if self.tensor is None else self.tensor.dtype


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tensors that belong together, or one without partner; without any, a whole operator.

    index: number of my operator, one past the last for what only golden has. where: "input",
    "output", or None of a whole operator. reason: why the two are not compared, '' where they are.
    code: where that is nobody's fault, a word for why. damaged: its values could not be read.
    by: by what they belong together. format: of my tensor once it is plain, where rules say so.
    """

    index: int
    op_type: str | None
    where: str | None
    mine: Side | None
    golden: Side | None
    reason: str = ""
    code: str = ""
    damaged: bool = False
    by: str = ""
    format: str | None = None


class Golden(Protocol):
    """What is taken as right. kind: names its phrase. count: of what it has. addresses: its tensors
    have one."""

    kind: str
    count: int
    addresses: bool

    def pairs(self, op: OpFile, dump: Dump) -> Iterator[Pair]:
        """The tensors of one operator, inputs first, and what only golden has of it."""

    def partner(self, op: OpFile) -> Side | None:
        """The whole operator that one of mine belongs to, whose file cannot be read; None where
        that is not known by its name."""

    def left(self, index: int) -> Iterator[Pair]:
        """What no operator asked for, once all had their turn. index: for its rows."""


def all_pairs(mine: Folder, golden: Golden, numbers: Iterable[int], rest: bool) -> Iterator[Pair]:
    """The pairs of my operators of these numbers, in order; then, if asked, the rest of golden.

    A file of mine that cannot be read, or has no tensor, is one pair, about the whole operator.
    """
    for number in numbers:
        op = mine.ops[number - 1]
        try:
            dump = op.read()
        except DumpError as error:
            reason, other = f"{error.what}: {error.where}", golden.partner(op)
            yield Pair(number, op.name.op_type, None, whole_of(op), other, reason, damaged=True)
            continue
        pairs = golden.pairs(op, dump)
        empty = "its file has neither an input nor an output"
        yield next(pairs, Pair(number, op.name.op_type, None, whole_of(op), None, empty, "empty"))
        yield from pairs
    if rest:
        yield from golden.left(len(mine.ops) + 1)


def name_of(op: OpFile, dump: Dump) -> str:
    """The operator's name with its slashes, where the file has it; of a longer one the first 1024
    characters, since each row has it."""
    return cut(dump.op_name or op.name.op_name)


def cut(name: str) -> str:
    """The first 1024 characters of a name from a file; none that is meant has more."""
    return name[:_LONGEST]


def side_of(op: str, path: Path, where: str, index: int, tensor: object) -> Side:
    """A side of the index-th input or output of an operator."""
    return Side(op, f"{op}:{where}:{index}", str(path), tensor)


def sides(op: OpFile, dump: Dump) -> Iterator[tuple[str, int, Side]]:
    """My tensors, inputs first: input or output, which, and the side of a pair."""
    for where, tensors in (("input", dump.inputs), ("output", dump.outputs)):
        for i, tensor in enumerate(tensors):
            yield where, i, side_of(name_of(op, dump), op.path, where, i, tensor)


def unmatched(label: str, in_golden: bool) -> str:
    """What the original says of what has no partner."""
    return f"No data match with {label} in {'golden' if in_golden else 'my'} dump data."


class Dumps:
    """A second folder of CANN dumps as golden."""

    kind = "operators"
    addresses = True

    def __init__(self, mine: Folder, golden: Folder) -> None:
        self.count = len(golden.ops)
        self._partners, self._left = partners(mine.ops, golden.ops)

    def partner(self, op: OpFile) -> Side | None:
        """As `Golden` says."""
        found = self._partners.get(op.number)
        return found and whole_of(found[0])

    def pairs(self, op: OpFile, dump: Dump) -> Iterator[Pair]:
        """As `Golden` says."""
        kind = op.name.op_type
        if op.number not in self._partners:
            reason = f"no operator of this type or name is left in golden for {name_of(op, dump)}"
            if not (dump.inputs or dump.outputs):
                yield Pair(op.number, kind, None, whole_of(op), None, reason)
            for where, _, side in sides(op, dump):
                yield Pair(op.number, kind, where, side, None, reason)
            return
        other, by = self._partners[op.number]
        try:
            golden = other.read()
        except DumpError as error:
            name = Side(name_of(op, dump), name_of(op, dump), str(op.path))
            reason = f"{error.what}: {error.where}"
            yield Pair(op.number, kind, None, name, whole_of(other), reason, damaged=True, by=by)
            return
        names = name_of(op, dump), name_of(other, golden)
        for where in ("input", "output"):
            tensors = [getattr(each, f"{where}s") for each in (dump, golden)]
            for i in range(max(map(len, tensors))):
                found = [
                    side_of(name, file.path, where, i, each[i]) if i < len(each) else None
                    for name, file, each in zip(names, (op, other), tensors, strict=True)
                ]
                reason = ""
                if found[1] is None:
                    reason = unmatched(found[0].label, True)
                elif found[0] is None:
                    reason = unmatched(found[1].label, False)
                yield Pair(op.number, kind, where, *found, reason, by=by)

    def left(self, index: int) -> Iterator[Pair]:
        """As `Golden` says."""
        for op in self._left:
            side = whole_of(op)
            yield Pair(index, op.name.op_type, None, None, side, unmatched(side.label, False))


def whole_of(op: OpFile) -> Side:
    """The side of a row about a whole operator."""
    return Side(op.name.op_name, op.name.op_name, str(op.path))


def partners(
    mine: Sequence[OpFile], golden: Sequence[OpFile]
) -> tuple[dict[int, tuple[OpFile, str]], list[OpFile]]:
    """Golden's operator and by what it was found, by the number of mine; and golden's others."""
    found: dict[int, tuple[OpFile, str]] = {}
    left, others = list(mine), list(golden)
    for key, by in _KEYS:
        queues: dict[Hashable, deque[OpFile]] = {}
        for op in others:
            queues.setdefault(key(op), deque()).append(op)
        for op in left:
            if queue := queues.get(key(op)):
                found[op.number] = queue.popleft(), by
        left = [op for op in left if op.number not in found]
        others = sorted(op for queue in queues.values() for op in queue)
    return found, others


_KEYS: tuple[tuple[Callable[[OpFile], Hashable], str], ...] = (
    (
        lambda op: (op.place, op.name.device_id, op.name.op_type, *same_name(op)),
        BY_TYPE_AND_NAME,
    ),
    (lambda op: (op.place, op.name.op_type, *same_name(op)), BY_TYPE_AND_NAME),
    (lambda op: (op.name.op_type, *same_name(op)), BY_TYPE_AND_NAME),
    (lambda op: same_name(op), BY_NAME),
)


def same_name(op: OpFile) -> tuple[str, int | None]:
    """What operators of one name have in common; with FFTS+ a thread has a part of one."""
    return op.name.op_name, op.name.thread_id
