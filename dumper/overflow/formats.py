"""What a float format can hold: where it overflows, where values become subnormal or 0.

Every number here follows from four facts of a format (exponent bits, mantissa bits, bias, and what
its topmost codes are spent on), with rounding to nearest, ties to even. The thresholds are the
float64 numbers at which rounding changes its answer, so that a test on a float64 magnitude is as
exact as a cast. What a cast makes of a number that does not fit is the kernel's affair (infinity,
NaN, or the largest number), and so is a device that takes subnormals for 0. No torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True, slots=True)
class Format:
    """What one float format can hold; all magnitudes, in float64.

    name: torch's name of the dtype. largest: the largest finite number. overflows_from: the
    smallest magnitude that does not round to a number of the format (65520 in float16). smallest:
    the smallest positive number. smallest_normal: the smallest that has all bits of the mantissa.
    zero_to: the largest magnitude that rounds to 0. normal_from: the smallest that rounds to a
    normal number.
    """

    name: str
    largest: float
    overflows_from: float
    smallest_normal: float
    smallest: float
    zero_to: float
    normal_from: float


_INFINITE, _ONE_NAN, _ALL_NUMBERS = "infinite", "one NaN", "all numbers"
"""What the topmost codes are: a whole exponent for infinity and NaN (IEEE 754), one code for NaN
(fn), or numbers like all others (fnuz: NaN is where -0 would be)."""


def _format(name: str, exponent: int, mantissa: int, bias: int, top: str) -> Format:
    codes = 1 << exponent + mantissa  # of one sign
    reserved = {_INFINITE: 1 << mantissa, _ONE_NAN: 1, _ALL_NUMBERS: 0}[top]
    last = codes - reserved - 1
    power = (last >> mantissa) - bias - mantissa
    significand = (1 << mantissa) | (last & (1 << mantissa) - 1)
    end = _power_times(2 * significand + 1, power - 1)  # half way to the number that is not there
    if last % 2 == 0:  # the tie goes to the even code, which is the last number's
        end = math.nextafter(end, math.inf)
    smallest = math.ldexp(1, 1 - bias - mantissa)
    normal = math.ldexp(1, 1 - bias)
    half = smallest / 2
    return Format(name, math.ldexp(significand, power), end, normal, smallest, half, normal - half)


def _power_times(number: int, power: int) -> float:
    try:
        return math.ldexp(number, power)
    except OverflowError:  # float64 itself: only infinity is beyond its end
        return math.inf


_TABLE = (
    _format("float64", 11, 52, 1023, _INFINITE),
    _format("float32", 8, 23, 127, _INFINITE),
    _format("float16", 5, 10, 15, _INFINITE),
    _format("bfloat16", 8, 7, 127, _INFINITE),
    _format("float8_e4m3fn", 4, 3, 7, _ONE_NAN),
    _format("float8_e5m2", 5, 2, 15, _INFINITE),
    _format("float8_e4m3fnuz", 4, 3, 8, _ALL_NUMBERS),
    _format("float8_e5m2fnuz", 5, 2, 16, _ALL_NUMBERS),
)

FORMATS: dict[str, Format] = {each.name: each for each in _TABLE}
"""By torch's name of the dtype. float8_e8m0fnu is none of them: it has neither sign nor 0."""


def fits(magnitude: float, fmt: Format) -> bool:
    """Whether a magnitude rounds to a number of the format. NaN and infinity do not."""
    return magnitude < fmt.overflows_from


def headroom(magnitude: float, fmt: Format) -> float:
    """Bits left before overflow: log2(largest / magnitude).

    0 for what rounds to the largest number, less than 0 for what does not fit, infinity for 0, NaN
    for NaN.
    """
    if magnitude == 0:
        return math.inf
    if fmt.largest <= magnitude < fmt.overflows_from:
        return 0.0
    if not math.isfinite(magnitude):
        return -magnitude
    fraction, power = math.frexp(magnitude)
    largest, top = math.frexp(fmt.largest)
    return math.log2(largest / fraction) + (top - power)


class Share(NamedTuple):
    """Shares of the finite values other than 0, from 0 to 1; 0 where there are no such values."""

    zero: float
    subnormal: float
    overflow: float


class Lost(NamedTuple):
    """What becomes of values in a format: counts of them.

    nonzero: the finite values other than 0; of these, zero become 0, subnormal become subnormal
    numbers, which have fewer bits, and overflow do not fit. not_finite: infinities and NaN, which
    are in none of the others. looked: all values.
    """

    nonzero: int
    zero: int
    subnormal: int
    overflow: int
    not_finite: int = 0
    looked: int = 0

    @property
    def share(self) -> Share:
        """The shares of the non-zero values."""
        of = max(1, self.nonzero)
        return Share(self.zero / of, self.subnormal / of, self.overflow / of)


def lost(values: np.ndarray, fmt: Format, scale: float = 1.0) -> Lost:
    """What would become of real values, multiplied by `scale` in float64, in a format.

    values: any shape and any real dtype. Raises ValueError for a scale that is not a positive
    finite number.
    """
    if not 0 < scale < math.inf:
        raise ValueError(f"scale {scale} is not a positive finite number")
    with np.errstate(invalid="ignore"):  # signaling NaN
        magnitudes = np.abs(values.astype(np.float64))
    finite = magnitudes[np.isfinite(magnitudes)]
    nonzero = finite[finite != 0]
    if scale != 1:
        with np.errstate(over="ignore", under="ignore"):
            nonzero = nonzero * scale
    zero = np.count_nonzero(nonzero <= fmt.zero_to)
    return Lost(
        nonzero=nonzero.size,
        zero=int(zero),
        subnormal=int(np.count_nonzero(nonzero < fmt.normal_from) - zero),
        overflow=int(np.count_nonzero(nonzero >= fmt.overflows_from)),
        not_finite=values.size - finite.size,
        looked=values.size,
    )
