"""Measured rows with their verdicts: what an op's arithmetic, and its inputs, explain.

Only values that differ are judged; the rest follows from what a row is already (row.py). An op is
judged by its inputs on both sides. What leaves a call that the two sides compute by different ops
has no one op to be judged by: it is held against what enters the call (judging/boundary.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dumper.layout import VALUES
from dumper.reader import Dump, Record
from dumper.stored import Argument, Tensor

from .common import Pair
from .comparing import Known
from .judging import Class, Context, Kind, Numerics, Verdict, class_of, judge, numerics_of, words
from .judging import Row as Judged
from .judging.boundary import judge_boundary
from .judging.by_numbers import judge_numbers
from .judging.classes import OpClass
from .kinds import comparable
from .row import Row, Status

MADE = Verdict(
    Kind.INHERITED, "made_by_an_op", "a gradient or parameter; see the op that made the value"
)


def context_of(mine: Dump, golden: Dump, known: Known) -> Context:
    """What holds for all verdicts of a comparison."""
    return Context(
        _numerics(mine), _numerics(golden), fed=mine.load_mode, same=lambda a, b: _same(known, a, b)
    )


def _numerics(dump: Dump) -> Numerics:
    return numerics_of(dump.environment, dump.device_type)


def _same(known: Known, mine: Tensor, golden: Tensor) -> bool | None:
    """Whether two values are known to be bit-equal, or not to be."""
    key = (mine.address, golden.address, mine.dtype, golden.dtype, False)
    measured = known.measured.get(key)
    return None if measured is None else measured.metrics.exact == 1.0


def judged(rows: Sequence[tuple[Pair, Row]], known: Known) -> list[Row]:
    """The rows of one match, each with its verdict, where that does not follow from its status."""
    return [_judged(found, row, rows, known) for found, row in rows]


def _judged(found: Pair, row: Row, rows: Sequence[tuple[Pair, Row]], known: Known) -> Row:
    verdict = None
    if row.status is Status.DIFFERS:
        verdict = _of_values(found, row, rows, known)
    elif row.status is Status.UNPAIRED:
        verdict = _NO_COPY if _only_moves(found) else None
    elif row.status is Status.INCOMPARABLE:
        verdict = _NO_NUMBERS.get(_obstacle(found))
    return row if verdict is None else replace(row, judged=verdict)


_MOVES = (Class.MOVEMENT, Class.EXACT, Class.UNINITIALISED)
_NO_COPY = Verdict(
    Kind.NOT_COMPARABLE, "no_copy", "one side copies, casts or looks once more; nothing is computed"
)
_NO_NUMBERS = {
    code: Verdict(Kind.NOT_COMPARABLE, code, words)
    for code, words in (
        ("shape_differs", "the shapes differ"),
        ("dtype_differs", "the dtypes differ"),
        ("left_out", "it was left out of a file"),
        ("unreadable", "it could not be read"),
    )
}


def _only_moves(found: Pair) -> bool:
    """Whether a record without partner computes nothing."""
    path = found.my_path or found.golden_path
    ir = found.record.ir if found.record else path.split("/")[1] if path else ""
    return found.side is None and class_of(ir).kind in _MOVES


def _obstacle(found: Pair) -> str:
    """Why a row has no numbers, as a code."""
    mine, golden = found.mine, found.golden
    if found.omitted or mine is None or golden is None:
        return "left_out"
    if any(isinstance(value, Argument) for value in (mine, golden)):
        return "argument_differs"
    if mine.shape != golden.shape:
        return "shape_differs"
    return "unreadable" if comparable(mine.dtype, golden.dtype) else "dtype_differs"


def made_in(records: Iterable[Record]) -> frozenset[int]:
    """Numbers of the values that ops made."""
    return frozenset(
        value
        for record in records
        if record.phase not in VALUES
        for key, value in record.entry.values.items()
        if key.startswith("output/")
    )


def _is_made(found: Pair, known: Known) -> bool:
    """Whether a recorded op made the value that a record of a gradient or parameter shows."""
    values = found.record.entry.values.values()
    return bool(values) and all(value in known.made for value in values)


def _of_values(
    found: Pair, row: Row, rows: Sequence[tuple[Pair, Row]], known: Known
) -> Verdict | None:
    if not isinstance(found.mine, Tensor) or not isinstance(found.golden, Tensor):
        same = all(each.verdict.kind is Kind.SAME for _, each in rows if each.side == "input")
        return None if same else words.DECIDED  # a number that an op returned
    one = Judged(found.record, found.partner, found.side, found.mine, found.golden, row.metrics)
    if found.record.phase in VALUES and _is_made(found, known):
        return MADE
    if found.match is not None and found.match.kind != "op":
        return judge_boundary(one, _entering(rows), found.match, known.context)
    if found.side == "output" and found.record.phase not in VALUES:
        op = class_of(found.record.ir)
        has_inputs = _has_inputs(found.partner) and (known.context.fed or _has_inputs(found.record))
        if op.by_default or not has_inputs:
            return _by_numbers(one, op, rows, has_inputs, known.context.fed)
    return judge(one, known.context)


def _has_inputs(record: Record) -> bool:
    """Whether all that an op was given is in the file."""
    return record.has_inputs and not any(key.startswith("input/") for key in record.entry.stubs)


def _by_numbers(
    one: Judged, op: OpClass, rows: Sequence[tuple[Pair, Row]], has_inputs: bool, fed: bool
) -> Verdict:
    """The verdict of an op that no formula is known of, or whose inputs are not in the file."""
    inputs = [each for _, each in rows if each.side == "input"]
    equal = fed or (has_inputs and all(each.verdict.kind is Kind.SAME for each in inputs))
    given = max(_entering(rows), default=0.0) if has_inputs or fed else None
    dtypes = one.mine.dtype, one.golden.dtype
    found = judge_numbers(one.metrics, dtypes, op, equal, given)
    return found.marked(low_evidence=one.metrics.size == 1, by_default=op.by_default)


def _entering(rows: Iterable[tuple[Pair, Row]]) -> list[float]:
    """How far each input is apart, relatively."""
    return [
        each.metrics.relative_euclidean
        for _, each in rows
        if each.side == "input" and each.metrics is not None
    ]
