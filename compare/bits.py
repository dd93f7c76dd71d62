"""A block of floats as bits: its bounds, distances in units in the last place, halves widened.

Integers of the same order as the floats are compared and subtracted exactly, and of 32 bits twice
as many fit a register as of the sums' float64. Imported only where it is compiled anew.
"""

from __future__ import annotations

import numpy as np

from . import slots as at
from .compiling import (
    bits32_of,
    fast,
    float32_of,
    float_of,
    inner,
    most_ulp,
    ordered,
    ordered32,
)


@inner
def bits32(x, y, start, n, magnitude, infinity, s, c):
    """Distances in units in the last place, of floats of at most 32 bits, and the bounds.

    All in 32 bits, so that as many as can be are done at once. The sum of the distances wraps; that
    of their upper halves, which does not, says how often. infinity: its bits. Returns whether all
    are finite, else nothing is added; and the least and the greatest of either side, as integers of
    the same order.
    """
    magnitude = np.int32(magnitude)
    least_x = least_y = np.int32(0x7FFFFFFF)
    most_x = most_y = np.int32(-0x7FFFFFFF)
    size = np.int32(0)
    most = high = whole = above = equal = np.uint32(0)
    for i in range(start, start + n):
        a, b = np.int32(x[i]), np.int32(y[i])
        size_a, size_b = np.int32(a & magnitude), np.int32(b & magnitude)
        size = np.int32(max(size, max(size_a, size_b)))
        order_a, order_b = ordered32(a, size_a), ordered32(b, size_b)
        least_x, most_x = min(least_x, order_a), max(most_x, order_a)
        least_y, most_y = min(least_y, order_b), max(most_y, order_b)
        apart = np.uint32(max(order_a, order_b) - min(order_a, order_b))
        most = max(most, apart)
        high = np.uint32(high + (apart >> np.uint32(16)))
        whole = np.uint32(whole + apart)
        above = np.uint32(above + (apart > np.uint32(1)))
        equal = np.uint32(equal + (a == b))
    finite = size < infinity
    if finite:
        low = np.uint32(whole - (high << np.uint32(16)))
        s[at.ULP] += np.float64(high) * 65536.0 + np.float64(low)
        c[at.ULP_ABOVE] += np.int64(above)
        c[at.EQUAL] += np.int64(equal)
        most_ulp(np.uint64(most), c)
    return finite, least_x, most_x, least_y, most_y


@inner
def number32(order):
    """The float that `bits32` has ordered, of 32 bits."""
    size = np.float64(float32_of(np.int32(abs(order))))
    return -size if order < 0 else size


@inner
def distance(a, b):
    """The exact distance of two int64, as uint64: there the subtraction wraps to it. (A difference
    of int64 that is cast afterwards keeps its sign in numba.)"""
    one, other = np.uint64(a), np.uint64(b)
    return one - other if a > b else other - one


@fast
def bits64(x, y, start, n, magnitude, infinity, s, c):
    """The same of float64."""
    least_x = least_y = np.int64(0x7FFFFFFFFFFFFFFF)
    most_x = most_y = np.int64(-0x7FFFFFFFFFFFFFFF)
    size = np.int64(0)
    most = np.uint64(0)
    above = equal = np.int64(0)
    total = 0.0
    for i in range(start, start + n):
        a, b = x[i], y[i]
        size = max(size, max(a & magnitude, b & magnitude))
        order_a, order_b = ordered(a, magnitude), ordered(b, magnitude)
        least_x, most_x = min(least_x, order_a), max(most_x, order_a)
        least_y, most_y = min(least_y, order_b), max(most_y, order_b)
        apart = distance(order_a, order_b)
        most = max(most, apart)
        total += np.float64(apart)
        above += np.int64(apart > np.uint64(1))
        equal += np.int64(a == b)
    finite = size < infinity
    if finite:
        s[at.ULP] += total
        c[at.ULP_ABOVE] += above
        c[at.EQUAL] += equal
        most_ulp(most, c)
    return finite, least_x, most_x, least_y, most_y


@inner
def number64(order):
    """The float that `bits64` has ordered."""
    size = float_of(np.int64(abs(order)))
    return -size if order < 0 else size


@inner
def _of_half(bits):
    """A half, whose bits are given as int32, as a float32; infinity and NaN become numbers."""
    # Shifted as it is, a half is 2**112 too small; the product is exact, also of what is
    # subnormal in half.
    shifted = np.int32((bits << np.int32(13)) & np.int32(-0x70002000))
    return np.float32(float32_of(shifted) * np.float32(2.0**112))


@inner
def widen16(raw, start, n, wide, half, finite):
    """16 bits to the bits of float32: bfloat16, or half where `half`, whose exponent is shorter.

    finite: whether all halves are.
    """
    if not half:
        for i in range(n):
            wide[i] = np.int32(raw[start + i]) << np.int32(16)
    elif finite:
        for i in range(n):
            wide[i] = bits32_of(_of_half(np.int32(raw[start + i])))
    else:
        for i in range(n):
            bits = np.int32(raw[start + i])
            number = bits32_of(_of_half(bits))
            special = (bits & np.int32(0x7FFF)) >= np.int32(0x7C00)
            wide[i] = np.int32(number | np.int32(0x7F800000)) if special else number


@inner
def number16(order, half):
    """The float that `bits32` has ordered, of 16 bits."""
    size = np.int32(abs(order))
    number = np.float64(_of_half(size)) if half else number32(size << np.int32(16))
    return -number if order < 0 else number
