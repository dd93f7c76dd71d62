"""A dump without an index (the original fork's) against one of ours.

The fork records forward's functions as we do, without saying where they belong, and no views and
casts; in backward it records whole nodes of autograd, of which we record the ops. So forward, with
the optimizer, is matched by names, shapes and order, and each of its nodes with all ops that a node
of that name ran here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from dumper.index import UNKNOWN
from dumper.reader import Record

from .calls import tiled
from .doubt import HIGH, LOW, judged
from .facts import Labels, shapes_of
from .gaps import common
from .names import OpMap
from .pairs import Group, Pairs
from .sides import Side


def lacks_index(records: Sequence[Record]) -> bool:
    """Whether nothing is known of where any record belongs."""
    return all(record.entry is UNKNOWN or record.entry == UNKNOWN for record in records)


def foreign_groups(mine: Sequence[Record], golden: Sequence[Record], table: OpMap) -> list[Group]:
    """Matches of a dump without an index, on either side, and one that has it."""
    turned = not lacks_index(golden)
    ours, theirs = (golden, mine) if turned else (mine, golden)
    found = [*_forward(ours, theirs, table), *_backward(ours, theirs, table)]
    if not turned:
        return found
    return [group._replace(mine=group.golden, golden=group.mine) for group in found]


def _forward(ours: Sequence[Record], theirs: Sequence[Record], table: OpMap) -> list[Group]:
    left = [i for i, record in enumerate(ours) if record.phase != "backward"]
    right = [j for j, record in enumerate(theirs) if not table.node(record.ir)]
    bare = [replace(ours[i], entry=_shapes_only(ours[i])) for i in left]
    rest = [theirs[j] for j in right]
    labels = Labels(table, bare, rest)
    pairs = Pairs(Side(bare, labels, {}), Side(rest, labels, {}))
    pairs.find()
    found = []
    for i, (confidence, why) in judged(pairs).items():
        j = int(pairs.partner[i])
        found.append(Group((left[i],), (right[j],), "op", confidence, why))
    for a, b in _between(pairs):
        for ins, outs, whole in tiled(pairs, a, b, table):
            why = ("one is made of the others, says the table", "between the same two matches")
            sure = HIGH if whole else LOW
            members = tuple(left[i] for i in ins), tuple(right[j] for j in outs)
            found.append(Group(*members, "group", sure, why))
    return found


def _shapes_only(record: Record):
    """An entry that says what the fork's dump would: which tensors there are."""
    return replace(UNKNOWN, stubs=record.entry.stubs)


def _between(pairs: Pairs) -> Iterable[tuple[list[int], list[int]]]:
    """What is unmatched on both sides between two matches, and is more than a view or cast."""
    last, count = -1, pairs.golden.count
    rest: list[int] = []
    for i in range(pairs.mine.count + 1):
        j = count if i == pairs.mine.count else int(pairs.partner[i])
        if j < 0:
            if not pairs.mine.idle[i]:
                rest.append(i)
            continue
        others = [k for k in range(last + 1, j) if pairs.back[k] < 0 and not pairs.golden.idle[k]]
        if rest and others:
            yield rest, others
        rest, last = [], max(last, j)


def _backward(ours: Sequence[Record], theirs: Sequence[Record], table: OpMap) -> list[Group]:
    runs: list[tuple[str, list[int]]] = []
    backward = [i for i, record in enumerate(ours) if record.phase == "backward"]
    for (node, _, _), members in groupby(backward, key=lambda i: _instance(ours[i])):
        name = table.node(node) if node else ""
        if name:
            runs.append((name, list(members)))
    nodes = [j for j, record in enumerate(theirs) if table.node(record.ir)]
    names = [table.node(theirs[j].ir) for j in nodes]
    found = []
    for a, b in common([name for name, _ in runs], names):
        members, j = runs[a][1], nodes[b]
        made = {shape for i in members for shape in shapes_of(ours[i])[1]}
        fits = made.issuperset(shapes_of(theirs[j])[1])
        why = (
            f"{theirs[j].ir} is the node {ours[members[0]].entry.node} that ran these ops",
            "nodes of one name, in the same order",
            "all its results have shapes that are among theirs" if fits else "shapes differ",
        )
        found.append(Group(tuple(members), (j,), "group", HIGH if fits else LOW, why))
    return found


def _instance(record: Record) -> tuple:
    return record.entry.node, record.entry.api, record.entry.step
