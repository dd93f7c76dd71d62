"""How sure a match is, and the facts that made it.

A match is supported where what its values come from, or go to, is matched with each other, and
doubtful where they are matched with something else. A call that is alone of its kind needs no
support. One whose like comes again is sure if values lead from it, through matches that nothing
contradicts, to one that is: else a whole copy of a call, which agrees with itself, would do. Where
no values tell calls apart, order does, unless what is unmatched beside them is alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .pairs import ALIKE, FAR, LEFT, Group, Pairs
from .sides import Array, Side, mixed

HIGH, LOW = "high", "low"

_KINDS = (
    "equal name, shapes, module and function",
    "equal name and shapes; module, function or node differ",
    "equal name and shapes; modules and parameters differ",
    "equal name; shapes differ",
)
"""In what two calls can be of one kind."""

_STRICT, _KNOWN, _PLAIN, _BARE = range(4)


class Support(NamedTuple):
    """What speaks for a match and against it.

    agree, against: values whose other end is matched accordingly, or with something else. ours,
    theirs: calls of its kind. kind: of `_KINDS`. moved: it could be matched with the next one as
    well, since what is unmatched there is alike, or what made its values is unmatched. grounded:
    values lead to a match that is sure. told: it, and all that its values lead to, is matched in
    order, with as many of its kind on both sides.
    """

    agree: int
    against: int
    ours: int
    theirs: int
    kind: int
    moved: bool
    grounded: bool
    told: bool


Judged = tuple[str, tuple[str, ...]]
"""Confidence, and the facts."""


def judged(pairs: Pairs, groups: Sequence[Group] = ()) -> dict[int, Judged]:
    """Confidence and facts of every match, by mine's place. groups: what else is matched."""
    mine, golden, partner, back = pairs.mine, pairs.golden, pairs.partner, pairs.back
    places = np.flatnonzero(partner >= 0)
    agree, against, linked = _links(pairs)
    kind, ours, theirs = _kinds(mine, golden, places, partner[places])
    found = [pairs.by[i] for i in places.tolist()]
    far = np.fromiter((by in FAR for by in found), bool, len(found))
    alone, doubtful, moved = (np.zeros(mine.count, bool) for _ in range(3))
    alone[places] = (ours == 1) & (theirs == 1) & (kind == _STRICT) | far
    clean = (against[linked] == 0).all(0)
    grounded = _reached(alone & (against == 0), _parts(mine.count, linked[:, clean]))
    gone, missing = partner < 0, back < 0
    for group in groups:
        gone[list(group.mine)] = missing[list(group.golden)] = False
    moved[places] = (_shifting(mine.strict, gone) | _lost(mine, gone))[places]
    moved[places] |= (_shifting(golden.strict, missing) | _lost(golden, missing))[partner[places]]
    in_order = _in_order(mine.strict[places], partner[places]) & (ours == theirs)
    doubtful[places] = ~in_order | ~_beside(partner)[places] | (against[places] > 0)
    told = ~_reached(doubtful | moved, _parts(mine.count, linked))
    rows = zip(
        agree[places].tolist(),
        against[places].tolist(),
        ours.tolist(),
        theirs.tolist(),
        kind.tolist(),
        moved[places].tolist(),
        grounded[places].tolist(),
        told[places].tolist(),
        strict=True,
    )
    known: dict[tuple, Judged] = {}
    judgements = {}
    for i, by, row in zip(places.tolist(), found, rows, strict=True):
        key = by, row
        said = known.get(key)
        if said is None:
            support = Support(*row)
            said = known[key] = (HIGH if _sure(support, by) else LOW), _why(support, by)
        judgements[i] = said
    return judgements


def _links(pairs: Pairs) -> tuple[Array, Array, Array]:
    """Of each of mine: values that agree, and that do not; and the edges (maker, user) that do."""
    ends = [_matched(pairs.mine, pairs.partner), _matched(pairs.golden, pairs.back)]
    maker, user, slot = ends[0]
    there, taker, other = ends[1]
    ours = _numbers(pairs.partner[maker], pairs.partner[user], slot)
    theirs = _numbers(there, taker, other)
    same, known = np.isin(ours, theirs), np.isin(theirs, ours)
    count = pairs.mine.count
    agree = np.bincount(np.r_[maker[same], user[same]], minlength=count)
    odd = pairs.back[np.r_[there[~known], taker[~known]]]
    against = np.bincount(np.r_[maker[~same], user[~same], odd], minlength=count)
    return agree, against, np.stack((maker[same], user[same]))


def _matched(side: Side, partner: Array) -> tuple[Array, Array, Array]:
    """Maker, user and slot of the edges of which both ends are matched."""
    maker, user, slot = side.edges.T
    both = (maker >= 0) & (partner[user] >= 0)
    both[both] = partner[maker[both]] >= 0
    return maker[both], user[both], slot[both]


