"""What a comparison comes to: counts, where it first goes apart, and the worst rows.

Rows are taken as they stream by and only the few that matter are kept.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field

from dumper.layout import VALUES

from .engine import Row, Status

WORST = 10
"""Rows in the table of those that differ most."""


_AS_IN_GOLDEN = (Status.EQUAL, Status.UNINITIALISED, Status.DESCRIBED)
_OWN = (Status.DIFFERS, Status.INCOMPARABLE)


@dataclass
class Summary:
    """Counts by status, where it goes apart and the worst rows, built by `add` row by row."""

    counts: Counter[Status] = field(default_factory=Counter)
    first: Row | None = None
    """The first row that is not as in golden, whatever the reason."""
    has_inputs: bool = False
    _own: Row | None = None
    _record: str | None = None
    _record_own: Row | None = None
    _inputs_equal: bool = True
    _worst: list[tuple] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Take the next row; rows of one record come together."""
        self.counts[row.status] += 1
        if row.record_path != self._record:
            self._own = self.first_own
            self._record, self._record_own, self._inputs_equal = row.record_path, None, True
        self.has_inputs |= row.side == "input"
        if row.status in _AS_IN_GOLDEN:
            return
        self.first = self.first or row
        if row.side != "output":
            self._inputs_equal = False
        elif row.status in _OWN and row.phase not in VALUES:  # which no op makes
            self._record_own = self._record_own or row
        if row.status is not Status.DIFFERS:
            return
        if any(entry[-1].metrics is row.metrics for entry in self._worst):
            return  # the same stored value, reached through a link: one row says it all
        # The number of the row breaks ties, earlier rows first, before rows would be compared.
        entry = (*_badness(row), -self.rows, row)
        if len(self._worst) < WORST:
            heapq.heappush(self._worst, entry)
        else:
            heapq.heappushpop(self._worst, entry)

    @property
    def first_own(self) -> Row | None:
        """The first output that is not as in golden of an op whose inputs and arguments are all
        equal: its own doing."""
        return self._own or (self._record_own if self._inputs_equal else None)

    @property
    def rows(self) -> int:
        """How many rows there were."""
        return self.counts.total()

    @property
    def compared(self) -> int:
        """How many pairs were measured."""
        return self.counts[Status.EQUAL] + self.counts[Status.DIFFERS]

    @property
    def nothing_differs(self) -> bool:
        """Whether there was something to compare, and all of it is as in golden."""
        return self.rows > 0 and self.first is None

    @property
    def worst(self) -> list[Row]:
        """At most WORST differing rows, by RelativeEuclideanDistance, then MaxAbsoluteError."""
        return [entry[-1] for entry in sorted(self._worst, reverse=True)]


def _badness(row: Row) -> tuple[float, float]:
    values = row.metrics.relative_euclidean, row.metrics.max_absolute
    return tuple(math.inf if math.isnan(value) else value for value in values)
