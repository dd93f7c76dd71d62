"""Tensors of 8-bit elements: how often each pair of codes occurs says everything about them.

There are 65536 pairs, so one pass counts them and the metrics are sums over a table, exact and
weighted. Imported only where it is compiled anew.
"""

from __future__ import annotations

import math

import numpy as np

from . import slots as at
from .compiling import inner, most_ulp, relative, spread, uncommon
from .divergence import log_ratio, share_of
from .loops import add, bound

PAIRS = 1 << 16


def count_pairs(x, y, n, table):
    """Add one to table[mine * 256 + golden] for each element."""
    for i in range(n):
        table[(np.int64(x[i]) << 8) | np.int64(y[i])] += 1


def first_table(table, values, orders, s, c):
    """The first pass over counted pairs. values, orders: of each code, as a number and in order."""
    for pair in range(PAIRS):
        weight = table[pair]
        if not weight:
            continue
        code_a, code_b = pair >> 8, pair & 255
        a, b = values[code_a], values[code_b]
        if code_a == code_b or (math.isnan(a) and math.isnan(b)):
            c[at.EQUAL] += weight
        if not (math.isfinite(a) and math.isfinite(b)):
            uncommon(a, b, 1.0, 1.0, weight, pair, s, c)
            continue
        n, d = np.float64(weight), abs(a - b)
        r = relative(a, b, d, 1.0)
        apart = np.uint64(abs(orders[code_a] - orders[code_b]))
        s[at.ULP] += n * np.float64(apart)
        c[at.ULP_ABOVE] += weight * (apart > np.uint64(1))
        most_ulp(apart, c)
        add(n * a * a, n * b * b, n * a * b, n * d, n * d * d, n * r, r, s)
        bound(a, a, s, at.MIN_X)
        bound(b, b, s, at.MIN_Y)
        s[at.MAX_D] = max(s[at.MAX_D], d)
        spread(n, a, 0.0, 0.0, s, at.X)
        spread(n, b, 0.0, 0.0, s, at.Y)


def second_table(table, values, p, out):
    """The shares and the divergence of counted pairs."""
    for pair in range(PAIRS):
        weight = table[pair]
        a, b = values[pair >> 8], values[pair & 255]
        if weight and math.isfinite(a) and math.isfinite(b):
            share_p = share_of(a, p[at.LOW_X], p[at.STEP_X], p[at.FLOOR_X])
            share_q = share_of(b, p[at.LOW_Y], p[at.STEP_Y], p[at.FLOOR_Y])
            out[at.SHARES_X] += weight * share_p
            out[at.SHARES_Y] += weight * share_q
            out[at.DIVERGENCE] += weight * (share_p * log_ratio(share_p, share_q))


def find_pair(x, y, n, values, odd, s, found):
    """Put into found[0] the index of the first pair that is MAX_D apart, or where `odd` that is
    not finite and not alike; n where there is none."""
    farthest = s[at.MAX_D]
    i = 0
    if odd:
        while i < n and _alike(values[x[i]], values[y[i]]):
            i += 1
    else:  # no distance of what is not finite equals one that is
        while i < n and abs(values[x[i]] - values[y[i]]) != farthest:
            i += 1
    found[0] = i


@inner
def _alike(a, b):
    """Whether two are finite, or not finite in the same way."""
    return (math.isfinite(a) and math.isfinite(b)) or a == b or (math.isnan(a) and math.isnan(b))