def _numbers(maker: Array, user: Array, slot: Array) -> Array:
    """One number for each edge."""
    number = mixed(maker.astype(np.uint64))
    number = mixed(number ^ user.astype(np.uint64))
    return mixed(number ^ slot.astype(np.uint64))


def _kinds(mine: Side, golden: Side, places: Array, others: Array) -> tuple[Array, Array, Array]:
    """In what each match is of one kind, and how many of that both sides have."""
    kind = np.full(len(places), _BARE)
    ours, theirs = np.zeros(len(places), np.int64), np.zeros(len(places), np.int64)
    left = np.ones(len(places), bool)
    for number, (a, b) in enumerate(
        (
            (mine.strict, golden.strict),
            (mine.loose, golden.loose),
            (mine.plain, golden.plain),
            (mine.bare, golden.bare),
        )
    ):
        here = left & (a[places] == b[others])
        size = int(max(a.max(initial=0), b.max(initial=0))) + 1
        labels = a[places[here]]
        kind[here] = number
        ours[here] = np.bincount(a, minlength=size)[labels]
        theirs[here] = np.bincount(b, minlength=size)[labels]
        left &= ~here
    return kind, ours, theirs


def _parts(count: int, edges: Array) -> Array:
    """A number for each of `count` places; those that hang together by edges have the same."""
    a, b = edges
    part = np.arange(count)
    while True:
        before = part.copy()
        low = np.minimum(before[a], before[b])
        np.minimum.at(part, before[a], low)
        np.minimum.at(part, before[b], low)
        while not np.array_equal(part, shorter := part[part]):
            part = shorter
        if np.array_equal(part, before):
            return part


def _reached(start: Array, part: Array) -> Array:
    """Which places hang together with one of `start`."""
    reached = np.zeros(len(part), bool)
    reached[part[start]] = True
    return reached[part]


def _beside(partner: Array) -> Array:
    """Whether what stands before or after each match is matched with what stands there."""
    found = np.zeros(len(partner), bool)
    next_to = (partner[1:] == partner[:-1] + 1) & (partner[:-1] >= 0)
    found[1:] |= next_to
    found[:-1] |= next_to
    return found


def _lost(side: Side, gone: Array) -> Array:
    """Whether a maker of a record's values is unmatched."""
    maker, user, _ = side.edges.T
    found = np.zeros(side.count, bool)
    found[user[(maker >= 0) & gone[maker]]] = True
    return found


def _in_order(kinds: Array, partners: Array) -> Array:
    """Whether the matches of each match's kind, in order of mine, are in that of golden."""
    order = np.argsort(kinds, kind="stable")
    kinds, partners = kinds[order], partners[order]
    wrong = kinds[1:][(kinds[1:] == kinds[:-1]) & (partners[1:] < partners[:-1])]
    found = np.empty(len(order), bool)
    found[order] = ~np.isin(kinds, wrong)
    return found


def _shifting(kinds: Array, gone: Array) -> Array:
    """Matches that could be shifted by what is unmatched beside them: with one of three equal calls
    in a row missing, nobody can tell which."""
    found = np.zeros(len(kinds), bool)
    edges = np.flatnonzero(np.diff(np.r_[False, gone, False]))
    labels, count = kinds.tolist(), len(kinds)
    for start, stop in edges.reshape(-1, 2).tolist():
        width, place = stop - start, start - 1
        while place >= 0 and labels[place] == labels[place + width]:
            found[place] = True
            place -= 1
        place = stop
        while place < count and labels[place] == labels[place - width]:
            found[place] = True
            place += 1
    return found


def _sure(support: Support, by: str) -> bool:
    agree, against = support.agree, support.against
    only = support.ours == support.theirs == 1
    if support.kind in (_PLAIN, _BARE):
        return False
    if support.kind == _KNOWN and (against or agree < (1 if only else 2)):
        return False
    if only and not support.moved:
        return agree > 0 or against == 0
    if by in LEFT:
        return False
    if against:
        return agree >= 2 and agree > against and not support.moved
    if agree and support.grounded:
        return by not in ALIKE or not support.moved
    return support.told


def _why(support: Support, by: str) -> tuple[str, ...]:
    facts = [by, _KINDS[support.kind]]
    if support.agree or support.against:
        facts.append(f"values that come from or go to what is matched: {support.agree}")
    if support.against:
        facts.append(f"values that come from or go to something else: {support.against}")
    if support.ours == support.theirs == 1:
        facts.append("the only call of its kind")
    else:
        facts.append(f"calls of its kind: {support.ours} in mine, {support.theirs} in golden")
    if support.moved:
        facts.append("what is beside it, or made its values, is unmatched")
    return tuple(facts)
