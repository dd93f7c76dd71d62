"""The loops under the metrics: one pass over two arrays for every sum, a second for what needs
means.

Compiled by numba, because numpy needs a pass (and an array) for each sum. Blocks are converted to
float64 in small buffers first, so that only the conversion depends on the dtype, and so that a
block without NaN and infinity, the usual one, runs through loops that the compiler can vectorise.
"""

from __future__ import annotations

import math

import numba
import numpy as np

BLOCK = 2048

# What `first_pass` sums over the positions where both sides are finite. D are differences, R are
# relative errors; the scales that keep squares in range are the caller's to undo.
N, SX, SY, SXX, SYY, SXY, SD, SDD, MAXD, SR, MAXR, MINX, MAXX, MINY, MAXY = range(15)

# Positions that are not finite on both sides: the same on both, or else mine only, golden only,
# different on both; and how many of those not the same hold a NaN.
SAME, MINE, GOLDEN, OTHER, WITH_NAN = range(5)

KL_FLOOR = 1.1920928955078125e-07
"""The smallest share before normalising, float32's epsilon, as in the original."""

# np.float64, for numba's `float` leaves a float32 what it is.
# No flag that assumes away NaN or infinity but where a block was seen to have none.
_REORDER = {"reassoc", "contract", "nsz"}
_FINITE = {"reassoc", "contract", "nsz", "nnan"}


def _compiled(**options: object):
    def decorate(function):
        try:
            return numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        except RuntimeError:  # numba found no writable place for its cache: slower, not broken
            return numba.njit(nogil=True, error_model="numpy", **options)(function)

    return decorate


@_compiled()
def _relative(a, b, distance):
    """distance / abs(b); where golden is 0, relative to mine, which makes it 1."""
    return distance / abs(b) if b != 0.0 else (1.0 if a != 0.0 else 0.0)


@_compiled(fastmath=_REORDER)
def _load(x, y, start, stop, bx, by, bd, br):
    """Fill the buffers. Returns whether all was finite; where not, they are of no use."""
    spoilt = 0.0
    for i in range(start, stop):
        a, b = np.float64(x[i]), np.float64(y[i])
        d = abs(a - b)
        k = i - start
        bx[k], by[k], bd[k] = a, b, d
        br[k] = _relative(a, b, d)
        spoilt += d * 0.0
    return spoilt == 0.0


@_compiled()
def _load_some(x, y, start, stop, scales, bx, by, bd, br, counts):
    """The same where values must be scaled or are not all finite. Returns how many are loaded."""
    k = 0
    for i in range(start, stop):
        a, b = np.float64(x[i]), np.float64(y[i])
        if math.isfinite(a) and math.isfinite(b):
            d = abs(a - b)
            bx[k], by[k] = a * scales[0], b * scales[1]
            if math.isfinite(d):
                bd[k] = d * scales[2]
                br[k] = _relative(a, b, d)
            else:
                bd[k] = abs(a * scales[2] - b * scales[2])
                br[k] = abs(a * 0.5 - b * 0.5) / abs(b * 0.5)
            k += 1
        elif a == b or (math.isnan(a) and math.isnan(b)):
            counts[SAME] += 1
        else:
            if math.isfinite(b):
                counts[MINE] += 1
            elif math.isfinite(a):
                counts[GOLDEN] += 1
            else:
                counts[OTHER] += 1
            if math.isnan(a) or math.isnan(b):
                counts[WITH_NAN] += 1
    return k


@_compiled()
def extents(x, y):
    """Greatest abs(x), abs(y) and abs(x - y) over the positions where both are finite."""
    most_x = most_y = most_d = 0.0
    for i in range(x.size):
        a, b = np.float64(x[i]), np.float64(y[i])
        if math.isfinite(a) and math.isfinite(b):
            most_x = max(most_x, abs(a))
            most_y = max(most_y, abs(b))
            most_d = max(most_d, abs(a - b))
    return most_x, most_y, most_d


@_compiled(fastmath=_FINITE)
def _accumulate(bx, by, bd, br, n, sums):
    sx = sy = sxx = syy = sxy = sd = sdd = maxd = sr = maxr = 0.0
    minx, maxx, miny, maxy = sums[MINX], sums[MAXX], sums[MINY], sums[MAXY]
    for i in range(n):
        a, b, d, r = bx[i], by[i], bd[i], br[i]
        sx += a
        sy += b
        sxx += a * a
        syy += b * b
        sxy += a * b
        sd += d
        sdd += d * d
        sr += r
        maxd = max(maxd, d)
        maxr = max(maxr, r)
        minx = min(minx, a)
        maxx = max(maxx, a)
        miny = min(miny, b)
        maxy = max(maxy, b)
    sums[N] += n
    sums[SX] += sx
    sums[SY] += sy
    sums[SXX] += sxx
    sums[SYY] += syy
    sums[SXY] += sxy
    sums[SD] += sd
    sums[SDD] += sdd
    sums[SR] += sr
    sums[MAXD] = max(sums[MAXD], maxd)
    sums[MAXR] = max(sums[MAXR], maxr)
    sums[MINX], sums[MAXX], sums[MINY], sums[MAXY] = minx, maxx, miny, maxy


