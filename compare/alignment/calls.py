"""What is left when calls are matched one to one: fused ops, and API calls expanded otherwise.

What is left on each side falls into parts that hang together by their values. Two parts between
the same matched calls are one computation, written in two ways: op by op through the table where
that knows both, else the API call they belong to is one match, to be compared at its boundary.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from .doubt import HIGH, LOW
from .gaps import common
from .joined import Joined
from .names import Expansion, OpMap
from .pairs import CROWD, Group, Pairs, unmatched
from .sides import Side

_MOSTLY = 2 / 3
"""Share of an API call's ops that are matched one to one, from which on the rest is extra."""

Call = tuple
"""(step, name with number) of an API call."""


def expansions(pairs: Pairs, groups: Sequence[Group], table: OpMap) -> list[Group]:
    """Groups and calls among what neither `pairs` nor `groups` have."""
    taken = (
        {i for group in groups for i in group.mine},
        {j for group in groups for j in group.golden},
    )
    left = (
        [i for i in unmatched(pairs.partner) if i not in taken[0]],
        [j for j in unmatched(pairs.back) if j not in taken[1]],
    )
    if not (left[0] and left[1]):
        return []
    calls = _Calls(pairs)
    found = _tiles(pairs, calls, left, table)
    gone = {i for g in found for i in g.mine}, {j for g in found for j in g.golden}
    rest = set(left[0]) - gone[0], set(left[1]) - gone[1]
    return _whole(pairs, calls, found, rest, taken)


class _Calls:
    """API calls of both sides: which is which, and what they hold by phase."""

    def __init__(self, pairs: Pairs) -> None:
        self.held = tuple(_held(side) for side in (pairs.mine, pairs.golden))
        votes: Counter[tuple[Call, Call]] = Counter()
        for i in np.flatnonzero(pairs.partner >= 0).tolist():
            a = _call(pairs.mine, i)
            b = _call(pairs.golden, int(pairs.partner[i]))
            if a is not None and b is not None:
                votes[a, b] += 1
        self.partner: dict[Call, Call] = {}
        self.sure: set[Call] = set()
        back: dict[Call, Call] = {}
        for (a, b), _ in votes.most_common():
            if a not in self.partner and b not in back:
                self.partner[a], back[b] = b, a
                self.sure.add(a)
        self._by_order(pairs, back)

    def _by_order(self, pairs: Pairs, back: dict[Call, Call]) -> None:
        """Pair the calls of which no op is matched: of one function and module, in order."""
        kinds = [
            {call: _kind(side, phases) for call, phases in held.items() if call not in known}
            for side, held, known in (
                (pairs.mine, self.held[0], self.partner),
                (pairs.golden, self.held[1], back),
            )
        ]
        counts = [Counter(kind.values()) for kind in kinds]
        ours, theirs = list(kinds[0]), list(kinds[1])
        numbers: dict[tuple, int] = {}
        rows = [
            [numbers.setdefault(kind[call], len(numbers)) for call in calls]
            for kind, calls in zip(kinds, (ours, theirs), strict=True)
        ]
        across = _across(pairs)
        for x, y in common(*rows):
            a, b = ours[x], theirs[y]
            self.partner[a] = b
            edges = [
                set(_edges(side, [i for places in held[call].values() for i in places], places_of))
                for side, held, call, places_of in zip(
                    (pairs.mine, pairs.golden), self.held, (a, b), across, strict=True
                )
            ]
            if counts[0][kinds[0][a]] == counts[1][kinds[1][b]] and edges[0] & edges[1]:
                self.sure.add(a)


def _held(side: Side) -> dict[Call, dict[str | None, list[int]]]:
    found: dict[Call, dict[str | None, list[int]]] = {}
    for i in range(side.count):
        call = _call(side, i)
        if call is not None:
            phase = side.records[i].phase
            found.setdefault(call, {}).setdefault(phase, []).append(i)
    return found


def _call(side: Side, i: int) -> Call | None:
    entry = side.records[i].entry
    return None if entry.api is None else (entry.step, entry.api)


