"""What a comparison comes to: counts, where it first goes apart, and the worst rows.

Rows are taken as they stream by and only the few that matter are kept. All of it follows from the
rows alone, so that a result that is read again has the same summary.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dumper.layout import VALUES

from .row import MEASURED, Row, Status

WORST = 10
"""Rows in the table of those that differ most."""


_AS_IN_GOLDEN = frozenset((Status.EQUAL, Status.UNINITIALISED, Status.DESCRIBED))
_OWN = (Status.DIFFERS, Status.INCOMPARABLE)


class _Bad(NamedTuple):
    """A differing row in the order of the table. earlier: its number from 1, below 0, by which
    earlier rows win before rows would be compared."""

    relative: float
    absolute: float
    earlier: int
    row: Row


@dataclass
class Summary:
    """Counts by status, where it goes apart and the worst rows, built by `add` row by row."""

    counts: Counter[Status] = field(default_factory=Counter)
    first: Row | None = None
    """The first row that is not as in golden, whatever the reason."""
    has_inputs: bool = False
    rows: int = 0
    """How many rows there were."""
    _first_number: int | None = None
    _own: tuple[int, Row] | None = None
    _record: str | None = None
    _record_own: tuple[int, Row] | None = None
    _inputs_equal: bool = True
    _worst: list[_Bad] = field(default_factory=list)
    _again: Counter[int] = field(default_factory=Counter)
    """How many later rows have the numbers of one of the worst, by its `earlier`."""

    def add(self, row: Row) -> None:
        """Take the next row; rows of one record come together."""
        self.rows += 1
        self.counts[row.status] += 1
        if row.record_path != self._record:
            self._own = self._own_now
            self._record, self._record_own, self._inputs_equal = row.record_path, None, True
        if row.side == "input":
            self.has_inputs = True
        if row.status in _AS_IN_GOLDEN:
            return
        if row.status is Status.ALIKE:  # no difference, but no bit-equal input either
            self._inputs_equal = self._inputs_equal and row.side != "input"
            return
        if self.first is None:
            self.first, self._first_number = row, self.rows
        if row.side != "output":
            self._inputs_equal = False
        elif row.status in _OWN and row.phase not in VALUES:  # which no op makes
            self._record_own = self._record_own or (self.rows, row)
        if row.status is Status.DIFFERS:
            self._rank(row)

    def _rank(self, row: Row) -> None:
        m = row.metrics
        bad = _Bad(_badness(m.relative_euclidean), _badness(m.max_absolute), -self.rows, row)
        is_full = len(self._worst) == WORST
        if is_full and bad[:2] < self._worst[0][:2]:
            return
        for other in self._worst:
            if bad[:2] == other[:2] and _alike(row, other.row):
                self._again[other.earlier] += 1  # one value in many places: one row says it all
                return
        if not is_full:
            heapq.heappush(self._worst, bad)
        else:
            out = heapq.heappushpop(self._worst, bad)
            self._again.pop(out.earlier, None)

    @property
    def _own_now(self) -> tuple[int, Row] | None:
        return self._own or (self._record_own if self._inputs_equal else None)

    @property
    def first_own(self) -> Row | None:
        """The first output that is not as in golden of an op whose inputs and arguments are all
        equal: its own doing."""
        found = self._own_now
        return found[1] if found else None

    @property
    def compared(self) -> int:
        """How many pairs were measured."""
        return sum(self.counts[status] for status in MEASURED)

    @property
    def nothing_differs(self) -> bool:
        """Whether there was something to compare, and all of it is as in golden."""
        return self.rows > 0 and self.first is None

    @property
    def worst(self) -> list[Row]:
        """At most WORST differing rows, by RelativeEuclideanDistance, then MaxAbsoluteError.

        What has the very numbers of an earlier row is left out: it is the same value again.
        """
        return [bad.row for bad in sorted(self._worst, reverse=True)]

    @property
    def again(self) -> int:
        """How many rows `worst` leaves out as they have the numbers of one that is in it."""
        return self._again.total()

    def as_json(self) -> dict[str, Any]:
        """JSON values; rows by their numbers, from 1."""
        own = self._own_now
        return {
            "rows": self.rows,
            "compared": self.compared,
            "counts": {status.value: self.counts[status] for status in Status},
            "nothing_differs": self.nothing_differs,
            "first_differing_row": self._first_number,
            "first_own_difference": own[0] if own else None,
            "worst": [-bad.earlier for bad in sorted(self._worst, reverse=True)],
        }


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
