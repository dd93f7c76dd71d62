"""What a comparison comes to: counts, where it first goes apart, and the worst rows.

Rows are taken as they stream by and only the few that matter are kept.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field

from .engine import Row, Status

WORST = 10
"""Rows in the table of those that differ most."""


@dataclass
class Summary:
    """Counts by status, the first differing rows and the worst ones, built by `add` row by row."""

    counts: Counter[Status] = field(default_factory=Counter)
    first_differing: Row | None = None
    first_own: Row | None = None
    """The first differing output of an op whose inputs are all bit-equal: its own doing."""
    has_inputs: bool = False
    _record: str | None = None
    _inputs_equal: bool = True
    _worst: list[tuple] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Take the next row; rows of one record come together, its inputs first."""
        self.counts[row.status] += 1
        if row.record_path != self._record:
            self._record, self._inputs_equal = row.record_path, True
        if row.side == "input":
            self.has_inputs = True
            self._inputs_equal &= row.status in (Status.EQUAL, Status.UNINITIALISED)
        if row.status is not Status.DIFFERS:
            return
        self.first_differing = self.first_differing or row
        if row.side == "output" and self._inputs_equal:
            self.first_own = self.first_own or row
        if any(entry[-1].metrics is row.metrics for entry in self._worst):
            return  # the same stored value, reached through a link: one row says it all
        # The number of the row breaks ties, earlier rows first, before rows would be compared.
        entry = (*_badness(row), -self.rows, row)
        if len(self._worst) < WORST:
            heapq.heappush(self._worst, entry)
        else:
            heapq.heappushpop(self._worst, entry)

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
        """Whether all that has a meaning was compared and every element was equal."""
        return self.rows == self.counts[Status.EQUAL] + self.counts[Status.UNINITIALISED]

    @property
    def worst(self) -> list[Row]:
        """At most WORST differing rows, by RelativeEuclideanDistance, then MaxAbsoluteError."""
        return [entry[-1] for entry in sorted(self._worst, reverse=True)]


def _badness(row: Row) -> tuple[float, float]:
    values = row.metrics.relative_euclidean, row.metrics.max_absolute
    return tuple(math.inf if math.isnan(value) else value for value in values)