def _kind(side: Side, phases: dict[str | None, list[int]]) -> tuple:
    first = next(iter(phases.values()))[0]
    entry = side.records[first].entry
    return entry.step, side.function(first), side.module(first), tuple(phases)


def _tiles(
    pairs: Pairs, calls: _Calls, left: tuple[list[int], list[int]], table: OpMap
) -> list[Group]:
    """Groups by the table, in parts that hang together and have the same neighbours."""
    parts = tuple(
        _parts(side, [i for i in places if not side.through[i]])
        for side, places in zip((pairs.mine, pairs.golden), left, strict=True)
    )
    found = []
    for mine, golden, links in _facing(pairs, calls, parts):
        for a, b, whole in tiled(pairs, mine, golden, table):
            fused, others = (pairs.mine.records[a[0]].ir, len(b))
            if len(b) == 1:
                fused, others = pairs.golden.records[b[0]].ir, len(a)
            why = [f"{fused} is made of these {others} ops, says the table"]
            if links:
                why.append(f"of what they take and make, {links} are matched")
            else:
                why.append("of one API call")
            found.append(Group(a, b, "group", HIGH if whole and links else LOW, tuple(why)))
    return found


def _parts(side: Side, places: list[int]) -> list[list[int]]:
    """Places of one phase that hang together by their values, each part in order."""
    inside, joined = set(places), Joined()
    for i in places:
        joined.join(i, i)
        for maker in side.makers[i].values():
            if maker in inside and side.phase(maker) == side.phase(i):
                joined.join(i, maker)
    return sorted(sorted(members) for members in joined.groups())


def _facing(
    pairs: Pairs, calls: _Calls, parts: tuple[list[list[int]], list[list[int]]]
) -> Iterator[tuple[list[int], list[int], int]]:
    """(mine's part, golden's, links that agree), best first, each part once."""
    across = _across(pairs)
    where: dict[tuple, set[int]] = defaultdict(set)
    in_call: dict[Call, set[int]] = defaultdict(set)
    for number, members in enumerate(parts[1]):
        in_call[_call(pairs.golden, members[0])].add(number)
        for key in _edges(pairs.golden, members, across[1]):
            where[key].add(number)
    ranked = []
    for number, members in enumerate(parts[0]):
        votes: Counter[int] = Counter()
        for key in _edges(pairs.mine, members, across[0]):
            if len(where.get(key, ())) <= CROWD:
                votes.update(where.get(key, ()))
        call = calls.partner.get(_call(pairs.mine, members[0]))
        if not votes and call is not None and len(in_call[call]) <= CROWD:
            votes.update(dict.fromkeys(in_call[call], 0))
        ranked += [(-count, number, other) for other, count in votes.items()]
    used: tuple[set[int], set[int]] = set(), set()
    for count, number, other in sorted(ranked):
        if number in used[0] or other in used[1]:
            continue
        used[0].add(number)
        used[1].add(other)
        yield parts[0][number], parts[1][other], -count


def _across(pairs: Pairs) -> tuple[list[int], list[int]]:
    """Golden's place of each of mine and of golden that is matched, else -1."""
    own = np.arange(len(pairs.back))
    return pairs.partner.tolist(), np.where(pairs.back >= 0, own, -1).tolist()


def _edges(side: Side, members: list[int], across: Sequence[int]) -> Iterator[tuple]:
    """What a part takes and gives, by golden's places: makers, users, parameters."""
    inside = set(members)
    for i in members:
        phase = side.phase(i)
        for maker in side.makers[i].values():
            if maker >= 0 and maker not in inside and across[maker] >= 0:
                yield "maker", across[maker], phase
        for _, user in side.users[i]:
            if user not in inside and across[user] >= 0:
                yield "user", across[user], phase
        for name in side.records[i].entry.names.values():
            yield "name", name, phase


