"""How sure a match is, and the facts that made it.

A match is supported where what its values come from, or go to, is matched with each other, and
doubtful where they are matched with something else. A call whose like comes again is told from the
others by that alone; one that is alone of its kind needs no support.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from .facts import Side
from .pairs import ALIKE, LEFT, Pairs

HIGH, LOW = "high", "low"

class Support(NamedTuple):
    """Values that agree and that disagree, of those whose other end is matched; how many calls of
    its kind mine and golden have; in what the two calls are of one kind."""

    agree: int
    against: int
    kinds: tuple[int, int]
    kind: str


ALL, KNOWN, PLAIN, BARE = _KINDS = (
    "name, shapes, module and function",
    "name and shapes; module, function or node differ",
    "name and shapes; modules and parameters differ",
    "name; shapes differ",
)


def _levels(side: Side) -> list[list[int]]:
    return [labels.tolist() for labels in (side.strict, side.loose, side.plain, side.bare)]


def supports(pairs: Pairs) -> dict[int, Support]:
    """The support of every match, by mine's place."""
    mine, golden = pairs.mine, pairs.golden
    partner, back = pairs.partner.tolist(), pairs.back.tolist()
    labels = tuple(zip(_KINDS, *(_levels(side) for side in (mine, golden)), strict=True))
    counts = {kind: (Counter(a), Counter(b)) for kind, a, b in labels}
    found = {}
    for i, j in enumerate(partner):
        if j < 0:
            continue
        agree = against = 0
        other = dict(golden.makers[j])
        for slot, maker in mine.makers[i]:
            across = other.get(slot, -1)
            if maker >= 0 and across >= 0:
                if partner[maker] == across:
                    agree += 1
                elif partner[maker] >= 0 or back[across] >= 0:
                    against += 1
        users = {(slot, partner[user]) for slot, user in mine.users[i] if partner[user] >= 0}
        others = {(slot, user) for slot, user in golden.users[j] if back[user] >= 0}
        agree += len(users & others)
        against += len(users ^ others)
        kind, label = next((k, a[i]) for k, a, b in labels if a[i] == b[j])
        ours, theirs = (count[label] for count in counts[kind])
        found[i] = Support(agree, against, (ours, theirs), kind)
    return found


def judged(pairs: Pairs) -> dict[int, tuple[str, tuple[str, ...]]]:
    """(confidence, facts) of every match, by mine's place."""
    texts: dict[tuple, tuple[str, tuple[str, ...]]] = {}
    found = {}
    for i, support in supports(pairs).items():
        by = pairs.by[i]
        key = support, by
        if key not in texts:
            texts[key] = (HIGH if _sure(support, by) else LOW), _why(support, by)
        found[i] = texts[key]
    return found


def _sure(support: Support, by: str) -> bool:
    agree, against, (ours, theirs), kind = support
    if kind in (PLAIN, BARE) or (kind == KNOWN and (agree < 2 or against)):
        return False
    if ours == theirs == 1:
        return agree > 0 or against == 0
    if by in LEFT or (by in ALIKE and (ours != theirs or agree < ALIKE[by])):
        return False
    if against:
        return agree >= 2 and agree > against
    return agree > 0 or ours == theirs


def _why(support: Support, by: str) -> tuple[str, ...]:
    agree, against, (ours, theirs), kind = support
    facts = [by, f"equal {kind}"]
    if agree or against:
        facts.append(f"of its values, {agree} come from or go to what is matched")
    if against:
        facts.append(f"{against} come from or go to something else")
    if ours == theirs == 1:
        facts.append("the only call of its kind")
    else:
        facts.append(f"calls of its kind: {ours} in mine, {theirs} in golden")
    return tuple(facts)
