"""Numbers that carry how far rounding may have moved them.

An op's formula is written once, in plain arithmetic, and gives its exact value and the bound on
what a float computation of it may say. First order running error analysis: every operation adds its
own rounding, one unit of its result, to what its operands bring along, scaled by its derivatives.
A sum of K terms adds, on each side, the greater of

    u * C/2 * sum|terms|
    u * Z * sqrt(K / 6) * sqrt(sum**2 / 3 + sum(terms**2) / 2)

The first was measured: it covers products of K from 64 to 32768 on data without structure. The
second is statistical, for long sums of one sign and for sums that a few large terms rule: K
roundings, each of up to one unit of a partial sum, are random to each other (a unit's root mean
square is 1/sqrt(6) over all mantissas); partial sums go to the sum in even steps, and walk from
that line by what the terms are. Their total stays below Z standard deviations with the confidence
that `CONFIDENCE` says. Terms that are one number are rounded alike: where gradients of means or
expanded tensors are added up, a run of m equal terms counts as one, m times as large, with m
roundings that are one: sum(terms**2) is m times what it was, and the whole sqrt(m) times. Where all
terms of a product are one number, chance has no part: each of K roundings may be a unit of its
partial sum, u * K/2 * |sum| together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

C = 3.8
"""Of c * u * sum|a||b|, between two sides: covered dtypes and K from 64 to 32768 when measured."""

CONFIDENCE = 1 - 2e-9
"""That a healthy element's rounding stays within the statistical part, two-sided."""

Z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2)

FUNCTION = 4.0
"""Units (half a ULP each) that exp, tanh, log and the like may be off: two ULP."""

_PER_SIDE = C / 2

_ALIKE = 1.001
"""K * sum of squares over the square of the sum: below this, terms are taken to be one number."""

ERF = 16.0
"""Units of 1 that erf may be off: vectorised kernels take a polynomial with that absolute error."""

Axis = int | tuple[int, ...] | None


def _erf(x: Any) -> Any:
    from scipy.special import erf  # a tenth of a second, and few dumps have it

    return erf(x)


def _expit(x: Any) -> Any:
    e = np.exp(-np.abs(x))  # which neither overflows nor cancels
    return np.where(np.asarray(x) < 0, e, 1.0) / (1.0 + e)


