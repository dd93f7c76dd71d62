"""Measured rows with their verdicts: what an op's arithmetic, and its inputs, explain.

Only values that differ are judged; the rest follows from what a row is already (row.py). An op is
judged by its inputs on both sides. What leaves a call that the two sides compute by different ops
has no one op to be judged by: it is held against what enters the call (judging/boundary.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from dumper.errors import DumpError
from dumper.layout import VALUES
from dumper.reader import Dump, Record
from dumper.stored import Argument, Tensor

from .common import Pair
from .comparing import Known, key_of
from .judging import Class, Context, Kind, Numerics, Verdict, class_of, judge, numerics_of, words
from .judging import Row as Judged
from .judging.boundary import judge_boundary
from .judging.by_numbers import judge_numbers
from .judging.classes import OpClass
from .judging.judge import WORKSPACES, has_inputs, is_view
from .judging.numerics import largest, rounding, smallest
from .kinds import comparable
from .row import Row, Status

MADE = Verdict(
    Kind.INHERITED, "made_by_an_op", "a gradient or parameter; see the op that made the value"
)


def context_of(mine: Dump, golden: Dump, known: Known) -> Context:
    """What holds for all verdicts of a comparison.

    Where golden was fed mine's inputs, in load mode, it is judged as the fed side.
    """
    sides = (golden, mine) if known.turned else (mine, golden)
    return Context(
        *map(_numerics, sides), fed=sides[0].load_mode, same=lambda a, b: _same(known, a, b)
    )


def _numerics(dump: Dump) -> Numerics:
    return numerics_of(dump.environment, dump.device_type)


def _same(known: Known, mine: Tensor, golden: Tensor) -> bool | None:
    """Whether two values are known to be bit-equal, or not to be."""
    measured = known.measured.get(key_of(mine, golden))
    return None if measured is None else measured.metrics.exact == 1.0


def judged(rows: Sequence[tuple[Pair, Row]], known: Known) -> list[Row]:
    """The rows of one match, each with its verdict, where that does not follow from its status."""
    return [_judged(found, row, rows, known) for found, row in rows]


def _judged(found: Pair, row: Row, rows: Sequence[tuple[Pair, Row]], known: Known) -> Row:
    verdict = None
    if row.status is Status.DIFFERS:
        verdict = _of_values(found, row, rows, known)
    elif row.status is Status.UNPAIRED:
        verdict = _of_mover(found) if _only_moves(found) else None
    elif row.status is Status.INCOMPARABLE:
        verdict = _without_numbers(found, rows)
    return row if verdict is None else row.judged_as(verdict)


_MOVES = (Class.MOVEMENT, Class.UNINITIALISED)
_LOOKS = ("_local_scalar_dense", "item", "is_nonzero", "equal")
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
    """Whether a record without partner computes nothing: it moves elements, or looks at them, or
    makes constants of no tensor."""
    record = found.record or found.partner
    if found.side is not None or record is None:
        return False
    op = class_of(record.ir)
    if op.kind is Class.EXACT:
        given = any(key.startswith("input/") for key in record.entry.stubs) or record.inputs
        return op.base in _LOOKS or not given
    return op.kind in _MOVES


_COPIES = ("clone", "_to_copy", "contiguous", "detach", "alias", "lift_fresh_copy")


def _of_mover(found: Pair) -> Verdict:
    """The verdict of a record without partner that computes nothing: of a copy its result must be
    what it was given, which nothing else would tell."""
    record = found.record
    if record is None or class_of(record.ir).base not in _COPIES:
        return _NO_COPY
    if len(record.inputs) != 1 or len(record.outputs) != 1:  # a view, of which there is no data
        return _NO_COPY
    given, made = record.inputs[0], record.outputs[0]
    if given.shape != made.shape or not made.size or not comparable(given.dtype, made.dtype):
        return _NO_COPY
    if not (given.is_plain and made.is_plain):  # which a forked process cannot read
        return _NO_COPY
    try:
        fits = _is_copy(made, given)
    except (DumpError, MemoryError):
        return _NO_COPY
    if fits:
        return _NO_COPY
    reason = "one side copies once more, and the copy is not what it was given"
    low = made.size == 1
    return Verdict(Kind.DIFFERS, "not_exact", reason, culprit="mine", low_evidence=low)


def _is_copy(made: Tensor, given: Tensor) -> bool:
    """Whether a tensor is another one, rounded once if its dtype is another."""
    x, y = made.read(), given.read()
    if made.dtype == given.dtype:
        return np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes()
    x, y = (side.astype(np.float64) for side in (x, y))
    unit = rounding(made.dtype)
    with np.errstate(all="ignore"):
        near = np.abs(x - y) <= unit * np.abs(y) + smallest(made.dtype)
        beyond = np.abs(y) * (1 + unit) >= largest(made.dtype)
        return bool(np.all(near | beyond | (x == y) | (np.isnan(x) & np.isnan(y))))


def _without_numbers(found: Pair, rows: Sequence[tuple[Pair, Row]]) -> Verdict | None:
    """The verdict of values that cannot be compared element by element.

    Of another shape is what an op was given or, for that reason, what it made; nobody is at fault
    but where the shape came from.
    """
    code = _obstacle(found)
    if code == "shape_differs" and found.record is not None:
        side, _, name = found.my_path.removeprefix(f"{found.record.path}/").partition("/")
        if name in WORKSPACES.get(class_of(found.record.ir).base, ()):
            return words.WORKSPACE
        values = found.record.entry.values  # of an old file, nothing tells where a shape came from
        if found.side == "input":
            is_known = f"{side}/{name}" in values
            return words.INPUT if is_known and found.leaf is None else _NO_NUMBERS[code]
        if values and any(pair.side == "input" and _obstacle(pair) == code for pair, _ in rows):
            return words.DECIDED
    return _NO_NUMBERS.get(code)


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
    if known.turned:
        found = found._replace(record=found.partner, partner=found.record)
        one = Judged(found.record, found.partner, found.side, found.golden, found.mine, row.metrics)
        return _turned(_of_op(found, one, rows, known))
    return _of_op(found, one, rows, known)


_OTHER = {"mine": "golden", "golden": "mine"}


def _turned(verdict: Verdict) -> Verdict:
    """A verdict in which the sides have each other's names."""
    reason = re.sub(r"\b(mine|golden)\b", lambda word: _OTHER[word[0]], verdict.reason)
    return verdict._replace(reason=reason, culprit=_OTHER.get(verdict.culprit, verdict.culprit))


