"""The same network compiled without fusion as golden, a folder of CANN dumps.

Both networks' fusion rules relate their operators to those of the original network, and thereby to
each other: an output of mine belongs to the operator of golden that claims the same output of the
original network, and an input to the one that claims what makes it. Of several that claim it, the
one of my operator's name is taken, else the last, behind which no op of the original network comes.
What leaves no file, as Data and constants do not, is what an operator of golden takes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from dumper.errors import DumpError
from ir2tbe.cann.content import Dump
from ir2tbe.cann.names import name_part

from .fusion import Original, Rules
from .origins import Key, Origins, key_of, runs_of
from .pairs import Pair, name_of, side_of, sides, unmatched, whole_of
from .scan import Folder, OpFile

_KEPT = 64
"""Files of golden whose headers are kept: an operator's result is asked for by all that take it."""


class _Place(NamedTuple):
    """A tensor of golden's: the name of its operator as files have it, input or output, which."""

    op: str
    where: str
    index: int


class Compiled:
    """golden: the folder. rules: of my network. plain: of golden's (-cf)."""

    kind = "operators"
    addresses = True

    def __init__(self, mine: Folder, golden: Folder, rules: Rules, plain: Rules) -> None:
        self.count = len(golden.ops)
        self._ops, self._plain = golden.ops, plain
        self._runs = runs_of(mine.ops)
        self._of_name: dict[str, list[OpFile]] = {}
        for op in golden.ops:
            self._of_name.setdefault(op.name.op_name, []).append(op)
        self._claims: dict[Key, list[_Place]] = {}
        """Tensors of golden's operators that were an output of the original network."""
        self._collect("output", plain.claims())
        self._collect("input", plain.takes())
        self._origins = Origins(rules, self._is_there)
        self._read = lru_cache(_KEPT)(OpFile.read)
        self._used: set[tuple[int, int]] = set()

    def _collect(self, where: str, found: Iterable[tuple[str, int, Original]]) -> None:
        """Of those with a file; outputs come first, and inputs where no output claims the same."""
        claimed = frozenset(self._claims)
        for name, index, original in found:
            key = key_of(original)
            if key not in claimed and (part := name_part(name)) in self._of_name:
                self._claims.setdefault(key, []).append(_Place(part, where, index))

    def pairs(self, op: OpFile, dump: Dump) -> Iterator[Pair]:
        """As `pairs.Golden` says."""
        name = name_of(op, dump)
        for where, index, side in sides(op, dump):
            pair = Pair(op.number, op.name.op_type, where, side, None)
            claim = self._origins.of(name, where, index, side.tensor)
            if claim is None:
                reason, code = self._origins.why_not(name, where, side.label)
                yield replace(pair, reason=reason, code=code)
                continue
            found = self._found(claim.original, name_part(name), self._runs[op.number])
            if found is None:
                label = f"{claim.original.name}:output:{claim.original.index}"
                yield replace(pair, reason=unmatched(label, True))
                continue
            yield self._paired(replace(pair, by=claim.by), *found)

    def left(self, index: int) -> Iterator[Pair]:
        """As `pairs.Golden` says."""
        for op in self._ops:
            kind = op.name.op_type
            try:
                dump = self._read(op)
            except DumpError as error:
                reason = f"{error.what}: {error.where}"
                yield Pair(index, kind, None, None, whole_of(op), reason, damaged=True)
                continue
            name = name_of(op, dump)
            for i, tensor in enumerate(dump.outputs):
                if (op.number, i) in self._used:
                    continue
                side = side_of(name, op.path, "output", i, tensor)
                reason, code = self._why_left(name, i, side.label)
                yield Pair(index, kind, "output", None, side, reason, code=code)

    def _paired(self, pair: Pair, op: OpFile, where: str, index: int) -> Pair:
        try:
            golden = self._read(op)
        except DumpError as error:
            reason = f"{error.what}: {error.where}"
            return replace(pair, golden=whole_of(op), reason=reason, damaged=True)
        name = name_of(op, golden)
        tensors = golden.outputs if where == "output" else golden.inputs
        if index >= len(tensors):
            return replace(pair, reason=unmatched(f"{name}:{where}:{index}", True))
        if where == "output":
            self._used.add((op.number, index))
        return replace(pair, golden=side_of(name, op.path, where, index, tensors[index]))

    def _why_left(self, name: str, index: int, label: str) -> tuple[str, str]:
        if self._plain.is_inserted(name):
            return f"the compiler made {name}, which is none of the original network", "inserted"
        original = self._plain.output(name, index)
        return self._origins.left(
            name_part(original.name if original else name), unmatched(label, False)
        )

    def _is_there(self, key: Key) -> bool:
        return key in self._claims or key[0] in self._of_name

    def _found(self, original: Original, mine: str, run: int) -> tuple[OpFile, str, int] | None:
        """Golden's operator, and which of its tensors, that an output of the original network
        became; where nobody claims it, the operator of its name."""
        name, index = key_of(original)
        claims = self._claims.get((name, index), [_Place(name, "output", index)])
        found = next((claim for claim in claims if claim.op == mine), claims[-1])
        runs = self._of_name.get(found.op, ())
        return (runs[run], found.where, found.index) if run < len(runs) else None
