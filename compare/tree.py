"""Module > API call > number of ops, with what enters and leaves each: `msaccucmp info --tree`.

One step is shown, since calls are counted anew in each. Siblings that are alike (the same ops and
tensors, as the blocks of a network are) are shown once, with how many they are; below the depth
that was asked for, modules are only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dumper.index import function_of
from dumper.layout import VALUES
from dumper.links import Crossing, Links
from dumper.reader import Dump, Record

OUTSIDE = "(outside of modules)"
MODEL = "(model)"

_SHORT = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "complex64": "c64",
    "complex128": "c128",
}
_MANY = 12
"""Calls of one module that are listed one by one; more are counted by function."""


class Flow(NamedTuple):
    """A tensor at a boundary. name: of the parameter it is, if it is one."""

    dtype: str
    shape: tuple[int | str, ...]
    name: str | None

    def __str__(self) -> str:
        return f"{short(self.dtype)}[{','.join(map(str, self.shape))}]"


class Part(NamedTuple):
    """One phase of a module or call."""

    ops: int
    entering: tuple[Flow, ...]
    leaving: tuple[Flow, ...]

    def alike(self) -> tuple:
        """What another one must have to be alike: all but names."""
        flows = (
            [(f.dtype, f.shape, f.name is None) for f in side]
            for side in (self.entering, self.leaving)
        )
        return self.ops, *map(tuple, flows)


@dataclass
class Node:
    """A module or a call. name: qualified, or the call's. alike: names of all that it stands for.

    kind: module, call, or calls (of one function). hidden: whether there are modules below that the
    depth cut off.
    """

    name: str
    kind: str
    parts: dict[str, Part] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)
    alike: list[str] = field(default_factory=list)
    hidden: int = 0

    def as_json(self) -> dict[str, Any]:
        """JSON values of the tree from here on."""
        return {
            "name": self.name,
            "kind": self.kind,
            "alike": self.alike,
            "hidden": self.hidden,
            "phases": {
                phase: {
                    "ops": part.ops,
                    "entering": [flow._asdict() for flow in part.entering],
                    "leaving": [flow._asdict() for flow in part.leaving],
                }
                for phase, part in self.parts.items()
            },
            "children": [child.as_json() for child in self.children],
        }


def tree_of(dump: Dump, depth: int, step: int | None = None) -> list[Node]:
    """The top modules of one step, and below them `depth` levels of modules with their calls.

    step: None is the first one that there is.
    """
    steps = {record.entry.step for record in dump.records} - {None}
    step = min(steps, default=None) if step is None else step
    links = Links(dump.records)
    shown = [
        record
        for record in dump.records
        if record.entry.step == step and record.phase is not None and record.phase not in VALUES
    ]
    builder = _Builder(links, depth)
    inside = [record for record in shown if record.entry.module is not None]
    outside = [record for record in shown if record.entry.module is None]
    nodes = []
    if inside:
        has_root = any(record.entry.module == "" for record in inside)
        top = builder.module("", inside, 0 if has_root else -1)
        nodes = [top] if has_root else top.children
    if outside:
        node = Node(OUTSIDE, "module")
        node.children = builder.calls(outside)
        nodes.append(node)
    return nodes


class _Builder:
    def __init__(self, links: Links, depth: int) -> None:
        self._links = links
        self._depth = depth

    def module(self, name: str, records: list[Record], level: int) -> Node:
        """The node of a module. records: of it and of all below it."""
        node = Node(name or MODEL, "module", self._parts(records) if level >= 0 else {})
        own: list[Record] = []
        below: dict[str, list[Record]] = {}
        for record in records:
            if record.entry.module == name:
                own.append(record)
                continue
            rest = record.entry.module.removeprefix(f"{name}." if name else "")
            child = f"{name}." * bool(name) + rest.partition(".")[0]
            below.setdefault(child, []).append(record)
        if level >= self._depth:
            node.hidden = len(below)
            node.children = [] if below else self.calls(own)
            return node
        children = [self.module(child, found, level + 1) for child, found in below.items()]
        node.children = [*self.calls(own), *_merged(children)]
        return node

    def calls(self, records: list[Record]) -> list[Node]:
        """The API calls of one module; ops outside of any are one node."""
        by_api: dict[str | None, list[Record]] = {}
        for record in records:
            by_api.setdefault(record.entry.api, []).append(record)
        groups = [(api or "(outside of calls)", "call", found) for api, found in by_api.items()]
        if len(groups) > _MANY:
            functions: dict[str, list[tuple[str, list[Record]]]] = {}
            for api, _, found in groups:
                functions.setdefault(function_of(api), []).append((api, found))
            return [self._function(name, found) for name, found in functions.items()]
        return _merged([Node(*group[:2], self._parts(group[2])) for group in groups])

    def _function(self, name: str, found: list[tuple[str, list[Record]]]) -> Node:
        """All calls of one function; what crosses the boundary of each is too much to show."""
        if len(found) == 1:
            return Node(found[0][0], "call", self._parts(found[0][1]))
        counts = Counter(record.phase for _, records in found for record in records)
        parts = {phase: Part(count, (), ()) for phase, count in counts.items()}
        return Node(name, "calls", parts, alike=[api for api, _ in found])

    def _parts(self, records: list[Record]) -> dict[str, Part]:
        phases: dict[str, list[Record]] = {}
        for record in records:
            phases.setdefault(record.phase, []).append(record)
        parts = {}
        for phase, part in phases.items():
            boundary = self._links.boundary(part, records)
            entering, leaving = (tuple(map(_flow, side)) for side in boundary)
            parts[phase] = Part(len(part), entering, leaving)
        return parts


def short(dtype: str) -> str:
    """`f32` for `float32`, and so on for all whose name is a kind and a width."""
    if dtype in _SHORT:
        return _SHORT[dtype]
    for kind, letter in (("uint", "u"), ("int", "i"), ("float8_", "f8")):
        if dtype.startswith(kind):
            return letter + dtype.removeprefix(kind)
    return dtype


def _flow(crossing: Crossing) -> Flow:
    record, key = crossing.place
    side, _, name = key.partition("/")
    for tensor in record.inputs if side == "input" else record.outputs:
        if tensor.name == name:
            return Flow(tensor.dtype, tensor.shape, record.entry.names.get(name))
    stub = record.entry.stubs.get(key)
    if stub is not None:
        return Flow(stub.dtype, stub.shape, record.entry.names.get(name))
    return Flow("?", (), record.entry.names.get(name))  # of a level that does not keep it


def _merged(nodes: Iterable[Node]) -> list[Node]:
    """Runs of neighbours that are alike as one node each."""
    merged: list[Node] = []
    last: tuple | None = None
    for node in nodes:
        signature = _signature(node)
        if merged and signature == last:
            merged[-1].alike.append(node.name)
            continue
        node.alike = node.alike or [node.name]
        merged.append(node)
        last = signature
    return merged


def _signature(node: Node) -> tuple:
    name = function_of(node.name) if node.kind == "call" else ""
    parts = tuple((phase, part.alike()) for phase, part in node.parts.items())
    children = tuple(_named(child, node.name) for child in node.children)
    return node.kind, name, parts, node.hidden, children


def _named(child: Node, parent: str) -> tuple:
    own = child.name.removeprefix(f"{parent}.") if child.kind == "module" else ""
    return own, len(child.alike), _signature(child)


def walk(nodes: list[Node], prefix: str = "") -> Iterator[tuple[str, str, Node]]:
    """(lines that lead to it, lines that go on below its first row, node) from top to bottom."""
    for i, node in enumerate(nodes):
        last = i == len(nodes) - 1
        below = prefix + ("   " if last else "│  ")
        yield prefix + ("└─ " if last else "├─ "), below + "│  " * bool(node.children), node
        yield from walk(node.children, below)
