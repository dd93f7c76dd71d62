"""What is known of each record of a run, as numbers: what it does, and whose values it takes.

A label says what an op is by itself: step, phase, module, API function, name, shapes, names of
parameters. Records of two runs with equal labels may be the same call. Labels are numbers from one
table for both runs. Edges lead from the record that made a value to those that take it; an op that
only brings a value elsewhere (a cast, a view) is seen through, so that one more or less of them
changes nobody's edges. A cone is what lies up or down the edges, to some depth, as one number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dumper.index import function_of
from dumper.reader import Record

from .names import OpMap

Array = np.ndarray

_WRAPPERS = frozenset(("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))
"""What wrappers add to a module's path. A dump leaves them out where it knows that they are."""


_BROUGHT = 1 << 40
"""In the place of a slot: the edge of what only brings a value elsewhere to who made it."""


class Labels:
    """Numbers for what ops are, the same for both runs. table: of the names."""

    def __init__(self, table: OpMap) -> None:
        self.table = table
        self._numbers: dict[Any, int] = {}
        self._functions: dict[str | None, str] = {None: ""}
        self._paths: dict[str | None, str | None] = {None: None, "": ""}

    def number(self, fact: Any) -> int:
        """The number of a fact (anything hashable)."""
        return self._numbers.setdefault(fact, len(self._numbers))

    def function(self, api: str | None) -> str:
        """What was called, however it was spelled: `add` for `torch.Tensor.add_.3`."""
        found = self._functions.get(api)
        if found is None:
            name = function_of(api)
            root = name.partition(":")[0] + ":" if ":" in name else ""
            found = root + name.rpartition(".")[2].strip("_").removeprefix("foreach_")
            self._functions[api] = found
        return found

    def path(self, module: str | None) -> str | None:
        """A module's qualified name without what wrappers add."""
        found = self._paths.get(module, self)
        if found is self:
            found = ".".join(part for part in module.split(".") if part not in _WRAPPERS)
            self._paths[module] = found
        return found


def shapes_of(record: Record) -> tuple[tuple, tuple]:
    """Shapes of what goes in and of what comes out, sorted, whether the file holds it or not."""
    ins = [tensor.shape for tensor in record.inputs]
    outs = [tensor.shape for tensor in record.outputs]
    for key, stub in record.entry.stubs.items():
        (ins if key[0] == "i" else outs).append(stub.shape)
    return _sorted(ins), _sorted(outs)


def _sorted(shapes: list[tuple]) -> tuple:
    if len(shapes) > 1:
        try:
            shapes.sort()
        except TypeError:  # a jagged size is a text
            shapes.sort(key=repr)
    return tuple(shapes)


