"""The first pass: everything but the divergence. Imported only where it is compiled anew.

`native` keeps the machine code, so that a run does not wait for numba. Hence these functions take
plain pointers and allocate nothing: their code needs no run time of numba's.

A block of elements stays in the first cache while several loops run over it, each simple enough
for the compiler to vectorise. What keeps loops vectorised: greatest values are taken of the bits of
non-negative floats, as integers, for which order is the same; NaN and infinity are found as bits,
and a block that has one runs through a loop that counts them, one by one. The flags that assume
NaN away are safe for that reason: what such a block's fast loops would sum is never looked at.
"""

from __future__ import annotations

import math

import numpy as np

from . import slots as at
from .bits import bits16, bits32, bits64, distance, number16, number32, number64, widen16
from .compiling import bits_of, fast, float_of, inner, most_ulp, ordered, relative, spread, uncommon
from .slots import BLOCK


@inner
def add(xx, yy, xy, d, dd, r, most_r, s):
    """Add to the sums."""
    s[at.XX] += xx
    s[at.YY] += yy
    s[at.XY] += xy
    s[at.D] += d
    s[at.DD] += dd
    s[at.R] += r
    s[at.MAX_R] = max(s[at.MAX_R], most_r)


@inner
def bound(least, most, s, slot):
    """Widen the bounds of one side; the greatest follows the least, which is at a slot."""
    s[slot] = min(s[slot], least)
    s[slot + 1] = max(s[slot + 1], most)


@fast
def _sums(x, y, start, n, s):
    """The sums of a finite block, and both sides' spreads. Returns the greatest distance.

    A spread is taken about the mean of all before the block, so that one loop does.
    """
    about_x, about_y = s[at.X + 1], s[at.Y + 1]
    sx = sy = sxx = syy = sxy = sd = sdd = sr = squares_x = squares_y = 0.0
    most_d = most_r = np.int64(0)
    for i in range(start, start + n):
        a, b = np.float64(x[i]), np.float64(y[i])
        d = abs(a - b)
        size = abs(b)
        divisor = size if size > 0.0 else d
        r = d / (divisor if divisor > 0.0 else 1.0)
        from_x, from_y = a - about_x, b - about_y
        sx += from_x
        sy += from_y
        squares_x += from_x * from_x
        squares_y += from_y * from_y
        sxx += a * a
        syy += b * b
        sxy += a * b
        sd += d
        sdd += d * d
        sr += r
        most_d = max(most_d, bits_of(d))
        most_r = max(most_r, bits_of(r))
    add(sxx, syy, sxy, sd, sdd, sr, float_of(most_r), s)
    _spread_about(about_x, sx, squares_x, x, start, n, s, at.X)
    _spread_about(about_y, sy, squares_y, y, start, n, s, at.Y)
    return float_of(most_d)


@inner
def _spread_about(about, first, second, x, start, n, s, slot):
    """Add n elements' mean and squares to those at a slot, given the sums of their distances to
    `about`, the mean of all before, and of those squared.

    With as many before, what cancels is less than half of the squares of all together, however far
    the mean moves. With fewer, as in the first block, they are gone through again.
    """
    mean = first / n
    if s[slot] >= n:
        spread(n, about, mean, second - first * mean, s, slot)
    else:
        squares(x, start, n, about + mean, s, slot)


@fast
def squares(x, start, n, mean, s, slot):
    """Add n elements' mean, which is about `mean`, and squares to those at a slot."""
    first = second = 0.0
    for i in range(start, start + n):
        d = np.float64(x[i]) - mean
        first += d
        second += d * d
    spread(n, mean, first / n, second - first * first / n, s, slot)


@inner
def _farthest(x, y, start, n, most_d, base, s, c):
    """Remember the first element of a block that is `most_d` apart, if none was farther."""
    if most_d <= s[at.MAX_D]:
        return
    s[at.MAX_D] = most_d
    for i in range(start, start + n):
        if abs(np.float64(x[i]) - np.float64(y[i])) == most_d:
            c[at.WORST] = base + i
            return


@inner
def _one_by_one(x, y, raw_x, raw_y, start, n, shift, magnitude, base, p, s, c, scratch):
    """A block that is not finite, or that must be scaled: its finite pairs go by way of `scratch`.

    shift: raw_x and raw_y are so many elements behind.
    """
    k = 0
    equal = above = np.int64(0)
    most, total, farthest = np.uint64(0), 0.0, s[at.MAX_D]
    for i in range(start, start + n):
        a, b = np.float64(x[i]), np.float64(y[i])
        bits_a, bits_b = np.int64(raw_x[i + shift]), np.int64(raw_y[i + shift])
        if not (math.isfinite(a) and math.isfinite(b)):
            equal += bits_a == bits_b or (math.isnan(a) and math.isnan(b))
            uncommon(a, b, p[at.SCALE_X], p[at.SCALE_Y], 1, base + i, s, c)
            continue
        equal += bits_a == bits_b
        d = abs(a - b)
        if math.isfinite(d):
            r = relative(a, b, d * p[at.SCALE_R], p[at.SCALE_R])
            d *= p[at.SCALE_D]
        else:
            r = abs(a * 0.5 - b * 0.5) * p[at.SCALE_R] / abs(b * 0.5)
            d = abs(a * p[at.SCALE_D] - b * p[at.SCALE_D])
        apart = distance(ordered(bits_a, magnitude), ordered(bits_b, magnitude))
        total += np.float64(apart)
        above += apart > np.uint64(1)
        most = max(most, apart)
        if d > farthest:
            farthest = d
            c[at.WORST] = base + i
        scratch[k], scratch[BLOCK + k] = a * p[at.SCALE_X], b * p[at.SCALE_Y]
        scratch[2 * BLOCK + k], scratch[3 * BLOCK + k] = d, r
        k += 1
    s[at.ULP] += total
    c[at.ULP_ABOVE] += above
    c[at.EQUAL] += equal
    most_ulp(most, c)
    _sums_of_scratch(k, farthest, s, scratch)


