"""The ten error metrics and the exact-match share of two arrays, right in float64 terms.

docs/metrics.md defines each with its domain, edge cases and difference from the original. In short:
sums are float64 and scaled so that no square overflows; 64-bit integers subtract exactly; the same
NaN or infinity at the same place on both sides agrees and stays out of every sum, and any other NaN
or infinity makes the distances nan or inf, so that it can never look good.

Arrays are widened block by block, so that a comparison takes little more memory than the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from . import kernels as k

_PAIRED = ({"int32", "int64"}, {"float16", "float32"})
"""Dtypes that are compared with each other by value, as in the original."""

_BLOCK = 512 * k.BLOCK
"""Elements that are widened at a time; of the kernels' own blocks, which stay what they are."""

_HUGE, _TINY = 1e150, 1e-150
"""Outside these float64 squares overflow or vanish."""


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


@dataclass(frozen=True, slots=True)
class Metrics:
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


def comparable(mine: str, golden: str) -> bool:
    """Whether tensors of these two dtypes (torch's names) are compared by value."""
    return mine == golden or any({mine, golden} == names for names in _PAIRED)


def compare_arrays(mine: np.ndarray, golden: np.ndarray) -> Metrics:
    """Compute all metrics of two arrays.

    mine, golden: one shape; bool, integers, floats (ml_dtypes' too) or complex; of one dtype, or of
    two that `comparable` pairs. Raises ValueError when the shapes differ.
    """
    if mine.shape != golden.shape:
        raise ValueError(f"shapes differ: {mine.shape} and {golden.shape}")
    x, y = np.ascontiguousarray(mine).reshape(-1), np.ascontiguousarray(golden).reshape(-1)
    exact = _equal_share(x, y)
    if x.dtype.kind == "c":
        return _complex(x, y, exact)
    if x.dtype.kind in "iu" and max(x.dtype.itemsize, y.dtype.itemsize) == 8:
        return _finish(x, y, _integers(x, y), exact)
    return _finish(x, y, _floats(x, y), exact)


@dataclass(frozen=True, slots=True)
class _Sums:
    """What the kernels found: their sums, counts and second sums, and the scales to undo."""

    first: np.ndarray
    counts: np.ndarray
    second: np.ndarray
    scales: np.ndarray


