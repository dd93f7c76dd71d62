"""Errors planted in recorded outputs: the smallest relative error that the judge calls wrong.

The inputs are as recorded, on both sides, so that nothing but rounding is allowed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from compare.judging import Class, Context, Kind, Row, class_of, judge, numerics_of
from compare.judging.numerics import largest
from compare.metrics import compare_arrays
from dumper import open_dump
from dumper.reader import Dump, Record
from dumper.stored import Tensor

from .dumps import can, dump

WAYS = ("cpu", "cpu, fp16 autocast", "cpu, bf16 autocast")
_NOT = (Class.RANDOM, Class.UNINITIALISED, Class.VALUE)
"""Classes that are not judged."""

_FLOATS = ("float32", "float16", "bfloat16")
_STEPS = 26
PER_OP = 4
"""Outputs of each op and dtype that errors are planted in."""

Key = tuple[str, str, str]
"""Class, op, dtype."""


def measure(chosen: list[str], folder: Path) -> dict[Key, list[tuple[float, float]]]:
    """By class, op and dtype: the smallest relative error seen in one element, and in all, of each
    output that was tried; infinity where none was."""
    found: dict[Key, list[tuple[float, float]]] = defaultdict(list)
    for family in chosen:
        for way in WAYS:
            if not can(family, way):
                continue
            path = dump(family, way, folder)
            with open_dump(path) as opened:
                for key, record, tensor in _outputs(opened, found):
                    found[key].append(_smallest(opened, record, tensor))
            path.unlink()
    return found


def _outputs(opened: Dump, found: dict) -> Iterator[tuple[Key, Record, Tensor]]:
    for record in opened.records:
        op = class_of(record.ir)
        if op.kind in _NOT or not record.has_inputs:
            continue
        if any(key.startswith("input/") for key in record.entry.stubs):
            continue
        for tensor in record.outputs:
            key = op.kind.value, op.base, tensor.dtype
            if tensor.dtype in _FLOATS and tensor.size > 1 and len(found.get(key, ())) < PER_OP:
                if _usable(tensor).size:
                    yield key, record, tensor


def _smallest(opened: Dump, record: Record, tensor: Tensor) -> tuple[float, float]:
    golden, usable = tensor.read(), _usable(tensor)
    size = np.abs(golden.astype(np.float64)).reshape(-1)
    typical = usable[np.argsort(size[usable])[usable.size // 2]]
    return (
        _search(opened, record, tensor, golden, np.array([typical])),
        _search(opened, record, tensor, golden, usable),
    )


def _usable(tensor: Tensor) -> np.ndarray:
    """Flat numbers of the elements that an error of 100 % changes to another finite number."""
    size = np.abs(tensor.read().astype(np.float64)).reshape(-1)
    return np.flatnonzero((size > 0) & (size < largest(tensor.dtype) / 2))


def _search(
    opened: Dump, record: Record, tensor: Tensor, golden: np.ndarray, places: np.ndarray
) -> float:
    """The smallest power of two by which elements are wrong and the judge says so."""
    numerics = numerics_of(opened.environment, opened.device_type)
    smallest = np.inf
    for exponent in range(_STEPS):
        error = 2.0**-exponent
        mine = golden.copy().reshape(-1)
        mine[places] = (mine[places].astype(np.float64) * (1 + error)).astype(golden.dtype)
        mine = mine.reshape(golden.shape)
        metrics = compare_arrays(mine, golden, False)
        if metrics.exact == 1.0:
            break
        planted = _Planted(tensor, mine)
        context = Context(numerics, numerics, fed=True, read=planted.read)
        row = Row(record, record, "output", planted.stand_in, tensor, metrics)
        if judge(row, context).kind is not Kind.DIFFERS:
            break
        smallest = error
    return smallest


class _Planted:
    """Reads tensors as they are but for one, which a tensor of the same claims stands for."""

    def __init__(self, tensor: Tensor, values: np.ndarray) -> None:
        self.stand_in = Tensor(
            tensor.record, tensor.side, tensor.name, tensor.claims, -1, None, tensor.source
        )
        self._values = values

    def read(self, tensor: Tensor) -> np.ndarray:
        """The planted values, or what the file has."""
        return self._values if tensor is self.stand_in else tensor.read()
