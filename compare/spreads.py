"""How the spreads of two sets go together: one formula for the compiled loops and for Python.

A spread is a count, a mean, the squares about it, and what the mean lacks, since it is rounded; see
slots.py. No numba here: what measures must not wait for it.
"""

from __future__ import annotations


def joined(n, mean, squares, rest, m, about, more_squares, more):
    """The spread of two sets together (Chan, Golub, LeVeque 1979).

    The other's mean is `more` beyond `about`. Without what the mean lacks it would not move any
    more where it moves by little, and all after it were far off; so the first set's is not rounded
    either. Every rounding must be as it is written.
    """
    total = n + m
    if n == 0.0:
        mean, step, squares = about, more, more_squares
    else:
        delta = (about - mean) + (more - rest)
        step = rest + delta * (m / total)
        squares += more_squares + delta * delta * (n * m / total)
    # Knuth's two-sum: what the sum lacks
    moved = mean + step
    part = moved - mean
    return total, moved, squares, (mean - (moved - part)) + (step - part)
