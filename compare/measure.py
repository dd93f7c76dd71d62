"""Two sequences of elements, read twice in pieces, to what the compiled loops sum.

A pair of tensors is a `Source`: how many elements it has, and pieces of both sides in order, as
often as asked. A `Kind` says how elements of a dtype are read. Pieces may be worked on in several
threads and are added up in their order, so that the result does not depend on their number.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np

from . import slots as at
from .native import loops
from .spreads import joined

Piece = tuple[int, np.ndarray, np.ndarray]
"""Index of the first element; flat C-contiguous arrays of mine and golden, as their Kind wants."""


Scales = tuple[float, float, float, float]
_PLAIN: Scales = (1.0, 1.0, 1.0, 1.0)


class Source(Protocol):
    """The elements of two tensors. parts: sequences of pieces, which threads may share out."""

    size: int
    parts: Sequence[Callable[[], Iterable[Piece]]]

    def direct(self, divergence: bool) -> Sums | None:
        """All of it measured at once, where the source knows a faster way than by pieces."""


@dataclass
class Sums:
    """What both passes found; see slots.py. scales: of mine, golden, distances, relative errors."""

    sums: list[float]
    counts: list[int]
    shares: list[float] = field(default_factory=lambda: [0.0] * at.SHARES)
    scales: Scales = _PLAIN


class Desk:
    """A thread's arrays for the loops, and their addresses."""

    __slots__ = (
        "parameters", "sums", "counts", "shares", "found", "wide", "_keep",
        "p", "s", "c", "out", "room", "at",
    )  # fmt: skip

    def __init__(self) -> None:
        self.parameters, self.sums, self.shares = map(np.empty, (at.PARAMETERS, at.SUMS, at.SHARES))
        self.counts = np.empty(at.COUNTS, np.int64)
        self.found = np.empty(1, np.int64)
        room = np.empty(at.SCRATCH)
        wide = np.empty(2 * at.BLOCK, np.float32)
        self._keep = room, wide
        self.p, self.s, self.c, self.out, self.room, self.at = map(
            address, (self.parameters, self.sums, self.counts, self.shares, room, self.found)
        )
        self.wide = address(wide), address(wide[at.BLOCK :])


def address(array: np.ndarray) -> int:
    """Where an array's elements lie."""
    return array.__array_interface__["data"][0]


_local = threading.local()


def own_desk() -> Desk:
    """The arrays of the thread that asks."""
    try:
        return _local.desk
    except AttributeError:
        desk = _local.desk = Desk()
        return desk


NO_SUMS = np.zeros(at.SUMS)
NO_SUMS[[at.MIN_X, at.MIN_Y]], NO_SUMS[[at.MAX_X, at.MAX_Y]] = math.inf, -math.inf
NO_COUNTS = np.zeros(at.COUNTS, np.int64)
NO_COUNTS[[at.WORST, at.ODD]] = -1
NO_COUNTS[[at.INT_MIN_X, at.INT_MIN_Y]] = np.iinfo(np.int64).max
NO_COUNTS[[at.INT_MAX_X, at.INT_MAX_Y]] = np.iinfo(np.int64).min


class Kind(ABC):
    """How elements of one dtype are measured. has_ulp: whether they are floats."""

    has_ulp = True

    @abstractmethod
    def measure(self, source: Source, divergence: bool, spread: Callable = map) -> Sums:
        """Both passes over a source. spread: maps a function over its parts, perhaps in threads."""


class _ByPieces(Kind):
    """Two passes, each a compiled loop over every piece.

    first, second: what a pass does with one piece, given the loops and the thread's desk.
    """

    @abstractmethod
    def first(self, run: dict, desk: Desk, base: int, x: np.ndarray, y: np.ndarray) -> None: ...

    @abstractmethod
    def second(self, run: dict, desk: Desk, x: np.ndarray, y: np.ndarray) -> None: ...

    def measure(self, source: Source, divergence: bool, spread: Callable = map) -> Sums:
        found = self._first(source, spread, _PLAIN)
        scales = self._scales(found.sums)
        if scales != found.scales:
            found = self._first(source, spread, scales)
        if divergence and found.sums[at.X]:
            parameters = self._shares(found, source.size)

            def work(part: Callable[[], Iterable[Piece]]) -> list[float]:
                desk = own_desk()
                desk.parameters[:] = parameters
                desk.counts[at.INT_MIN_X :] = found.counts[at.INT_MIN_X :]
                desk.shares[:] = 0.0
                for _, x, y in part():
                    self.second(loops(), desk, x, y)
                return desk.shares.tolist()

            parts = source.parts
            found.shares = work(parts[0]) if len(parts) == 1 else _joined(spread(work, parts))
        return found

    def _first(self, source: Source, spread: Callable, scales: Scales) -> Sums:
        def work(part: Callable[[], Iterable[Piece]]) -> tuple[list[float], list[int]]:
            desk = own_desk()
            desk.parameters[: len(scales)] = scales
            desk.sums[:] = NO_SUMS
            desk.counts[:] = NO_COUNTS
            for base, x, y in part():
                self.first(loops(), desk, base, x, y)
            return desk.sums.tolist(), desk.counts.tolist()

        parts = source.parts
        if len(parts) == 1:
            sums, counts = work(parts[0])
        else:
            sums, counts = NO_SUMS.tolist(), NO_COUNTS.tolist()
            for more_sums, more_counts in spread(work, parts):
                _add(sums, counts, more_sums, more_counts)
        return Sums(sums, counts, scales=scales)

    def _scales(self, sums: list[float]) -> Scales:
        return _PLAIN

    def _shares(self, found: Sums, size: int) -> list[float]:
        return shares_of(found, size)


