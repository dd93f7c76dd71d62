"""Fusion rules: which op of the original network each output of a compiled network's op is.

The json is what ATC makes of a compiled model, or AMCT of a quantized network: `graph` lists
graphs, each of which lists under `op` operators. An operator says in `attr` which ops were fused
into it, in `output_desc` what each of its outputs was called before and its type, and in `input`
who makes what it takes. Whatever else there is, is passed over; what is there in another form than
this is an error, and not guessed at.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from dumper.errors import DumpError, first_line
from ir2tbe.cann.names import name_part

from ..files import opened
from .quantized import quantized

_BYTES = 128 << 20
"""Of a file: Python's objects take ten times as much, and large networks have some 30 MB."""

_LONGEST = 1024
"""Characters of a name; none that is meant has more."""

_FUSED = "_datadump_original_op_names"
_NAME = "_datadump_origin_name"
_INDEX = "_datadump_origin_output_index"
_FORMAT = "_datadump_origin_format"
_PLAIN_FORMAT = "origin_format"
"""What stands for it where it is missing or empty."""


class Original(NamedTuple):
    """An output of an op of the original network. format: of its tensor, None where unsaid."""

    name: str
    index: int
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Op:
    """An operator of a compiled network. kind: its type. fused: ops of the original network that
    became this one; None where that is not said. outputs: what each was. dtypes: of each, as
    DT_INT8. inputs: (op, output) that makes each."""

    name: str
    kind: str
    fused: tuple[str, ...] | None
    outputs: tuple[Original | None, ...]
    dtypes: tuple[str, ...]
    inputs: tuple[tuple[str, int], ...]


class Rules:
    """The rules of one network, by the compiled ops' names, or those names as files have them where
    that is one op's alone."""

    def __init__(
        self, ops: dict[str, Op], of_quantized: frozenset[tuple[str, int]] | None = None
    ) -> None:
        """of_quantized: outputs that hold quantized values, where names no longer tell."""
        parts = Counter(map(name_part, ops))
        alone = {name_part(name): op for name, op in ops.items() if parts[name_part(name)] == 1}
        self._own, self._ops = ops, {**alone, **ops}
        self._quantized = quantized(ops.values()) if of_quantized is None else of_quantized
        claimed = {original.name for _, _, original in self.claims()}
        self._inner = {
            name_part(name): op.name
            for op in ops.values()
            for name in op.fused or ()
            if name not in claimed
        }

    def __contains__(self, name: str) -> bool:
        return name in self._ops

    def is_inserted(self, name: str) -> bool:
        """Whether the compiler made this op by itself, from none of the original network."""
        return name in self._ops and self._ops[name].fused == ()

    def fused_into(self, original: str) -> str | None:
        """The compiled op inside which an op of the original network is, so that no output is its;
        None of all others. original: its name as files have it."""
        return self._inner.get(original)

    def claims(self) -> Iterator[tuple[str, int, Original]]:
        """Each output of a compiled op that was one of the original network's: op, which, what."""
        for op in self._own.values():
            for index in range(max(1, len(op.outputs))):
                if original := self.output(op.name, index):
                    yield op.name, index, original

    def takes(self) -> Iterator[tuple[str, int, Original]]:
        """Each input of a compiled op that one of the original network's made: op, which, what."""
        for op in self._own.values():
            for index in range(len(op.inputs)):
                if original := self.input(op.name, index):
                    yield op.name, index, original

    def is_quantized(self, name: str, where: str, index: int) -> bool:
        """Whether an input or output holds a quantized value."""
        op = self._ops.get(name)
        if op is None:
            return False
        if where == "output":
            return (op.name, index) in self._quantized
        return index < len(op.inputs) and op.inputs[index] in self._quantized

    def before(self, other: Rules) -> Rules:
        """These rules where `other` relates what is original here to an earlier network, as a
        quantized one to the one that it was made of. What `other` does not have is the same in
        both."""
        ops = {}
        for op in self._own.values():
            count = max(1, len(op.outputs))
            outputs = tuple(_through(other, self.output(op.name, i)) for i in range(count))
            fused = op.fused and tuple(
                dict.fromkeys(name for each in op.fused for name in other.parts(each))
            )
            ops[op.name] = replace(op, fused=fused, outputs=outputs)
        return Rules(ops, self._quantized)

    def parts(self, name: str) -> tuple[str, ...]:
        """The ops of the original network that became this op; itself where that is not said."""
        op = self._ops.get(name)
        return (name,) if op is None or op.fused is None else op.fused

    def output(self, name: str, index: int) -> Original | None:
        """What an output of a compiled op was; None where nothing was it."""
        op = self._ops.get(name)
        if op is None:
            return None
        if index < len(op.outputs) and op.outputs[index] is not None:
            return op.outputs[index]
        if op.fused is None:
            return Original(name, index)
        return Original(op.fused[0], index) if len(op.fused) == 1 else None

    def input(self, name: str, index: int) -> Original | None:
        """What makes an input of a compiled op, as `output` says it."""
        op = self._ops.get(name)
        if op is None or index >= len(op.inputs):
            return None
        return self.output(*op.inputs[index])


