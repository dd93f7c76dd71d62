"""The ten error metrics of two arrays and what else tells them apart, right in float64 terms.

docs/metrics.md defines each with its domain, edge cases and difference from the original. In short:
sums are float64 and scaled so that no square overflows; 64-bit integers subtract exactly; the same
NaN or infinity at the same place on both sides agrees and stays out of every sum, and any other NaN
or infinity makes the distances nan or inf, so that it can never look good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from . import slots as at
from .kinds import Way, way
from .measure import Piece, Source, Sums, merged

_BLOCK = 1 << 20
"""Elements that are widened at a time."""


class Ulp(NamedTuple):
    """Distance in units in the last place: how many numbers of the dtype lie between. above_one:
    share of the elements that are more than one apart."""

    greatest: int
    mean: float
    above_one: float


class Worst(NamedTuple):
    """The element that differs most. index: by dimension. mine, golden: Python numbers."""

    index: tuple[int, ...]
    mine: bool | int | float | complex
    golden: bool | int | float | complex


class Metrics(NamedTuple):
    """The metrics of one pair of tensors; None where a metric is not defined.

    exact: share of the elements that are equal. mine, golden: (mean, population standard
    deviation). same_nonfinite, mine_nonfinite, golden_nonfinite, other_nonfinite: how many
    positions are NaN or infinite: alike on both sides, on one only, on both but not alike.
    nan, infinite: how many positions are NaN, or infinite, in mine only, in golden only, in both.
    ulp: None for what is no float. worst: the element that differs most, None where none does.
    reach: greatest magnitude of mine and golden, NaN aside. kullback_leibler: None also where it
    was not asked for.
    """

    cosine: float | None
    max_absolute: float
    accumulated_relative: float
    relative_euclidean: float
    kullback_leibler: float | None
    mine: tuple[float, float]
    golden: tuple[float, float]
    mean_absolute: float
    root_mean_square: float
    max_relative: float
    mean_relative: float
    exact: float
    size: int
    same_nonfinite: int = 0
    mine_nonfinite: int = 0
    golden_nonfinite: int = 0
    other_nonfinite: int = 0
    nan: tuple[int, int, int] = (0, 0, 0)
    infinite: tuple[int, int, int] = (0, 0, 0)
    ulp: Ulp | None = None
    worst: Worst | None = None
    reach: tuple[float, float] = (0.0, 0.0)


Element = Callable[[int], tuple[object, object]]
"""Both values at a flat index, as Python numbers."""


def compare_arrays(mine: np.ndarray, golden: np.ndarray, divergence: bool = True) -> Metrics:
    """Compute all metrics of two arrays; the Kullback-Leibler divergence, if it is wanted.

    mine, golden: one shape; bool, integers, floats (ml_dtypes' too) or complex; of one dtype, or of
    two that `comparable` pairs. Raises ValueError when the shapes differ.
    """
    if mine.shape != golden.shape:
        raise ValueError(f"shapes differ: {mine.shape} and {golden.shape}")
    x, y = (np.ascontiguousarray(side).reshape(-1) for side in (mine, golden))

    def element(index: int) -> tuple[object, object]:
        return _python(x[index]), _python(y[index])

    if x.dtype.kind == "c":
        from .moduli import compare_complex

        return compare_complex(x, y, mine.shape, divergence)
    found = way(x.dtype.name, y.dtype.name)
    source = _Arrays(x, y, found)
    return metrics_of(source, found, mine.shape, element, divergence)


def metrics_of(
    source: Source,
    found: Way,
    shape: Sequence[int],
    element: Element,
    divergence: bool = True,
    spread: Callable = map,
) -> Metrics:
    """The metrics of a source of two real tensors. spread: as `Kind.measure` takes it."""
    sums = source.direct(divergence) or found.kind.measure(source, divergence, spread)
    index = sums.counts[at.ODD]
    if index < 0 and sums.sums[at.MAX_D] > 0:
        index = sums.counts[at.WORST]
    elif index < 0 and sums.counts[at.EQUAL] < source.size:
        index = _zeros(source)
    worst = None if index < 0 else worst_at(index, shape, element)
    ulp = _ulp(sums) if found.kind.has_ulp else None
    return _finish(sums, source.size, divergence, ulp, worst)


def _zeros(source: Source) -> int:
    """Index of the first 0 opposite to a -0, which is all that differs where nothing is apart; or
    -1."""
    for part in source.parts:
        for base, x, y in part():
            a, b = (side.view(f"u{side.itemsize}") for side in (x, y))
            unlike = (a != b) & (((a | b) << 1) == 0)
            if unlike.any():
                return base + int(unlike.argmax())
    return -1


class _Arrays:
    """Two flat arrays of one size as a source."""

    def __init__(self, x: np.ndarray, y: np.ndarray, found: Way) -> None:
        self.size = x.size
        self._sides = (x, found.mine), (y, found.golden)

    def direct(self, divergence: bool) -> None:
        """There is no faster way."""

    @property
    def parts(self) -> tuple[Callable[[], Iterator[Piece]]]:
        """All of it; made anew each time, or the arrays would live until a collection."""
        return (self._pieces,)

    def _pieces(self) -> Iterator[Piece]:
        for start in range(0, self.size, _BLOCK):
            pieces = (
                prepare(side[start : start + _BLOCK]) if prepare else side[start : start + _BLOCK]
                for side, prepare in self._sides
            )
            yield start, *pieces


def worst_at(index: int, shape: Sequence[int], element: Element) -> Worst:
    """The element at a flat index."""
    values = element(index)
    place = []
    for size in reversed(shape):
        index, i = divmod(index, size)
        place.append(i)
    return Worst(tuple(reversed(place)), *values)


def _python(value: np.generic) -> bool | int | float | complex:
    return value.item() if value.dtype.kind in "biufc" else float(value)


def _ulp(found: Sums) -> Ulp:
    n = found.sums[at.X] or 1
    greatest = found.counts[at.ULP_MAX] % (1 << 64)
    return Ulp(greatest, found.sums[at.ULP] / n, found.counts[at.ULP_ABOVE] / n)


def _finish(
    found: Sums, size: int, divergence: bool, ulp: Ulp | None, worst: Worst | None
) -> Metrics:
    sums, counts = found.sums, found.counts
    scale_x, scale_y, scale_d, scale_r = found.scales
    n = sums[at.X] or 1.0
    if counts[at.MINE] or counts[at.GOLDEN] or counts[at.OTHER]:
        bad = math.nan if counts[at.UNLIKE_NAN] else math.inf
        cosine: float | None = math.nan
        max_absolute = total_relative = euclidean = absolute = square = max_relative = bad
        mean_relative, distance = bad, math.nan
    else:
        norm_x, norm_y, norm_d = (math.sqrt(sums[i]) for i in (at.XX, at.YY, at.DD))
        cosine = None
        if norm_x > 0 and norm_y > 0:
            cosine = max(-1.0, min(1.0, sums[at.XY] / norm_x / norm_y))
        elif norm_x == norm_y:
            cosine = 1.0
        if norm_y > 0:
            euclidean = norm_d / norm_y * (scale_y / scale_d)
        else:
            euclidean = 1.0 if norm_d > 0 else 0.0
        max_absolute = sums[at.MAX_D] / scale_d
        total_relative = sums[at.R] / scale_r
        absolute = sums[at.D] / n / scale_d
        square = norm_d / math.sqrt(n) / scale_d
        max_relative = sums[at.MAX_R] / scale_r
        mean_relative = sums[at.R] / n / scale_r
        distance = _divergence(*found.shares[: at.EXACT_X])
    if sums[at.X] and not any(counts[at.SAME : at.INT_MIN_X]):  # all finite, as nearly always
        mine = sums[at.X + 1] / scale_x, math.sqrt(sums[at.X + 2] / n) / scale_x
        golden = sums[at.Y + 1] / scale_y, math.sqrt(sums[at.Y + 2] / n) / scale_y
        reach = (
            max(-sums[at.MIN_X], sums[at.MAX_X]) / scale_x,
            max(-sums[at.MIN_Y], sums[at.MAX_Y]) / scale_y,
        )
    else:
        mine = _spread(found, at.X, at.ASIDE_X, at.X_NAN, scale_x)
        golden = _spread(found, at.Y, at.ASIDE_Y, at.Y_NAN, scale_y)
        reach = (
            _reach(found, at.MIN_X, at.REACH_X, at.INF_MINE, scale_x),
            _reach(found, at.MIN_Y, at.REACH_Y, at.INF_GOLDEN, scale_y),
        )
    # by position: there are many small tensors, and a dictionary takes longer than the rest
    return Metrics(
        cosine,
        max_absolute,
        total_relative,
        euclidean,
        distance if divergence else None,
        mine,
        golden,
        absolute,
        square,
        max_relative,
        mean_relative,
        counts[at.EQUAL] / size if size else 1.0,
        size,
        counts[at.SAME],
        counts[at.MINE],
        counts[at.GOLDEN],
        counts[at.OTHER],
        tuple(counts[at.NAN_MINE : at.NAN_BOTH + 1]),
        tuple(counts[at.INF_MINE : at.INF_BOTH + 1]),
        ulp,
        worst,
        reach,
    )


def _divergence(p: float, q: float, total: float) -> float:
    """Of what sums to p and q, and what is the sum of p * ln(p / q)."""
    return max(0.0, total / p - math.log(p / q)) if p else 0.0


def _spread(found: Sums, pairs: int, aside: int, odd: int, scale: float) -> tuple[float, float]:
    """Mean and deviation of one side, agreed NaN and infinity aside; those that are not agreed
    have all their consequences."""
    nan, positive, negative = found.counts[odd : odd + 3]
    if nan or (positive and negative):
        return math.nan, math.nan
    if positive or negative:
        return (math.inf if positive else -math.inf), math.nan
    spread = found.sums[pairs : pairs + 3]
    if found.sums[aside]:
        spread = merged(spread, found.sums[aside : aside + 3])
    count, mean, squares = spread
    if not count:
        return math.nan, math.nan
    return mean / scale, math.sqrt(squares / count) / scale


def _reach(found: Sums, low: int, aside: int, own: int, scale: float) -> float:
    """Greatest magnitude of one side; its maximum follows its minimum `low`."""
    sums, counts = found.sums, found.counts
    if counts[own] or counts[at.INF_BOTH]:
        return math.inf
    pairs = max(-sums[low], sums[low + 1]) / scale if sums[at.X] else 0.0
    return max(pairs, sums[aside])
