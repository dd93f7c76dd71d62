"""What nothing but its name says where it belongs: another shape, or a file without an index.

A call whose shapes differ between two runs is a finding, and not two calls without partner. So what
is left of a place in the program is paired by name where both sides have as many of it. Older files
say no place; there what is left of a name is paired in order, as the original does. All of it is
low in confidence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence

from dumper.index import UNKNOWN, function_of
from dumper.reader import Record

from .doubt import LOW
from .match import Match
from .names import OpMap

_PLACE = ("all that is left of this name at this place in the program",)
_NAME = ("what is left of this name, in order",)


def left_over(
    found: Sequence[Match], mine: Sequence[Record], golden: Sequence[Record], table: OpMap
) -> list[Match]:
    """Matches of records that are in none of `found`."""
    taken = [{r.path for m in found for r in side(m)} for side in (_mine, _golden)]
    left = [[r for r in side if r.path not in known] for side, known in
            zip((mine, golden), taken, strict=True)]  # fmt: skip
    more: list[Match] = []

    def place(record: Record) -> Hashable:
        entry = record.entry
        if entry is UNKNOWN or entry.phase is None:
            return None
        api = function_of(entry.api) if entry.api else None
        return entry.step, entry.phase, entry.module, api, table.canonical(record.ir)

    def take(pairs: Iterator[tuple[Record, Record]], why: tuple[str, ...]) -> None:
        for one, other in pairs:
            more.append(Match((one,), (other,), "op", LOW, why))
        known = [{r.path for m in more for r in side(m)} for side in (_mine, _golden)]
        left[:] = [[r for r in side if r.path not in k] for side, k in
                   zip(left, known, strict=True)]  # fmt: skip

    take(_in_turn(*left, place, as_many=True), _PLACE)
    if all(record.entry.phase is None for side in (mine, golden) for record in side):
        take(_in_turn(*left, lambda record: record.ir), _NAME)
        take(_in_turn(*left, lambda record: table.canonical(record.ir)), _NAME)
    return more


def _in_turn(
    mine: Sequence[Record],
    golden: Sequence[Record],
    key: Callable[[Record], Hashable],
    as_many: bool = False,
) -> Iterator[tuple[Record, Record]]:
    """The k-th of a key with the k-th; where there are as many on both sides, if that is asked."""
    sides: tuple[dict, dict] = defaultdict(list), defaultdict(list)
    for records, by_key in zip((mine, golden), sides, strict=True):
        for record in records:
            by_key[key(record)].append(record)
    for found, ours in sides[0].items():
        theirs = sides[1].get(found, [])
        if found is not None and (not as_many or len(ours) == len(theirs)):
            yield from zip(ours, theirs, strict=False)


def _mine(match: Match) -> tuple[Record, ...]:
    return match.mine


def _golden(match: Match) -> tuple[Record, ...]:
    return match.golden
