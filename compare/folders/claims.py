"""Which operators of golden, a compiled network too, have an output of the original network.

Several may: one that made it and those that hand it on; what leaves no file, as Data and constants
do not, is what others take of it. The best is called like mine and became of the same ops, then one
that became of these, then one that is called so, then the last, behind which no op of the original
network comes; what makes another kind of number is behind all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from ir2tbe.cann.names import name_part

from .origins import Claim, Hop, Key, file_name, key_of
from .rules import Original, Rules
from .runs import Name, name_of_file, only_type, types_by_name
from .scan import Folder

_OTHERS = 64
"""Operators that are asked for what they take, where none is called like mine."""


class Place(NamedTuple):
    """A tensor of golden's operators: input or output, which, and the op as its rules call it."""

    name: Name
    where: str
    index: int
    op: str


class _Found:
    """Places of one output of the original network, in the order of the rules."""

    def __init__(self) -> None:
        self.last: Place | None = None
        self.by_name: dict[str, Place] = {}
        self.by_parts: dict[tuple[str, ...], Place] = {}

    def add(self, place: Place, parts: tuple[str, ...] | None) -> None:
        self.last = self.by_name[place.name[1]] = place
        if parts:
            self.by_parts[parts] = place


class Claims:
    """golden: the folder. plain: its rules. rules: of mine."""

    def __init__(self, golden: Folder, plain: Rules, rules: Rules) -> None:
        self._plain, self._rules, self._apart = plain, rules, golden.apart
        self._types = types_by_name(map(name_of_file, golden.ops))
        self._made = self._collected(plain.claims())
        self._behind = self._collected(plain.handed_on())
        self._taken: dict[Key, dict[str, list[Place]]] = {}
        for op, index, original in plain.takes():
            if (name := self.name(op)) is not None:
                taken = self._taken.setdefault((original.name, original.index), {})
                taken.setdefault(name[1], []).append(Place(name, "input", index, op))
        self._names = self._alone()

    def __contains__(self, key: Key) -> bool:
        return key in self._names or key[0] in self._types

    def key(self, original: Original) -> Key:
        """By what an output of the original network is found here: its name with slashes, which two
        may have in one form in names of files."""
        return self._names.get(key_of(original), (original.name, original.index))

    def places(self, claim: Claim) -> Iterator[tuple[Place, Hop]]:
        """Which of golden's outputs are what a tensor of mine was, the best first, and the hop of
        mine whose runs theirs are."""
        key, found = self.key(claim.original), {}
        made, behind = self._made.get(key, _Found()), self._behind.get(key, _Found())
        last = claim.hops[-1]
        called = [
            (each.by_name.get(file_name(hop.made[0], self._apart)), hop)
            for hop in claim.hops
            for each in (made, behind)
        ]
        alike = [(place, hop) for place, hop in called if place and self._is_alike(place, hop)]
        candidates = [
            *alike,
            (made.by_parts.get(self._rules.parts(last.made[0]) or ()), last),
            *called,
            (made.last, last),
        ]
        for place, hop in candidates:
            if place is not None:
                found.setdefault(place, hop)
        kind = _kind(self._rules, *last.made)
        yield from sorted(found.items(), key=lambda each: self._is_unlike(each[0], kind))
        if not found and (place := self._of_name(claim, last)) is not None:
            yield place, last

    def behind(self, original: Original) -> Place | None:
        """The last of golden's outputs that hand that on, of other runs perhaps."""
        found = self._behind.get(self.key(original))
        return found and found.last

    def takers(self, original: Original, consumer: str, index: int) -> Iterator[Place]:
        """Which of golden's inputs are that, first those of an operator that is called like mine,
        and of these the one of my index."""
        by_name = self._taken.get(self.key(original), {})
        alike = by_name.get(file_name(consumer, self._apart), [])
        yield from sorted(alike, key=lambda place: place.index != index)
        others = (place for places in by_name.values() for place in places)
        yield from islice(others, _OTHERS)

    def name(self, op: str) -> Name | None:
        """What an op of golden's rules is called in names of files; None where it has left none."""
        kind = name_part(self._plain.kind(op))
        return only_type(self._types, kind, file_name(op, self._apart))

    def outputs(self, original: Original) -> list[Place]:
        """All of golden's outputs that are that."""
        key = self.key(original)
        found = (self._made.get(key), self._behind.get(key))
        return [place for each in found if each for place in each.by_name.values()]

    def _of_name(self, claim: Claim, hop: Hop) -> Place | None:
        """The operator that is called like the original one, if golden's rules do not have it."""
        original = claim.original
        if original.name in self._plain:
            return None
        kind = hop.name[0] if hop.name else ""
        part = name_part(original.name)
        types = self._types.get(part, [])
        name = only_type(self._types, kind, part) or (types and (types[0], part)) or None
        return name and Place(name, "output", original.index, original.name)

    def _is_alike(self, place: Place, hop: Hop) -> bool:
        return self._plain.parts(place.op) == self._rules.parts(hop.made[0])

    def _is_unlike(self, place: Place, kind: str) -> bool:
        other = _kind(self._plain, place.op, place.index)
        return bool(kind and other and kind != other)

    def _collected(self, found: Iterable[tuple[str, int, Original]]) -> dict[Key, _Found]:
        """Of those that have left a file."""
        places: dict[Key, _Found] = {}
        for op, index, original in found:
            if (name := self.name(op)) is not None:
                key = original.name, original.index
                place = Place(name, "output", index, op)
                places.setdefault(key, _Found()).add(place, self._plain.parts(op))
        return places

    def _alone(self) -> dict[Key, Key]:
        """Outputs of the original network by the form of their names in names of files, where one
        alone has it."""
        forms: dict[Key, set[Key]] = {}
        for name, index in (*self._made, *self._behind, *self._taken):
            forms.setdefault((name_part(name), index), set()).add((name, index))
        return {form: next(iter(keys)) for form, keys in forms.items() if len(keys) == 1}


def _kind(rules: Rules, name: str, index: int) -> str:
    """Whether an output is of integers or of floats; '' where it is not said."""
    dtype = rules.dtype(name, index)
    if dtype.startswith(("DT_FLOAT", "DT_BF16", "DT_DOUBLE")):
        return "f"
    return "i" if dtype.startswith(("DT_INT", "DT_UINT")) else ""
