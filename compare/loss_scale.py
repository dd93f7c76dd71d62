"""A constant ratio over everything in backward: the two runs scaled their loss differently.

Gradient scalers differ in where they start and when they back off, which multiplies all gradients
by one number and changes nothing. So a few pairs of backward, spread over it, tell the ratio, and
what bears it is compared with it divided out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dumper.errors import DumpError
from dumper.stored import Tensor

from .alignment import Match
from .common import Pair
from .pairing import pair_values

_OPS = 24
"""Ops of backward whose outputs are read."""

_LARGEST = 1 << 22
"""Elements of a tensor that is read for this."""

_FEWEST = 3
_ALIKE = 0.02
"""How far apart the ratios may be: greatest magnitudes differ by the rounding of their sums."""

_APART = 0.1
"""How far from 1 a ratio is another scale."""

_MOST = 0.8
"""Share of the pairs that must bear the ratio; a faulty op changes those behind it."""

PHASES = ("backward", "grad")
"""What bears the loss scale."""

_FLOATS = ("float16", "bfloat16", "float32", "float64")


class LossScale(NamedTuple):
    """How the loss is scaled: ratio is mine over golden. mine, golden: the scales, where an op of
    forward multiplied by them."""

    ratio: float
    mine: float | None = None
    golden: float | None = None

    def bears(self, reach: tuple[float, float]) -> bool:
        """Whether two tensors of these greatest magnitudes are apart by the ratio rather than not
        at all."""
        if not all(0 < value < math.inf for value in reach):
            return False
        apart, scale = math.log2(reach[0] / reach[1]), math.log2(self.ratio)
        return abs(apart - scale) < abs(apart)


def loss_scale(matches: Sequence[Match]) -> LossScale | None:
    """The loss scale of two aligned runs; None where it is the same, or not to be told.

    Reads a few tensors; what cannot be read tells nothing.
    """
    backward = [match for match in matches if _is_one_op(match, "backward")]
    step = max(1, len(backward) // _OPS)
    ratios = [
        ratio
        for match in backward[::step][:_OPS]
        for found in pair_values(match.mine[0], match.golden[0], by_seqid=True)
        if (ratio := _ratio(found))
    ]
    if len(ratios) < _FEWEST:
        return None
    ratio = statistics.median(ratios)
    alike = sum(abs(each / ratio - 1) < _ALIKE for each in ratios)
    if alike < _MOST * len(ratios):
        return None
    power = 2.0 ** round(math.log2(ratio))
    if abs(ratio / power - 1) < _ALIKE:
        ratio = power
    if abs(ratio - 1) < _APART:
        return None
    return LossScale(ratio, *_scales(matches, ratio))


def _is_one_op(match: Match, phase: str) -> bool:
    return len(match.mine) == len(match.golden) == 1 and match.mine[0].phase == phase


def _tells(found: Pair) -> bool:
    mine, golden = found.mine, found.golden
    return (
        isinstance(mine, Tensor)
        and isinstance(golden, Tensor)
        and mine.shape == golden.shape
        and 0 < mine.size <= _LARGEST
        and mine.dtype in _FLOATS
        and golden.dtype in _FLOATS
    )


def _ratio(found: Pair) -> float | None:
    if not _tells(found):
        return None
    try:
        mine, golden = (_reach(tensor) for tensor in (found.mine, found.golden))
    except DumpError:
        return None
    known = 0 < mine < math.inf and 0 < golden < math.inf
    return mine / golden if known else None


def _reach(tensor: Tensor) -> float:
    return float(np.abs(tensor.read().astype(np.float64)).max())


def _scales(matches: Sequence[Match], ratio: float) -> tuple[float, float] | tuple[None, None]:
    """Both numbers that some product of forward was made with, where their ratio is the loss
    scale's."""
    for match in matches:
        if not _is_one_op(match, "forward") or not match.mine[0].ir.startswith("mul"):
            continue
        for found in pair_values(match.mine[0], match.golden[0], by_seqid=False):
            if found.side != "input" or not _tells(found) or found.mine.size != 1:
                continue
            try:
                mine, golden = (_reach(tensor) for tensor in (found.mine, found.golden))
            except DumpError:
                continue
            if golden and mine / golden == ratio and max(mine, golden) >= 2:
                return mine, golden
    return None, None
