"""One row of a result: what a comparison says of one pair of values. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

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


MEASURED = (Status.EQUAL, Status.ALIKE, Status.DIFFERS)
"""Of rows that have numbers."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the result. What there is nothing to say of is None."""

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
