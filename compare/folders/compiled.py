"""The same network compiled without fusion as golden, a folder of CANN dumps.

Both networks' fusion rules relate their operators to those of the original network, and thereby to
each other: an output of mine belongs to the operator of golden that claims the same output of the
original network (claims.py), an input to the one that claims what makes it; its run to that run
(runs.py). Where what is best has no such run, the next is taken, one that ran as often first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from dumper.errors import DumpError
from ir2tbe.cann.content import Dump
from ir2tbe.cann.names import name_part
from ir2tbe.cann.threads import whole_name

from .claims import Claims, Place
from .origins import INSERTED, Claim, Hop, Origins
from .pairs import BY_RULES, Pair, Side, name_of, side_of, sides, unmatched, whole_of
from .rules import Original, Rules
from .runs import Name, Partners, Runs, name_of_file, where_of
from .scan import Folder, OpFile

_KEPT = 64
"""Files of golden whose headers are kept: an operator's result is asked for by all that take it."""


class Compiled:
    """golden: the folder. rules: of my network. plain: of golden's (-cf)."""

    kind = "operators"
    addresses = True

    def __init__(self, mine: Folder, golden: Folder, rules: Rules, plain: Rules) -> None:
        self.count = len(golden.ops)
        self._ops, self._rules, self._plain = golden.ops, rules, plain
        self._claims = Claims(golden, plain, rules)
        self._origins = Origins(mine, rules, self._claims.__contains__)
        self._golden = Origins(golden, plain, lambda _: False)
        self._runs = Runs((name_of_file(op), where_of(op), op) for op in golden.ops)
        self._partners = Partners(self._origins.own.runs, self._runs)
        numbers = Runs((name_of_file(op), where_of(op), op.number) for op in golden.ops)
        self._fellows = Partners(numbers, self._runs)
        """Of golden's own operators: what ran together."""
        self._read = lru_cache(_KEPT)(OpFile.read)
        self._used: set[tuple[int, int]] = set()
        self._seen: set[int] = set()
        """Numbers of golden's operators that are in a row."""

    def partner(self, op: OpFile) -> Side | None:
        """As `pairs.Golden` says."""

    def pairs(self, op: OpFile, dump: Dump) -> Iterator[Pair]:
        """As `pairs.Golden` says."""
        name = self._origins.called(op, dump)
        for where, index, side in sides(op, dump):
            pair = Pair(op.number, op.name.op_type, where, side, None)
            claim = self._origins.of(op, dump, where, index, side.tensor)
            if claim is None:
                found = self._twin(pair, op, name, dump, where, index)
                reason, code = self._origins.why_not(name, where, index, side.label)
                yield found or replace(pair, reason=reason, code=code)
                continue
            pair = replace(pair, by=claim.by)
            found, unknown = self._of_outputs(pair, claim, op)
            if found is None:
                found, more = self._of_inputs(pair, claim, op, name, index)
                unknown = unknown or more
            if found is not None:
                yield found
                continue
            reason, code = (unknown, "unnamed") if unknown else self._why_not(claim.original)
            yield replace(pair, reason=reason, code=code, by="")

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
            name = self._golden.called(op, dump)
            if not dump.outputs and op.number not in self._seen:
                reason, code = self._why_left(op, name, 0, whole_of(op).label)
                yield Pair(index, kind, None, None, whole_of(op), reason, code=code)
            for i, tensor in enumerate(dump.outputs):
                if (op.number, i) not in self._used:
                    side = side_of(name_of(op, dump), op.path, "output", i, tensor)
                    reason, code = self._why_left(op, name, i, side.label)
                    yield Pair(index, kind, "output", None, side, reason, code=code)

    def _of_outputs(self, pair: Pair, claim: Claim, op: OpFile) -> tuple[Pair | None, str]:
        """The pair with an output of golden, None where there is none; why nobody knows which."""
        unknown, places = "", list(self._claims.places(claim))
        behind = self._claims.behind(claim.original)
        if behind is not None and self._as_often(claim.hops[-1], behind.name):
            places.append((behind, claim.hops[-1]))
        for place, hop in places:
            found, why = self._run(place, hop, op)
            unknown = unknown or why
            if found is not None and (made := self._paired(pair, place, found)) is not None:
                return made, ""
        return None, unknown

    def _of_inputs(
        self, pair: Pair, claim: Claim, op: OpFile, name: str, index: int
    ) -> tuple[Pair | None, str]:
        """The same with an input of golden, what an operator takes of it."""
        unknown, is_input = "", pair.where == "input"
        own = name_of_file(op) if is_input else claim.hops[-1].name
        number = op.number if is_input else claim.hops[-1].number
        for place in self._claims.takers(claim.original, name if is_input else "", index):
            if own is None or not self._partners.as_often(own, place.name):
                count = len(self._runs.runs(place.name))
                unknown = f"golden has {count} runs of what takes it; nobody says which"
                continue
            found = self._partners.of(own, number, place.name)
            if found is not None and (made := self._paired(pair, place, found)) is not None:
                return made, ""
        return None, unknown if is_input else ""

    def _as_often(self, hop: Hop, name: Name) -> bool:
        return hop.name is not None and self._partners.as_often(hop.name, name)

    def _run(self, place: Place, hop: Hop, op: OpFile) -> tuple[OpFile | None, str]:
        """Golden's run that belongs to a run of mine, or why nobody knows which. op: the operator
        that takes it, whose runs count where what made it has left no file."""
        if hop.name is not None and hop.number is not None:
            return self._partners.of(hop.name, hop.number, place.name), ""
        found, count = self._partners.likely(name_of_file(op), op.number, place.name)
        if found is not None or not count:
            return found, ""
        return None, f"golden has {count} runs of what made this; nobody says which"

    def _twin(
        self, pair: Pair, op: OpFile, name: str, dump: Dump, where: str, index: int
    ) -> Pair | None:
        """The pair with golden's operator of one name, where both networks have split an op of the
        original one alike, so that this tensor is no output of it."""
        made = (name, index)
        if where == "input":
            made = self._rules.maker(name, index, len(dump.inputs))
        if made is None or self._rules.is_inside(made[0], "output", made[1]):
            return None
        there = made[0] if made[0] in self._plain else whole_name(made[0])
        if not self._are_twins(made[0], there):
            return None
        (hop,) = self._origins.way(op, where, [made])
        if (other := self._claims.name(there)) is None:
            return None
        place = Place(other, "output", made[1], there)
        found, _ = self._run(place, hop, op)
        return found and self._paired(replace(pair, by=BY_RULES), place, found)

    def _are_twins(self, mine: str, there: str) -> bool:
        """Whether two operators of one name are of the same ops; or, where they were inserted, of
        one type and given the same."""
        parts = self._rules.parts(mine)
        if there not in self._plain or parts is None or parts != self._plain.parts(there):
            return False
        given = self._rules.makers(mine)
        return bool(parts) or (
            self._rules.kind(mine) == self._plain.kind(there)
            and any(given)
            and given == self._plain.makers(there)
        )

    def _paired(self, pair: Pair, place: Place, op: OpFile) -> Pair | None:
        """The pair with a tensor of golden's operator; None where that has no such tensor."""
        try:
            golden = self._read(op)
        except DumpError as error:
            self._seen.add(op.number)
            reason = f"{error.what}: {error.where}"
            return replace(pair, golden=whole_of(op), reason=reason, damaged=True)
        tensors = golden.outputs if place.where == "output" else golden.inputs
        index: int | None = place.index
        if place.where == "input":
            index = self._plain.place(place.op, place.index, len(tensors))
        if index is None or index >= len(tensors):
            return None
        self._seen.add(op.number)
        if place.where == "output":
            self._used.add((op.number, index))
        side = side_of(name_of(op, golden), op.path, place.where, index, tensors[index])
        return replace(pair, golden=side)

    def _why_not(self, original: Original) -> tuple[str, str]:
        label = f"{original.name}:output:{original.index}"
        inner = self._plain.fused_into(name_part(original.name))
        if inner and not self._claims.outputs(original):
            return f"{original.name} is a part of golden's {inner}", "fused"
        return unmatched(label, True), ""

    def _why_left(self, op: OpFile, name: str, index: int, label: str) -> tuple[str, str]:
        original = self._plain.output(name, index)
        if original is not None and self._was_compared(op, name, index, original):
            what = f"{original.name}:output:{original.index}"
            return f"another operator of golden is {what} too, and was compared", "repeated"
        if self._plain.claim(name, index) is None:
            if self._plain.is_inserted(name):
                return INSERTED.format(name), "inserted"
            if self._plain.parts(name):
                return f"{name} has a part only of what it was made of", "fused"
        return self._origins.left(
            name_part(original.name if original else name), unmatched(label, False)
        )

    def _was_compared(self, op: OpFile, name: str, index: int, original: Original) -> bool:
        """Whether another operator that has this output was compared, of the same run."""
        own = name_of_file(op)
        for hop in self._golden.way(op, "output", self._plain.hops(name, index))[1:]:
            if hop.number is not None and (hop.number, hop.made[1]) in self._used:
                return True
        for place in self._claims.outputs(original):
            if place.name != own:
                fellow = self._fellows.of(own, op.number, place.name)
                if fellow is not None and (fellow.number, place.index) in self._used:
                    return True
        return False
