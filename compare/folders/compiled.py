"""The same network compiled without fusion as golden, a folder of CANN dumps.

Both networks' fusion rules relate their operators to those of the original network, and thereby to
each other: an output of mine belongs to the operator of golden that claims the same output of the
original network, and an input to the one that claims what makes it. Of several that claim it, the
one is taken that is called like what made mine, else the last, behind which no op of the original
network comes. What leaves no file, as Data and constants do not, is what an operator of golden
takes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from dumper.errors import DumpError
from ir2tbe.cann.content import Dump
from ir2tbe.cann.names import name_part

from .origins import INSERTED, Claim, Key, Origins, file_name, key_of
from .pairs import BY_RULES, Pair, Side, name_of, side_of, sides, unmatched, whole_of
from .rules import Original, Rules
from .runs import Runs
from .scan import Folder, OpFile

_KEPT = 64
"""Files of golden whose headers are kept: an operator's result is asked for by all that take it."""

_Name = tuple[str, str]
"""Type and name of an operator, as names of files have them."""


class _Place(NamedTuple):
    """A tensor of golden's operators: input or output, which, and the op as its rules call it."""

    name: _Name
    where: str
    index: int
    op: str


class Compiled:
    """golden: the folder. rules: of my network. plain: of golden's (-cf)."""

    kind = "operators"
    addresses = True

    def __init__(self, mine: Folder, golden: Folder, rules: Rules, plain: Rules) -> None:
        self.count = len(golden.ops)
        self._ops, self._rules, self._plain = golden.ops, rules, plain
        self._origins = Origins(mine.ops, rules, self._is_there)
        names = [((op.name.op_type, op.name.op_name), op.place, op) for op in golden.ops]
        self._runs = Runs(names, self._origins.own.places)
        self._types: dict[str, list[str]] = {}
        for op in golden.ops:
            types = self._types.setdefault(op.name.op_name, [])
            if op.name.op_type not in types:
                types.append(op.name.op_type)
        self._claims = self._collected("output", plain.claims())
        self._behind = self._collected("output", plain.handed_on())
        self._takers = self._collected("input", plain.takes())
        self._names = self._alone()
        self._read = lru_cache(_KEPT)(OpFile.read)
        self._used: set[tuple[int, int]] = set()
        self._seen: set[int] = set()
        """Numbers of golden's operators that are in a row."""
        self._compared: set[Key] = set()

    def partner(self, op: OpFile) -> Side | None:
        """As `pairs.Golden` says."""

    def pairs(self, op: OpFile, dump: Dump) -> Iterator[Pair]:
        """As `pairs.Golden` says."""
        name = name_of(op, dump)
        for where, index, side in sides(op, dump):
            pair = Pair(op.number, op.name.op_type, where, side, None)
            claim = self._origins.of(op, dump, where, index, side.tensor)
            place = self._place(claim, op) if claim else self._twin(op, dump, where, index)
            if place is None:
                if claim is None:
                    reason, code = self._origins.why_not(name, where, index, side.label)
                else:
                    reason, code = self._why_not(claim.original)
                yield replace(pair, reason=reason, code=code)
                continue
            run = self._origins.own.of(op)
            if claim is not None and place.where == "output":
                run = claim.run
            found, unknown = self._origins.pick(self._runs, place.name, op, run)
            if found is not None:
                by = claim.by if claim else BY_RULES
                yield self._paired(replace(pair, by=by), claim, place, found)
            elif unknown:
                yield replace(pair, reason=unknown, code="unnamed")
            else:
                label = f"{place.op}:{place.where}:{place.index}"
                yield replace(pair, reason=unmatched(label, True))

    def left(self, index: int) -> Iterator[Pair]:
        """As `pairs.Golden` says."""
        for op in self._ops:
            kind = op.name.op_type
            try:
                dump = self._read(op)
            except DumpError as error:
                if op.number not in self._seen:
                    reason = f"{error.what}: {error.where}"
                    yield Pair(index, kind, None, None, whole_of(op), reason, damaged=True)
                continue
            name = name_of(op, dump)
            if not dump.outputs and op.number not in self._seen:
                reason, code = self._why_left(name, 0, whole_of(op).label)
                yield Pair(index, kind, None, None, whole_of(op), reason, code=code)
            for i, tensor in enumerate(dump.outputs):
                if (op.number, i) not in self._used:
                    side = side_of(name, op.path, "output", i, tensor)
                    reason, code = self._why_left(name, i, side.label)
                    yield Pair(index, kind, "output", None, side, reason, code=code)

    def _collected(
        self, where: str, found: Iterable[tuple[str, int, Original]]
    ) -> dict[Key, list[_Place]]:
        """Of those that have left a file."""
        places: dict[Key, list[_Place]] = {}
        for op, index, original in found:
            if (name := self._name(op)) is not None:
                key = original.name, original.index
                places.setdefault(key, []).append(_Place(name, where, index, op))
        return places

    def _alone(self) -> dict[Key, Key]:
        """Outputs of the original network by the form of their names in names of files, where one
        alone has it."""
        forms: dict[Key, set[Key]] = {}
        for name, index in (*self._claims, *self._behind, *self._takers):
            forms.setdefault((name_part(name), index), set()).add((name, index))
        return {form: next(iter(keys)) for form, keys in forms.items() if len(keys) == 1}

    def _name(self, op: str) -> _Name | None:
        """What an op of golden's rules is called in names of files; None where it has left none."""
        part = file_name(op)
        kind, types = name_part(self._plain.kind(op)), self._types.get(part, [])
        if kind not in types and len(types) != 1:
            return None
        return (kind if kind in types else types[0]), part

    def _place(self, claim: Claim, op: OpFile) -> _Place | None:
        """Which of golden's tensors is what a tensor of mine was."""
        original, key = claim.original, self._key(claim.original)
        claims, behind = self._claims.get(key, []), self._behind.get(key, [])
        called = claim.made and file_name(claim.made[0])
        alike = (place for place in (*claims, *behind) if place.name[1] == called)
        others = [*self._takers.get(key, [])[:1], *behind[-1:], *claims[-1:]]
        found = next(alike, others[-1] if others else None)
        if found is None and original.name not in self._plain:
            part = name_part(original.name)
            types = self._types.get(part, [])
            kind = op.name.op_type if op.name.op_type in types else next(iter(types), None)
            found = kind and _Place((kind, part), "output", original.index, original.name)
        return found

    def _twin(self, op: OpFile, dump: Dump, where: str, index: int) -> _Place | None:
        """Golden's operator of one name, where both networks have split an op of the original one
        alike, so that this tensor is no output of it."""
        made = (name_of(op, dump), index)
        if where == "input":
            made = self._rules.maker(made[0], index, len(dump.inputs))
        if made is None or not self._rules.parts(made[0]) or self._rules.is_inside(
            made[0], "output", made[1]
        ):  # fmt: skip
            return None
        name, at = made
        if self._plain.parts(name) != self._rules.parts(name):
            return None
        found = self._name(name)
        return found and _Place(found, "output", at, name)

    def _paired(self, pair: Pair, claim: Claim | None, place: _Place, op: OpFile) -> Pair:
        self._seen.add(op.number)
        try:
            golden = self._read(op)
        except DumpError as error:
            reason = f"{error.what}: {error.where}"
            return replace(pair, golden=whole_of(op), reason=reason, damaged=True)
        name, where, index = name_of(op, golden), place.where, place.index
        tensors = golden.outputs if where == "output" else golden.inputs
        if where == "input":
            index = self._plain.place(place.op, index, len(tensors))
        if index is None or index >= len(tensors):
            return replace(pair, reason=unmatched(f"{name}:{where}:{place.index}", True))
        if where == "output":
            self._used.add((op.number, index))
            if claim is not None:
                self._compared.add(self._key(claim.original))
        return replace(pair, golden=side_of(name, op.path, where, index, tensors[index]))

    def _why_not(self, original: Original) -> tuple[str, str]:
        label = f"{original.name}:output:{original.index}"
        inner = self._plain.fused_into(name_part(original.name))
        if inner:
            return f"{original.name} is a part of golden's {inner}", "fused"
        return unmatched(label, True), ""

    def _why_left(self, name: str, index: int, label: str) -> tuple[str, str]:
        original = self._plain.output(name, index)
        if original is not None and self._key(original) in self._compared:
            what = f"{original.name}:output:{original.index}"
            return f"another operator of golden is {what} too, and was compared", "repeated"
        if self._plain.is_inserted(name) and self._plain.claim(name, index) is None:
            return INSERTED.format(name), "inserted"
        return self._origins.left(
            name_part(original.name if original else name), unmatched(label, False)
        )

    def _key(self, original: Original) -> Key:
        """By what an output of the original network is found here: its name with slashes, which two
        may have in one form in names of files."""
        return self._names.get(key_of(original), (original.name, original.index))

    def _is_there(self, key: Key) -> bool:
        return key in self._names or key[0] in self._types