def shares_of(found: Sums, size: int) -> list[float]:
    """Parameters of the second pass: a constant side is uniform, its every share 1."""
    sums = found.sums
    parameters = [*found.scales]
    for low in (at.MIN_X, at.MIN_Y):
        parameters += share_parameters(sums[low], sums[low + 1])
    return [*parameters, float(sums[at.X] == size)]


def share_parameters(low: float, high: float) -> tuple[float, float, float]:
    """(low, step, floor) of one side: a share is (value - low) * step, at least floor."""
    return (low, 0.0, 1.0) if low == high else (low, 1.0 / (high - low), at.KL_FLOOR)


class Floats(_ByPieces):
    """float32 and float64 as they are."""

    def __init__(self, bits: int, has_ulp: bool = True) -> None:
        self._bits = bits
        self.has_ulp = has_ulp

    def first(self, run: dict, desk: Desk, base: int, x: np.ndarray, y: np.ndarray) -> None:
        a, b = address(x), address(y)
        run[f"first_{self._bits}"](
            a, b, a, b, x.size, base, desk.p, desk.s, desk.c, desk.room
        )  # fmt: skip

    def second(self, run: dict, desk: Desk, x: np.ndarray, y: np.ndarray) -> None:
        run[f"second_{self._bits}"](
            address(x), address(y), x.size, desk.p, desk.out, desk.room
        )  # fmt: skip

    def _scales(self, sums: list[float]) -> Scales:
        if self._bits == 32:  # whose squares float64 holds
            return _PLAIN
        x, y = (
            max(abs(sums[low]), abs(sums[high]), sums[aside]) if sums[at.X] else sums[aside]
            for low, high, aside in (
                (at.MIN_X, at.MAX_X, at.REACH_X),
                (at.MIN_Y, at.MAX_Y, at.REACH_Y),
            )
        )
        # whose mean is in range all the same, of fewer than 2**63 elements
        scale_r = 2.0**-64 if math.isinf(sums[at.R]) else 1.0
        return scale_of(x), scale_of(y), scale_of(sums[at.MAX_D]), scale_r


def scale_of(extent: float) -> float:
    """A power of two that brings the greatest magnitude where squares neither overflow nor
    vanish."""
    if not extent or at.TINY < extent < at.HUGE:
        return 1.0
    exponent = 1024 if math.isinf(extent) else math.frexp(extent)[1]
    return math.ldexp(1.0, max(-1000, min(1000, -exponent)))


class Sixteen(_ByPieces):
    """float16 (half) and bfloat16, as int16."""

    def __init__(self, half: bool) -> None:
        self._half = int(half)

    def first(self, run: dict, desk: Desk, base: int, x: np.ndarray, y: np.ndarray) -> None:
        run["first_16"](
            address(x), address(y), x.size, base, self._half,
            desk.p, desk.s, desk.c, desk.room, *desk.wide, *desk.wide,
        )  # fmt: skip

    def second(self, run: dict, desk: Desk, x: np.ndarray, y: np.ndarray) -> None:
        run["second_16"](
            address(x), address(y), x.size, self._half,
            desk.p, desk.out, desk.room, *desk.wide, *desk.wide,
        )  # fmt: skip


class Wide(_ByPieces):
    """64-bit integers, as int64."""

    has_ulp = False

    def __init__(self, unsigned: bool) -> None:
        self._unsigned = int(unsigned)

    def measure(self, source: Source, divergence: bool, spread: Callable = map) -> Sums:
        found = super().measure(source, True, spread)
        for spread_at, exact, low in (
            (at.X, at.EXACT_X, at.INT_MIN_X),
            (at.Y, at.EXACT_Y, at.INT_MIN_Y),
        ):
            if found.sums[spread_at]:
                least = found.counts[low] + (1 << 63) * self._unsigned
                _, mean, squares, rest = found.shares[exact : exact + at.SPREAD]
                mean = float(least + Fraction(mean) + Fraction(rest))
                found.sums[spread_at + 1 : spread_at + at.SPREAD] = mean, squares, 0.0
        return found

    def first(self, run: dict, desk: Desk, base: int, x: np.ndarray, y: np.ndarray) -> None:
        run["first_wide"](
            address(x), address(y), x.size, base, self._unsigned,
            desk.p, desk.s, desk.c, desk.room,
        )  # fmt: skip

    def second(self, run: dict, desk: Desk, x: np.ndarray, y: np.ndarray) -> None:
        run["second_wide"](
            address(x), address(y), x.size, self._unsigned, desk.c, desk.p, desk.out, desk.room
        )

    def _shares(self, found: Sums, size: int) -> list[float]:
        # exact: 2 ** 63 apart from 2 ** 63 + 1
        parameters = [*_PLAIN]
        for low, high in ((at.INT_MIN_X, at.INT_MAX_X), (at.INT_MIN_Y, at.INT_MAX_Y)):
            parameters += share_parameters(0.0, float(found.counts[high] - found.counts[low]))
        return [*parameters, 1.0]


