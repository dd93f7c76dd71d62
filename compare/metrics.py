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
    index = worst_index(sums, source.size)
    if index is None:
        index = _zeros(source)
    worst = None if index < 0 else worst_at(index, shape, *element(index))
    return finished(sums, source.size, divergence, found.kind.has_ulp, worst)


def worst_index(found: Sums, size: int) -> int | None:
    """Index of the element that differs most, -1 where none does; None where only signs of zeros
    do, whose place was not kept."""
    index = found.counts[at.ODD]
    if index >= 0:
        return index
    if found.sums[at.MAX_D] > 0:
        return found.counts[at.WORST]
    return -1 if found.counts[at.EQUAL] == size else None


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


def worst_at(index: int, shape: Sequence[int], mine: object, golden: object) -> Worst:
    """The element at a flat index, and what it is on both sides."""
    if len(shape) == 1:
        return Worst((index,), mine, golden)
    place = []
    for size in reversed(shape):
        index, i = divmod(index, size)
        place.append(i)
    return Worst(tuple(reversed(place)), mine, golden)


def _python(value: np.generic) -> bool | int | float | complex:
    return value.item() if value.dtype.kind in "biufc" else float(value)


def finished(
    found: Sums, size: int, divergence: bool, has_ulp: bool, worst: Worst | None
) -> Metrics:
    """The metrics that sums come to. has_ulp: the elements are floats."""
    # by position, and with few calls: there are many small tensors
    (
        pairs, mean_x, squares_x, _, _, mean_y, squares_y, _, xx, yy, xy, d, dd, r, max_d, max_r,
        min_x, max_x, min_y, max_y, ulp,
    ) = found.sums[: at.ASIDE_X]  # fmt: skip
    counts = found.counts
    scale_x, scale_y, scale_d, scale_r = found.scales
    n = pairs or 1.0
    if counts[at.MINE] or counts[at.GOLDEN] or counts[at.OTHER]:
        bad = math.nan if counts[at.UNLIKE_NAN] else math.inf
        cosine: float | None = math.nan
        max_absolute = total_relative = euclidean = absolute = square = max_relative = bad
        mean_relative, distance = bad, math.nan
    else:
        norm_x, norm_y, norm_d = math.sqrt(xx), math.sqrt(yy), math.sqrt(dd)
        cosine = None
        if norm_x > 0 and norm_y > 0:
            cosine = max(-1.0, min(1.0, xy / norm_x / norm_y))
        elif norm_x == norm_y:
            cosine = 1.0
        if norm_y > 0:
            euclidean = norm_d / norm_y * (scale_y / scale_d)
        else:
            euclidean = 1.0 if norm_d > 0 else 0.0
        max_absolute = max_d / scale_d
        total_relative = r / scale_r
        absolute = d / n / scale_d
        square = math.sqrt(dd / n) / scale_d
        max_relative = max_r / scale_r
        mean_relative = r / n / scale_r
        distance = _divergence(*found.shares[: at.EXACT_X])
    if pairs and not any(counts[at.SAME : at.INT_MIN_X]):  # all finite, as nearly always
        mine = mean_x / scale_x, math.sqrt(squares_x / n) / scale_x
        golden = mean_y / scale_y, math.sqrt(squares_y / n) / scale_y
        reach = max(-min_x, max_x) / scale_x, max(-min_y, max_y) / scale_y
        nan = infinite = (0, 0, 0)
    else:
        mine = _spread(found, at.X, at.ASIDE_X, at.X_NAN, scale_x)
        golden = _spread(found, at.Y, at.ASIDE_Y, at.Y_NAN, scale_y)
        reach = (
            _reach(found, at.MIN_X, at.REACH_X, at.INF_MINE, scale_x),
            _reach(found, at.MIN_Y, at.REACH_Y, at.INF_GOLDEN, scale_y),
        )
        nan = tuple(counts[at.NAN_MINE : at.NAN_BOTH + 1])
        infinite = tuple(counts[at.INF_MINE : at.INF_BOTH + 1])
    if has_ulp:
        greatest = counts[at.ULP_MAX] % (1 << 64)
        apart = Ulp(greatest, ulp / n, counts[at.ULP_ABOVE] / n)
    else:
        apart = None
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
        nan,
        infinite,
        apart,
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
    spread = found.sums[pairs : pairs + at.SPREAD]
    if found.sums[aside]:
        spread = merged(spread, found.sums[aside : aside + at.SPREAD])
    count, mean, squares, _ = spread
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
