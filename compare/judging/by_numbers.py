"""Judged by the numbers of a row alone: an op that no formula is known of, or whose inputs are not
in the file.

Coarser than a formula, and it says so. Nothing is read: the element that is furthest off, golden's
root mean square and how far the inputs are apart are in the rows already, so that a result can be
judged again without the dumps, and the rule costs next to nothing.
"""

from __future__ import annotations

import math

from ..metrics import Metrics
from .classes import OpClass
from .estimates import CONDITION, relative_limit
from .numerics import is_rounded, smallest
from .verdict import Kind, Verdict


def judge_numbers(
    m: Metrics, dtypes: tuple[str, str], op: OpClass, equal: bool, given: float | None
) -> Verdict:
    """The verdict of an output.

    dtypes: mine and golden's. equal: the inputs are the same on both sides. given: the greatest
    relative distance of an input; None where the inputs are not known.
    """
    weak = given is None
    marks = {"low_evidence": m.size == 1, "by_default": op.by_default, "weak": weak}
    if not all(map(is_rounded, dtypes)):
        if equal:
            return _differs("not_exact", f"inputs are equal; {_unknown(op, weak)}", marks)
        kind = Kind.CANNOT_TELL if weak else Kind.INHERITED
        return Verdict(kind, "decided_by_inputs", "another choice or count", **marks)
    nonfinite = m.mine_nonfinite + m.golden_nonfinite + m.other_nonfinite
    if nonfinite:
        reason = f"{nonfinite} of {m.size} elements are NaN or infinite on one side"
        if equal or (given is not None and math.isfinite(given)):
            return _differs("nonfinite", reason, marks)
        kind = Kind.CANNOT_TELL if weak else Kind.INHERITED
        return Verdict(kind, "nonfinite_inputs", reason, **marks)
    allowed = _allowed(m, dtypes)
    numbers = {
        "allowed": allowed,
        "actual": m.max_absolute,
        "margin": m.max_absolute / allowed if allowed else math.inf,
        **marks,
    }
    if m.max_absolute <= allowed:
        reason = f"within the default tolerance; {_unknown(op, weak)}"
        return Verdict(
            Kind.ROUNDING, "within_weak" if weak else "within_default", reason, **numbers
        )
    if equal:
        reason = f"beyond the default tolerance, inputs are equal; {_unknown(op, weak)}"
        return Verdict(Kind.DIFFERS, "beyond_default", reason, **numbers)
    if weak:
        reason = "the file lacks the op's inputs: this may be inherited or the op's own"
        return Verdict(Kind.CANNOT_TELL, "no_inputs", reason, **numbers)
    apart, limit = m.relative_euclidean, CONDITION * given
    numbers |= {"allowed": limit, "actual": apart, "margin": apart / limit if limit else math.inf}
    what = f"relative distance {apart:.3g}, of inputs {given:.3g}"
    if apart <= limit:
        return Verdict(Kind.INHERITED, "inherited_estimate", f"{what}: an estimate", **numbers)
    reason = f"{what}: more than {CONDITION:g} times; {_unknown(op, weak)}"
    return Verdict(Kind.CANNOT_TELL, "beyond_estimate", reason, **numbers)


def _allowed(m: Metrics, dtypes: tuple[str, str]) -> float:
    """Of the element that is furthest off."""
    golden = abs(m.worst.golden) if m.worst is not None else 0.0
    mean, deviation = m.golden
    spread = math.hypot(mean, deviation)
    size = sum(each for each in (golden, spread) if math.isfinite(each))
    return relative_limit(dtypes) * size + sum(map(smallest, dtypes))


def _differs(code: str, reason: str, marks: dict[str, bool]) -> Verdict:
    return Verdict(Kind.DIFFERS, code, reason, margin=math.inf, **marks)


def _unknown(op: OpClass, weak: bool) -> str:
    return "the op's inputs are not in the file" if weak else f"no formula of {op.base} is known"
