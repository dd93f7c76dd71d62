"""What a tensor of a compiled network was in the original one, who says so, and of which run.

Fusion rules say it; for an operator that they do not have, its own dump file does, if golden has
what it names; else its own name. Golden has outputs only, so which of them an input was, only the
rules can say. The run is followed through what makes a tensor, operator by operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ir2tbe.cann.content import Dump, Tensor
from ir2tbe.cann.names import name_part
from ir2tbe.cann.threads import whole_name

from .pairs import BY_NAME, BY_ORIGIN, BY_RULES, cut, name_of
from .rules import Original, Output, Rules
from .runs import Name, Own, name_of_file
from .scan import Folder, OpFile

Key = tuple[str, int]
"""An output of an op of the original network: its name as files have it, and which."""

INSERTED = "the compiler made {}, which is none of the original network"


class Hop(NamedTuple):
    """An output of mine on the way to what makes a tensor. name: of its operator in names of files,
    None where it has left none. number: of its run."""

    made: Output
    name: Name | None
    number: int | None


class Claim(NamedTuple):
    """What a tensor was. by: who says so. hops: the output that it is and, where that hands on what
    it was given, those before it; the last is that of an op of the original network."""

    original: Original
    by: str
    hops: tuple[Hop, ...]


class Origins:
    """mine: my folder. rules: of my network, None without any. is_there: whether golden has an
    output."""

    def __init__(self, mine: Folder, rules: Rules | None, is_there: Callable[[Key], bool]) -> None:
        self._rules, self._is_there, self._apart = rules, is_there, mine.apart
        self.own = Own(mine.ops)

    def called(self, op: OpFile, dump: Dump) -> str:
        """What an operator is called in the rules, if they have it."""
        name = name_of(op, dump)
        if self._rules is not None and name not in self._rules and op.called in self._rules:
            return op.called
        return name

    def of(self, op: OpFile, dump: Dump, where: str, index: int, tensor: Tensor) -> Claim | None:
        """What the index-th input or output of an operator was; None where nobody says."""
        name, rules = self.called(op, dump), self._rules
        if rules is not None and name in rules:
            made = rules.maker(name, index, len(dump.inputs)) if where == "input" else (name, index)
            hops = rules.hops(*made) if made else []
            if not hops or rules.is_inside(name, where, index):
                return None
            way = tuple(self.way(op, where, hops))
            return Claim(rules.output(*made), BY_RULES, way)
        if where == "input":
            return None
        here = (Hop((name, index), name_of_file(op), op.number),)
        origin = tensor.origin
        if origin is not None and origin.name:
            original = Original(cut(origin.name), origin.output_index)
            if self._is_there(key_of(original)):
                return Claim(original, BY_ORIGIN, here)
        return Claim(Original(name, index), BY_NAME, here)

    def way(self, op: OpFile, where: str, made: list[Output]) -> list[Hop]:
        """The runs of outputs, each of which is what the one before was given, and the first an
        operator's own output or input."""
        hops, number = [], op.number
        for i, output in enumerate(made):
            if i == 0 and where == "output":
                own = (op.name.op_type, op.called) if output[0] == op.called else name_of_file(op)
                hops.append(Hop(output, own, number))
                continue
            kind = name_part(self._rules.kind(output[0])) if output[0] in self._rules else ""
            name = self.own.named(kind, file_name(output[0], self._apart))
            run = None if name is None else self.own.before(name, number)
            hops.append(Hop(output, name, run))
            number = number if run is None else run
        return hops

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
        if not inner:
            return unmatched, ""
        if file_name(inner) == original:
            return f"no output of what became of {original} is its", "fused"
        return f"{original} is a part of {inner}, which has no output that is its", "fused"


def key_of(original: Original) -> Key:
    """What an output is found by."""
    return name_part(original.name), original.index


def file_name(name: str, apart: bool = False) -> str:
    """An operator's name as names of files have it, once its threads are put together, or where
    they are apart."""
    return name_part(name if apart else whole_name(name))
