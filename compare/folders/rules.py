"""What fusion rules say: which output of the original network a compiled network's tensor is.

An operator's output is what the rules name; else the one op that became this operator, unless
others became of it too; behind a Cast or TransData that the compiler inserted, what that was given.
An operator that FFTS+ split is found by its names with and without what tells its threads apart,
where all that have one such name agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ir2tbe.cann.names import name_part
from ir2tbe.cann.threads import whole_name, without_slice

from .quantized import quantized

_PASS_ON = ("Cast", "TransData")
"""Types of operators that a compiler inserts and that hand on what they are given."""

_FAR = 64
"""Inserted operators one after the other that are looked through."""

Output = tuple[str, int]
"""An output of a compiled network: its op, and which."""


class Original(NamedTuple):
    """An output of an op of the original network. format: of its tensor, None where unsaid."""

    name: str
    index: int
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Op:
    """An operator of a compiled network. kind: its type. fused: ops of the original network that
    became this one; None where that is not said. outputs: what each was. formats, dtypes: of each,
    as NHWC and DT_INT8. inputs: what makes each, ('', 0) of one that is absent. group: of those
    that share the first cache, '' of all others."""

    name: str
    kind: str
    fused: tuple[str, ...] | None
    outputs: tuple[Original | None, ...] = ()
    formats: tuple[str | None, ...] = ()
    dtypes: tuple[str, ...] = ()
    inputs: tuple[Output, ...] = ()
    group: str = ""

    @property
    def count(self) -> int:
        """Of outputs; those that nobody lists are one."""
        return max(1, len(self.outputs), len(self.dtypes))


class Rules:
    """The rules of one network, by the compiled ops' names, or other forms of them where one op
    alone has them. twice: names of ops that are listed again, and otherwise; the first counts."""

    def __init__(self, ops: Iterable[Op], of_quantized: frozenset[Output] | None = None) -> None:
        """of_quantized: outputs that hold quantized values, where names no longer tell."""
        self._own: dict[str, Op] = {}
        self.twice: list[str] = []
        for op in ops:
            if self._own.setdefault(op.name, op) != op:
                self.twice.append(op.name)
        self._quantized = quantized(self._own.values()) if of_quantized is None else of_quantized
        self._sharers = Counter(
            part
            for part, _ in {(p, whole_name(op.name)) for op in self._own.values()
                            for p in op.fused or ()}
        )  # fmt: skip
        self._last = self._last_of_groups()
        self._ops: Mapping[str, Op] = self._own
        self._ops = {**self._other_names(), **self._own}
        claimed = {name_part(original.name) for _, _, original in self.claims()}
        self._inner = {
            name_part(name): op.name
            for op in self._own.values()
            for name in op.fused or ()
            if name_part(name) not in claimed
        }

    def __contains__(self, name: str) -> bool:
        return name in self._ops

    def kind(self, name: str) -> str:
        """The type of an op that there is."""
        return self._ops[name].kind

    def is_inserted(self, name: str) -> bool:
        """Whether the compiler made this op by itself, from none of the original network."""
        return name in self._ops and self._ops[name].fused == ()

    def fused_into(self, original: str) -> str | None:
        """The compiled op inside which an op of the original network is, so that no output is its;
        None of all others. original: its name as files have it."""
        return self._inner.get(original)

    def is_inside(self, name: str, where: str, index: int) -> bool:
        """Whether this is inside of operators that share the first cache, which only hold parts."""
        op = self._ops.get(name)
        if op is None or op.name not in self._last:
            return False
        return where == "input" or index not in self._last[op.name]

    def claim(self, name: str, index: int) -> Original | None:
        """What an output of a compiled op was by itself, nothing inserted looked through."""
        op = self._ops.get(name)
        return op and self._named(op, index)

    def claims(self) -> Iterator[tuple[str, int, Original]]:
        """Each output of a compiled op that made one of the original network's: op, which, what."""
        return self._outputs(lambda hops: len(hops) == 1)

    def handed_on(self) -> Iterator[tuple[str, int, Original]]:
        """Each output of an inserted op behind one of those: op, which, what."""
        return self._outputs(lambda hops: len(hops) > 1)

    def _outputs(
        self, wanted: Callable[[list[Output]], bool]
    ) -> Iterator[tuple[str, int, Original]]:
        for op in self._own.values():
            for index in range(op.count):
                if wanted(self.hops(op.name, index)):
                    yield op.name, index, self.output(op.name, index)

    def takes(self) -> Iterator[tuple[str, int, Original]]:
        """Each input of a compiled op that one of the original network's made: op, which, what.
        Which counts absent inputs too; `place` says where it is in a file."""
        for op in self._own.values():
            for index, made in enumerate(op.inputs):
                if original := self.output(*made):
                    yield op.name, index, original

    def place(self, name: str, index: int, count: int) -> int | None:
        """Where in a file of so many inputs one is that the rules list; None where nobody knows."""
        found = [i for i, _ in self._inputs(self._ops[name], count)]
        return found.index(index) if index in found else None

    def maker(self, name: str, index: int, count: int) -> Output | None:
        """What makes an input of a compiled op: op and output. index: in a file of so many inputs.
        None where nobody says."""
        op = self._ops.get(name)
        found = self._inputs(op, count) if op else []
        return found[index][1] if index < len(found) and found[index][1][0] else None

    def output(self, name: str, index: int) -> Original | None:
        """What an output of a compiled op was; None where nothing was it."""
        return next(filter(None, (self.claim(*made) for made in self.hops(name, index))), None)

    def hops(self, name: str, index: int) -> list[Output]:
        """An output and, while that is what an inserted op was given, the one that it was; the last
        one is an op's that made an output of the original network. [] where none is."""
        way = [(name, index)]
        while len(way) < _FAR and (op := self._ops.get(way[-1][0])) is not None:
            if op.fused != () or op.kind not in _PASS_ON or way[-1][1] >= len(op.inputs):
                break
            way.append(op.inputs[way[-1][1]])
        end = self.claim(*way[-1])
        for i, made in enumerate(way):
            if (found := self.claim(*made)) is not None:  # an inserted op may say it too
                return way if end and found[:2] == end[:2] else way[: i + 1]
        return []

    def dtype(self, name: str, index: int) -> str:
        """Of an output, as DT_INT8; '' where it is not said."""
        op = self._ops.get(name)
        return op.dtypes[index] if op and index < len(op.dtypes) else ""

    def is_quantized(self, name: str, where: str, index: int, count: int = 0) -> bool:
        """Whether an input or output holds a quantized value. count: of the file's inputs."""
        op = self._ops.get(name)
        if op is None:
            return False
        if where == "output":
            return (op.name, index) in self._quantized
        return self.maker(name, index, count) in self._quantized

    def before(self, other: Rules) -> Rules:
        """These rules where `other` relates what is original here to an earlier network, as a
        quantized one to the one that it was made of. What `other` does not have is the same in
        both."""
        ops = []
        for op in self._own.values():
            outputs = tuple(_through(other, self.output(op.name, i)) for i in range(op.count))
            name = op.name if op.name in other else whole_name(op.name)
            fused = other.parts(name) if op.fused is None else _all_parts(other, op.fused)
            ops.append(replace(op, fused=fused, outputs=outputs))
        return Rules(ops, self._quantized)

    def makers(self, name: str) -> list[Original | None]:
        """What all inputs of a compiled op were, those that are absent among them."""
        op = self._ops.get(name)
        return [self.output(*made) for made in op.inputs] if op else []

    def parts(self, name: str) -> tuple[str, ...] | None:
        """The ops of the original network that became this op; None where that is not said."""
        op = self._ops.get(name)
        return None if op is None else op.fused

    def _named(self, op: Op, index: int) -> Original | None:
        """What the rules call an output, or the one op that became the operator."""
        if index < len(op.outputs) and op.outputs[index] is not None:
            return op.outputs[index]
        form = op.formats[index] if index < len(op.formats) else None
        if op.fused is None:
            name = whole_name(op.name)
            return None if self._sharers[name] else Original(name, index, form)
        alone = len(op.fused) == 1 and self._sharers[op.fused[0]] == 1
        if alone and op.name not in self._last:
            return Original(op.fused[0], index, form)
        return None

    @staticmethod
    def _inputs(op: Op, count: int) -> list[tuple[int, Output]]:
        """The inputs that a file of so many has, each with where the rules list it: all, or those
        that are not absent."""
        every = list(enumerate(op.inputs))
        there = [each for each in every if each[1][0]]
        if len(there) == len(every) or count == len(every):
            return every
        return there if count == len(there) else []

    def _last_of_groups(self) -> dict[str, frozenset[int]]:
        """Of ops that share the first cache, which outputs are whole: each op works on parts, and
        the last that makes an output has completed it."""
        groups: dict[str, list[Op]] = {}
        for op in self._own.values():
            if op.group:
                groups.setdefault(op.group, []).append(op)
        found = {}
        for ops in groups.values():
            last: dict[Output, Output] = {}
            for op in ops:
                last |= {o[:2]: (op.name, i) for i, o in enumerate(op.outputs) if o is not None}
            whole = set(last.values())
            for op in ops if len(ops) > 1 else ():
                outputs = (at for at in range(op.count) if (op.name, at) in whole)
                found[op.name] = frozenset(outputs)
        return found

    def _other_names(self) -> dict[str, Op]:
        """Ops by the forms of their names that files may have, where those with one form agree."""
        forms: dict[str, list[Op]] = {}
        for op in self._own.values():
            whole = whole_name(op.name)
            graph = without_slice(op.name)
            others = {whole, graph, *map(name_part, (op.name, whole, graph))}
            for form in others - {op.name}:
                forms.setdefault(form, []).append(op)
        return {form: ops[0] for form, ops in forms.items() if self._agree(ops)}

    def _agree(self, ops: list[Op]) -> bool:
        """Whether ops are one, or threads of one."""
        if len(ops) == 1:
            return True
        if len({whole_name(op.name) for op in ops}) > 1:
            return False
        said = {(op.fused, tuple(self._named(op, i) for i in range(op.count))) for op in ops}
        return len(said) == 1


def _all_parts(rules: Rules, names: tuple[str, ...]) -> tuple[str, ...]:
    """The ops of an earlier network that ops became of; those that it does not say are its own."""
    parts = ((name,) if (found := rules.parts(name)) is None else found for name in names)
    return tuple(dict.fromkeys(name for each in parts for name in each))


def _through(rules: Rules, original: Original | None) -> Original | None:
    """What an output was before; the order of its axes is that of the later network."""
    if original is None or original.name not in rules:
        return original
    found = rules.output(original.name, original.index)
    return found and found._replace(format=original.format or found.format)
