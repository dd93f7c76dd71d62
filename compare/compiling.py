"""How the loops are compiled, and what they share: bits of floats, and spreads that add up."""

from __future__ import annotations

import math

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from . import slots as at
from .spreads import joined

_NO_RUNTIME = {"error_model": "numpy", "_nrt": False}
_FAST = {"reassoc", "contract", "nsz", "nnan", "ninf"}

inner = numba.njit(**_NO_RUNTIME)
"""A part of a loop, compiled into it: numba hands its caller's `fastmath` down to it."""

fast = numba.njit(fastmath=_FAST, **_NO_RUNTIME)
"""The same, where the order of sums is free and nothing is NaN or infinite."""

exact = numba.njit(fastmath=False, **_NO_RUNTIME)
"""The same, where every rounding must be as it is written, whoever calls it."""

LN2 = 0.6931471805599453


def _cast(source: types.Type, target: types.Type, kind: ir.Type):
    """A function that reads the same bits as another type."""

    @intrinsic
    def same_bits(_, value):
        return target(source), lambda context, builder, signature, given: builder.bitcast(
            given[0], kind
        )

    return same_bits


bits_of = _cast(types.float64, types.int64, ir.IntType(64))
float_of = _cast(types.int64, types.float64, ir.DoubleType())
float32_of = _cast(types.int32, types.float32, ir.FloatType())
bits32_of = _cast(types.float32, types.int32, ir.IntType(32))


@inner
def ordered(bits, magnitude):
    """Bits of a float as an integer of the same order; -0 and 0 are both 0."""
    return -(bits & magnitude) if bits < 0 else bits & magnitude


@inner
def relative(a, b, d, one):
    """d / abs(b); where golden is 0, relative to mine, which makes it 1. one: what 1 is, where d is
    scaled."""
    return d / abs(b) if b != 0.0 else (one if a != 0.0 else 0.0)


_joined = exact(joined)


@inner
def spread(n, about, mean, squares, s, slot):
    """Add a block's spread to that so far, which begins at a slot of s. about: to which the mean is
    relative."""
    s[slot], s[slot + 1], s[slot + 2], s[slot + 3] = _joined(
        s[slot], s[slot + 1], s[slot + 2], s[slot + 3], np.float64(n), about, squares, mean
    )


@inner
def most_ulp(apart, c):
    """Remember a distance in ULPs, uint64, if none was greater."""
    if apart > np.uint64(c[at.ULP_MAX]):
        c[at.ULP_MAX] = np.int64(apart)


@inner
def uncommon(a, b, scale_x, scale_y, weight, index, s, c):
    """Count a position that is not finite on both sides. index: its place."""
    nan_a, nan_b = math.isnan(a), math.isnan(b)
    inf_a, inf_b = math.isinf(a), math.isinf(b)
    c[at.NAN_MINE] += weight * (nan_a and not nan_b)
    c[at.NAN_GOLDEN] += weight * (nan_b and not nan_a)
    c[at.NAN_BOTH] += weight * (nan_a and nan_b)
    c[at.INF_MINE] += weight * (inf_a and not inf_b)
    c[at.INF_GOLDEN] += weight * (inf_b and not inf_a)
    c[at.INF_BOTH] += weight * (inf_a and inf_b)
    if a == b or (nan_a and nan_b):
        c[at.SAME] += weight
        return
    if math.isfinite(b):
        c[at.MINE] += weight
        _aside(b, scale_y, weight, s, at.ASIDE_Y, at.REACH_Y)
    elif math.isfinite(a):
        c[at.GOLDEN] += weight
        _aside(a, scale_x, weight, s, at.ASIDE_X, at.REACH_X)
    else:
        c[at.OTHER] += weight
    c[at.UNLIKE_NAN] += weight * (nan_a or nan_b)
    _unlike(a, weight, c, at.X_NAN)
    _unlike(b, weight, c, at.Y_NAN)
    if c[at.ODD] < 0:
        c[at.ODD] = index


@inner
def _aside(value, scale, weight, s, slot, reach):
    """A finite value opposite to one that is not: it belongs to its own side's mean only."""
    spread(np.float64(weight), value * scale, 0.0, 0.0, s, slot)
    s[reach] = max(s[reach], abs(value))


@inner
def _unlike(value, weight, c, slot):
    if math.isnan(value):
        c[slot] += weight
    elif value > 0 and math.isinf(value):
        c[slot + 1] += weight
    elif math.isinf(value):
        c[slot + 2] += weight
