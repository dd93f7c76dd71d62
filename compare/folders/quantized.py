"""Which outputs of a compiled network hold quantized values: integers that stand for other numbers.

From an op that quantizes to one that dequantizes a network computes with such values, also where it
casts them in between. The original network has none of them. Which op does what is told by its
type, or by what AMCT puts into the names of ops that it inserts, and by the dtype it makes, where
one is said; an op that computes floats of such integers has dequantized them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .rules import Op

_QUANTIZES = re.compile(
    r"(?:_quant_layer|/AscendQuant|/AscendWeightQuant|\.quant|\.weight_quant)(?!_?[A-Za-z])"
)
_DEQUANTIZES = re.compile(
    r"(?:_dequant_layer|_anti_quant_layer|/AscendDequant|/AntiQuant|\.dequant|\.anti_quant)"
    r"(?!_?[A-Za-z])"
)
"""Of Caffe, TensorFlow and ONNX."""

_QUANT_TYPES = ("AscendQuant", "AscendWeightQuant")
_DEQUANT_TYPES = ("AscendDequant", "AscendAntiQuant")
_WITHOUT_VALUES = ("Shape", "ShapeN", "Size", "Rank")
_CONSTANTS = ("Const", "Constant")
_KEEP = ("Cast", "TransData")
"""Types that make floats of integers and leave them quantized."""

_INTEGERS, _FLOATS = ("DT_INT", "DT_UINT"), ("DT_FLOAT", "DT_BF16")


def quantized(ops: Iterable[Op]) -> frozenset[tuple[str, int]]:
    """The outputs, as (op, which), that hold quantized values."""
    by_name = {op.name: op for op in ops}
    takers: dict[tuple[str, int], list[str]] = {}
    for op in by_name.values():
        for made in dict.fromkeys(op.inputs):
            takers.setdefault(made, []).append(op.name)
    found: set[tuple[str, int]] = set()
    reached: set[tuple[str, bool]] = set()
    waiting: list[tuple[str, int]] = []
    for op in by_name.values():
        quant, dequant = _says(op, _QUANT_TYPES, _QUANTIZES), _undoes(op)
        waiting += [
            (op.name, i)
            for i in range(op.count)
            if quant and (_dtype(op, i).startswith(_INTEGERS) or not (dequant or _dtype(op, i)))
        ]
        if dequant and any(_is_plain(op, i) for i in range(op.count)):
            # What it is given is quantized, whoever has done that.
            waiting += [made for made in op.inputs if _is_integer(by_name, made)]
    while waiting:
        output = waiting.pop()
        if output in found:
            continue
        found.add(output)
        made = by_name.get(output[0])
        stays = made is not None and _dtype(made, output[1]).startswith(_FLOATS)
        for name in takers.get(output, ()):
            op = by_name[name]
            keeps = stays or op.kind in _KEEP
            if op.kind in _WITHOUT_VALUES or (name, keeps) in reached:
                continue
            reached.add((name, keeps))
            dequant = _undoes(op)
            waiting += [
                (name, i)
                for i in range(op.count)
                if not (dequant and _is_plain(op, i))
                and (keeps or not _dtype(op, i).startswith(_FLOATS))
            ]
    return frozenset(found)


def _undoes(op: Op) -> bool:
    return _says(op, _DEQUANT_TYPES, _DEQUANTIZES)


def _says(op: Op, types: tuple[str, ...], pattern: re.Pattern[str]) -> bool:
    if op.kind in types:
        return True
    return any(pattern.search(name) for name in (op.name, *(op.fused or ())))


def _is_plain(op: Op, index: int) -> bool:
    """Whether an output of a dequantizing op holds plain numbers."""
    return _dtype(op, index).startswith(_FLOATS) or not _dtype(op, index)


def _is_integer(ops: dict[str, Op], made: tuple[str, int]) -> bool:
    op = ops.get(made[0])
    if op is None or op.kind in (*_CONSTANTS, *_WITHOUT_VALUES):
        return False
    return _dtype(op, made[1]).startswith(_INTEGERS)


def _dtype(op: Op, index: int) -> str:
    """As DT_INT8; '' where it is not said."""
    return op.dtypes[index] if index < len(op.dtypes) else ""
