"""HiFloat8, Ascend's 8-bit float whose mantissa is longest near one, as float32.

Sign, then a prefix that says how many bits of exponent follow (`11` four, `10` three, `01` two,
`001` one, `0001` none), the exponent as a sign and a magnitude whose leading one is not stored, and
the rest as mantissa. `0000` is subnormal: `2**(mantissa - 23)`. No bits are left for a negative
zero: 0x80 is NaN; 0x6f and 0xef are the infinities. float32 holds every value exactly.
"""

from __future__ import annotations

import numpy as np

from dumper.errors import DumpError

_PREFIXES = ((0b11, 2, 4), (0b10, 2, 3), (0b01, 2, 2), (0b001, 3, 1), (0b0001, 4, 0))
"""(prefix, its bits, bits of exponent); it begins at bit 6."""

_NAN = 0x80
_INFINITE = 0x6F
LARGEST = 32768.0
"""The largest finite value."""


def _value(code: int) -> float:
    sign = -1.0 if code & 0x80 else 1.0
    rest = code & 0x7F
    if rest == _INFINITE:
        return sign * float("inf")
    for prefix, length, exponent_bits in _PREFIXES:
        if rest >> (7 - length) == prefix:
            mantissa_bits = 7 - length - exponent_bits
            mantissa = (rest & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
            field = (rest >> mantissa_bits) & ((1 << exponent_bits) - 1)
            return sign * (1 + mantissa) * 2.0 ** _exponent(field, exponent_bits)
    if rest == 0:
        return float("nan") if code == _NAN else 0.0
    return sign * 2.0 ** (rest - 23)


def _exponent(field: int, bits: int) -> int:
    if not bits:
        return 0
    high = 1 << (bits - 1)  # of the field it is the sign, of the magnitude the one not stored
    magnitude = field | high
    return -magnitude if field & high else magnitude


_VALUES = np.array([_value(code) for code in range(256)], np.float32)
_ORDER = np.argsort(_VALUES, kind="stable")  # NaN last


def decode(codes: np.ndarray) -> np.ndarray:
    """float32 values of uint8 codes, of their shape."""
    return _VALUES[codes]


def encode(values: np.ndarray) -> np.ndarray:
    """uint8 codes of float32 values. Both zeros become the one there is.

    Raises DumpError for a value that is none of HiFloat8's: nothing is rounded here.
    """
    places = np.searchsorted(_VALUES[_ORDER[:-1]], values).clip(max=254)
    codes = _ORDER[places].astype(np.uint8)
    codes[np.isnan(values)] = _NAN
    if not ((_VALUES[codes] == values) | np.isnan(values)).all():
        raise DumpError("these values are not all HiFloat8's", "hifloat8", "round them first")
    return codes
