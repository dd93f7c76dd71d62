"""What leaves a call that the two sides compute by different ops.

There is no formula to run: only what enters, what leaves, and how many ops lie between are known.
Norms are held against the rounding of so many ops, and against what enters, times a condition
estimate. What is between that and far beyond it is not called wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dumper.errors import DumpError
from dumper.reader import Record
from dumper.stored import Tensor

from ..alignment import Match
from . import words
from .classes import Class, class_of
from .estimates import CONDITION
from .numerics import is_rounded, rounding
from .verdict import Kind, Verdict

if TYPE_CHECKING:
    from .judge import Context, Row

_UNITS = 16.0
"""Roundings that each op may add to the relative distance, at the root of their number."""

_FAR = 4.0
"""How many times the allowed is beyond any doubt."""


def _drawn(records: Sequence[Record]) -> list[Tensor]:
    """What random ops drew, in order: a mask, where there is one."""
    draws = (
        record
        for record in records
        if class_of(record.ir).kind is Class.RANDOM or "_rng_state" in record.arguments
    )
    return [min(r.outputs, key=lambda t: t.dtype != "bool") for r in draws if r.outputs]


def _draw_alike(match: Match, context: Context) -> bool:
    """Whether both sides drew the same numbers inside, or none."""
    drawn = _drawn(match.mine), _drawn(match.golden)
    if len(drawn[0]) != len(drawn[1]):
        return False
    for pair in zip(*drawn, strict=True):
        try:
            x, y = map(context.read, pair)
        except (DumpError, MemoryError):
            return False
        if "bool" in (pair[0].dtype, pair[1].dtype):  # a mask, which the other side has as numbers
            x, y = x != 0, y != 0
        if not np.array_equal(x, y):
            return False
    return True


def judge_boundary(row: Row, entering: Sequence[float], match: Match, context: Context) -> Verdict:
    """The verdict of a tensor at the boundary of a call or group.

    entering: relative distance of each tensor that enters. match: the records of both sides.
    """
    m = row.metrics
    if row.side == "input":
        return words.INPUT
    dtypes = {
        t.dtype
        for side in (match.mine, match.golden)
        for r in side
        for t in (*r.inputs, *r.outputs)
    }
    if not is_rounded(row.mine.dtype) or not is_rounded(row.golden.dtype):
        return words.DECIDED
    unit = max((rounding(dtype) for dtype in dtypes if is_rounded(dtype)), default=0.0)
    for numerics in (context.mine, context.golden):
        if numerics.modes:
            unit = max(unit, rounding("float16"))
    count = max(len(match.mine), len(match.golden))
    own = _UNITS * math.sqrt(count) * unit
    given = max(entering, default=0.0)
    apart, allowed = m.relative_euclidean, own + CONDITION * given
    numbers = {
        "allowed": allowed,
        "actual": apart,
        "margin": apart / allowed if allowed else math.inf,
    }
    ops = f"{len(match.mine)} ops against {len(match.golden)}"
    what = f"relative distance {apart:.3g} at the boundary of {ops}"
    low = row.metrics.size == 1
    if m.mine_nonfinite or m.golden_nonfinite or m.other_nonfinite:
        if math.isfinite(given):
            reason = f"NaN or infinite on one side only, at the boundary of a call; {what}"
            return Verdict(Kind.DIFFERS, "nonfinite", reason, low_evidence=low)
        return Verdict(Kind.INHERITED, "nonfinite_inputs", "what enters is NaN or infinite too")
    if apart <= own:
        return Verdict(Kind.ROUNDING, "within_boundary", what, low_evidence=low, **numbers)
    if apart <= allowed:
        reason = f"{what}; what enters differs by {given:.3g}: an estimate"
        return Verdict(Kind.INHERITED, "inherited_estimate", reason, low_evidence=low, **numbers)
    if not _draw_alike(match, context):
        reason = f"random numbers are drawn inside; {what}"
        return Verdict(Kind.NOT_COMPARABLE, "random", reason, **numbers)
    if apart <= _FAR * allowed:
        reason = (
            f"{what}; what enters differs by {given:.3g}: more than expected, no formula is known"
        )
        return Verdict(Kind.CANNOT_TELL, "beyond_estimate", reason, low_evidence=low, **numbers)
    reason = f"{what}; what enters differs by {given:.3g}"
    return Verdict(Kind.DIFFERS, "beyond_boundary", reason, low_evidence=low, **numbers)
