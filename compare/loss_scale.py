"""A constant ratio over everything in backward: the two runs scaled their loss differently.

Gradient scalers differ in where they start and when they back off, which multiplies all gradients
by one number and changes nothing. So a few pairs of backward, spread over it, tell the ratio, and
what bears it is compared with it divided out. A wrong op that makes such a ratio of equal inputs
looks the same from behind, so the ratio must have been given to the first op that bears it.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dumper.errors import DumpError
from dumper.stored import Argument, Tensor

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

_MOST = 0.5
"""Share of the pairs that must bear the ratio; a faulty op changes those behind it."""

_FACTORS = 4
"""Of the numbers that an op was given, how many are tried as factors of the ratio."""

PHASES = ("backward", "grad")
"""What bears the loss scale."""

_FLOATS = ("float16", "bfloat16", "float32", "float64")


class LossScale(NamedTuple):
    """How the loss is scaled: ratio is mine over golden. mine, golden: the scales, where backward
    was given them as one number each."""

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

    def is_of(self, reach: tuple[float, float]) -> bool:
        """Whether two numbers of these magnitudes are the scales themselves."""
        return reach == (self.mine, self.golden)


def loss_scale(matches: Sequence[Match]) -> LossScale | None:
    """The loss scale of two aligned runs; None where it is the same, or not to be told.

    Reads a few tensors; what cannot be read tells nothing.
    """
    backward = [match for match in matches if _is_in_backward(match)]
    step = max(1, len(backward) // _OPS)
    ratios = [
        reach[0] / reach[1]
        for match in backward[::step][:_OPS]
        for found in pair_values(match.mine[0], match.golden[0], by_seqid=True)
        if (reach := _reaches(found))
    ]
    if len(ratios) < _FEWEST:
        return None
    ratio = statistics.median(ratios)
    found = None
    if sum(_is_near(each, ratio) for each in ratios) >= _MOST * len(ratios):
        if abs(ratio - 1) < _APART:
            return None
        found = _given(backward, lambda each: _is_near(each, ratio))
    if found is None and sum(_is_near(each, 1) for each in ratios) < _MOST * len(ratios):
        # a wrong op near the start of backward leaves few that bear the ratio
        found = _given(backward, lambda each: abs(each - 1) > _APART)
        found = None if found is None or found.mine is None else found
    return found


def _is_in_backward(match: Match) -> bool:
    return len(match.mine) == len(match.golden) == 1 and match.mine[0].phase == "backward"


def _is_near(ratio: float, other: float) -> bool:
    return abs(ratio / other - 1) < _ALIKE


def _given(backward: Sequence[Match], is_it: Callable[[float], bool]) -> LossScale | None:
    """The loss scale, if the first op of backward that bears a ratio was given it."""
    for match in backward:
        pairs = list(pair_values(match.mine[0], match.golden[0], by_seqid=False))
        made = [reach for found in pairs if found.side == "output" and (reach := _reaches(found))]
        ratios = [mine / golden for mine, golden in made if is_it(mine / golden)]
        if ratios:
            return _by_inputs([found for found in pairs if found.side == "input"], ratios[0])
    return None


def _by_inputs(given: Sequence[Pair], ratio: float) -> LossScale | None:
    """The loss scale by what an op was given; None where that does not make the ratio."""
    power = 2.0 ** round(math.log2(ratio))
    scale = LossScale(power if _is_near(ratio, power) else ratio)
    factors: list[float] = []
    is_asked = False  # for something else, as for a sum in place of a mean
    for found in given:
        reach = _reaches(found)
        is_argument = isinstance(found.mine, Argument)
        if reach and _is_near(reach[0] / reach[1], ratio):
            is_one = is_argument or found.mine.size == 1
            return LossScale(reach[0] / reach[1], *reach) if is_one else scale
        if is_argument:
            is_asked |= _differ(found)
        elif reach and not _is_near(*reach):
            factors.append(reach[0] / reach[1])
    powers = itertools.product((-1, 0, 1), repeat=min(_FACTORS, len(factors)))
    products = (math.prod(map(pow, factors, each)) for each in powers)
    return scale if is_asked or any(_is_near(each, ratio) for each in products) else None


def _differ(arguments: Pair) -> bool:
    try:
        return arguments.mine.value != arguments.golden.value
    except DumpError:
        return False


def _reaches(found: Pair) -> tuple[float, float] | None:
    """The greatest magnitudes of two tensors, or those of two numbers; None where they have no
    ratio."""
    try:
        reach = _reach(found.mine, found.golden), _reach(found.golden, found.mine)
    except DumpError:
        return None
    return reach if all(each is not None and 0 < each < math.inf for each in reach) else None


def _reach(value: object, other: object) -> float | None:
    """The greatest magnitude of a value of which the other side has the like."""
    if isinstance(value, Argument) and isinstance(other, Argument):
        number = value.value
        return abs(number) if type(number) in (int, float) else None
    if not (isinstance(value, Tensor) and isinstance(other, Tensor)):
        return None
    if value.shape != other.shape or not 0 < value.size <= _LARGEST or value.dtype not in _FLOATS:
        return None
    return float(np.abs(value.read().astype(np.float64)).max())
