"""Reading and both passes in one call, for tensors that lie in their files as the loops want them.

Between pieces there is no Python then, which for a small tensor is most of the time, and for a
large one keeps threads from waiting for each other. Imported only where it is compiled anew.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic

from . import slots as at
from .compiling import inner
from .divergence import second_16, second_float
from .loops import first_16, first_32, first_64

# The address as an integer: pointers of several types would be several functions.
_pread = types.ExternalFunction(
    "pread", types.int64(types.int32, types.int64, types.int64, types.int64)
)


@intrinsic
def _behind(_, pointer, count):
    """A pointer so many elements further."""
    return pointer(pointer, types.int64), lambda context, builder, signature, given: builder.gep(
        given[0], [given[1]]
    )


@inner
def _fill(file, room, size, where):
    """Read `size` bytes at `where` to the address `room`; whether they were there."""
    while size > 0:
        count = _pread(np.int32(file), room, size, where)
        if count <= 0:
            return False
        size -= count
        room += count
        where += count
    return True


@inner
def _set_shares(n, p, s):
    """The second pass's parameters, as `shares_of` has them."""
    flat_x, flat_y = s[at.MIN_X] == s[at.MAX_X], s[at.MIN_Y] == s[at.MAX_Y]
    p[at.LOW_X], p[at.LOW_Y] = s[at.MIN_X], s[at.MIN_Y]
    p[at.STEP_X] = 0.0 if flat_x else 1.0 / (s[at.MAX_X] - s[at.MIN_X])
    p[at.STEP_Y] = 0.0 if flat_y else 1.0 / (s[at.MAX_Y] - s[at.MIN_Y])
    p[at.FLOOR_X] = 1.0 if flat_x else at.KL_FLOOR
    p[at.FLOOR_Y] = 1.0 if flat_y else at.KL_FLOOR
    p[at.ALL_FINITE] = 1.0 if s[at.X] == n else 0.0


@inner
def _is_extreme(value):
    return value != 0.0 and not at.TINY < value < at.HUGE


def _direct(itemsize, first, second, may_scale):
    """A function that reads and measures n elements of one kind.

    found[0] is 1 where somebody else must: a file ended too early, or values must be scaled.
    room_x, room_y: addresses of memory for `piece` elements, or where `kept` for all; x, y, bits_x,
    bits_y are the same memory as the passes take it, the others are their scratch.
    """

    def direct(
        file_x, where_x, file_y, where_y, n, piece, kept, divergence, half, room_x, room_y,
        x, y, bits_x, bits_y, wide_x, wide_y, wide_bits_x, wide_bits_y, p, s, c, out, scratch,
        found,
    ):  # fmt: skip
        found[0] = 1
        for start in range(0, n, piece):
            m = min(piece, n - start)
            shift = start if kept else 0
            skip, behind = start * itemsize, shift * itemsize
            if not _fill(file_x, room_x + behind, m * itemsize, where_x + skip):
                return
            if not _fill(file_y, room_y + behind, m * itemsize, where_y + skip):
                return
            first(
                _behind(x, shift), _behind(y, shift), _behind(bits_x, shift),
                _behind(bits_y, shift), wide_x, wide_y, wide_bits_x, wide_bits_y,
                m, start, half, p, s, c, scratch,
            )  # fmt: skip
        if may_scale and _must_scale(s):
            return
        found[0] = 0
        if not divergence or s[at.X] == 0.0:
            return
        _set_shares(n, p, s)
        for start in range(0, n, piece):
            m = min(piece, n - start)
            shift = start if kept else 0
            if not kept:
                skip = start * itemsize
                if not _fill(file_x, room_x, m * itemsize, where_x + skip) or not _fill(
                    file_y, room_y, m * itemsize, where_y + skip
                ):
                    found[0] = 1
                    return
            second(
                _behind(x, shift), _behind(y, shift), wide_x, wide_y, wide_bits_x, wide_bits_y,
                m, half, p, out, scratch,
            )  # fmt: skip

    return direct


@inner
def _must_scale(s):
    """Whether squares or sums would leave float64's range, as `Floats._scales` has it."""
    x = max(max(abs(s[at.MIN_X]), abs(s[at.MAX_X])) if s[at.X] else 0.0, s[at.REACH_X])
    y = max(max(abs(s[at.MIN_Y]), abs(s[at.MAX_Y])) if s[at.X] else 0.0, s[at.REACH_Y])
    return (
        _is_extreme(x) or _is_extreme(y) or _is_extreme(s[at.MAX_D]) or np.isinf(s[at.R])
    )  # fmt: skip


_first_32, _first_64, _first_16 = inner(first_32), inner(first_64), inner(first_16)
_second_float, _second_16 = inner(second_float), inner(second_16)


@inner
def _one_32(x, y, bits_x, bits_y, wx, wy, bx, by, n, base, half, p, s, c, scratch):
    _first_32(x, y, bits_x, bits_y, n, base, p, s, c, scratch)


@inner
def _one_64(x, y, bits_x, bits_y, wx, wy, bx, by, n, base, half, p, s, c, scratch):
    _first_64(x, y, bits_x, bits_y, n, base, p, s, c, scratch)


@inner
def _one_16(x, y, bits_x, bits_y, wx, wy, bx, by, n, base, half, p, s, c, scratch):
    _first_16(x, y, n, base, half, p, s, c, scratch, wx, wy, bx, by)


@inner
def _two_float(x, y, wx, wy, bx, by, n, half, p, out, scratch):
    _second_float(x, y, n, p, out, scratch)


@inner
def _two_16(x, y, wx, wy, bx, by, n, half, p, out, scratch):
    _second_16(x, y, n, half, p, out, scratch, wx, wy, bx, by)


def _many(direct):
    """A function that does the same for `count` pairs.

    pairs: file_x, where_x, file_y, where_y and n of each. floats, counts: at.FLOATS and at.INTEGERS
    of each: sums, shares, and both sides of the worst element; counts, and found.
    """

    def many(
        pairs, count, piece, kept, divergence, half, room_x, room_y, x, y, bits_x, bits_y,
        wide_x, wide_y, wide_bits_x, wide_bits_y, p, floats, counts, scratch,
    ):  # fmt: skip
        for i in range(count):
            pair = _behind(pairs, 5 * i)
            s, c = _behind(floats, at.FLOATS * i), _behind(counts, at.INTEGERS * i)
            for k in range(at.SCALE_R + 1):
                p[k] = 1.0
            direct(
                pair[0], pair[1], pair[2], pair[3], pair[4], piece, kept, divergence, half,
                room_x, room_y, x, y, bits_x, bits_y, wide_x, wide_y, wide_bits_x, wide_bits_y,
                p, s, c, _behind(s, at.SUMS), scratch, _behind(c, at.COUNTS),
            )  # fmt: skip
            worst = c[at.ODD] if c[at.ODD] >= 0 else c[at.WORST]
            if kept and c[at.COUNTS] == 0 and worst >= 0:
                s[at.WORST_X], s[at.WORST_Y] = x[worst], y[worst]

    return many


direct_32 = _many(inner(_direct(4, _one_32, _two_float, False)))
direct_64 = _many(inner(_direct(8, _one_64, _two_float, True)))
direct_16 = _many(inner(_direct(2, _one_16, _two_16, False)))