class Side:
    """The calls of one run, in order, as arrays; values (`grad`, `update`) are no calls.

    strict, loose: labels, with and without what belongs to the program (module, function, names).
    group: step and phase. edges: (maker, user, slot), each an array; the slot says which input of
    the user and which output of the maker. makers: of each user, by slot. through: whether a record
    only brings a value elsewhere. called: what both runs call some values (gradients, parameters).
    shared: modules and names that both runs know.
    """

    def __init__(
        self,
        records: Sequence[Record],
        labels: Labels,
        called: Mapping[int, str],
        shared: Collection[str | None],
    ) -> None:
        self.records = records
        self._labels = labels
        self.count = len(records)
        table = labels.table
        strict, loose, plain, bare = [], [], [], []
        named: dict[int, str | None] = dict(called)
        self.through: list[bool] = []
        self.idle: list[bool] = []
        self.makers: list[list[tuple[int, int]]] = []
        self.users: list[list[tuple[int, int]]] = [[] for _ in records]
        maker: dict[int, tuple[int, int]] = {}
        down: list[tuple[int, int, int]] = []
        backward = {
            (record.entry.step, record.entry.api) for record in records if record.phase == "backward"
        }
        for i, record in enumerate(records):
            entry = record.entry
            name = table.canonical(record.ir)
            shapes = shapes_of(record)
            step_phase = entry.step, entry.phase
            names = tuple(sorted(map(labels.path, entry.names.values())))
            module = labels.path(entry.module)
            known = tuple(name for name in names if name in shared)
            ins, outs = _values(entry.values)
            for key, own in entry.names.items():
                named[entry.values.get(f"input/{key}", -1)] = labels.path(own)
            found = [named[value] for _, value in ins if value in named] if named else ()
            names = tuple(sorted(found)) if len(found) > 1 else tuple(found)
            known = tuple(own for own in names if own in shared)
            bare.append(labels.number((name, step_phase)))
            number = labels.number((name, shapes, step_phase))
            plain.append(number)
            number = labels.number((number, known, module if module in shared else None))
            loose.append(number)
            strict.append(
                labels.number(
                    (
                        number,
                        module,
                        labels.function(entry.api),
                        entry.node,
                        names,
                        (entry.step, entry.api) in backward,
                    )
                )
            )
            carries = name in table.carriers
            self.through.append(carries)
            self.idle.append(carries or name in table.blanks)
            made: list[tuple[int, int]] = []
            for slot, value in ins:
                source = maker.get(value)
                if source is not None:
                    edge = slot << 20 | source[1]
                    made.append((edge, source[0]))
                    self.users[source[0]].append((edge, i))
                    # What becomes of a value that is only brought elsewhere is seen at its maker.
                    down.append((i, source[0], _BROUGHT) if carries else (source[0], i, edge))
                else:
                    made.append((slot, -1))
            self.makers.append(made)
            given = {value for _, value in ins}
            first = maker.get(ins[0][1]) if ins and carries else None
            for slot, value in outs:
                if value not in given:
                    maker[value] = (i, slot) if first is None else first
                    if carries and ins and ins[0][1] in named:
                        named[value] = named[ins[0][1]]
        self.strict = np.array(strict, np.int64)
        self.loose = np.array(loose, np.int64)
        self.plain = np.array(plain, np.int64)
        self.bare = np.array(bare, np.int64)
        flat = [(source, i, slot) for i, made in enumerate(self.makers) for slot, source in made]
        self._up = np.array(flat, np.int64).reshape(-1, 3)
        self._down = np.array(down, np.int64).reshape(-1, 3)

    def phase(self, i: int) -> tuple[int | None, str | None]:
        """Step and phase of the i-th record."""
        entry = self.records[i].entry
        return entry.step, entry.phase

    def function(self, i: int) -> str:
        """What API function the i-th record belongs to."""
        return self._labels.function(self.records[i].entry.api)

    def module(self, i: int) -> str | None:
        """What module the i-th record belongs to."""
        return self._labels.path(self.records[i].entry.module)

    def cones(self, labels: Array, depths: Sequence[int]) -> Iterator[tuple[int, Array, Array]]:
        """(depth, numbers of what is above each record, numbers of what is below) at each depth."""
        own = mixed(labels.astype(np.uint64))
        above, below = own, own
        up, down = self._up, self._down[np.argsort(self._down[:, 0], kind="stable")]
        outside = up[:, 0] < 0
        for depth in range(1, max(depths) + 1):
            came = np.where(outside, np.uint64(7), above[up[:, 0]])
            above = mixed(own + _sums(came, up[:, 2], up[:, 1], self.count))
            below = mixed(own + _sums(below[down[:, 1]], down[:, 2], down[:, 0], self.count))
            if depth in depths:
                yield depth, above, below

    def around(self, labels: Array, width: int) -> Array:
        """Numbers of the labels of so many records before and after each, and its own."""
        own = mixed(labels.astype(np.uint64))
        total = own.copy()
        for shift in range(1, width + 1):
            salt = np.uint64(2 * shift + 1)
            total[shift:] += mixed(own[:-shift] * salt)
            total[:-shift] += mixed(own[shift:] ^ salt)
        return mixed(total)


def mixed(numbers: Array) -> Array:
    """Spread numbers over 64 bits (splitmix64)."""
    with np.errstate(over="ignore"):
        z = numbers + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _sums(numbers: Array, slots: Array, at: Array, count: int) -> Array:
    """The sum over each record's edges; `at`, whose they are, ascends."""
    sums = np.zeros(count, np.uint64)
    if len(at):
        salted = mixed(numbers ^ mixed(slots.astype(np.uint64)))
        starts = np.flatnonzero(np.r_[True, at[1:] != at[:-1]])
        sums[at[starts]] = np.add.reduceat(salted, starts)
    return sums


def _values(values: dict[str, int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(slot, value) of what goes in, and of what comes out."""
    ins: list[tuple[int, int]] = []
    outs: list[tuple[int, int]] = []
    for key, value in values.items():
        side = ins if key[0] == "i" else outs
        side.append((len(side), value))
    return ins, outs
