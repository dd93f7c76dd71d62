"""Sparse tensors, which a dump holds as their parts: what to compare of them.

A COO tensor may name one index several times, in any order, and two devices choose differently
without meaning anything by it: so where either side is not coalesced, both are, before indices are
compared with indices and values with values. Sums go in the order of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dumper.errors import DumpError
from dumper.layout import KIND, Type
from dumper.reader import Record
from dumper.stored import Argument, Tensor

_COO = "sparse_coo"
_WIDE = {"bfloat16": "float32", "float16": "float32"}


class Whole(NamedTuple):
    """The tensor that a part belongs to. facts: what the file says of it."""

    facts: dict[str, Any]
    parts: dict[str, Tensor]
    path: str

    @property
    def is_coo(self) -> bool:
        """Whether it is a list of indices with a value each."""
        return self.facts.get("kind") == _COO and {"indices", "values"} <= self.parts.keys()

    @property
    def is_sparse(self) -> bool:
        """Whether its parts have the sizes that its number of elements gives them."""
        return str(self.facts.get("kind")).startswith("sparse")


def whole_of(record: Record, side: str, tensor: Tensor) -> Whole | None:
    """The tensor that `tensor` is a part of; None for one that stands for itself."""
    parent, slash, _ = tensor.name.rpartition("/")
    if not slash:
        return None
    arguments, tensors = (
        (record.arguments, record.inputs) if side == "input" else (record.results, record.outputs)
    )
    kind = arguments.get(f"{parent}/{KIND}")
    if kind is None or kind.type != Type.PARTS:
        return None
    parts = {
        name: other
        for other in tensors
        for above, _, name in [other.name.rpartition("/")]
        if above == parent
    }
    return Whole(kind.value, parts, kind.path.rpartition("/")[0])


def coalesced(whole: Whole) -> dict[str, np.ndarray]:
    """The parts of a COO tensor with every index once and in order, its values added up.

    Raises DumpError for parts that do not belong together, and as `Tensor.read` does.
    """
    indices, values = (whole.parts[name].read() for name in ("indices", "values"))
    if indices.ndim != 2 or values.ndim < 1 or indices.shape[1] != values.shape[0]:
        raise DumpError(
            f"indices {list(indices.shape)} and values {list(values.shape)} make no sparse tensor",
            whole.path,
            "run the dump again",
        )
    if not indices.shape[1]:
        return {"indices": indices, "values": values}
    if indices.shape[0]:
        unique, places = np.unique(indices, axis=1, return_inverse=True)
    else:  # a sparse tensor without a sparse dimension
        unique, places = indices[:, :1], np.zeros(indices.shape[1], np.int64)
    wide = values.astype(_WIDE.get(values.dtype.name, values.dtype))
    total = np.zeros((unique.shape[1], *values.shape[1:]), wide.dtype)
    np.add.at(total, places.reshape(-1), wide)
    return {"indices": unique, "values": total.astype(values.dtype)}


def structure_difference(mine: Argument, golden: Argument) -> str:
    """What two tensors made of parts are that the other is not; nothing where they agree."""
    a, b = mine.value, golden.value
    keys = [key for key in (*a, *b) if key != "coalesced" and a.get(key) != b.get(key)]
    if not keys:
        return ""
    return f"structures differ: {keys[0]} {a.get(keys[0])} in my dump, {b.get(keys[0])} in golden"


def quantization_difference(wholes: Sequence[Whole | None]) -> str:
    """How two quantized tensors mean other numbers by the same integers; nothing where they do not.

    Raises DumpError as `Tensor.read` does.
    """
    if not all(whole is not None and whole.facts.get("kind") == "quantized" for whole in wholes):
        return ""
    mine, golden = wholes
    for key in ("scale", "zero_point", "axis"):
        a, b = mine.facts.get(key), golden.facts.get(key)
        if a != b:
            return f"quantization differs: {key} {a} in my dump, {b} in golden"
    for key in ("scales", "zero_points"):
        a, b = (whole.parts[key].read() if key in whole.parts else None for whole in wholes)
        if (a is None) != (b is None) or (a is not None and not np.array_equal(a, b)):
            return f"quantization differs: {key} are not the same in golden"
    return ""


def to_coalesce(wholes: Sequence[Whole | None]) -> bool:
    """Whether two tensors are lists of elements, and one of them is not in order."""
    if None in wholes or not all(whole.is_coo for whole in wholes):
        return False
    return not all(whole.facts.get("coalesced") for whole in wholes)
