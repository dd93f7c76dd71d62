"""One row of a result: what a comparison says of one pair of values. Pure data."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from .judging.verdict import Kind, Verdict
from .metrics import Metrics


class Status(Enum):
    """What a row says: `EQUAL` is every element equal, `ALIKE` equal in value in another dtype,
    `INCOMPARABLE` a shape, a dtype, damage or something left out, `ARGUMENT` an argument that is no
    tensor and is another one in golden, `UNINITIALISED` memory that no op has written yet,
    `DESCRIBED` tensors that have no data (meta), of one shape and dtype."""

    EQUAL = "bit-equal"
    ALIKE = "equal in value"
    DIFFERS = "differing"
    UNPAIRED = "unpaired"
    INCOMPARABLE = "not comparable"
    ARGUMENT = "another argument"
    UNINITIALISED = "uninitialised"
    DESCRIBED = "without data"

    __hash__ = object.__hash__  # Enum's own is Python, and each row asks for it several times


MEASURED = (Status.EQUAL, Status.ALIKE, Status.DIFFERS)
"""Of rows that have numbers."""


BY_STATUS = {
    Status.EQUAL: Verdict(Kind.SAME, "bit_equal", ""),
    Status.ALIKE: Verdict(Kind.SAME, "equal_in_value", ""),
    Status.DIFFERS: Verdict(Kind.DIFFERS, "values_differ", "the values differ"),
    Status.UNPAIRED: Verdict(Kind.NOT_COMPARABLE, "no_partner", ""),
    Status.INCOMPARABLE: Verdict(Kind.NOT_COMPARABLE, "no_numbers", ""),
    Status.ARGUMENT: Verdict(Kind.NOT_COMPARABLE, "argument_differs", ""),
    Status.UNINITIALISED: Verdict(Kind.CANNOT_TELL, "uninitialised", ""),
    Status.DESCRIBED: Verdict(Kind.CANNOT_TELL, "no_data", ""),
}
"""What a row comes to where there is no op to judge it by."""


class Row(NamedTuple):
    """One row of the result. What there is nothing to say of is None.

    leaf: of an input that no recorded op made, the parameter's name, or '' of another; else None.
    match: by what the two sides belong together: op, group, call. low: whether that is in doubt.
    judged: the verdict, where there was an op to judge the values by.
    """

    index: int
    op: str | None
    side: str | None
    record_path: str | None
    my_path: str | None
    golden_path: str | None
    dtype: str | None
    shape: tuple[int, ...] | None
    status: Status
    metrics: Metrics | None
    reasons: tuple[str, ...] = ()
    phase: str | None = None
    custom: tuple[str, ...] = ()
    leaf: str | None = None
    match: str | None = None
    low: bool = False
    judged: Verdict | None = None

    def judged_as(self, verdict: Verdict) -> Row:
        """The same row with a verdict."""
        return Row(*self[:-1], verdict)

    @property
    def verdict(self) -> Verdict:
        """What the row comes to."""
        return self.judged or BY_STATUS[self.status]