def tiled(
    pairs: Pairs, mine: list[int], golden: list[int], table: OpMap
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], bool]]:
    """(mine's, golden's, whether nothing else is in the parts) of each fused op, in order.

    mine, golden: places of calls in which only fused ops and what they are made of is sought.
    """
    names = [
        [table.canonical(side.records[i].ir) for i in part]
        for side, part in ((pairs.mine, mine), (pairs.golden, golden))
    ]
    x = y = 0
    tiles: list[tuple[int, int]] = []
    while x < len(mine) and y < len(golden):
        wide = _expanded(names[0][x], names[1], y, table)
        if wide:
            tiles.append((1, wide))
        else:
            wide = _expanded(names[1][y], names[0], x, table)
            if not wide:
                return
            tiles.append((wide, 1))
        x, y = x + tiles[-1][0], y + tiles[-1][1]
    whole = x == len(mine) and y == len(golden)
    x = y = 0
    for a, b in tiles:
        yield tuple(mine[x : x + a]), tuple(golden[y : y + b]), whole
        x, y = x + a, y + b


def _expanded(fused: str, names: list[str], start: int, table: OpMap) -> int:
    """How many names from `start` on are one way to write an op out; 0 without one."""
    return max(
        (_fits(expansion, names, start) for expansion in table.groups.get(fused, ())), default=0
    )


def _fits(expansion: Expansion, names: list[str], at: int) -> int:
    start = at
    for item in expansion:
        count = 0
        while at < len(names) and names[at] == item.name and (item.more or not count):
            at, count = at + 1, count + 1
        if count < item.least:
            return 0
    return at - start


def _whole(
    pairs: Pairs,
    calls: _Calls,
    tiles: list[Group],
    left: tuple[set[int], set[int]],
    taken: tuple[set[int], set[int]],
) -> list[Group]:
    """The tiles, and each call that both sides expand otherwise as one match for each phase.

    left: what no tile has. taken: what belongs elsewhere.
    """
    sides = pairs.mine, pairs.golden
    found = []
    for a, b in calls.partner.items():
        for phase, ours in calls.held[0][a].items():
            theirs = [j for j in calls.held[1][b].get(phase, ()) if j not in taken[1]]
            ours = [i for i in ours if i not in taken[0]]
            rest = [
                [i for i in places if i in unpaired and not side.idle[i]]
                for side, places, unpaired in zip(sides, (ours, theirs), left, strict=True)
            ]
            if not all(rest):
                continue
            share = min(
                1 - len(some) / sum(1 for i in places if not side.idle[i])
                for some, places, side in zip(rest, (ours, theirs), sides, strict=True)
            )
            if share >= _MOSTLY:
                continue
            names = [
                Counter(side.records[i].ir for i in some)
                for side, some in zip(sides, rest, strict=True)
            ]
            if names[0] != names[1]:
                found.append(_one(pairs, (a, b), (ours, theirs), calls))
    inside = {i for g in found for i in g.mine}, {j for g in found for j in g.golden}
    kept = [g for g in tiles if not (inside[0] & set(g.mine) or inside[1] & set(g.golden))]
    return kept + found


def _one(
    pairs: Pairs, calls: tuple[Call, Call], places: tuple[list[int], list[int]], known: _Calls
) -> Group:
    """Two API calls as one match, without what is matched outside of them."""
    both = set(places[0]), set(places[1])
    mine = [i for i in places[0] if pairs.partner[i] < 0 or int(pairs.partner[i]) in both[1]]
    golden = [j for j in places[1] if pairs.back[j] < 0 or int(pairs.back[j]) in both[0]]
    why = (
        f"{calls[0][1]} is {calls[1][1]} of golden",
        f"they hold other ops: {_ops(pairs.mine, mine)}; {_ops(pairs.golden, golden)}",
    )
    confidence = HIGH if calls[0] in known.sure else LOW
    return Group(tuple(mine), tuple(golden), "call", confidence, why)


def _ops(side: Side, places: Iterable[int]) -> str:
    """The ops of a call for people."""
    counts = Counter(side.records[i].ir for i in places)
    shown = [name if n == 1 else f"{n} {name}" for name, n in counts.most_common(4)]
    return ", ".join(shown) + (" and more" if len(counts) > 4 else "")
