"""The ten error metrics and the exact-match share of two arrays, right in float64 terms.

docs/metrics.md defines each with its domain, edge cases and difference from the original. In short:
sums are float64 and scaled so that no square overflows; 64-bit integers subtract exactly; the same
NaN or infinity at the same place on both sides agrees and stays out of every sum, and any other NaN
or infinity makes the distances nan or inf, so that it can never look good.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from . import kernels as k

_PAIRED = ({"int32", "int64"}, {"float16", "float32"})
"""Dtypes that are compared with each other by value, as in the original."""

_HUGE, _TINY = 1e150, 1e-150
"""Outside these float64 squares overflow or vanish."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of one pair of tensors; None where a metric is not defined.

    exact: share of the elements that are equal. mine, golden: (mean, population standard
    deviation). same_nonfinite, mine_nonfinite, golden_nonfinite, other_nonfinite: how many
    positions are NaN or infinite: alike on both sides, on one only, on both but not alike.
    """

    cosine: float | None
    max_absolute: float
    accumulated_relative: float
    relative_euclidean: float
    kullback_leibler: float
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
        return _complex(x.astype(np.complex128), y.astype(np.complex128), exact)
    if x.dtype.kind in "iu" and max(x.dtype.itemsize, y.dtype.itemsize) == 8:
        common = np.result_type(x, y)
        return _finish(*_integers(x.astype(common), y.astype(common)), exact)
    narrow = x.dtype.kind not in "iub" and max(x.dtype.itemsize, y.dtype.itemsize) <= 4
    wide = np.float32 if narrow else np.float64
    return _finish(*_floats(x.astype(wide, copy=False), y.astype(wide, copy=False)), exact)


@dataclass(frozen=True, slots=True)
class _Sums:
    """What the kernels found: their sums, counts and second sums, and the scales to undo."""

    first: np.ndarray
    counts: np.ndarray
    second: np.ndarray
    scales: np.ndarray


def _floats(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, _Sums]:
    scales = _scales(*k.extents(x, y)) if x.dtype == np.float64 else np.ones(3)
    found = _Sums(_first_sums(), np.zeros(5, np.int64), np.zeros(5), scales)
    k.first_pass(x, y, scales, found.first, found.counts)
    k.second_pass(x, y, scales, found.first, found.second)
    return x, y, found


def _integers(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, _Sums]:
    a, b = x.view(np.uint64), y.view(np.uint64)
    distance = np.where(x > y, a - b, b - a)  # wraps to the exact distance
    found = _Sums(_first_sums(), np.zeros(5, np.int64), np.zeros(5), np.ones(3))
    k.first_pass_integers(x, y, distance, found.first)
    wide = x.astype(np.float64), y.astype(np.float64)
    k.second_pass(*wide, found.scales, found.first, found.second)
    return *wide, found


def _complex(x: np.ndarray, y: np.ndarray, exact: float) -> Metrics:
    """Real and imaginary parts as one vector twice as long; what is per element, of moduli."""
    bad_x, bad_y = ~np.isfinite(x), ~np.isfinite(y)
    same = bad_x & bad_y & ((x == y) | (np.isnan(x) & np.isnan(y)))
    counts = (
        exact,
        x.size,
        int(np.count_nonzero(same)),
        int(np.count_nonzero(bad_x & ~bad_y)),
        int(np.count_nonzero(bad_y & ~bad_x)),
        int(np.count_nonzero(bad_x & bad_y & ~same)),
    )
    unlike = (bad_x | bad_y) & ~same
    if unlike.any():
        with_nan = bool((np.isnan(x) | np.isnan(y))[unlike].any())
        with np.errstate(invalid="ignore", over="ignore"):
            return _spoilt(np.abs(x[~same]), np.abs(y[~same]), with_nan, counts)
    x, y = x[~same], y[~same]
    with np.errstate(over="ignore"):  # a modulus beyond float64 is inf
        distance, size = np.abs(x - y), np.abs(y)
        parts = _finish(*_floats(x.view(np.float64), y.view(np.float64)), exact)
        moduli = _finish(*_floats(np.abs(x), size), exact)
        relative = np.where(size > 0, distance / np.where(size > 0, size, 1.0), np.abs(x) > 0)
    n = max(x.size, 1)
    return Metrics(
        cosine=parts.cosine,
        max_absolute=float(distance.max(initial=0.0)),
        accumulated_relative=float(relative.sum()),
        relative_euclidean=parts.relative_euclidean,
        kullback_leibler=moduli.kullback_leibler,
        mine=moduli.mine,
        golden=moduli.golden,
        mean_absolute=float(distance.sum()) / n,
        root_mean_square=parts.root_mean_square * math.sqrt(2.0),
        max_relative=float(relative.max(initial=0.0)),
        mean_relative=float(relative.sum()) / n,
        exact=exact,
        size=counts[1],
        same_nonfinite=counts[2],
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
    if not x.size:
        return 1.0
    if x.dtype != y.dtype:
        equal = (x == y) | ((x != x) & (y != y))
    elif x.dtype.kind == "c":
        part = x.real.dtype
        equal = _same_bits(x.view(part), y.view(part)).reshape(-1, 2).all(axis=1)
    else:
        equal = _same_bits(x, y)
    return int(np.count_nonzero(equal)) / x.size


def _same_bits(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    bits = np.dtype(f"u{x.dtype.itemsize}")
    equal = x.view(bits) == y.view(bits)
    if x.dtype.kind not in "iub" and not equal.all():
        equal |= (x != x) & (y != y)
    return equal
