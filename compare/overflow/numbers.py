"""What there is to say of the values of an op that overflowed: extremes, mean, and what is not
right or at its dtype's end. Piece by piece, so that counting takes no memory of a tensor's size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ir2tbe.cann.types import DataType

from ..show import Statistics, statistics

_PIECE = 1 << 20


@dataclass(frozen=True)
class Numbers:
    """Of a tensor's elements. least, greatest, mean: of the finite ones, of moduli where they are
    complex; None where there are none. saturated: how many lie at the dtype's end, a part of a
    complex one too. first: index of the first that is NaN, infinite or saturated."""

    least: float | int | None
    greatest: float | int | None
    mean: float | None
    nan: int
    infinite: int
    saturated: int
    first: tuple[int, ...] | None


def numbers_of(values: np.ndarray, kind: DataType) -> Numbers:
    """Count a tensor's elements. values: what `Tensor.values` gives for that data type."""
    flat = values.reshape(-1)
    pieces: list[Statistics] = []
    saturated, first = 0, None
    for at in range(0, flat.size, _PIECE):
        piece = flat[at : at + _PIECE]
        pieces.append(statistics(piece))
        ends = _saturated(piece, kind)
        saturated += int(ends.sum())
        if first is None:
            found = ends | ~np.isfinite(_parts(piece)).all(axis=-1)
            if found.any():
                place = np.unravel_index(at + int(found.argmax()), values.shape)
                first = tuple(map(int, place))
    nan, infinite = sum(p.nan for p in pieces), sum(p.infinite for p in pieces)
    finite = [(p, p.size - p.nan - p.infinite) for p in pieces if p.mean is not None]
    if not finite:
        return Numbers(None, None, None, nan, infinite, saturated, first)
    count = sum(n for _, n in finite)
    return Numbers(
        min(p.least for p, _ in finite),
        max(p.greatest for p, _ in finite),
        sum(p.mean * (n / count) for p, n in finite),
        nan,
        infinite,
        saturated,
        first,
    )


def _saturated(piece: np.ndarray, kind: DataType) -> np.ndarray:
    """Which elements have a part at an end of the dtype."""
    least, greatest = kind.limits
    parts = _parts(piece)
    found = np.zeros(parts.shape, bool)
    for end in (least, greatest):
        if end is not None:
            found |= parts == end
    return found.any(axis=-1)


def _parts(piece: np.ndarray) -> np.ndarray:
    """The elements' parts as numbers that numpy compares exactly, one or two a row."""
    if piece.dtype.kind == "c":
        return piece.view(piece.real.dtype).reshape(-1, 2)
    wide = piece if piece.dtype.isbuiltin == 1 else piece.astype(np.float32)
    return wide.reshape(-1, 1)