def _blocks(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    for start in range(0, arrays[0].size, _BLOCK):
        yield tuple(array[start : start + _BLOCK] for array in arrays)


def _floats(x: np.ndarray, y: np.ndarray) -> _Sums:
    narrow = x.dtype.kind not in "iub" and max(x.dtype.itemsize, y.dtype.itemsize) <= 4
    wide = np.float32 if narrow else np.float64
    scales = np.ones(3)
    if x.dtype == y.dtype == np.float64:
        scales = _scales(*k.extents(x, y))
    found = _Sums(_first_sums(), np.zeros(5, np.int64), np.zeros(5), scales)
    for a, b in _blocks(x, y):
        a, b = a.astype(wide, copy=False), b.astype(wide, copy=False)
        k.first_pass(a, b, scales, found.first, found.counts)
    _second_pass(x, y, wide, found)
    return found


def _integers(x: np.ndarray, y: np.ndarray) -> _Sums:
    common = np.result_type(x, y)
    found = _Sums(_first_sums(), np.zeros(5, np.int64), np.zeros(5), np.ones(3))
    for a, b in _blocks(x, y):
        a, b = a.astype(common, copy=False), b.astype(common, copy=False)
        first, second = a.view(np.uint64), b.view(np.uint64)
        distance = np.where(a > b, first - second, second - first)  # wraps to the exact distance
        k.first_pass_integers(a, b, distance, found.first)
    _second_pass(x, y, np.float64, found)
    if x.size:
        found.second[2:] = _shares_of_integers(x, y, found)
    return found


def _shares_of_integers(x: np.ndarray, y: np.ndarray, found: _Sums) -> np.ndarray:
    """The divergence's sums from exact distances to the minimum: 2 ** 63 apart from 2 ** 63 + 1."""
    first = found.first.copy()
    lows = x.min(), y.min()
    for values, low, low_at, high_at in (
        (x, lows[0], k.MINX, k.MAXX),
        (y, lows[1], k.MINY, k.MAXY),
    ):
        first[low_at], first[high_at] = 0.0, float(int(values.max()) - int(low))
    shifted = _Sums(first, found.counts, np.zeros(5), found.scales)
    for a, b in _blocks(x, y):
        parts = (_above(v, low).astype(np.float64) for v, low in zip((a, b), lows, strict=True))
        k.second_pass(*parts, True, shifted.scales, first, shifted.second)
    return shifted.second[2:]


def _above(values: np.ndarray, low: np.integer) -> np.ndarray:
    # As 64 unsigned bits, where the subtraction wraps to the exact distance.
    wide = np.int64 if values.dtype.kind == "i" else np.uint64
    return values.astype(wide).view(np.uint64) - np.asarray(low, wide).view(np.uint64)


def _second_pass(x: np.ndarray, y: np.ndarray, wide: type, found: _Sums) -> None:
    finite = found.first[k.N] == x.size
    for a, b in _blocks(x, y):
        a, b = a.astype(wide, copy=False), b.astype(wide, copy=False)
        k.second_pass(a, b, finite, found.scales, found.first, found.second)


def _complex(x: np.ndarray, y: np.ndarray, exact: float) -> Metrics:
    """Real and imaginary parts as one vector twice as long; what is per element, of moduli."""
    size, same = x.size, 0
    if not all(np.isfinite(a).all() and np.isfinite(b).all() for a, b in _blocks(x, y)):
        bad_x, bad_y = ~np.isfinite(x), ~np.isfinite(y)
        alike = bad_x & bad_y & ((x == y) | (np.isnan(x) & np.isnan(y)))
        unlike = (bad_x | bad_y) & ~alike
        same = int(np.count_nonzero(alike))
        counts = (
            exact,
            size,
            same,
            int(np.count_nonzero(bad_x & ~bad_y)),
            int(np.count_nonzero(bad_y & ~bad_x)),
            int(np.count_nonzero(bad_x & bad_y & ~alike)),
        )
        if unlike.any():
            with_nan = bool((np.isnan(x) | np.isnan(y))[unlike].any())
            x, y = x[~alike].astype(np.complex128), y[~alike].astype(np.complex128)
            with np.errstate(invalid="ignore", over="ignore"):
                return _spoilt(np.abs(x), np.abs(y), with_nan, counts)
        x, y = x[~alike], y[~alike]
    sizes_x, sizes_y = np.empty(x.size), np.empty(x.size)
    max_absolute = total = max_relative = total_relative = 0.0
    with np.errstate(over="ignore"):  # a modulus beyond float64 is inf
        for a, b, out_x, out_y in _blocks(x, y, sizes_x, sizes_y):
            a, b = a.astype(np.complex128), b.astype(np.complex128)
            distance = np.abs(a - b)
            np.abs(a, out=out_x)
            np.abs(b, out=out_y)
            relative = np.where(out_y > 0, distance / np.where(out_y > 0, out_y, 1.0), out_x > 0)
            max_absolute = max(max_absolute, float(distance.max()))
            total += float(distance.sum())
            max_relative = max(max_relative, float(relative.max()))
            total_relative += float(relative.sum())
        part = x.real.dtype
        values = x.view(part), y.view(part)
        parts = _finish(*values, _floats(*values), exact)
        moduli = _finish(sizes_x, sizes_y, _floats(sizes_x, sizes_y), exact)
    n = max(x.size, 1)
    return Metrics(
        cosine=parts.cosine,
        max_absolute=max_absolute,
        accumulated_relative=total_relative,
        relative_euclidean=parts.relative_euclidean,
        kullback_leibler=moduli.kullback_leibler,
        mine=moduli.mine,
        golden=moduli.golden,
        mean_absolute=total / n,
        root_mean_square=parts.root_mean_square * math.sqrt(2.0),
        max_relative=max_relative,
        mean_relative=total_relative / n,
        exact=exact,
        size=size,
        same_nonfinite=same,
    )


def _spoilt(
    x: np.ndarray, y: np.ndarray, with_nan: bool, counts: tuple[float, int, int, int, int, int]
) -> Metrics:
    """Metrics of what has a NaN or an infinity that the other side has not. x, y: without agreed
    ones."""
    bad = math.nan if with_nan else math.inf
    sides = _plain_statistics(x), _plain_statistics(y)
    return Metrics(math.nan, bad, bad, bad, math.nan, *sides, bad, bad, bad, bad, *counts)


def _finish(x: np.ndarray, y: np.ndarray, found: _Sums, exact: float) -> Metrics:
    # Python's numbers from here on: numpy's scalars warn where a result is beyond float64
    first, second = found.first.tolist(), found.second.tolist()
    scale_x, scale_y, scale_d = found.scales.tolist()
    same, mine, golden, other, with_nan = found.counts.tolist()
    n = int(first[k.N])
    counts = (exact, x.size, same, mine, golden, other)
    if mine or golden or other:
        # ml_dtypes' numbers have no mean
        x, y = (v.astype(np.float32) if v.dtype.itemsize < 4 else v for v in (x, y))
        keep = ~(~np.isfinite(x) & ((x == y) | (np.isnan(x) & np.isnan(y))))
        return _spoilt(x[keep], y[keep], bool(with_nan), counts)
    if n == 0:
        nothing = (math.nan, math.nan)
        return Metrics(1.0, 0.0, 0.0, 0.0, 0.0, nothing, nothing, 0.0, 0.0, 0.0, 0.0, *counts)
    norm_x, norm_y = math.sqrt(first[k.SXX]), math.sqrt(first[k.SYY])
    norm_d = math.sqrt(first[k.SDD])
    cosine: float | None = None
    if norm_x > 0 and norm_y > 0:
        cosine = max(-1.0, min(1.0, first[k.SXY] / norm_x / norm_y))
    elif norm_x == norm_y:
        cosine = 1.0
    if norm_y > 0:
        relative_euclidean = norm_d / norm_y * (scale_y / scale_d)
    else:
        relative_euclidean = 1.0 if norm_d > 0 else 0.0
    _, _, p, q, divergence = second
    return Metrics(
        cosine=cosine,
        max_absolute=first[k.MAXD] / scale_d,
        accumulated_relative=first[k.SR],
        relative_euclidean=relative_euclidean,
        kullback_leibler=max(0.0, divergence / p - math.log(p / q)),
        mine=(first[k.SX] / n / scale_x, math.sqrt(second[0] / n) / scale_x),
        golden=(first[k.SY] / n / scale_y, math.sqrt(second[1] / n) / scale_y),
        mean_absolute=first[k.SD] / n / scale_d,
        root_mean_square=norm_d / math.sqrt(n) / scale_d,
        max_relative=first[k.MAXR],
        mean_relative=first[k.SR] / n,
        exact=exact,
        size=x.size,
        same_nonfinite=same,
    )


def _first_sums() -> np.ndarray:
    sums = np.zeros(15)
    sums[k.MINX] = sums[k.MINY] = math.inf
    sums[k.MAXX] = sums[k.MAXY] = -math.inf
    return sums


def _scales(*extents: float) -> np.ndarray:
    """Powers of two that bring the greatest magnitudes where squares neither overflow nor
    vanish."""
    scales = np.ones(3)
    for i, extent in enumerate(extents):
        if extent and not _TINY < extent < _HUGE:
            exponent = 1024 if math.isinf(extent) else math.frexp(extent)[1]
            scales[i] = math.ldexp(1.0, max(-1000, min(1000, -exponent)))
    return scales


def _plain_statistics(values: np.ndarray) -> tuple[float, float]:
    """Mean and deviation, NaN and infinity with all their consequences."""
    with np.errstate(invalid="ignore", over="ignore"):
        return float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))


def _equal_share(x: np.ndarray, y: np.ndarray) -> float:
    """Share of equal elements: same bits or both NaN; by value where the dtypes differ."""
    equal = sum(int(np.count_nonzero(_equal(a, b))) for a, b in _blocks(x, y))
    return equal / x.size if x.size else 1.0


def _equal(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype != y.dtype:
        return (x == y) | ((x != x) & (y != y))
    if x.dtype.kind == "c":
        part = x.real.dtype
        return _same_bits(x.view(part), y.view(part)).reshape(-1, 2).all(axis=1)
    return _same_bits(x, y)


def _same_bits(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    bits = np.dtype(f"u{x.dtype.itemsize}")
    equal = x.view(bits) == y.view(bits)
    if x.dtype.kind not in "iub" and not equal.all():
        equal |= (x != x) & (y != y)
    return equal
