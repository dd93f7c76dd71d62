"""A block of floats as bits: its bounds, distances in units in the last place, halves widened.

Integers of the same order as the floats are compared and subtracted exactly, and of 32 bits twice
as many fit a register as of the sums' float64. Imported only where it is compiled anew.
"""

from __future__ import annotations

import numpy as np

from . import slots as at
from .compiling import (
    bits32_of,
    float32_of,
    float_of,
    inner,
    most_ulp,
    ordered,
)


@inner
def distance(a, b):
    """The exact distance of two int64, as uint64: there the subtraction wraps to it. (A difference
    of int64 that is cast afterwards keeps its sign in numba.)"""
    one, other = np.uint64(a), np.uint64(b)
    return one - other if a > b else other - one


def _bits(signed, unsigned):
    """`bits16`, `bits32` or `bits64`, by the integers as wide as the floats.

    All in that width, so that as many as can be are done at once. The counts fit, as a block has
    not as many elements. The sum of the distances wraps; that of their upper halves, which does
    not, says how often.
    """
    greatest = np.iinfo(signed).max
    wide = unsigned if signed is np.int64 else np.uint32  # or both sums would wrap
    half = np.iinfo(wide).bits // 2
    power = 2.0**half

    @inner
    def bits(x, y, start, n, magnitude, infinity, s, c):
        magnitude = signed(magnitude)
        least_x = least_y = signed(greatest)
        most_x = most_y = signed(-greatest)
        size = signed(0)
        most = above = equal = unsigned(0)
        high = whole = wide(0)
        for i in range(start, start + n):
            a, b = signed(x[i]), signed(y[i])
            size = max(size, max(signed(a & magnitude), signed(b & magnitude)))
            order_a, order_b = signed(ordered(a, magnitude)), signed(ordered(b, magnitude))
            least_x, most_x = min(least_x, order_a), max(most_x, order_a)
            least_y, most_y = min(least_y, order_b), max(most_y, order_b)
            apart = unsigned(unsigned(max(order_a, order_b)) - unsigned(min(order_a, order_b)))
            most = max(most, apart)
            high = wide(high + (wide(apart) >> wide(half)))
            whole = wide(whole + wide(apart))
            above = unsigned(above + unsigned(apart > unsigned(1)))
            equal = unsigned(equal + unsigned(a == b))
        finite = size < infinity
        if finite:
            low = wide(whole - (high << wide(half)))
            s[at.ULP] += np.float64(high) * power + np.float64(low)
            c[at.ULP_ABOVE] += np.int64(above)
            c[at.EQUAL] += np.int64(equal)
            most_ulp(np.uint64(most), c)
        return finite, least_x, most_x, least_y, most_y

    return bits


bits16, bits32, bits64 = (
    _bits(np.int16, np.uint16), _bits(np.int32, np.uint32), _bits(np.int64, np.uint64)
)  # fmt: skip
"""Distances in units in the last place of a block of floats, and its bounds. infinity: its bits.

Returns whether all are finite, else nothing is added; and the least and the greatest of either
side, as integers of the same order.
"""


@inner
def number32(order):
    """The float that `bits32` has ordered."""
    size = np.float64(float32_of(np.int32(abs(order))))
    return -size if order < 0 else size


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
    """The float that `bits16` has ordered."""
    size = np.int32(abs(order))
    number = np.float64(_of_half(size)) if half else number32(size << np.int32(16))
    return -number if order < 0 else number
