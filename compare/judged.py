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
    if found.match is None or found.match.kind == "op":
        return judge(one, known.context)
    entering = [
        each.metrics.relative_euclidean
        for _, each in rows
        if each.side == "input" and each.metrics is not None
    ]
    return judge_boundary(one, entering, found.match, known.context)
