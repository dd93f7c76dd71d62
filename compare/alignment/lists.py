"""Ops over lists of tensors against the same tensor by tensor, as optimizers are written.

`_foreach_add_` of fifty parameters is fifty `add_`. Where only one side has it, it is taken apart
into one call a tensor; those are matched as any calls are, and the op stands against all partners
of its parts. A fused optimizer stands for all that the step does to its parameters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dumper.reader import Record

from .doubt import HIGH, LOW
from .facts import Labels
from .joined import Joined
from .pairs import Group, Pairs, unmatched
from .sides import Side

_FOREACH = "_foreach_"


Called = tuple[Mapping[int, str], Mapping[int, str]]
"""Names of values, mine's and golden's."""


def taken_apart(pairs: Pairs, labels: Labels, called: Called) -> list[Group]:
    """Groups of list ops and their counterparts; further pairs of calls are added to `pairs`."""
    lists = [
        {i for i in unmatched(partner) if _canonical(side, i, labels).startswith(_FOREACH)}
        for side, partner in ((pairs.mine, pairs.partner), (pairs.golden, pairs.back))
    ]
    groups: list[Group] = []
    if any(lists):
        groups = _by_member(pairs, lists, labels, called)
    return groups + _fused(pairs, groups, labels)


def _canonical(side: Side, i: int, labels: Labels) -> str:
    return labels.table.canonical(side.records[i].ir)


def _by_member(
    pairs: Pairs,
    lists: list[set[int]],
    labels: Labels,
    called: Called,
) -> list[Group]:
    mine, ours = _apart(pairs.mine, lists[0], labels)
    golden, theirs = _apart(pairs.golden, lists[1], labels)
    finer = Pairs(Side(mine, labels, called[0]), Side(golden, labels, called[1]))
    places = {i: k for k, i in enumerate(ours)}
    others = {j: k for k, j in enumerate(theirs)}
    for i in np.flatnonzero(pairs.partner >= 0).tolist():
        finer.match(places[i], others[int(pairs.partner[i])], pairs.by[i])
    finer.find()
    joined = Joined()
    for k in np.flatnonzero(finer.partner >= 0).tolist():
        i, j = ours[k], theirs[int(finer.partner[k])]
        if i in lists[0] or j in lists[1]:
            joined.join((0, i), (1, j))
        elif pairs.partner[i] < 0 and pairs.back[j] < 0:
            pairs.match(i, j, finer.by[k])
    groups = []
    for members in joined.groups():
        left = tuple(sorted(i for side, i in members if side == 0))
        right = tuple(sorted(j for side, j in members if side == 1))
        if len(left) == len(right) == 1:
            why = "a list of tensors on both sides"
        else:
            why = f"one op over a list of tensors: {len(left)} in mine, {len(right)} in golden"
        groups.append(Group(left, right, "group", HIGH, (why, "matched tensor by tensor")))
    return groups


def _apart(side: Side, lists: set[int], labels: Labels) -> tuple[list[Record], list[int]]:
    """The records with list ops taken apart, and whose part each is."""
    records: list[Record] = []
    origins: list[int] = []
    for i, record in enumerate(side.records):
        parts = _parts(record, labels) if i in lists else [record]
        records += parts
        origins += [i] * len(parts)
    return records, origins


def _parts(record: Record, labels: Labels) -> list[Record]:
    """One record for each tensor of the list `self`."""
    entry = record.entry
    name = labels.table.canonical(record.ir).removeprefix(_FOREACH)
    keys = [key for key in (*entry.values, *entry.stubs) if key.startswith("input/self/self_")]
    count = len(set(keys))
    found = []
    inputs, outputs = _members(record.inputs, count), _members(record.outputs, count)
    names = _split({f"input/{key}": name for key, name in entry.names.items()}, count)
    values, stubs = _split(entry.values, count), _split(entry.stubs, count)
    for k in range(count):
        part = replace(
            entry,
            names={key.partition("/")[2]: name for key, name in names[k].items()},
            values=values[k],
            stubs=stubs[k],
        )
        found.append(replace(record, ir=name, inputs=inputs[k], outputs=outputs[k], entry=part))
    return found or [record]


def _members(tensors: Sequence[Any], count: int) -> list[tuple[Any, ...]]:
    """The tensors of each part; one beside the lists is the number that a call for one tensor has
    as an argument."""
    found: list[list[Any]] = [[] for _ in range(count)]
    for tensor in tensors:
        _, k = _place(tensor.name)
        if k is not None and k < count:
            found[k].append(tensor)
    return [tuple(part) for part in found]


def _split(table: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What each part has of a table by `input/<name>` and `output/<name>`."""
    found: list[dict[str, Any]] = [{} for _ in range(count)]
    for key, value in table.items():
        stem, k = _place(key)
        if k is not None and k < count:
            found[k][stem] = value
    return found


def _place(key: str) -> tuple[str, int | None]:
    """A key without its place in a list, and that: (`input/self`, 3) of `input/self/self_3`."""
    stem, _, last = key.rpartition("/")
    name, _, number = last.rpartition("_")
    if stem and stem.rpartition("/")[2] == name and number.isdecimal() and len(number) < 10:
        return stem, int(number)
    return key, None


def _fused(pairs: Pairs, groups: list[Group], labels: Labels) -> list[Group]:
    """Fused optimizer steps, each against all that the other side does to the same parameters."""
    taken = [{i for g in groups for i in g.mine}, {j for g in groups for j in g.golden}]
    sides = ((pairs.mine, pairs.partner), (pairs.golden, pairs.back))
    found: list[Group] = []
    for one in (0, 1):
        side, other = sides[one], sides[1 - one]
        fused = [
            i
            for i in unmatched(side[1])
            if i not in taken[one] and _canonical(side[0], i, labels) in labels.table.optimizers
        ]
        if not fused:
            continue
        left = [
            j
            for j in unmatched(other[1])
            if j not in taken[1 - one] and other[0].records[j].phase == "optimizer"
        ]
        for i, members in _shared_out(side[0], fused, other[0], left).items():
            if members:
                record = side[0].records[i]
                why = f"{record.ir} does what {len(members)} ops of the other side do"
                both = ((i,), tuple(members)) if one == 0 else (tuple(members), (i,))
                sure = HIGH if len(fused) == 1 else LOW
                found.append(Group(*both, "group", sure, (why, "the same step's optimizer")))
    return found


def _shared_out(side: Side, fused: list[int], other: Side, left: list[int]) -> dict[int, list[int]]:
    """Which of what is left belongs to which fused op: by parameters that it is linked to."""
    joined = Joined()
    names: dict[Any, set[str]] = defaultdict(set)
    for j in left:
        joined.join(j, j)
        entry = other.records[j].entry
        for value in entry.values.values():
            joined.join(j, ("value", value))
        for name in entry.names.values():
            joined.join(j, ("name", name))
    for j in left:
        names[joined.top(j)] |= set(other.records[j].entry.names.values())
    owners = {name: i for i in fused for name in side.records[i].entry.names.values()}
    found: dict[int, list[int]] = {i: [] for i in fused}
    for j in left:
        step = other.records[j].entry.step
        mine = [i for i in fused if side.records[i].entry.step == step]
        owner = next((owners[n] for n in sorted(names[joined.top(j)]) if n in owners), None)
        if mine:
            found[owner if owner in mine else mine[0]].append(j)
    return found
