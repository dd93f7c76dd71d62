"""Which operator adds most to the difference that it was given.

Two devices round differently, so the first output that is not as in golden is often one that only
rounds. An operator at fault stands out by what it adds: how far its output is off, over what its
inputs and its rounding account for. That is the greatest relative distance of an input and three
roundings (of two operands and the result), times the magnitude that is computed with: of a product
the norms of both operands, of a sum (an output with less elements than an input) that of what is
added, whatever cancels, else that of the greatest of inputs and output. This ranks; it allows
nothing and excuses nothing.

The cube of 910A takes fp32 operands as fp16, and later ones as HF32 with as many bits.
"""

from __future__ import annotations

import math
import re

from ..metrics import Metrics
from ..row import Row, Status

_UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
_CUBE = re.compile(r"(Batch)?MatMul|Conv[23]D|DepthwiseConv|Dynamic(RNN|GRU)|FlashAttention")
_ROUNDINGS = 3


class Added:
    """Takes the rows of one operator after the other. factor: of the output that adds most, how
    many times what accounts for it; 0 where none does."""

    def __init__(self) -> None:
        self.factor = 0.0
        self._inputs: list[Metrics] | None = []
        self._given = 0.0

    def begin(self) -> None:
        """Another operator's rows begin."""
        self._inputs, self._given = [], 0.0

    def input(self, row: Row) -> None:
        """An input; of one that was not compared nothing is known, so neither of its operator."""
        if row.metrics is None or self._inputs is None:
            self._inputs = None
            return
        self._inputs.append(row.metrics)
        if row.status is Status.DIFFERS:
            self._given = max(self._given, _or_infinite(row.metrics.relative_euclidean))

    def output(self, row: Row) -> bool:
        """An output; whether it is the one that adds most so far."""
        unit = _unit(row)
        if row.status is not Status.DIFFERS or not self._inputs or unit is None:
            return False
        base = (self._given + _ROUNDINGS * unit) * self._magnitude(row)
        if not math.isfinite(base):  # what is given is not finite, and may make anything
            return False
        off = _or_infinite(row.metrics.root_mean_square) * math.sqrt(row.metrics.size)
        factor = off / base if base else math.inf
        if factor <= max(self.factor, 1.0):
            return False
        self.factor = factor
        return True

    def _magnitude(self, row: Row) -> float:
        norms = sorted((_norm(each) for each in self._inputs), reverse=True)
        if _CUBE.match(row.op or "") and len(norms) > 1:
            return norms[0] * norms[1]
        sums = [
            _norm(each) * math.sqrt(each.size / row.metrics.size)
            for each in self._inputs
            if each.size > row.metrics.size
        ]
        return max([_norm(row.metrics), *norms, *sums])


def _norm(metrics: Metrics) -> float:
    """The Euclidean norm of golden's tensor."""
    mean, deviation = metrics.golden
    return math.sqrt((mean * mean + deviation * deviation) * metrics.size)


def _or_infinite(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _unit(row: Row) -> float | None:
    """The unit roundoff of what an operator computes in; None of what does not round."""
    unit = _UNIT.get(row.dtype or "")
    if unit is not None and _CUBE.match(row.op or ""):
        return max(unit, _UNIT["float16"])
    return unit
