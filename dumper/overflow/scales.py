"""Which loss scales work in float16: the smallest that keeps gradients, the largest that is safe.

A loss scale multiplies every gradient. Too small, and gradients round to 0; too large, and one
overflows. Both ends follow from one step: gradients are divided by the scale that they were
computed with, and what another scale would make of them is counted. At a power of two that is
exact, for a magnitude becomes 0 or not by its binary exponent alone (float16's end is half of its
smallest number, 2**-25, and a tie goes to 0). Gradients that were 0 or infinity already tell less,
and then a scale is a bound, said as one. No torch.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .formats import FORMATS, fits, lost
from .jsonvalues import is_count, number_of, worded
from .ranges import Range

TEXT = "loss_scale"
"""Name of the text in the file."""

KEPT = 0.999
"""Share of the non-zero gradient elements that a scale must keep from becoming 0."""

_HALF = FORMATS["float16"]
_ZERO_TO = round(math.log2(_HALF.zero_to))
_LEAST = math.ulp(0.0)


class LossScale(NamedTuple):
    """What loss scales would make of one step's gradients in float16.

    current: the scale that they were computed with; 1 without a loss scaler. smallest: the smallest
    power of two that keeps `KEPT` of the non-zero elements from becoming 0, and of what each result
    of backward on the way to them adds up to. at_least: it is a lower bound, as results of backward
    had become 0 already. largest: the largest power of two at which no result of backward
    overflows. at_most: it is an upper bound, as some had overflowed already.
    kept, subnormal: shares of the non-zero elements that do not become 0 at `current`, and that
    become subnormal numbers, which have fewer bits. vanished: share of backward's results that had
    become 0 already, of those whose exact value is not 0. peak: the largest
    finite magnitude of backward's results, unscaled. sampled, of: elements of gradients that were
    looked at, and all. not_finite: elements looked at that are infinite or NaN, which are in no
    share. overflowed: how many results of backward hold infinity or NaN, or float16's largest
    number in float16, which a device that saturates has in place of infinity. spread: (exponent,
    weight) of the gradients' non-zero elements, unscaled: how many are above 2**(exponent - 1) and
    not above 2**exponent.
    """

    current: float
    smallest: float
    at_least: bool
    largest: float
    at_most: bool
    kept: float
    subnormal: float
    vanished: float
    peak: float
    sampled: int
    of: int
    not_finite: int
    overflowed: int
    spread: tuple[tuple[int, float], ...]
    format: str = _HALF.name

    @property
    def conflict(self) -> bool:
        """Whether no scale does both: what is widest then needs bfloat16 or float32."""
        return self.smallest > self.largest

    def kept_at(self, scale: float) -> float:
        """Share of the non-zero elements that a scale keeps from becoming 0.

        Exact at powers of two; of a scale between two of them, what the lower one keeps. Raises
        ValueError for a scale that is not a positive finite number.
        """
        ends = _ZERO_TO - _power_below(scale)
        return _share_above(dict(self.spread), ends)

    def overflows_at(self, scale: float) -> bool:
        """Whether a result of backward overflows at a scale.

        Raises ValueError for a scale that is not a positive finite number.
        """
        _power_below(scale)
        return not fits(self.peak * scale, _HALF) or (self.at_most and scale >= self.current)


def loss_scale(
    gradients: Iterable[Range],
    backward: Iterable[Range],
    current: float = 1.0,
    arriving: Iterable[Range] | None = None,
) -> LossScale | None:
    """The loss scales that work for a step; None where it has no gradient other than 0.

    gradients: those of the parameters, with samples; a sample of n elements of N counts N/n.
    backward: results of ops of backward that bear the scale, as parameters, indices and masks do
    not; other phases are passed over, and what is in no float format. Where some are in float16,
    the others are where autocast keeps them from overflowing, and only float16 limits the scale.
    current: the scale that all of them were computed with. arriving: those of backward that
    parameters' gradients are summed of; None: all.

    Raises ValueError for a scale that is not a positive finite number.
    """
    _power_below(current)
    gradients = [each for each in gradients if each.dtype in FORMATS and _has_sample(each)]
    results = [each for each in backward if each.phase == "backward" and each.dtype in FORMATS]
    vanished = _vanished([*results, *gradients])
    spread = _spread(gradients, current)
    results += gradients
    overflowed = sum(map(_is_full, results))
    if not gradients or not (spread or vanished or overflowed):
        return None
    halves = [each for each in results if each.dtype == _HALF.name] or results
    peak = _clipped(max(map(_finite, halves)) / current)
    between = halves if arriving is None else arriving
    between = [each for each in between if each.phase == "backward" and _has_sample(each)]
    smallest, at_least = _smallest(spread), vanished > 1 - KEPT or not (spread or overflowed)
    # Parameters' gradients are sums, often larger than what they are sums of, which must arrive.
    for each in between:
        smallest = max(smallest, _smallest(_spread([each], current, sums=True)))
    if at_least:
        smallest = max(smallest, _power(_power_below(current) + 1))
    largest = _largest(peak)
    if overflowed:
        largest = min(largest, _power(_power_above(current) - 1))
    now = _pool(gradients)
    return LossScale(
        current=current,
        smallest=smallest,
        at_least=at_least,
        largest=largest,
        at_most=overflowed > 0,
        kept=now.kept(0.0),
        subnormal=now.subnormal / (now.nonzero or 1.0),
        vanished=vanished,
        peak=peak,
        sampled=sum(each.sampled for each in gradients),
        of=sum(each.size for each in gradients),
        not_finite=now.not_finite,
        overflowed=overflowed,
        spread=tuple(sorted(spread.items())),
    )


class _Pool(NamedTuple):
    """Counts of several ranges together, each weighted by what its sample stands for."""

    nonzero: float
    zero: float
    subnormal: float
    not_finite: int

    def kept(self, otherwise: float) -> float:
        """Share of the non-zero elements that do not become 0."""
        return (self.nonzero - self.zero) / self.nonzero if self.nonzero else otherwise


def _pool(ranges: Iterable[Range], scale: float = 1.0) -> _Pool:
    found = [(lost(each.sample, _HALF, scale), each.size / each.sampled) for each in ranges]
    return _Pool(
        math.fsum(one.nonzero * weight for one, weight in found),
        math.fsum(one.zero * weight for one, weight in found),
        math.fsum(one.subnormal * weight for one, weight in found),
        sum(one.not_finite for one, _ in found),
    )


def _has_sample(found: Range) -> bool:
    return found.sample is not None and found.sample.size > 0


def _spread(gradients: Iterable[Range], current: float, sums: bool = False) -> dict[int, float]:
    """How many non-zero elements there are, unscaled, by the power of two that none is above.

    sums: what they add up to instead, of one result, in parts of its largest.
    """
    spread: Counter[int] = Counter()
    for each in gradients:
        magnitudes = np.abs(each.sample.astype(np.float64))
        magnitudes = magnitudes[np.isfinite(magnitudes) & (magnitudes != 0)]
        with np.errstate(over="ignore", under="ignore"):
            magnitudes = np.clip(magnitudes / current, _LEAST, sys.float_info.max)
        fractions, exponents = np.frexp(magnitudes)
        exponents -= fractions == 0.5  # a power of two itself
        weight = each.size / each.sampled
        found, places = np.unique(exponents, return_inverse=True)
        counted = magnitudes / magnitudes.max(initial=_LEAST) if sums else None
        counts = np.bincount(places, counted, len(found))
        for exponent, count in zip(found, counts, strict=True):
            spread[int(exponent)] += float(count * weight)
    return dict(spread)


def _share_above(spread: Mapping[int, float], end: int) -> float:
    total = math.fsum(spread.values())
    above = math.fsum(weight for exponent, weight in spread.items() if exponent > end)
    return above / total if total else 0.0


def _smallest(spread: Mapping[int, float]) -> float:
    """The smallest power of two that keeps enough of the weights; 0 where there are none."""
    for exponent in sorted(spread, reverse=True):
        if _share_above(spread, exponent - 1) >= KEPT:
            return _power(_ZERO_TO + 1 - exponent)
    return 0.0


def _largest(peak: float) -> float:
    """The largest power of two that times the peak fits float16; infinity for a peak of 0."""
    if peak == 0:
        return math.inf
    fraction, exponent = math.frexp(peak)
    end, top = math.frexp(_HALF.overflows_from)
    return _power(top - exponent - (fraction >= end))


def _vanished(results: Iterable[Range]) -> float:
    """Share of elements that have become 0 by underflow, of those whose exact value is not 0."""
    gone = kept = 0.0
    for each in results:
        found = each.lost(_HALF.name)
        if found is None or (each.zeros and not each.zeros_looked):
            continue  # nothing is known of its zeros
        kept += found.nonzero * each.size / max(1, found.looked)
        share = each.vanished / max(1, each.zeros_looked)
        gone += each.zeros * share * each.size / max(1, found.looked)
    return gone / (gone + kept) if gone else 0.0


def _is_full(found: Range) -> bool:
    if found.dtype == _HALF.name and found.magnitude >= _HALF.largest:
        return True
    return not math.isfinite(found.magnitude)


def _finite(found: Range) -> float:
    """The largest finite magnitude that is known of a range."""
    if math.isfinite(found.magnitude):
        return found.magnitude
    values = [abs(end) for end in (found.low, found.high) if math.isfinite(end)]
    if found.sample is not None:
        magnitudes = np.abs(found.sample.astype(np.float64))
        values.append(float(magnitudes[np.isfinite(magnitudes)].max(initial=0.0)))
    return max(values, default=0.0)


def _clipped(number: float) -> float:
    return min(number, sys.float_info.max)


def _power(exponent: int) -> float:
    try:
        return math.ldexp(1.0, exponent)
    except OverflowError:
        return math.inf


def _power_below(scale: float) -> int:
    """Exponent of the largest power of two that is not above a scale."""
    if not 0 < scale < math.inf:
        raise ValueError(f"scale {scale} is not a positive finite number")
    return math.frexp(scale)[1] - 1


def _power_above(scale: float) -> int:
    fraction, exponent = math.frexp(scale)
    return exponent - (fraction == 0.5)


_SHARES = ("kept", "subnormal", "vanished")
_NUMBERS = ("current", "smallest", "largest", "peak", *_SHARES)
_COUNTS = ("sampled", "of", "not_finite", "overflowed")
_FLAGS = ("at_least", "at_most")


def facts_of(found: LossScale) -> dict[str, Any]:
    """The loss scales as JSON values: the one line of the text. Infinity is a word."""
    return worded(found._asdict())


def scale_of(lines: Iterable[Any]) -> LossScale | None:
    """What the last line of the text says; a line that is not as expected is passed over."""
    found = [_scale(line) for line in lines if isinstance(line, Mapping)]
    return next((each for each in reversed(found) if each is not None), None)


def _scale(facts: Mapping[str, Any]) -> LossScale | None:
    numbers = {name: number_of(facts.get(name)) for name in _NUMBERS}
    counts = {name: facts.get(name) for name in _COUNTS}
    flags = {name: facts.get(name) is True for name in _FLAGS}
    spread = facts.get("spread")
    if not all(number is not None and number >= 0 for number in numbers.values()):
        return None
    if not (0 < numbers["current"] < math.inf and numbers["peak"] < math.inf):
        return None
    if any(numbers[name] > 1 for name in _SHARES) or not all(map(is_count, counts.values())):
        return None
    if facts.get("format") != _HALF.name or not isinstance(spread, list):
        return None
    weights = [_weight(pair) for pair in spread]
    if None in weights or not math.isfinite(sum(weight for _, weight in weights)):
        return None
    return LossScale(**numbers, **counts, **flags, spread=tuple(weights))


def _weight(pair: Any) -> tuple[int, float] | None:
    if not (isinstance(pair, list) and len(pair) == 2):
        return None
    exponent, weight = pair[0], number_of(pair[1])
    if isinstance(exponent, bool) or not isinstance(exponent, int) or weight is None:
        return None
    return (exponent, weight) if 0 < weight < math.inf and abs(exponent) < 4096 else None
