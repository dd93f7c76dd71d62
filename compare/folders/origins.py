"""What a tensor of a compiled network was in the original one, and who says so.

Fusion rules say it; for an operator that they do not have, its own dump file does, if golden has
what it names; else its own name. Golden has outputs only, so which of them an input was, only the
rules can say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from ir2tbe.cann.content import Tensor
from ir2tbe.cann.names import name_part

from .fusion import Original, Rules
from .pairs import BY_NAME, BY_ORIGIN, BY_RULES, cut, same_name
from .scan import OpFile

Key = tuple[str, int]
"""An output of an op of the original network: its name as files have it, and which."""


class Claim(NamedTuple):
    """What a tensor was, and who says so."""

    original: Original
    by: str


class Origins:
    """rules: of my network, None without any. is_there: whether golden has an output."""

    def __init__(self, rules: Rules | None, is_there: Callable[[Key], bool]) -> None:
        self._rules, self._is_there = rules, is_there

    def of(self, name: str, where: str, index: int, tensor: Tensor) -> Claim | None:
        """What the index-th input or output of an operator was; None where nobody says."""
        rules = self._rules
        if rules is not None and name in rules:
            found = (rules.output if where == "output" else rules.input)(name, index)
            return found and Claim(found, BY_RULES)
        if where == "input":
            return None
        origin = tensor.origin
        if origin is not None and origin.name:
            original = Original(cut(origin.name), origin.output_index)
            if self._is_there(key_of(original)):
                return Claim(original, BY_ORIGIN)
        return Claim(Original(name, index), BY_NAME)

    def why_not(self, name: str, where: str, label: str) -> tuple[str, str]:
        """Why a tensor was no output of an op of the original network, and the code of that."""
        if self._rules is None or name not in self._rules:
            reason = "golden has outputs of ops; which of them this input is, fusion rules (-f) say"
            return reason, "unnamed"
        if self._rules.is_inserted(name) and where == "output":
            return f"the compiler made {name}, which is none of the original network", "inserted"
        return f"the fusion rules do not say which original output {label} is", "unnamed"

    def left(self, original: str, unmatched: str) -> tuple[str, str]:
        """Why nobody asked for an op of the original network, and the code of that. original: its
        name as files have it."""
        inner = self._rules and self._rules.fused_into(original)
        if inner:
            return f"{original} is a part of {inner}, which has no output that is its", "fused"
        return unmatched, ""


def key_of(original: Original) -> Key:
    """What an output is found by."""
    return name_part(original.name), original.index


def runs_of(ops: Iterable[OpFile]) -> dict[int, int]:
    """The how many-th of its type and name an operator is, from 0, by its number."""
    counts: Counter[Hashable] = Counter()
    runs = {}
    for op in ops:
        key = op.name.op_type, same_name(op)
        runs[op.number] = counts[key]
        counts[key] += 1
    return runs
