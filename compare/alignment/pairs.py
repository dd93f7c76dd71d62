"""Which call of one run is which of the other, op by op.

What is told apart best is matched first: records whose label and surroundings, up and down the
edges, are found once on each side. What follows from a match by its edges is matched next, then
what is alone of its kind between two matches, then what stands in the same order there. Moved calls
are found since nothing but the last asks for order. Labels without what belongs to the program
(module, function, names) are tried on what is left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .gaps import ascending, common
from .sides import Array, Side, mixed

_DEPTHS = (1, 2, 4, 8)

_CONES = "told apart by what is up to {} values before and after it"
FOLLOWED = "what its values come from or go to is matched"
_PLACE = "the only one of its kind between two matches"
_PLACED = "told apart between two matches by what is before and after it"
_BESIDE = "beside a match"
_NEIGHBOURS = "told apart by what made its values and by the calls beside it"
_ORDER = "in the same order between two matches"
_ALONE = "the only one of its kind that is left"
_NEAREST = "the nearest one of its kind that is left"

LEFT = frozenset((_ALONE, _NEAREST))
"""Matches of what is left over."""

ALIKE = frozenset((_PLACE, _ORDER, _BESIDE, _CONES.format(1), _CONES.format(2)))
"""Matches where others of the kind could stand as well."""

FAR = frozenset((_CONES.format(4), _CONES.format(8)))
"""Matches of what was told apart from all others by what is far around it."""


CROWD = 100
"""Users of a value from which on it tells nobody apart."""


class Group(NamedTuple):
    """Places of calls that belong together otherwise than one to one; the rest as of `Match`."""

    mine: tuple[int, ...]
    golden: tuple[int, ...]
    kind: str
    confidence: str
    why: tuple[str, ...]


def unmatched(partner: Array) -> list[int]:
    """Places without partner."""
    return np.flatnonzero(partner < 0).tolist()


class Pairs:
    """Matches of two sides, as they are found. partner: mine's place to golden's, -1 for none;
    back: the other way round. by: how each of mine was found."""

    def __init__(self, mine: Side, golden: Side) -> None:
        self.mine, self.golden = mine, golden
        self.partner = np.full(mine.count, -1, np.int64)
        self.back = np.full(golden.count, -1, np.int64)
        self.by: dict[int, str] = {}

    def find(self) -> None:
        """Match all that can be matched one to one."""
        for labels in (
            (self.mine.strict, self.golden.strict),
            (self.mine.loose, self.golden.loose),
        ):
            if self._left():
                self._by(*labels)
        if self._left():
            self._by_links(self.mine.plain, self.golden.plain)

    def _left(self) -> bool:
        return bool((self.partner < 0).any() and (self.back < 0).any())

    def _by(self, mine: Array, golden: Array) -> None:
        levels = {
            depth: ((up, other_up), (down, other_down))
            for (depth, up, down), (_, other_up, other_down) in zip(
                self.mine.cones(mine, _DEPTHS), self.golden.cones(golden, _DEPTHS), strict=True
            )
        }
        for depth in reversed(_DEPTHS):
            above, below = levels[depth]
            both = tuple(mixed(a ^ mixed(b)) for a, b in zip(above, below, strict=True))
            self._once(*both, _CONES.format(depth))
            self._follow(mine, golden)
        for depth in reversed(_DEPTHS[:-1]):
            above, below = levels[depth]
            both = tuple(mixed(a ^ mixed(b)) for a, b in zip(above, below, strict=True))
            for numbers in (both, above, below):
                self._between(*numbers, _PLACED)
                self._follow(mine, golden)
        for width in (4, 1):
            around = self.mine.around(mine, width), self.golden.around(golden, width)
            self._between(*around, _PLACED)
            self._follow(mine, golden)
        self._between(mine.astype(np.uint64), golden.astype(np.uint64), _PLACE)
        self._follow(mine, golden)
        around = (self.mine.around(mine, 2), self.golden.around(golden, 2))
        for numbers in levels[2][0], levels[1][0]:
            both = tuple(mixed(a ^ b) for a, b in zip(numbers, around, strict=True))
            self._once(*both, _NEIGHBOURS)
            self._follow(mine, golden)
        self._in_order(*self._linked(mine, golden))
        self._follow(mine, golden)
        self._beside(*self._linked(mine, golden))
        self._follow(mine, golden)
        self._in_order(mine, golden)
        self._follow(mine, golden)
        self._once(mine.astype(np.uint64), golden.astype(np.uint64), _ALONE)
        self._follow(mine, golden)
        for numbers in (self._linked(mine, golden), (mine, golden)):
            self._nearest(*numbers)
            self._follow(mine, golden)

    def _by_links(self, mine: Array, golden: Array) -> None:
        """Match by what values come from and go to, when that is all there is."""
        levels = zip(self.mine.cones(mine, (2,)), self.golden.cones(golden, (2,)), strict=True)
        for (_, above, below), (_, other_above, other_below) in levels:
            both = mixed(above ^ mixed(below)), mixed(other_above ^ mixed(other_below))
            self._between(*both, _PLACED)
            self._follow(mine, golden)
            self._once(*both, _CONES.format(2))
            self._follow(mine, golden)
        self._follow(self.mine.bare, self.golden.bare)

    def match(self, i: int, j: int, by: str) -> None:
        """Record that mine's i-th call is golden's j-th."""
        self.partner[i], self.back[j] = j, i
        self.by[i] = by

    def _once(self, mine: Array, golden: Array, by: str) -> None:
        """Match what is unmatched and found once on each side."""
        left, right = np.flatnonzero(self.partner < 0), np.flatnonzero(self.back < 0)
        self._alone(left, mine[left], right, golden[right], by)

    def _between(self, mine: Array, golden: Array, by: str) -> None:
        """Match what is found once on each side between two matches that keep the order."""
        places = ascending(self.partner)
        others = self.partner[places]
        left, right = np.flatnonzero(self.partner < 0), np.flatnonzero(self.back < 0)
        gaps = np.searchsorted(places, left), np.searchsorted(others, right)
        salted = (
            mixed(numbers[at] ^ mixed(gap.astype(np.uint64)))
            for numbers, at, gap in ((mine, left, gaps[0]), (golden, right, gaps[1]))
        )
        self._alone(left, next(salted), right, next(salted), by)

    def _alone(self, left: Array, mine: Array, right: Array, golden: Array, by: str) -> None:
        if not (len(left) and len(right)):
            return
        keys, at, counts = np.unique(mine, return_index=True, return_counts=True)
        other_keys, other_at, other_counts = np.unique(
            golden, return_index=True, return_counts=True
        )
        keys, at = keys[counts == 1], at[counts == 1]
        other_keys, other_at = other_keys[other_counts == 1], other_at[other_counts == 1]
        _, here, there = np.intersect1d(keys, other_keys, assume_unique=True, return_indices=True)
        found, others = left[at[here]], right[other_at[there]]
        self.partner[found], self.back[others] = others, found
        self.by.update(dict.fromkeys(found.tolist(), by))

    def _follow(self, mine: Array, golden: Array) -> None:
        """Match what the matched lead to: the makers of their values, and the users."""
        labels, others = mine.tolist(), golden.tolist()
        waiting = np.flatnonzero(self.partner < 0).tolist()
        queued = set(waiting)
        while waiting:
            i = waiting.pop()
            queued.discard(i)
            if self.partner[i] >= 0:
                continue
            j = self._led_to(i, labels, others)
            if j < 0:
                continue
            self.match(i, j, FOLLOWED)
            for k in self._neighbours(i):
                if self.partner[k] < 0 and k not in queued:
                    queued.add(k)
                    waiting.append(k)

    def _neighbours(self, i: int) -> Iterable[int]:
        for _, k in self.mine.users[i]:
            yield k
        for k in self.mine.makers[i].values():
            if k >= 0:
                yield k

    def _led_to(self, i: int, labels: list[int], others: list[int]) -> int:
        """The one call of golden that takes or makes what mine's i-th does; -1 without one."""
        votes = _votes(i, self.mine, self.golden, self.partner, self.back, others, labels[i])
        best = max(votes.values(), default=0)
        chosen = [j for j, count in votes.items() if count == best]
        if len(chosen) != 1:
            return -1
        j = chosen[0]
        rivals = _votes(j, self.golden, self.mine, self.back, self.partner, labels, others[j])
        rivals.pop(i, None)
        return j if max(rivals.values(), default=0) < best else -1

    def _beside(self, mine: Array, golden: Array) -> None:
        """Match what stands directly beside a match."""
        labels, others = mine.tolist(), golden.tolist()
        for step, places in ((1, range(self.mine.count)), (-1, range(self.mine.count - 1, -1, -1))):
            for i in places:
                if self.partner[i] >= 0 or not 0 <= i - step < self.mine.count:
                    continue
                before = self.partner[i - step]
                j = int(before) + step
                if before >= 0 and 0 <= j < self.golden.count and self.back[j] < 0:
                    if labels[i] == others[j]:
                        self.match(i, j, _BESIDE)

    def _nearest(self, mine: Array, golden: Array) -> None:
        """Match what is left of a kind with the nearest to where it should stand."""
        left, right = np.flatnonzero(self.partner < 0), np.flatnonzero(self.back < 0)
        kinds: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for i in left.tolist():
            kinds[int(mine[i])][0].append(i)
        for j in right.tolist():
            kinds[int(golden[j])][1].append(j)
        places = ascending(self.partner)
        others = self.partner[places]
        for ours, theirs in kinds.values():
            if not (ours and theirs):
                continue
            if len(ours) == len(theirs):
                for i, j in zip(ours, theirs, strict=True):
                    self.match(i, j, _NEAREST)
                continue
            for i, before in zip(ours, np.searchsorted(places, ours).tolist(), strict=True):
                if not theirs:
                    break
                wanted = int(others[before - 1]) if before else 0
                at = bisect_left(theirs, wanted)
                if at == len(theirs) or (at and wanted - theirs[at - 1] < theirs[at] - wanted):
                    at -= 1
                self.match(i, theirs.pop(at), _NEAREST)

    def _linked(self, mine: Array, golden: Array) -> tuple[Array, Array]:
        """Labels, and which matched calls the values come from and go to."""
        known: dict[tuple, int] = {}
        found = []
        matched = np.where(self.back >= 0, np.arange(len(self.back)), -1).tolist()
        for side, labels, numbers, partner in (
            (self.mine, mine.tolist(), mine.copy(), self.partner.tolist()),
            (self.golden, golden.tolist(), golden.copy(), matched),
        ):
            for i in np.flatnonzero(np.array(partner) < 0).tolist():
                links = [(slot, partner[k]) for slot, k in side.makers[i].items() if k >= 0]
                after = [(slot, partner[k]) for slot, k in side.users[i] if partner[k] >= 0]
                fact = labels[i], tuple(links), tuple(sorted(after))
                numbers[i] = known.setdefault(fact, len(known))
            found.append(numbers)
        return found[0], found[1]

    def _in_order(self, mine: Array, golden: Array) -> None:
        """Match what stands in the same order between two matches."""
        places = ascending(self.partner)
        others = self.partner[places]
        left, right = np.flatnonzero(self.partner < 0), np.flatnonzero(self.back < 0)
        gaps, ours = np.unique(np.searchsorted(places, left), return_index=True)
        other_gaps, theirs = np.unique(np.searchsorted(others, right), return_index=True)
        ends = np.append(ours[1:], len(left)), np.append(theirs[1:], len(right))
        _, here, there = np.intersect1d(gaps, other_gaps, return_indices=True)
        for h, t in zip(here.tolist(), there.tolist(), strict=True):
            a, b = left[ours[h] : ends[0][h]], right[theirs[t] : ends[1][t]]
            for x, y in common(mine[a].tolist(), golden[b].tolist()):
                self.match(int(a[x]), int(b[y]), _ORDER)


def _votes(
    i: int, side: Side, other: Side, partner: Array, back: Array, labels: list[int], label: int
) -> dict[int, int]:
    """The unmatched calls of the other side, of one label, that take or make what the i-th call of
    this side does, and how many values say so."""
    votes: dict[int, int] = defaultdict(int)
    for slot, user in side.users[i]:
        across = partner[user]
        if across < 0:
            continue
        maker = other.makers[across].get(slot, -1)
        if maker >= 0 and back[maker] < 0 and labels[maker] == label:
            votes[maker] += 1
    for slot, maker in side.makers[i].items():
        if maker < 0 or partner[maker] < 0:
            continue
        users = other.users[partner[maker]]
        if len(users) > CROWD:
            continue
        for other_slot, user in users:
            if other_slot == slot and back[user] < 0 and labels[user] == label:
                votes[user] += 1
    return votes