class Tracked:
    """Values in float64, and how far off each may be in units of the arithmetic's rounding.

    v: the values. w: array or number that broadcasts to v, not negative; 0 is exact. r: units of
    one rounding of what is computed from these: 1, or more where the arithmetic is that of a
    16-bit dtype and only sums are not.
    """

    __slots__ = ("r", "v", "w")
    __array_ufunc__ = None  # so that an array on the left leaves it to us

    def __init__(self, v: Any, w: Any = 0.0, r: float = 1.0) -> None:
        self.v, self.r = v, r
        self.w = w if np.isscalar(w) or np.isfinite(np.sum(w)) else np.where(np.isfinite(w), w, 0)

    @property
    def is_exact(self) -> bool:
        """Whether nothing was rounded yet."""
        return np.isscalar(self.w) and self.w == 0.0

    def __neg__(self) -> Tracked:
        return Tracked(-self.v, self.w, self.r)

    def __abs__(self) -> Tracked:
        return Tracked(np.abs(self.v), self.w, self.r)

    def __add__(self, other: Any) -> Tracked:
        a, b = self, tracked(other)
        if _is_zero(b):
            return a
        if _is_zero(a):
            return b
        v, r = a.v + b.v, max(a.r, b.r)
        return Tracked(v, a.w + b.w + r * np.abs(v), r)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Tracked:
        return self + -tracked(other)

    def __rsub__(self, other: Any) -> Tracked:
        return tracked(other) + -self

    def __mul__(self, other: Any) -> Tracked:
        a, b = self, tracked(other)
        if _is_one(b):
            return a
        if _is_one(a):
            return b
        v, r = a.v * b.v, max(a.r, b.r)
        return Tracked(v, _times(a.v, b.w) + _times(b.v, a.w) + r * np.abs(v), r)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Tracked:
        a, b = self, tracked(other)
        v, r = a.v / b.v, max(a.r, b.r)
        brought = a.w + _times(v, b.w)
        if not _exact(brought):
            brought = brought / np.abs(b.v)
        return Tracked(v, brought + r * np.abs(v), r)

    def __rtruediv__(self, other: Any) -> Tracked:
        return tracked(other) / self

    def __getitem__(self, at: Any) -> Tracked:
        return self.moved(lambda x: x[at])

    def moved(self, move: Callable[[np.ndarray], np.ndarray]) -> Tracked:
        """Values and bounds moved alike: reshape, transpose, take."""
        w = self.w if np.isscalar(self.w) else move(np.broadcast_to(self.w, self.v.shape))
        return Tracked(move(self.v), w, self.r)

    def reshape(self, *shape: int) -> Tracked:
        """As of arrays."""
        return self.moved(lambda x: x.reshape(*shape))

    def sum(self, axis: Axis = None, keepdims: bool = False, stored: bool = False) -> Tracked:
        """The sum along some axes, in any order. stored: partial sums are kept in the dtype of the
        arithmetic, as results of a kernel's parts are."""
        v = self.v.sum(axis=axis, keepdims=keepdims)
        size = np.abs(self.v).sum(axis=axis, keepdims=keepdims)
        squares = np.square(np.abs(self.v)).sum(axis=axis, keepdims=keepdims)
        count = self.v.size // max(1, v.size)
        brought = 0.0
        if not self.is_exact:
            brought = np.broadcast_to(self.w, self.v.shape).sum(axis=axis, keepdims=keepdims)
        own = summed(v, size, squares, count, _runs(self.v, axis))
        own = own * (self.r if stored else 1.0)
        return Tracked(v, brought + own, self.r)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Tracked:
        """The mean along some axes."""
        total = self.sum(axis, keepdims)
        return total / float(max(1, self.v.size // max(1, total.v.size)))

    def max(self, axis: Axis = None, keepdims: bool = False) -> Tracked:
        """The greatest along some axes, which is one of the values."""
        v = self.v.max(axis=axis, keepdims=keepdims)
        w = self.w
        if not np.isscalar(w):
            w = np.broadcast_to(w, self.v.shape).max(axis=axis, keepdims=keepdims)
        return Tracked(v, w, self.r)


def tracked(value: Any) -> Tracked:
    """An exact value, if it is none yet."""
    return value if isinstance(value, Tracked) else Tracked(value)


def summed(
    v: np.ndarray, size: np.ndarray, squares: np.ndarray, count: int, alike: float = 1.0
) -> np.ndarray:
    """What a sum adds on one side: v the sum, size and squares the sums of the terms' magnitudes
    and squares, count how many terms. alike: how many neighbouring terms are one number."""
    if count <= 1:
        return np.zeros(np.shape(v))
    walk = walked(v, alike * squares, count) * math.sqrt(alike)
    found = np.maximum(_PER_SIDE * size, walk)
    if count <= 2:
        return found
    one = count * squares <= _ALIKE * np.square(np.abs(v))
    return np.maximum(found, np.where(one, count / 2 * np.abs(v), 0.0))


def _runs(x: np.ndarray, axis: Axis) -> float:
    """How many neighbours along some axes are one number, on average; zeros round nothing."""
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    found = 1.0
    for each in axes:
        size = x.shape[each]
        if size > 1:
            ahead, behind = (
                x[(slice(None),) * (each % x.ndim) + (at,)] for at in (slice(1, None), slice(-1))
            )
            share = np.count_nonzero((ahead == behind) & (ahead != 0)) / max(1, ahead.size)
            found *= min(size, 1 / max(1 - share, 1 / size))
    return found


def walked(v: np.ndarray, squares: np.ndarray, count: int) -> np.ndarray:
    """The statistical part: `count` roundings of partial sums."""
    return Z * math.sqrt(count / 6) * np.sqrt(np.square(np.abs(v)) / 3 + squares / 2)


def apply(
    f: Callable[[np.ndarray], np.ndarray],
    slope: Callable[[np.ndarray, np.ndarray], np.ndarray],
    units: float = FUNCTION,
) -> Callable[[Any], Tracked]:
    """A function of one number. slope: |f'| from (x, f(x)). units: how exactly it is computed."""

    def applied(x: Any) -> Tracked:
        x = tracked(x)
        v = f(x.v)
        brought = 0.0 if x.is_exact else _times(slope(x.v, v), x.w)
        return Tracked(v, brought + (units + x.r - 1) * np.abs(v), x.r)

    return applied


exp = apply(np.exp, lambda x, y: y)
expm1 = apply(np.expm1, lambda x, y: y + 1)
log = apply(np.log, lambda x, y: 1 / x)
log1p = apply(np.log1p, lambda x, y: 1 / (1 + x))
tanh = apply(np.tanh, lambda x, y: 1 - y * y)


def erf(x: Any) -> Tracked:
    """The error function."""
    found = apply(_erf, lambda x, y: 2 / math.sqrt(math.pi) * np.exp(-x * x), 0.0)(x)
    return Tracked(found.v, found.w + ERF + (found.r - 1) * np.abs(found.v), found.r)


sqrt = apply(np.sqrt, lambda x, y: 0.5 / y, 2.0)
rsqrt = apply(lambda x: 1 / np.sqrt(x), lambda x, y: 0.5 * y / x)
sin = apply(np.sin, lambda x, y: np.cos(x))
cos = apply(np.cos, lambda x, y: np.sin(x))
sigmoid = apply(_expit, lambda x, y: y * (1 - y), FUNCTION + 2)


def power(x: Any, exponent: float) -> Tracked:
    """x to a number."""
    if exponent == 2:
        return tracked(x) * tracked(x)
    f = apply(lambda a: np.power(a, exponent), lambda a, y: exponent * y / a, FUNCTION)
    found = f(x)
    off = found.r * np.abs(found.v * exponent * np.log(np.abs(tracked(x).v)))  # it is rounded too
    return Tracked(found.v, found.w + np.where(np.isfinite(off), off, 0), found.r)


def where(condition: np.ndarray, a: Any, b: Any) -> Tracked:
    """a where the condition holds, else b."""
    a, b = tracked(a), tracked(b)
    return Tracked(np.where(condition, a.v, b.v), np.where(condition, a.w, b.w), max(a.r, b.r))


def maximum(a: Any, b: Any) -> Tracked:
    """The greater of two; NaN if either is."""
    a, b = tracked(a), tracked(b)
    return Tracked(np.maximum(a.v, b.v), np.maximum(a.w, b.w), max(a.r, b.r))


def minimum(a: Any, b: Any) -> Tracked:
    """The lesser of two; NaN if either is."""
    return -maximum(-tracked(a), -tracked(b))


def bilinear(
    f: Callable[[np.ndarray, np.ndarray], np.ndarray],
    a: Any,
    b: Any,
    count: int,
    slack: float = 0.0,
    stores: int = 0,
    unit: float = 1.0,
) -> Tracked:
    """A sum of `count` products of elements of a and b, as f computes it of plain arrays.

    slack: how far off operands may be, in units, beside what they bring along. stores: how many
    times a partial sum is kept with a rounding of `unit`.
    """
    a, b = tracked(a), tracked(b)
    v, r = f(a.v, b.v), max(a.r, b.r)
    x, y = (np.abs(side.v).astype(np.float32) for side in (a, b))
    size = f(x, y).astype(np.float64)
    w = np.abs(v)
    if count > 1:
        squares = f(np.square(x), np.square(y)).astype(np.float64)
        w = summed(v, size, squares, count)
        if stores > 1 and unit > 1:
            w = w + unit * walked(v, squares, stores)
    if slack:
        w = w + 2 * slack * size
    if not a.is_exact:
        w = w + f(np.broadcast_to(a.w, a.v.shape).astype(np.float32), y)
    if not b.is_exact:
        w = w + f(x, np.broadcast_to(b.w, b.v.shape).astype(np.float32))
    return Tracked(v, w, r)


def _times(v: Any, w: Any) -> Any:
    return 0.0 if _exact(w) else np.abs(v) * w


def _exact(w: Any) -> bool:
    return np.isscalar(w) and w == 0.0


def _is_zero(x: Tracked) -> bool:
    return np.isscalar(x.v) and x.v == 0 and x.is_exact


def _is_one(x: Tracked) -> bool:
    return np.isscalar(x.v) and x.v == 1 and x.is_exact
