"""Numbers as JSON has them, there and back. No torch.

Infinity and NaN are words, and a file may hold anything.
"""

from __future__ import annotations

import math
from typing import Any

_WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def worded(value: Any) -> Any:
    """A value in which every infinity and NaN is a word, in lists and dicts too."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: worded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [worded(item) for item in value]
    return value


def number_of(value: Any) -> float | None:
    """The number that a JSON value is; None where it is none, or beyond float64."""
    if isinstance(value, str):
        return _WORDS.get(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return None
    return None


def is_count(value: Any) -> bool:
    """Whether a JSON value can count something: an integer from 0 on that a machine has."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
