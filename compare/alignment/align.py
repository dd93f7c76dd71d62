"""Which calls of one run are which of another: `align`, and what a match is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from dumper.layout import VALUES, unescape
from dumper.reader import Record

from .calls import expansions
from .doubt import HIGH, judged
from .facts import Labels
from .foreign import foreign_groups, lacks_index
from .leftovers import left_over
from .lists import taken_apart
from .match import Match
from .names import OpMap
from .pairs import Group, Pairs
from .same import same_calls
from .sides import Side

_SAME = ("both runs make the same calls in the same order, on values that come from the same",)
_NAMED = ("the same parameter in the same step",)


def align(
    mine: Sequence[Record], golden: Sequence[Record], table: OpMap | None = None
) -> list[Match]:
    """Match the records of two runs; each is in exactly one match.

    mine, golden: records in the order of seqids. table: how ops are spelled and made of others;
    None is the default. The matches are in the order of mine's seqids, with what only golden has
    behind what stands before it there.
    """
    table = table or OpMap.default()
    count = min(len(mine), len(golden))
    if count and same_calls(mine[:count], golden[:count], table):  # one may have been cut short
        found = [
            Match((a,), (b,), "op", HIGH, _SAME)
            for a, b in zip(mine[:count], golden[:count], strict=True)
        ]
        return _in_order(found, mine, golden) if len(mine) != len(golden) else found
    calls = [[record for record in side if record.phase not in VALUES] for side in (mine, golden)]
    values = _values(mine, golden)
    found = [
        *values,
        *(
            Match(
                tuple(calls[0][i] for i in group.mine),
                tuple(calls[1][j] for j in group.golden),
                *group[2:],
            )
            for group in _calls(*calls, values, table)
        ),
    ]
    return _in_order(found + left_over(found, *calls, table), mine, golden)


def _values(mine: Sequence[Record], golden: Sequence[Record]) -> list[Match]:
    """Gradients and parameters, by name and step."""
    others = _by_name(golden)
    return [
        Match((record,), (others[key],), "op", HIGH, _NAMED)
        for key, record in _by_name(mine).items()
        if key in others
    ]


def _by_name(records: Iterable[Record]) -> dict[tuple, Record]:
    found: dict[tuple, Record] = {}
    counts: dict[tuple, int] = {}
    for record in records:
        if record.phase in VALUES:
            key = record.phase, value_name(record), record.entry.step
            counts[key] = counts.get(key, -1) + 1
            found[(*key, counts[key])] = record
    return found


def value_name(record: Record) -> str | None:
    """The parameter that a record of phase `grad` or `update` is about."""
    if record.entry.names:
        return next(iter(record.entry.names.values()))
    described = (key.partition("/")[2] for key in record.entry.stubs)
    names = chain((tensor.name for tensor in record.outputs), described)
    return next(map(unescape, names), None)


def _called(values: Sequence[Match]) -> tuple[dict[int, str], dict[int, str]]:
    """What mine and golden call the gradients and parameters that both have, by their numbers; a
    value that is several of them has no name."""
    found: tuple[dict[int, str], dict[int, str]] = {}, {}
    several: tuple[set[int], set[int]] = set(), set()
    for match in values:
        records = (*match.mine, *match.golden)
        for names, more, record in zip(found, several, records, strict=True):
            name = f"{record.phase} {value_name(record)}"
            for value in record.entry.values.values():
                if names.setdefault(value, name) != name:
                    more.add(value)
    for names, more in zip(found, several, strict=True):
        for value in more:
            del names[value]
    return found


def _calls(
    mine: list[Record], golden: list[Record], values: Sequence[Match], table: OpMap
) -> list[Group]:
    if lacks_index(mine) != lacks_index(golden):
        return foreign_groups(mine, golden, table)
    labels = Labels(table, mine, golden)
    called = _called(values)
    sides = zip((mine, golden), called, strict=True)
    pairs = Pairs(*(Side(side, labels, names) for side, names in sides))
    pairs.find()
    groups = taken_apart(pairs, labels, called)
    groups += expansions(pairs, groups, table)
    inside = {i for group in groups for i in group.mine}
    for i, (confidence, why) in judged(pairs, groups).items():
        if i not in inside:
            groups.append(Group((i,), (int(pairs.partner[i]),), "op", confidence, why))
    return groups


def _in_order(found: list[Match], mine: Sequence[Record], golden: Sequence[Record]) -> list[Match]:
    """All matches, and one for each record that is in none."""
    at = {record.path: place for place, record in enumerate(mine)}
    others = {record.path: match for match in found for record in match.golden}
    ours = {record.path for match in found for record in match.mine}
    ranked = [((at[match.mine[0].path], 0), match) for match in found]
    for record in mine:
        if record.path not in ours:
            match = Match((record,), (), "extra", HIGH, ("golden has no such call",))
            ranked.append(((at[record.path], 0), match))
    place, count = -1, 0
    for record in golden:
        match = others.get(record.path)
        if match is not None:
            place = at[match.mine[0].path]
            continue
        count += 1
        match = Match((), (record,), "extra", HIGH, ("mine has no such call",))
        ranked.append(((place, count), match))
    ranked.sort(key=lambda item: item[0])
    return [match for _, match in ranked]
