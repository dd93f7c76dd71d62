"""Who made what, for the way back from an overflow to where its numbers grew.

Bounded: after so many calls the older half is forgotten, and a way ends there.
"""

from __future__ import annotations

import math

from .events import Way
from .seen import Made

_CALLS = 1 << 16
_STEPS = 12


class Log:
    """The last calls by seqid."""

    def __init__(self) -> None:
        self._calls: dict[int, Made] = {}
        self._older: dict[int, Made] = {}

    @property
    def any(self) -> bool:
        """Whether there was one."""
        return bool(self._calls)

    def add(self, made: Made) -> None:
        """A call was made."""
        if len(self._calls) >= _CALLS:
            self._older, self._calls = self._calls, {}
        self._calls[made.seqid] = made

    def get(self, seqid: int) -> Made | None:
        """What a call made, if it is remembered."""
        return self._calls.get(seqid) or self._older.get(seqid)

    def way_to(self, made: Made, stored: float | None) -> tuple[Way, ...]:
        """The calls that led to this one, the first one first: of each call's sources the one with
        the largest magnitude, as far as that is known. stored: the number it is about, which tells
        of this one where its results were not looked at (integers)."""
        way = [made]
        while len(way) < _STEPS:
            sources = [self.get(seqid) for seqid in way[-1].sources]
            known = [s for s in sources if s is not None and s.magnitude is not None]
            if not known:
                break
            way.append(max(known, key=lambda source: _order(source.magnitude)))
        last = made.magnitude
        if last is None:
            last = math.nan if stored is None else abs(stored)
        before = (Way(one.seqid, one.ir, one.magnitude) for one in reversed(way[1:]))
        return *before, Way(made.seqid, made.ir, last)


def _order(magnitude: float) -> float:
    return math.inf if magnitude != magnitude else magnitude