def _of_op(
    found: Pair, one: Judged, rows: Sequence[tuple[Pair, Row]], known: Known
) -> Verdict | None:
    """The verdict of a value of one op against one op."""
    if found.side == "output" and found.record.phase not in VALUES:
        op = class_of(found.record.ir)
        fed = known.context.fed
        is_known = has_inputs(found.partner) and (fed or has_inputs(found.record))
        if op.kind is Class.MOVEMENT and is_view(found.record) and is_view(found.partner):
            return words.VIEW
        if (op.by_default or not is_known) and op.kind not in _AS_FOUND:
            return _by_numbers(one, op, rows, is_known, fed)
    return judge(one, known.context)


_AS_FOUND = (Class.RANDOM, Class.UNINITIALISED)
"""What is not judged, with or without inputs."""


def _by_numbers(
    one: Judged, op: OpClass, rows: Sequence[tuple[Pair, Row]], is_known: bool, fed: bool
) -> Verdict:
    """The verdict of an op that no formula is known of, or whose inputs are not in the file.

    is_known: they are in the file. fed: they are the same on both sides.
    """
    inputs = [each for _, each in rows if each.side == "input"]
    equal = fed or (is_known and all(each.verdict.kind is Kind.SAME for each in inputs))
    given = max(_entering(rows), default=0.0) if is_known or fed else None
    dtypes = one.mine.dtype, one.golden.dtype
    return judge_numbers(one.metrics, dtypes, op, equal, given)


def _entering(rows: Iterable[tuple[Pair, Row]]) -> list[float]:
    """How far each input is apart, relatively."""
    return [
        each.metrics.relative_euclidean
        for _, each in rows
        if each.side == "input" and each.metrics is not None
    ]
