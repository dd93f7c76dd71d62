"""Which outputs of a compiled network hold quantized values: integers that stand for other numbers.

From an op that quantizes to one that dequantizes a network computes with such values, also where it
casts them in between. The original network has none of them. Which op does what is told by its
type, or by what AMCT puts into the names of ops that it inserts, and by the dtype it makes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .fusion import Op

_QUANTIZES = re.compile(
    r"_quant_layer|/AscendQuant|/AscendWeightQuant|\.quant|\.weight_quant"  # Caffe, TF, ONNX
)
_DEQUANTIZES = re.compile(
    r"_dequant_layer|_anti_quant_layer|/AscendDequant|/AntiQuant|\.dequant|\.anti_quant"
)
_QUANT_TYPES = ("AscendQuant", "AscendWeightQuant")
_DEQUANT_TYPES = ("AscendDequant", "AscendAntiQuant")
_INTEGERS, _FLOATS = ("DT_INT", "DT_UINT"), ("DT_FLOAT", "DT_BF16")


def quantized(ops: Iterable[Op]) -> frozenset[tuple[str, int]]:
    """The outputs, as (op, which), that hold quantized values."""
    ops = list(ops)
    takers: dict[tuple[str, int], list[Op]] = {}
    for op in ops:
        for made in op.inputs:
            takers.setdefault(made, []).append(op)
    found: set[tuple[str, int]] = set()
    waiting = [(op.name, i) for op in ops for i in _outputs(op) if _quantizes(op, i)]
    while waiting:
        output = waiting.pop()
        if output in found:
            continue
        found.add(output)
        for op in takers.get(output, ()):
            waiting += [(op.name, i) for i in _outputs(op) if not _dequantizes(op, i)]
    return frozenset(found)


def _outputs(op: Op) -> range:
    return range(max(1, len(op.dtypes)))


def _quantizes(op: Op, index: int) -> bool:
    known = op.kind in _QUANT_TYPES or _says(op, _QUANTIZES)
    return known and _dtype(op, index).startswith(_INTEGERS)


def _dequantizes(op: Op, index: int) -> bool:
    known = op.kind in _DEQUANT_TYPES or _says(op, _DEQUANTIZES)
    return known and _dtype(op, index).startswith((*_FLOATS, "?"))


def _says(op: Op, pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(name) for name in (op.name, *(op.fused or ())))


def _dtype(op: Op, index: int) -> str:
    return (op.dtypes[index] if index < len(op.dtypes) else "") or "?"
