"""Metrics of complex tensors: of real and imaginary parts as one vector, and of moduli.

Where a metric is of single elements (errors, shares, means) an element is its modulus or the
modulus of its difference; where it is of vectors, the parts are twice as many real elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from .metrics import Metrics, Worst, compare_arrays, worst_at

_BLOCK = 1 << 20


def compare_complex(
    x: np.ndarray, y: np.ndarray, shape: Sequence[int], divergence: bool
) -> Metrics:
    """The metrics of two flat arrays of complex64, or of complex128. shape: for an index."""
    part = x.real.dtype
    bad_x, bad_y = ~np.isfinite(x), ~np.isfinite(y)
    with np.errstate(invalid="ignore"):
        alike = bad_x & bad_y & ((x == y) | (np.isnan(x) & np.isnan(y)))
    unlike = (bad_x | bad_y) & ~alike
    own = {
        "exact": _equal_share(x, y),
        "size": x.size,
        "same_nonfinite": _count(alike),
        "mine_nonfinite": _count(bad_x & ~bad_y),
        "golden_nonfinite": _count(bad_y & ~bad_x),
        "other_nonfinite": _count(bad_x & bad_y & ~alike),
        "nan": _sides(np.isnan(x), np.isnan(y)),
        "infinite": _sides(np.isinf(x) & ~np.isnan(x), np.isinf(y) & ~np.isnan(y)),
    }
    keep = slice(None) if not alike.any() else ~alike
    sizes = [_moduli(side[keep]) for side in (x, y)]
    moduli = compare_arrays(*sizes, divergence)
    own["reach"] = tuple(
        math.inf if np.isinf(side).any() else reach
        for side, reach in zip((x, y), moduli.reach, strict=True)
    )
    if unlike.any():
        return moduli._replace(**own, ulp=None, worst=_worst(x, y, int(unlike.argmax()), shape))
    parts = compare_arrays(
        *(np.ascontiguousarray(side[keep]).view(part) for side in (x, y)), divergence=False
    )
    distances = _Distances()
    for start, a, b in _blocks(x, y):
        distances.add(start, a, b)
    n = max(moduli.size, 1)
    index = distances.at
    if index < 0 and own["exact"] < 1.0:  # a 0 opposite to a -0
        index = int(np.argmin(_equal(x, y)))
    worst = None if index < 0 else _worst(x, y, index, shape)
    return moduli._replace(
        **own,
        cosine=parts.cosine,
        max_absolute=distances.greatest,
        accumulated_relative=distances.relative.value,
        relative_euclidean=parts.relative_euclidean,
        mean_absolute=distances.absolute.mean(n),
        root_mean_square=parts.root_mean_square * math.sqrt(2.0),
        max_relative=distances.most_relative,
        mean_relative=distances.relative.mean(n),
        ulp=parts.ulp,
        worst=worst,
    )


_REDUCE = 2.0**-64
"""What keeps a sum in range whose mean is, of fewer than 2**63 elements."""


class _Total:
    """A sum, and its mean also where the sum is beyond float64."""

    def __init__(self) -> None:
        self.value = self._reduced = 0.0

    def add(self, values: np.ndarray, reduced: np.ndarray) -> None:
        self.value += float(values.sum())
        self._reduced += float(reduced.sum())

    def mean(self, n: int) -> float:
        if math.isinf(self.value):
            return self._reduced / n / _REDUCE
        return self.value / n


class _Distances:
    """Moduli of differences, absolute and relative, over the finite elements."""

    def __init__(self) -> None:
        self.absolute, self.relative = _Total(), _Total()
        self.greatest = self.most_relative = 0.0
        self.at = -1

    def add(self, start: int, a: np.ndarray, b: np.ndarray) -> None:
        finite = np.isfinite(a) & np.isfinite(b)
        a, b = (np.where(finite, side, 0) for side in (a, b))
        with np.errstate(over="ignore"):  # a modulus beyond float64 is inf
            distance, size = np.abs(a - b), np.abs(b)
            reduced = np.abs(a * _REDUCE - b * _REDUCE)
            there, divisor = size > 0, np.where(size > 0, size, 1.0)
            relative = np.where(there, distance / divisor, a != 0)
            if distance.max() > self.greatest:
                self.greatest, self.at = float(distance.max()), start + int(distance.argmax())
            self.absolute.add(distance, reduced)
            self.relative.add(relative, np.where(there, reduced / divisor, (a != 0) * _REDUCE))
            self.most_relative = max(self.most_relative, float(relative.max()))


def _blocks(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    for start in range(0, x.size, _BLOCK):
        with np.errstate(invalid="ignore"):  # a signalling NaN
            a, b = (side[start : start + _BLOCK].astype(np.complex128) for side in (x, y))
        yield start, a, b


def _moduli(side: np.ndarray) -> np.ndarray:
    sizes = np.empty(side.size)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, side.size, _BLOCK):
            part = side[start : start + _BLOCK].astype(np.complex128)
            np.abs(part, out=sizes[start : start + _BLOCK])
    return sizes


def _worst(x: np.ndarray, y: np.ndarray, index: int, shape: Sequence[int]) -> Worst:
    return worst_at(index, shape, x[index].item(), y[index].item())


def _equal_share(x: np.ndarray, y: np.ndarray) -> float:
    return _count(_equal(x, y)) / x.size if x.size else 1.0


def _equal(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where both parts have the same bits, or are NaN."""
    part = np.dtype(f"u{x.real.itemsize}")
    a, b = (side.view(side.real.dtype) for side in (x, y))
    equal = (a.view(part) == b.view(part)) | (np.isnan(a) & np.isnan(b))
    return equal.reshape(-1, 2).all(axis=1)


def _sides(mine: np.ndarray, golden: np.ndarray) -> tuple[int, int, int]:
    return _count(mine & ~golden), _count(golden & ~mine), _count(mine & golden)


def _count(where: np.ndarray) -> int:
    return int(np.count_nonzero(where))