@fast
def _sums_of_scratch(n, farthest, s, scratch):
    """The sums of n pairs, their distances and relative errors, one after the other in scratch."""
    if not n:
        return
    sx = sy = sxx = syy = sxy = sd = sdd = sr = 0.0
    most_r = np.int64(0)
    for i in range(n):
        a, b, d, r = scratch[i], scratch[BLOCK + i], scratch[2 * BLOCK + i], scratch[3 * BLOCK + i]
        sx += a
        sy += b
        sxx += a * a
        syy += b * b
        sxy += a * b
        sd += d
        sdd += d * d
        sr += r
        most_r = max(most_r, bits_of(r))
    add(sxx, syy, sxy, sd, sdd, sr, float_of(most_r), s)
    s[at.MAX_D] = farthest
    least_x = least_y = np.int64(0x7FFFFFFFFFFFFFFF)
    most_x = most_y = np.int64(-0x7FFFFFFFFFFFFFFF)
    magnitude = np.int64(0x7FFFFFFFFFFFFFFF)
    for i in range(n):
        order_a = ordered(bits_of(scratch[i]), magnitude)
        order_b = ordered(bits_of(scratch[BLOCK + i]), magnitude)
        least_x, most_x = min(least_x, order_a), max(most_x, order_a)
        least_y, most_y = min(least_y, order_b), max(most_y, order_b)
    bound(number64(least_x), number64(most_x), s, at.MIN_X)
    bound(number64(least_y), number64(most_y), s, at.MIN_Y)
    squares(scratch, 0, n, sx / n, s, at.X)
    squares(scratch, BLOCK, n, sy / n, s, at.Y)


@inner
def is_plain(p):
    """Whether nothing is scaled."""
    x, y, d, r = p[at.SCALE_X], p[at.SCALE_Y], p[at.SCALE_D], p[at.SCALE_R]
    return x == 1.0 and y == 1.0 and d == 1.0 and r == 1.0


def _first(bits, magnitude, infinity, number):
    """A first pass over floats that the loops read as they are."""

    def first(x, y, bits_x, bits_y, n, base, p, s, c, scratch):
        plain = is_plain(p)
        for start in range(0, n, BLOCK):
            m = min(BLOCK, n - start)
            finite = False
            if plain:
                finite, least_x, most_x, least_y, most_y = bits(
                    bits_x, bits_y, start, m, magnitude, infinity, s, c
                )
            if finite:
                bound(number(least_x), number(most_x), s, at.MIN_X)
                bound(number(least_y), number(most_y), s, at.MIN_Y)
                _farthest(x, y, start, m, _sums(x, y, start, m, s), base, s, c)
            else:
                _one_by_one(x, y, bits_x, bits_y, start, m, 0, magnitude, base, p, s, c, scratch)

    return first


first_32 = _first(bits32, 0x7FFFFFFF, 0x7F800000, number32)
first_64 = _first(bits64, 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000, number64)


def first_16(x, y, n, base, half, p, s, c, scratch, wide_x, wide_y, bits_x, bits_y):
    """A first pass over half or bfloat16. wide_x, wide_y: as bits_x, bits_y; room for a block."""
    infinity = 0x7C00 if half else 0x7F80
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        finite, least_x, most_x, least_y, most_y = bits16(x, y, start, m, 0x7FFF, infinity, s, c)
        widen16(x, start, m, bits_x, half, finite)
        widen16(y, start, m, bits_y, half, finite)
        if finite:
            bound(number16(least_x, half), number16(most_x, half), s, at.MIN_X)
            bound(number16(least_y, half), number16(most_y, half), s, at.MIN_Y)
            most_d = _sums(wide_x, wide_y, 0, m, s)
            _farthest(wide_x, wide_y, 0, m, most_d, base + start, s, c)
        else:
            _one_by_one(wide_x, wide_y, x, y, 0, m, start, 0x7FFF, base + start, p, s, c, scratch)


@inner
def _wide(value, unsigned):
    """A 64-bit integer, given as signed, as float64."""
    return np.float64(np.uint64(value)) if unsigned else np.float64(value)


def first_wide(x, y, n, base, unsigned, p, s, c, scratch):
    """A first pass over 64-bit integers: distances are exact before they are rounded once."""
    flip = np.int64(-0x8000000000000000) if unsigned else np.int64(0)
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        least_x, most_x = c[at.INT_MIN_X], c[at.INT_MAX_X]
        least_y, most_y = c[at.INT_MIN_Y], c[at.INT_MAX_Y]
        equal, farthest = np.int64(0), s[at.MAX_D]
        for k in range(m):
            i = start + k
            order_a, order_b = x[i] ^ flip, y[i] ^ flip
            least_x, most_x = min(least_x, order_a), max(most_x, order_a)
            least_y, most_y = min(least_y, order_b), max(most_y, order_b)
            equal += order_a == order_b
            d = np.float64(distance(order_a, order_b))
            a, b = _wide(x[i], unsigned), _wide(y[i], unsigned)
            if d > farthest:
                farthest = d
                c[at.WORST] = base + i
            scratch[k], scratch[BLOCK + k] = a, b
            scratch[2 * BLOCK + k], scratch[3 * BLOCK + k] = d, relative(a, b, d, 1.0)
        c[at.INT_MIN_X], c[at.INT_MAX_X] = least_x, most_x
        c[at.INT_MIN_Y], c[at.INT_MAX_Y] = least_y, most_y
        c[at.EQUAL] += equal
        _sums_of_scratch(m, farthest, s, scratch)
