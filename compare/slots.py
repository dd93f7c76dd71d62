"""Where the compiled loops keep what they find: three arrays, their elements by name.

Sums run over the positions where both sides are finite ("pairs"). D are distances |mine - golden|,
R are relative errors, X is mine and Y golden. A count is followed by a mean, by the squares about
it, and by what the mean lacks, since it is rounded: a SPREAD.
"""

from __future__ import annotations

# Parameters, float64.
SCALE_X, SCALE_Y, SCALE_D, SCALE_R = range(4)
"""Powers of two that keep squares and sums in range; 1 nearly always."""
LOW_X, STEP_X, FLOOR_X, LOW_Y, STEP_Y, FLOOR_Y, ALL_FINITE = range(4, 11)
"""How values become shares for the divergence."""
PARAMETERS = 11

# Sums, float64.
SPREAD = 4
X, Y = 0, 4
XX, YY, XY, D, DD, R, MAX_D, MAX_R, MIN_X, MAX_X, MIN_Y, MAX_Y, ULP = range(8, 21)
ASIDE_X, ASIDE_Y = 21, 25  # finite ones opposite to one that is not
REACH_X, REACH_Y = 29, 30  # greatest magnitude of those, before it is scaled
SUMS = 31

# Counts, int64.
EQUAL, ULP_MAX, ULP_ABOVE, WORST, ODD = range(5)
"""WORST: index of a pair MAX_D apart; ODD: of the first that is not finite and not alike; or -1."""
SAME, MINE, GOLDEN, OTHER, UNLIKE_NAN = range(5, 10)
"""Not finite: alike, in mine only, in golden only, in both but not alike; how many of the unlike
hold a NaN."""
NAN_MINE, NAN_GOLDEN, NAN_BOTH, INF_MINE, INF_GOLDEN, INF_BOTH = range(10, 16)
X_NAN, Y_NAN = 16, 19  # among the unlike: NaN, infinity, -infinity
INT_MIN_X, INT_MAX_X, INT_MIN_Y, INT_MAX_Y = range(22, 26)  # of 64-bit integers
COUNTS = 26

# What the second pass sums, float64.
SHARES_X, SHARES_Y, DIVERGENCE = range(3)
EXACT_X, EXACT_Y = 3, 7  # of 64-bit integers' distances to the least
SHARES = 11

# What one of many pairs takes.
WORST_X, WORST_Y = SUMS + SHARES, SUMS + SHARES + 1  # the elements at ODD or WORST, as stored
FLOATS, INTEGERS = SUMS + SHARES + 2, COUNTS + 1

BLOCK = 2048
"""Elements that stay in the first cache while the loops run over them."""

SCRATCH = 4 * BLOCK
"""float64 elements of scratch that every pass needs."""

HUGE, TINY = 1e150, 1e-150
"""Outside these, squares of float64 overflow or vanish."""

KL_FLOOR = 1.1920928955078125e-07
"""The smallest share before normalising, float32's epsilon, as in the original."""
