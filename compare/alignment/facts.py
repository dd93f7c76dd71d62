"""What each record does, as a number: labels.

A label says what an op is by itself: step, phase, module, API function, name, shapes, names of
parameters. Records of two runs with equal labels may be the same call. Labels are numbers from one
table for both runs; there are four of each record, with less and less of the program in them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from dumper.index import function_of
from dumper.layout import WRAPPERS
from dumper.reader import Record

from .names import OpMap

_WRAPPERS = frozenset(("module", *WRAPPERS))
"""What wrappers add to a module's path. A dump leaves them out where it knows that they are."""


class Label(NamedTuple):
    """The labels of one record.

    strict: with all that belongs to the program (module, function, node, names of parameters).
    loose: with modules and names that both runs know. plain: with neither. bare: nor shapes.
    """

    strict: int
    loose: int
    plain: int
    bare: int


class Labels:
    """Numbers for what ops are, the same for both runs.

    table: of the names. shared: modules and names of parameters that both runs know.
    """

    def __init__(self, table: OpMap, *runs: Sequence[Record]) -> None:
        self.table = table
        self._numbers: dict[Any, int] = {}
        self._functions: dict[str | None, str] = {None: ""}
        self._paths: dict[str | None, str | None] = {None: None}
        self._shared = set.intersection(*map(self._known, runs))

    def of(self, record: Record, names: Sequence[str], backward: Collection[tuple]) -> Label:
        """The labels of a record. names: of what it takes; backward: (step, api) of calls that
        have one."""
        entry = record.entry
        shared, numbers = self._shared, self._numbers
        module = self.path(entry.module)
        bare = self.table.canonical(record.ir), entry.step, entry.phase
        bare = numbers.setdefault(bare, len(numbers))
        plain = bare, shapes_of(record)
        plain = numbers.setdefault(plain, len(numbers))
        known = tuple(name for name in names if name in shared) if names else ()
        loose = plain, known, module if module in shared else None
        loose = numbers.setdefault(loose, len(numbers))
        api = entry.api
        called = self.function(api), (entry.step, api) in backward
        strict = loose, module, called, entry.node, tuple(names)
        return Label(numbers.setdefault(strict, len(numbers)), loose, plain, bare)

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
        """A qualified name without what wrappers add."""
        found = self._paths.get(module)
        if found is None and module is not None:
            found = ".".join(part for part in module.split(".") if part not in _WRAPPERS)
            self._paths[module] = found
        return found

    def _known(self, records: Sequence[Record]) -> set[str | None]:
        """Modules and names of parameters that a run knows."""
        modules = {record.entry.module for record in records}
        names = {name for record in records for name in record.entry.names.values()}
        return {self.path(path) for path in modules | names}


def shapes_of(record: Record) -> tuple[tuple, tuple]:
    """Shapes of what goes in and of what comes out, sorted, whether the file holds it or not."""
    ins = [tensor.shape for tensor in record.inputs]
    outs = [tensor.shape for tensor in record.outputs]
    for key, stub in record.entry.stubs.items():
        (ins if key[:1] == "i" else outs).append(stub.shape)
    return _sorted(ins), _sorted(outs)


def _sorted(shapes: list[tuple]) -> tuple:
    if len(shapes) > 1:
        try:
            shapes.sort()
        except TypeError:  # a jagged size is a text
            shapes.sort(key=repr)
    return tuple(shapes)
