"""Two arrays element by element: their errors, the greatest of them, and lines of text.

The errors are those that docs/metrics.md defines, of one element each: where golden is 0 the
relative error is 0 or 1, and the same NaN or infinity on both sides is no error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

_CHUNK = 1 << 16
"""Elements that are text at a time."""


def errors_of(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Absolute and relative errors of x against y, both flat and of one size.

    float64, but the distances of integers are exact: uint64. Relative errors are float64.
    """
    kinds = {x.dtype.kind, y.dtype.kind}
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        if kinds <= set("iub"):
            absolute, size, own = _distances(x, y), np.abs(_float(y)), x != 0
            unlike = np.zeros(x.shape, bool)
        else:
            wide = np.complex128 if "c" in kinds else np.float64
            x, y = x.astype(wide), y.astype(wide)
            alike = (x == y) | (np.isnan(x) & np.isnan(y))
            absolute = np.where(alike, 0.0, np.abs(x - y))
            size, own = np.where(alike, 1.0, np.abs(y)), np.abs(x) > 0
            unlike = ~(np.isfinite(x) & np.isfinite(y)) & ~alike
            nan = np.isnan(x) | np.isnan(y)
            absolute[unlike] = np.where(nan, np.nan, np.inf)[unlike]
        relative = np.where(size > 0, absolute / np.where(size > 0, size, 1.0), own)
    if unlike.any():
        relative[unlike] = absolute[unlike]
    return absolute, relative


def _float(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64)


def _distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Exact distances of integers or bools."""
    wide = np.uint64 if "uint64" in (x.dtype.name, y.dtype.name) else np.int64
    x, y = x.astype(wide), y.astype(wide)
    first, second = x.view(np.uint64), y.view(np.uint64)
    return np.where(x > y, first - second, second - first)  # wraps to the exact distance


def coordinates(rank: int, axes: str = "") -> str:
    """What the coordinates of an element are, in the original's words.

    axes: their names where a format has some, as NHWC. Fewer than four dimensions are filled up
    with zeros behind; a scalar has one coordinate.
    """
    if len(axes) == rank >= 4:
        return " ".join(axes)
    if rank > 5:
        return " ".join(f"D{i}" for i in range(rank))
    return {0: "ID", 5: "N C D H W"}.get(rank, "N C H W")


class Top:
    """The n greatest errors so far: NaN above all, then by size, earlier elements first."""

    def __init__(self, n: int) -> None:
        self.indices = np.empty(0, np.int64)
        self._n, self._errors = n, np.empty(0)

    def add(self, start: int, errors: np.ndarray) -> None:
        """Take the errors of the elements from `start` on."""
        indices = np.concatenate([self.indices, np.arange(start, start + errors.size)])
        errors = np.concatenate([self._errors, _float(errors)])
        nan = np.isnan(errors)
        best = np.lexsort((indices, -np.where(nan, 0.0, errors), ~nan))[: self._n]
        self._errors, self.indices = errors[best], indices[best]


class Table:
    """The elements of two flat arrays as lines of a csv, with their errors.

    shape: of the arrays before they were flattened. axes: as `coordinates` takes them. header: the
    first line. number: how a float of them is formatted. least, greatest: of the absolute and the
    relative errors that were scanned.
    """

    def __init__(
        self, x: np.ndarray, y: np.ndarray, shape: tuple[int, ...], axes: str = ""
    ) -> None:
        self._x, self._y = x, y
        self._dims = (*shape, *(1,) * (4 - len(shape))) if shape else (1,)
        kinds = {x.dtype.kind, y.dtype.kind}
        whole = kinds <= set("iub")
        is_complex = "c" in kinds
        wide = max(x.dtype.itemsize, y.dtype.itemsize) > (8 if is_complex else 4)
        self.number = "%r" if wide or whole else "%.9g"
        value = f"({self.number}{'%+.17g' if wide else '%+.9g'}j)" if is_complex else self.number
        self._line = f"%d,{' '.join(['%d'] * len(self._dims))},{value},{value}," + (
            f"{self.number},{self.number}\r\n"
        )
        columns = ("Index", coordinates(len(shape), axes), "NPUDump", "GroundTruth")
        self.header = (",".join((*columns, "AbsoluteError,RelativeError")) + "\r\n").encode()
        self.least: list[float] = [0.0, 0.0]
        self.greatest: list[float] = [0.0, 0.0]
        self._scanned = False

    def scan(self, start: int, stop: int, tops: tuple[Top, Top], file: BinaryIO | None) -> None:
        """Take in the elements from start to stop, and write them where there is a file."""
        for at in range(start, stop, _CHUNK):
            end = min(at + _CHUNK, stop)
            found = errors_of(self._x[at:end], self._y[at:end])
            for i, errors in enumerate(found):
                tops[i].add(at, errors)
                self._take(i, errors)
            self._scanned = True
            if file is not None:
                file.writelines(self._text(np.arange(at, end), *found))

    def lines(self, indices: np.ndarray) -> Iterator[bytes]:
        """The lines of these elements, in this order."""
        return self._text(indices, *errors_of(self._x[indices], self._y[indices]))

    def _take(self, i: int, errors: np.ndarray) -> None:
        """Keep the least and the greatest error; a NaN is the greatest and never the least."""
        greatest, least = errors.max().item(), np.fmin.reduce(errors).item()
        if self._scanned:  # in Python, which compares integers of any size exactly
            before, below = self.greatest[i], self.least[i]
            greatest = before if math.isnan(before) or before >= greatest else greatest
            least = below if math.isnan(least) or below <= least else least
        self.greatest[i], self.least[i] = greatest, least

    def _text(
        self, indices: np.ndarray, absolute: np.ndarray, relative: np.ndarray
    ) -> Iterator[bytes]:
        places = np.unravel_index(indices, self._dims) if indices.size else ()
        values = (*_parts(self._x[indices]), *_parts(self._y[indices]))
        columns = (indices, *places, *values, absolute, relative)
        for row in zip(*(column.tolist() for column in columns), strict=True):
            yield (self._line % row).encode()


def _parts(values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Columns that Python formats: a complex number is two, a small float a float64."""
    if values.dtype.kind == "c":
        return values.real, values.imag
    return (values,) if values.dtype.kind in "iub" else (_float(values),)
