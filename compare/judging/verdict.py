"""What is to be said of one pair of tensors: a kind, a stable code, the reason and its numbers."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """SAME: equal. ROUNDING: apart by no more than arithmetic may be. INHERITED: apart because
    what the op was given is. DIFFERS: apart by more than both explain. NOT_COMPARABLE: what the two
    sides hold is not meant to agree. CANNOT_TELL: the files do not hold what is needed."""

    SAME = "same"
    ROUNDING = "rounding"
    INHERITED = "inherited"
    DIFFERS = "differs"
    NOT_COMPARABLE = "not_comparable"
    CANNOT_TELL = "cannot_tell"

    __hash__ = object.__hash__  # Enum's own is Python, and each row asks for it several times


class Verdict(NamedTuple):
    """One row's verdict.

    code: a stable word for the reason; docs/tolerance.md lists them. reason: the same in English,
    with its numbers. actual, allowed: absolute difference, less what is inherited, and its limit,
    at the element nearest to its limit or furthest beyond; None where nothing was derived. margin:
    actual / allowed there; above 1 is beyond. culprit: "mine", "golden" or "both", whose result
    does not follow from its own inputs, where that could be computed. low_evidence: one element
    only. by_default: the op is not in the table. weak: the file lacks the inputs.
    """

    kind: Kind
    code: str
    reason: str
    allowed: float | None = None
    actual: float | None = None
    margin: float | None = None
    culprit: str | None = None
    low_evidence: bool = False
    by_default: bool = False
    weak: bool = False

    def marked(self, **marks: bool) -> Verdict:
        """The same with other marks."""
        return self._replace(**marks)
