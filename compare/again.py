"""A row judged once more by another tolerance, from the numbers that its result keeps.

What was derived is kept with its margin, so that another c scales it. A plain tolerance is held
against the row's greatest difference and golden's greatest magnitude: the json has no elements.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from .judging.tracked import C
from .judging.verdict import Kind, Verdict
from .row import Row, Status

_JUDGED = (Kind.ROUNDING, Kind.DIFFERS)


class Tolerance(NamedTuple):
    """rtol, atol: in place of what was derived, |mine - golden| <= atol + rtol * max|golden|.
    factor: the c of the derived bounds."""

    rtol: float | None = None
    atol: float | None = None
    factor: float | None = None


def judged_again(row: Row, tolerance: Tolerance) -> Row:
    """The row by that tolerance. Inputs, what is inherited and what cannot be told stay."""
    verdict = row.verdict
    if row.status is not Status.DIFFERS or verdict.kind not in _JUDGED:
        return row
    if tolerance.factor is not None:
        if verdict.margin is None or not verdict.allowed:
            return row
        scale = max(tolerance.factor / C, sys.float_info.min)
        again = _within(verdict, verdict.actual, verdict.allowed * scale, verdict.margin / scale)
        reason = f"c = {tolerance.factor:g}: {verdict.reason}"
        return row._replace(judged=again._replace(reason=reason))
    actual = row.metrics.max_absolute
    allowed = (tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * row.metrics.reach[1]
    margin = actual / allowed if allowed else float("inf")
    reason = f"{actual:.3g} apart, where {allowed:.3g} is allowed (given)"
    again = _within(verdict, actual, allowed, margin)
    again = again._replace(code="given_tolerance", reason=reason)
    return row._replace(judged=again)


def _within(verdict: Verdict, actual: float, allowed: float, margin: float) -> Verdict:
    kind = Kind.ROUNDING if margin <= 1 else Kind.DIFFERS  # a NaN differs
    return verdict._replace(kind=kind, allowed=allowed, actual=actual, margin=margin)