def _through(rules: Rules, original: Original | None) -> Original | None:
    """What an output was before; the order of its axes is that of the later network."""
    if original is None or original.name not in rules:
        return original
    found = rules.output(original.name, original.index)
    return found and found._replace(format=original.format or found.format)


def load(path: Path) -> Rules:
    """Read the rules. Raises DumpError for what is no such json."""
    with opened(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > _BYTES:
            raise _bad(path, f"it has {size} bytes, and {_BYTES} are read at most")
        text = file.read()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"it is no json that can be read ({first_line(error)})") from None
    del text
    try:
        ops = {op.name: op for op in _ops(content)}
    except _Odd as odd:
        raise _bad(path, str(odd)) from None
    if not ops:
        raise _bad(path, "it lists no op under graph")
    return Rules(ops)


class _Odd(Exception):
    """What is not as ATC writes it."""


def _bad(path: Path, what: str) -> DumpError:
    todo = (
        "name the json that `atc --mode=1 --om=MODEL.om --json=RULES.json` makes of the model, or "
        "that AMCT makes of a quantized network"
    )
    return DumpError(f"these are no fusion rules: {what}", path, todo)


def _ops(content: Any) -> Iterator[Op]:
    for graph in _items(_is(dict, content, "the whole"), "graph", "the whole"):
        for op in _items(_is(dict, graph, "a graph"), "op", "a graph"):
            name = _name(_is(dict, op, "an op").get("name"), "the name of an op")
            attributes = _attributes(op, name)
            fused = None
            if _FUSED in attributes:
                names = _is(dict, attributes[_FUSED].get("list"), f"{_FUSED} of {name}")
                found = _items(names, "s", name)
                named = (_name(each, f"{_FUSED} of {name}") for each in found)
                fused = tuple(filter(None, named))  # one that is '' is none
            outputs = _items(op, "output_desc", name)
            found = [_attributes(_is(dict, o, f"an output of {name}"), name) for o in outputs]
            originals = tuple(_original(each, name) for each in found)
            dtypes = (_is(str, o.get("dtype", ""), f"the dtype of {name}") for o in outputs)
            inputs = [_source(each, name) for each in _items(op, "input", name)]
            made = tuple(each for each in inputs if each[1] >= 0)
            kind = _is(str, op.get("type", ""), f"the type of {name}")
            yield Op(name, kind, fused, originals, tuple(dtypes), made)


def _original(attributes: dict[str, dict], name: str) -> Original | None:
    if _NAME not in attributes:
        return None
    origin = _name(attributes[_NAME].get("s"), f"{_NAME} of {name}")
    if not origin:
        return None
    index = _is(int, attributes.get(_INDEX, {}).get("i", 0), f"{_INDEX} of {name}")
    forms = [
        _is(str, attributes.get(key, {}).get("s", ""), f"{key} of {name}")
        for key in (_FORMAT, _PLAIN_FORMAT)
    ]
    if not 0 <= index < 1 << 32:
        raise _Odd(f"{_INDEX} of {name} is {str(index)[:20]}")
    return Original(origin, index, next(filter(None, forms), None))


def _source(text: Any, name: str) -> tuple[str, int]:
    """`op:0` of an input; a control edge has the number -1, and nobody makes an absent one."""
    if text == "":
        return "", 0
    op, _, number = _is(str, text, f"an input of {name}").rpartition(":")
    if not (number.removeprefix("-").isascii() and number.removeprefix("-").isdigit()):
        raise _Odd(f"an input of {name} is {text[:80]!r}, which names no output of an op")
    if len(number) > 9:
        raise _Odd(f"an input of {name} is output {number[:20]} of an op")
    return op, int(number)


def _attributes(owner: dict, name: str) -> dict[str, dict]:
    """Those of ours that an op or an output has, each with its value."""
    found = {}
    for each in _items(owner, "attr", name):
        key = _is(dict, each, f"an attribute of {name}").get("key")
        if key in (_FUSED, _NAME, _INDEX, _FORMAT, _PLAIN_FORMAT):
            found[key] = _is(dict, each.get("value"), f"{key} of {name}")
    return found


def _items(owner: dict, key: str, name: str) -> list:
    return _is(list, owner.get(key, []), f"{key} of {name}")


def _name(value: Any, what: str) -> str:
    """A name of an op, which rows will have."""
    if len(name := _is(str, value, what)) > _LONGEST:
        raise _Odd(f"{what} has {len(name)} characters, and {_LONGEST} are the most")
    return name


def _is(kind: type, value: Any, what: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        names = {dict: "an object", list: "a list", str: "a text", int: "a whole number"}
        raise _Odd(f"{what[:200]} is not {names[kind]}")
    return value
