"""What a tensor of a compiled network was in the original one, who says so, and of which run.

Fusion rules say it; for an operator that they do not have, its own dump file does, if golden has
what it names; else its own name. Golden has outputs only, so which of them an input was, only the
rules can say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ir2tbe.cann.content import Dump, Tensor
from ir2tbe.cann.names import name_part
from ir2tbe.cann.threads import whole_name

from .pairs import BY_NAME, BY_ORIGIN, BY_RULES, cut, name_of
from .rules import Original, Output, Rules
from .runs import Own, Run, Runs, T
from .scan import OpFile

Key = tuple[str, int]
"""An output of an op of the original network: its name as files have it, and which."""

INSERTED = "the compiler made {}, which is none of the original network"


class Claim(NamedTuple):
    """What a tensor was. by: who says so. made: by which operator of mine; None where nobody says.
    run: which run of that; None where it has left no file."""

    original: Original
    by: str
    made: Output | None
    run: Run | None


class Origins:
    """ops: of mine, all of them. rules: of my network, None without any. is_there: whether golden
    has an output."""

    def __init__(
        self, ops: Sequence[OpFile], rules: Rules | None, is_there: Callable[[Key], bool]
    ) -> None:
        self._rules, self._is_there = rules, is_there
        self.own = Own(ops)

    def of(self, op: OpFile, dump: Dump, where: str, index: int, tensor: Tensor) -> Claim | None:
        """What the index-th input or output of an operator was; None where nobody says."""
        name, rules, run = name_of(op, dump), self._rules, self.own.of(op)
        if rules is not None and name in rules:
            made: Output | None = (name, index)
            if where == "input":
                made = rules.maker(name, index, len(dump.inputs))
                run = made and self._made_by(made[0], op)
            found = made and rules.output(*made)
            if found is None or rules.is_inside(name, where, index):
                return None
            return Claim(found, BY_RULES, made, run)
        if where == "input":
            return None
        origin = tensor.origin
        if origin is not None and origin.name:
            original = Original(cut(origin.name), origin.output_index)
            if self._is_there(key_of(original)):
                return Claim(original, BY_ORIGIN, (name, index), run)
        return Claim(Original(name, index), BY_NAME, (name, index), run)

    def pick(self, runs: Runs[T], key: object, op: OpFile, run: Run | None) -> tuple[T | None, str]:
        """The run of golden that a tensor of an operator belongs to, None where there is none; and
        why nobody knows which, '' where that is known. run: of what made it."""
        if run is not None:
            return runs.at(key, run), ""
        found = runs.all(key, op.place)
        if len(found) < 2:
            return next(iter(found), None), ""
        if len(found) == self.own.count(op, runs):
            return runs.at(key, self.own.of(op)), ""
        return None, f"golden has {len(found)} runs of what made this input; nobody says which"

    def why_not(self, name: str, where: str, index: int, label: str) -> tuple[str, str]:
        """Why a tensor was no output of an op of the original network, and the code of that."""
        rules = self._rules
        if rules is None:
            reason = "golden has outputs of ops; which of them this input is, fusion rules (-f) say"
            return reason, "unnamed"
        if name not in rules:
            return f"the fusion rules do not have {name}", "unnamed"
        if rules.is_inside(name, where, index):
            reason = f"{name} works on a part only, as others do that share the first cache with it"
            return reason, "fused"
        if rules.is_inserted(name) and where == "output":
            return INSERTED.format(name), "inserted"
        return f"the fusion rules do not say which original output {label} is", "unnamed"

    def left(self, original: str, unmatched: str) -> tuple[str, str]:
        """Why nobody asked for an op of the original network, and the code of that. original: its
        name as files have it."""
        inner = self._rules and self._rules.fused_into(original)
        if inner:
            return f"{original} is a part of {inner}, which has no output that is its", "fused"
        return unmatched, ""

    def _made_by(self, name: str, op: OpFile) -> Run | None:
        kind = name_part(self._rules.kind(name)) if name in self._rules else ""
        return self.own.made_by(kind, file_name(name), op)


def key_of(original: Original) -> Key:
    """What an output is found by."""
    return name_part(original.name), original.index


def file_name(name: str) -> str:
    """An operator's name as names of files have it, once its threads are put together."""
    return name_part(whole_name(name))
