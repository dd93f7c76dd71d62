"""What a comparison comes to: counts by verdict, where the two first differ, and the worst rows.

Rows are taken as they stream by and only the few that matter are kept. All of it follows from the
rows and from what a result says of both runs, so that one that is read again has the same summary.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .columns import NOWHERE, Place
from .judging.verdict import Kind, Verdict
from .row import MEASURED, Row, Status
from .start import Start

WORST = 10
"""Rows in the table of those that differ most."""

_RANKED = {Kind.DIFFERS: 4, Kind.CANNOT_TELL: 3, Kind.NOT_COMPARABLE: 2, Kind.INHERITED: 1}
"""Verdicts of rows that differ, the gravest with the highest number."""

_NO_FAULT = frozenset(
    ("no_copy", "random", "random_state", "workspace", "saturation", "dtype_range", "uninitialised",
     "known_wrong")
)  # fmt: skip
"""Codes of what is not comparable and nobody's fault: named, not blamed."""


class _Bad(NamedTuple):
    """A differing row in the order of the table. earlier: its number from 1, below 0, by which
    earlier rows win before rows would be compared."""

    rank: int
    margin: float
    relative: float
    absolute: float
    earlier: int
    row: Row


@dataclass
class Summary:
    """Built by `add` row by row. start: what both runs started from, which takes the rows too."""

    start: Start = field(default_factory=Start)
    counts: Counter[Status] = field(default_factory=Counter)
    verdicts: Counter[Kind] = field(default_factory=Counter)
    unpaired: Counter[str] = field(default_factory=Counter)
    """Rows without partner, by the code of their verdict."""
    by_default: int = 0
    """Rows that were judged by the default rule, their op being none that the table has."""
    wrong: int = 0
    """Rows that differ, or have nothing to be set against, beyond what is nobody's fault."""
    unexplained: int = 0
    """Rows that differ, and nothing tells whether an op or its inputs are the cause."""
    judged: int = 0
    """Outputs that were judged by what their op may do."""
    rows: int = 0
    """How many rows there were."""
    first: Row | None = None
    """The first output that differs beyond what rounding and its inputs explain."""
    first_place: Place = NOWHERE
    odd: Row | None = None
    """The first row of those, or that differs unexplained: where it first goes apart."""
    _first_number: int | None = None
    _worst: list[_Bad] = field(default_factory=list)
    _again: Counter[int] = field(default_factory=Counter)
    """How many later rows have the numbers of one of the worst, by its `earlier`."""

    def add(self, row: Row, place: Place = NOWHERE) -> None:
        """Take the next row. place: where its op stands in the program."""
        self.rows += 1
        verdict = row.verdict
        self.counts[row.status] += 1
        self.verdicts[verdict.kind] += 1
        self.start.add(row, self.rows)
        if row.status is Status.UNPAIRED:
            self.unpaired[verdict.code] += 1
        if verdict.allowed is not None:
            self.judged += 1
            self.by_default += verdict.by_default
        if _is_wrong(verdict):
            self.wrong += 1
            self.odd = self.odd or row
            if verdict.kind is Kind.DIFFERS and not verdict.low_evidence and self.first is None:
                self.first, self.first_place, self._first_number = row, place, self.rows
        if row.status is Status.DIFFERS:
            if verdict.kind is Kind.CANNOT_TELL:
                self.unexplained += 1
                self.odd = self.odd or row
            self._rank(row)

    def _rank(self, row: Row) -> None:
        m, verdict = row.metrics, row.verdict
        bad = _Bad(
            _RANKED.get(verdict.kind, 0),
            _badness(verdict.margin or 0.0),
            _badness(m.relative_euclidean),
            _badness(m.max_absolute),
            -self.rows,
            row,
        )
        is_full = len(self._worst) == WORST
        if is_full and bad[:4] < self._worst[0][:4]:
            return
        for other in self._worst:
            if bad[2:4] == other[2:4] and _alike(row, other.row):
                self._again[other.earlier] += 1  # one value in many places: one row says it all
                return
        if not is_full:
            heapq.heappush(self._worst, bad)
        else:
            out = heapq.heappushpop(self._worst, bad)
            self._again.pop(out.earlier, None)

    @property
    def compared(self) -> int:
        """How many pairs were measured."""
        return sum(self.counts[status] for status in MEASURED)

    @property
    def paired(self) -> int:
        """How many rows have something on both sides, whether it was measured or not."""
        return self.rows - self.counts[Status.UNPAIRED]

    @property
    def nothing_wrong(self) -> bool:
        """Whether there was something to compare, both runs started equal, and nothing differs
        beyond what explains it."""
        wrong = self.wrong + self.unexplained
        return self.paired > 0 and not wrong and self.start.equal is not False

    @property
    def worst(self) -> list[Row]:
        """At most WORST differing rows, the gravest verdict first, then by margin, by
        RelativeEuclideanDistance, by MaxAbsoluteError.

        What has the very numbers of an earlier row is left out: it is the same value again.
        """
        return [bad.row for bad in sorted(self._worst, reverse=True)]

    @property
    def again(self) -> int:
        """How many rows `worst` leaves out as they have the numbers of one that is in it."""
        return self._again.total()

    def as_json(self) -> dict[str, Any]:
        """JSON values; rows by their numbers, from 1."""
        return {
            "rows": self.rows,
            "compared": self.compared,
            **{kind.value: self.verdicts[kind] for kind in Kind},
            "counts": {status.value: self.counts[status] for status in Status},
            "unpaired": dict(self.unpaired),
            "judged": self.judged,
            "judged_by_default": self.by_default,
            "unexplained": self.unexplained,
            "nothing_wrong": self.nothing_wrong,
            "start": self.start.as_json(),
            "first_difference": self._first(),
            "worst": [-bad.earlier for bad in sorted(self._worst, reverse=True)],
        }

    def _first(self) -> dict[str, Any] | None:
        row, place = self.first, self.first_place
        if row is None:
            return None
        return {
            "row": self._first_number,
            "ir": row.op,
            "seqid": row.index,
            "call": place.api,
            "phase": row.phase,
            "module": place.module,
            "source": place.source,
            "arg": argument_of(row),
            "reason": row.verdict.reason,
        }


def _is_wrong(verdict: Verdict) -> bool:
    if verdict.kind is Kind.NOT_COMPARABLE:
        return verdict.code not in _NO_FAULT
    return verdict.kind is Kind.DIFFERS


def argument_of(row: Row) -> str | None:
    """`output/result` of a row: which tensor of its op it is."""
    path, record = row.my_path or row.golden_path, row.record_path
    if path is None or record is None:
        return None
    return path.removeprefix(f"{record}/") if path.startswith(f"{record}/") else path


def _badness(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _alike(row: Row, other: Row) -> bool:
    """Whether two rows have the same numbers, which unrelated tensors have not."""
    if row.metrics is other.metrics:
        return True
    pairs = zip(_numbers(row), _numbers(other), strict=True)
    return all(a == b or (a != a and b != b) for a, b in pairs)  # NaN is itself here


def _numbers(row: Row) -> tuple:
    m = row.metrics
    place = m.worst.index if m.worst else None
    errors = m.mean_absolute, m.root_mean_square, m.mean_relative, m.cosine, m.exact
    return row.dtype, row.shape, place, *errors, *m.mine, *m.golden