@_compiled()
def first_pass(x, y, scales, sums, counts):
    """Add everything that needs no mean to `sums` and `counts`.

    x, y: 1-D float32 or float64 of one length. scales: float64[3], factors for x, y and their
    difference. sums: float64[15], counts: int64[5], as indexed above; sums' minima start at inf.
    """
    bx, by = np.empty(BLOCK), np.empty(BLOCK)
    bd, br = np.empty(BLOCK), np.empty(BLOCK)
    plain = scales[0] == 1.0 and scales[1] == 1.0 and scales[2] == 1.0
    for start in range(0, x.size, BLOCK):
        stop = min(start + BLOCK, x.size)
        if plain and _load(x, y, start, stop, bx, by, bd, br):
            n = stop - start
        else:
            n = _load_some(x, y, start, stop, scales, bx, by, bd, br, counts)
        _accumulate(bx, by, bd, br, n, sums)


@_compiled()
def first_pass_integers(x, y, distance, sums):
    """The same for 64-bit integers, whose difference is exact: float64 of the exact `distance`.

    x, y: 1-D int64 or uint64. distance: uint64, abs(x - y).
    """
    bx, by = np.empty(BLOCK), np.empty(BLOCK)
    bd, br = np.empty(BLOCK), np.empty(BLOCK)
    for start in range(0, x.size, BLOCK):
        stop = min(start + BLOCK, x.size)
        for i in range(start, stop):
            k = i - start
            bx[k], by[k], bd[k] = np.float64(x[i]), np.float64(y[i]), np.float64(distance[i])
            br[k] = _relative(bx[k], by[k], bd[k])
        _accumulate(bx, by, bd, br, stop - start, sums)


@_compiled()
def _load_pairs(x, y, start, stop, scales, finite, bx, by):
    scale_x, scale_y = scales[0], scales[1]
    if finite:
        for i in range(start, stop):
            bx[i - start], by[i - start] = x[i] * scale_x, y[i] * scale_y
        return stop - start
    k = 0
    for i in range(start, stop):
        a, b = np.float64(x[i]), np.float64(y[i])
        if math.isfinite(a) and math.isfinite(b):
            bx[k], by[k] = a * scale_x, b * scale_y
            k += 1
    return k


@_compiled(fastmath=_FINITE)
def _shares(values, n, low, step, floor):
    """Turn values into what is to be normalised for the divergence, in place. Returns their sum."""
    total = 0.0
    for i in range(n):
        share = max((values[i] - low) * step, floor)
        values[i] = share
        total += share
    return total


@_compiled(fastmath=_FINITE)
def _squares(values, n, mean):
    total = 0.0
    for i in range(n):
        total += (values[i] - mean) * (values[i] - mean)
    return total


@_compiled(fastmath=_FINITE)
def _divergence(p, q, ratio, n):
    """Sum of p * ln(p / q) for positive normal p / q, in a form that the compiler can vectorise.

    ln(m * 2**e) = e * ln 2 + 2 * artanh((m - 1) / (m + 1)) with m in [sqrt(1/2), sqrt(2)); the
    series to s**21 is exact to float64's last bits there.
    """
    for i in range(n):
        ratio[i] = p[i] / q[i]
    bits = ratio.view(np.int64)
    total = 0.0
    for i in range(n):
        e = (bits[i] - 0x3FE6A09E667F3BCD) >> 52
        bits[i] -= e << 52
        s = (ratio[i] - 1.0) / (ratio[i] + 1.0)
        t = s * s
        series = 1 / 19 + t * (1 / 21)
        series = 1 / 15 + t * (1 / 17 + t * series)
        series = 1 / 11 + t * (1 / 13 + t * series)
        series = 1 / 7 + t * (1 / 9 + t * series)
        series = 1 / 3 + t * (1 / 5 + t * series)
        total += p[i] * (e * 0.6931471805599453 + 2.0 * s * (1.0 + t * series))
    return total


@_compiled()
def second_pass(x, y, finite, scales, sums, out):
    """Sums about the means, and those of the Kullback-Leibler divergence, over finite positions.

    x, y, scales, sums: as the first pass had or made them. finite: whether all positions are. Adds
    to out, float64[5]: squares about the mean of x and of y, then the sums of p, of q and of
    p * ln(p / q), p and q being x and y between their least and greatest, at least KL_FLOOR.
    """
    n = max(sums[N], 1.0)
    mean_x, mean_y = sums[SX] / n, sums[SY] / n
    low_x, low_y = sums[MINX], sums[MINY]
    # A constant side is uniform: every share is 1.
    flat_x, flat_y = sums[MAXX] == low_x, sums[MAXY] == low_y
    step_x = 0.0 if flat_x else 1.0 / (sums[MAXX] - low_x)
    step_y = 0.0 if flat_y else 1.0 / (sums[MAXY] - low_y)
    floor_x = 1.0 if flat_x else KL_FLOOR
    floor_y = 1.0 if flat_y else KL_FLOOR
    bx, by, ratio = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for start in range(0, x.size, BLOCK):
        m = _load_pairs(x, y, start, min(start + BLOCK, x.size), scales, finite, bx, by)
        out[0] += _squares(bx, m, mean_x)
        out[1] += _squares(by, m, mean_y)
        out[2] += _shares(bx, m, low_x, step_x, floor_x)
        out[3] += _shares(by, m, low_y, step_y, floor_y)
        out[4] += _divergence(bx, by, ratio, m)
