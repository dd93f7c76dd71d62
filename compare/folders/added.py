"""Which operator adds most to the difference that it was given.

Two devices round differently, so the first output that is not as in golden is often one that only
rounds. An operator at fault stands out by what it adds: its output's relative Euclidean distance
over the greatest of its inputs' and three roundings (of two operands and the result) in the
precision that it computes in. This ranks; it allows nothing and excuses nothing.

The cube of 910A takes fp32 operands as fp16, and later ones as HF32 with as many bits.
"""

from __future__ import annotations

import math
import re

from ..row import Row, Status

_UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
_CUBE = re.compile(r"(Batch)?MatMul|Conv[23]D|DepthwiseConv|Dynamic(RNN|GRU)|FlashAttention")
_ROUNDINGS = 3


class Added:
    """Takes the rows of one operator after the other. most: the output that adds most, None where
    none does; factor: how many times what accounts for it."""

    def __init__(self) -> None:
        self.most: Row | None = None
        self.factor = 0.0
        self._given: float | None = 0.0

    def begin(self) -> None:
        """Another operator's rows begin."""
        self._given = 0.0

    def input(self, row: Row) -> None:
        """An input; of one that was not compared nothing is known, so neither of its operator."""
        if row.metrics is None:
            self._given = None
        elif self._given is not None and row.status is Status.DIFFERS:
            self._given = max(self._given, _distance(row))

    def output(self, row: Row) -> bool:
        """An output; whether it is the one that adds most so far."""
        unit = _unit(row)
        if row.status is not Status.DIFFERS or self._given is None or unit is None:
            return False
        base = self._given + _ROUNDINGS * unit
        factor = _distance(row) / base
        if factor <= max(self.factor, 1.0):
            return False
        self.most, self.factor = row, factor
        return True


def _distance(row: Row) -> float:
    found = row.metrics.relative_euclidean
    return math.inf if math.isnan(found) else found


def _unit(row: Row) -> float | None:
    """The unit roundoff of what an operator computes in; None of what does not round."""
    unit = _UNIT.get(row.dtype or "")
    if unit is not None and _CUBE.match(row.op or ""):
        return max(unit, _UNIT["float16"])
    return unit