class Codes(Kind):
    """8-bit elements, as uint8. values: float64[256], what each means. orders: int64[256], where
    it stands among the numbers of its dtype; None without units in the last place."""

    def __init__(self, values: np.ndarray, orders: np.ndarray | None) -> None:
        self.has_ulp = orders is not None
        self._values = np.ascontiguousarray(values, np.float64)
        self._orders = np.zeros(256, np.int64) if orders is None else orders.astype(np.int64)

    def measure(self, source: Source, divergence: bool, spread: Callable = map) -> Sums:
        run, desk = loops(), own_desk()
        table = np.zeros(1 << 16, np.int64)
        for part in spread(self._table, source.parts):
            table += part
        desk.sums[:] = NO_SUMS
        desk.counts[:] = NO_COUNTS
        run["first_table"](
            address(table), address(self._values), address(self._orders), desk.s, desk.c
        )
        found = Sums(desk.sums.tolist(), desk.counts.tolist())
        if divergence and found.sums[at.X]:
            desk.parameters[:] = shares_of(found, source.size)
            desk.shares[:] = 0.0
            run["second_table"](address(table), address(self._values), desk.p, desk.out)
            found.shares = desk.shares.tolist()
        if found.counts[at.ODD] >= 0:
            found.counts[at.ODD] = self._find(source, found, odd=True)
        elif found.sums[at.MAX_D] > 0:
            found.counts[at.WORST] = self._find(source, found, odd=False)
        return found

    def _table(self, part: Callable[[], Iterable[Piece]]) -> np.ndarray:
        table = np.zeros(1 << 16, np.int64)
        for _, x, y in part():
            loops()["count_pairs"](address(x), address(y), x.size, address(table))
        return table

    def _find(self, source: Source, found: Sums, odd: bool) -> int:
        desk = own_desk()
        desk.sums[:] = found.sums
        for base, x, y in _all(source):
            loops()["find_pair"](
                address(x), address(y), x.size, address(self._values), int(odd), desk.s, desk.at
            )
            if desk.found[0] < x.size:
                return base + int(desk.found[0])
        raise AssertionError("a counted pair is in no piece")


def _all(source: Source) -> Iterator[Piece]:
    for part in source.parts:
        yield from part()


def _joined(parts: Iterable[list[float]]) -> list[float]:
    """What the second pass found in all parts."""
    found = [0.0] * at.SHARES
    for more in parts:
        for i in (at.SHARES_X, at.SHARES_Y, at.DIVERGENCE):
            found[i] += more[i]
        for i in (at.EXACT_X, at.EXACT_Y):
            there = slice(i, i + at.SPREAD)
            found[there] = merged(found[there], more[there])
    return found


_SUMMED = (at.XX, at.YY, at.XY, at.D, at.DD, at.R, at.ULP)
_GREATEST = (at.MAX_R, at.MAX_X, at.MAX_Y, at.REACH_X, at.REACH_Y)
_SPREADS = (at.X, at.Y, at.ASIDE_X, at.ASIDE_Y)


def _add(sums: list[float], counts: list[int], more: list[float], others: list[int]) -> None:
    """Add what the next part found."""
    for i in _SUMMED:
        sums[i] += more[i]
    if more[at.MAX_D] > sums[at.MAX_D]:
        sums[at.MAX_D], counts[at.WORST] = more[at.MAX_D], others[at.WORST]
    for i in _GREATEST:
        sums[i] = max(sums[i], more[i])
    for i in (at.MIN_X, at.MIN_Y):
        sums[i] = min(sums[i], more[i])
    for i in _SPREADS:
        there = slice(i, i + at.SPREAD)
        sums[there] = merged(sums[there], more[there])
    if counts[at.ODD] < 0:
        counts[at.ODD] = others[at.ODD]
    for i in (at.INT_MIN_X, at.INT_MIN_Y):
        counts[i] = min(counts[i], others[i])
    for i in (at.INT_MAX_X, at.INT_MAX_Y):
        counts[i] = max(counts[i], others[i])
    counts[at.ULP_MAX] = max(_unsigned(counts[at.ULP_MAX]), _unsigned(others[at.ULP_MAX]))
    for i in (at.EQUAL, at.ULP_ABOVE, *range(at.SAME, at.INT_MIN_X)):
        counts[i] += others[i]


def _unsigned(value: int) -> int:
    return value % (1 << 64)


def merged(one: Sequence[float], other: Sequence[float]) -> Sequence[float]:
    """The spread of two sets together, of which one may be empty."""
    return joined(*one, *other) if one[0] and other[0] else other if other[0] else one
