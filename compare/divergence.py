"""The second pass: the Kullback-Leibler divergence, which needs the least and the greatest values.

Imported only where it is compiled anew.
"""

from __future__ import annotations

import math

import numpy as np

from . import slots as at
from .bits import widen16
from .compiling import LN2, bits_of, fast, float_of, inner
from .loops import is_plain, squares
from .slots import BLOCK


@inner
def log_ratio(p, q):
    """ln(p / q) of positive normal numbers, in a form that the compiler can vectorise.

    With p = m * 2**e and m near q: e * ln 2 + 2 * artanh(s), where s = (m - q) / (m + q) is at most
    0.2. artanh(s) / s is 1 + t * Q(t) with t = s * s. Q has degree 7, and is Chebyshev's fit of it
    for t up to 0.04: off by less than 1e-18, so that only rounding is left.
    """
    e = (bits_of(p) - bits_of(q) + (np.int64(1) << np.int64(51))) >> np.int64(52)
    m = float_of(bits_of(p) - (e << np.int64(52)))
    s = (m - q) / (m + q)
    t = s * s
    # Estrin's scheme: short chains, so that elements overlap
    t2 = t * t
    t4 = t2 * t2
    low = (1.0 + t * 0.3333333333333333) + t2 * (0.200000000000039 + t * 0.14285714283669596)
    middle = (0.11111111518903621 + t * 0.09090869227361513) + t2 * (
        0.07694417338900958 + t * 0.0660518024256631
    )
    series = low + t4 * (middle + t4 * 0.06802007853562039)
    return np.float64(e) * LN2 + 2.0 * s * series


@inner
def share_of(value, low, step, floor):
    """Where a value lies between the least and the greatest, at least `floor`."""
    return float_of(max(bits_of((value - low) * step), bits_of(floor)))


@fast
def _shares(x, y, start, n, shift, low_x, low_y, p, out):
    step_x, floor_x, step_y, floor_y = p[at.STEP_X], p[at.FLOOR_X], p[at.STEP_Y], p[at.FLOOR_Y]
    total_p = total_q = total = 0.0
    for i in range(start, start + n):
        share_p = share_of(np.float64(x[i]), low_x, step_x, floor_x)
        share_q = share_of(np.float64(y[i + shift]), low_y, step_y, floor_y)
        total_p += share_p
        total_q += share_q
        total += share_p * log_ratio(share_p, share_q)
    out[at.SHARES_X] += total_p
    out[at.SHARES_Y] += total_q
    out[at.DIVERGENCE] += total


@inner
def _shares_one_by_one(x, y, start, n, p, out, scratch):
    k = 0
    for i in range(start, start + n):
        a, b = np.float64(x[i]), np.float64(y[i])
        if math.isfinite(a) and math.isfinite(b):
            scratch[k], scratch[BLOCK + k] = a * p[at.SCALE_X], b * p[at.SCALE_Y]
            k += 1
    _shares(scratch, scratch, 0, k, BLOCK, p[at.LOW_X], p[at.LOW_Y], p, out)


def second_float(x, y, n, p, out, scratch):
    """The shares of floats, and their divergence: sums of p, of q and of p * ln(p / q)."""
    plain = is_plain(p) and p[at.ALL_FINITE] == 1.0
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        if plain:
            _shares(x, y, start, m, 0, p[at.LOW_X], p[at.LOW_Y], p, out)
        else:
            _shares_one_by_one(x, y, start, m, p, out, scratch)


def second_16(x, y, n, half, p, out, scratch, wide_x, wide_y, bits_x, bits_y):
    """The same of half or bfloat16."""
    finite = p[at.ALL_FINITE] == 1.0
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        widen16(x, start, m, bits_x, half, finite)
        widen16(y, start, m, bits_y, half, finite)
        if finite:
            _shares(wide_x, wide_y, 0, m, 0, p[at.LOW_X], p[at.LOW_Y], p, out)
        else:
            _shares_one_by_one(wide_x, wide_y, 0, m, p, out, scratch)


def second_wide(x, y, n, unsigned, c, p, out, scratch):
    """The same of 64-bit integers, by their exact distances to the least; and their spread, which
    float64 could not tell from the integers themselves."""
    flip = np.int64(-0x8000000000000000) if unsigned else np.int64(0)
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        for k in range(m):
            scratch[k] = np.float64(np.uint64(x[start + k] ^ flip) - np.uint64(c[at.INT_MIN_X]))
            scratch[BLOCK + k] = np.float64(
                np.uint64(y[start + k] ^ flip) - np.uint64(c[at.INT_MIN_Y])
            )
        _shares(scratch, scratch, 0, m, BLOCK, 0.0, 0.0, p, out)
        mean_x = mean_y = 0.0
        for k in range(m):
            mean_x += scratch[k] / m
            mean_y += scratch[BLOCK + k] / m
        squares(scratch, 0, m, mean_x, out, at.EXACT_X)
        squares(scratch, BLOCK, m, mean_y, out, at.EXACT_Y)
