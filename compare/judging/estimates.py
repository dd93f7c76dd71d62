"""Rules for ops without a formula, or without inputs in the file: coarser, and they say so."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .numerics import rounding, smallest

DEFAULT = 32.0
"""Of units in the last place of each element, and of the tensor's root mean square."""

_MOST, _LEAST = 1 / 32, 2.0
"""Relatively, what narrow dtypes are allowed at most; but two units at least."""

CONDITION = 8.0
"""How many times the inputs' relative distance an op's outputs may be apart, where all that is
known of the op is that it is smooth."""


def relative_limit(dtypes: tuple[str, str]) -> float:
    """Allowed error of an op of which only the result is known, relative to its size."""
    unit = max(map(rounding, dtypes))
    return unit * max(_LEAST, min(DEFAULT, _MOST / unit)) if unit else 0.0


def limits(golden: np.ndarray, dtypes: tuple[str, str]) -> np.ndarray:
    """Allowed error by element of an op of which only the result is known."""
    size = np.abs(golden)
    finite = size[np.isfinite(size)]
    spread = math.sqrt(float(np.mean(finite * finite))) if finite.size else 0.0
    size = np.where(np.isfinite(size), size, 0.0)
    return relative_limit(dtypes) * (size + spread) + sum(map(smallest, dtypes))


def distance(mine: np.ndarray, golden: np.ndarray) -> float:
    """Norm of the difference over golden's norm; infinite where golden is all zero and mine is
    not, or either is not finite in another place than the other."""
    with np.errstate(all="ignore"):
        a, b = (np.asarray(x, np.complex128 if x.dtype.kind == "c" else np.float64)
                for x in (mine, golden))  # fmt: skip
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        total = float(np.sqrt((apart * apart).sum()))
        if not total:
            return 0.0
        size = float(np.linalg.norm(np.where(np.isfinite(b), b, 0)))
    return total / size if size and math.isfinite(total) else math.inf


def inputs_distance(mine: Mapping[str, np.ndarray], golden: Mapping[str, np.ndarray]) -> float:
    """The greatest relative distance of any input; infinite where an input is on one side only or
    of another shape."""
    if mine.keys() != golden.keys():
        return math.inf
    found = 0.0
    for name, a in mine.items():
        b = golden[name]
        if a.shape != b.shape:
            return math.inf
        found = max(found, distance(a, b))
    return found
