"""Two runs that do the same, call by call: the everyday case, told in one pass."""

from __future__ import annotations

from collections.abc import Sequence

from dumper.reader import Record

from .names import OpMap


def same_calls(mine: Sequence[Record], golden: Sequence[Record], table: OpMap) -> bool:
    """Whether both runs have the same calls in the same order, on values that come from the same.

    Dtypes and source lines may differ, and threads, since devices run backward in their own.
    """
    if len(mine) != len(golden):
        return False
    canonical = table.canonical
    numbers_differ = False
    for a, b in zip(mine, golden, strict=True):
        if a.ir != b.ir and canonical(a.ir) != canonical(b.ir):
            return False
        x, y = a.entry, b.entry
        if x is not y:
            if (
                x.api != y.api
                or x.module != y.module
                or x.phase != y.phase
                or x.node != y.node
                or x.step != y.step
                or x.names != y.names
            ):
                return False
            if x.values != y.values:
                numbers_differ = True
                if x.values.keys() != y.values.keys():
                    return False
            if x.stubs != y.stubs and not _alike(a, b):
                return False
        for tensors, others in (a.inputs, b.inputs), (a.outputs, b.outputs):
            if len(tensors) != len(others):
                if not _alike(a, b):
                    return False
                break
            if any(t.shape != u.shape for t, u in zip(tensors, others, strict=True)):
                return False
    return not numbers_differ or _numbered_alike(mine, golden)


def _alike(a: Record, b: Record) -> bool:
    """Whether all tensors have equal shapes, be they in the file or described only."""
    return _shapes(a) == _shapes(b)


def _shapes(record: Record) -> dict[str, tuple]:
    found = {key: stub.shape for key, stub in record.entry.stubs.items()}
    found.update((f"input/{tensor.name}", tensor.shape) for tensor in record.inputs)
    found.update((f"output/{tensor.name}", tensor.shape) for tensor in record.outputs)
    return found


def _numbered_alike(mine: Sequence[Record], golden: Sequence[Record]) -> bool:
    """Whether the values differ in their numbers only."""
    across: dict[int, int] = {}
    back: dict[int, int] = {}
    for a, b in zip(mine, golden, strict=True):
        theirs = b.entry.values
        for key, value in a.entry.values.items():
            other = theirs[key]
            if across.setdefault(value, other) != other or back.setdefault(other, value) != value:
                return False
    return True
