"""Order as evidence: the longest ascending run of matches, and common subsequences between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

_MOST = 400_000
"""Equal pairs in one gap that are looked at; beyond, the k-th belongs to the k-th."""


def ascending(partners: np.ndarray) -> np.ndarray:
    """Places of a longest run of partners that ascends. partners: -1 is none."""
    places = np.flatnonzero(partners >= 0)
    values = partners[places]
    if len(values) < 2 or bool((values[1:] > values[:-1]).all()):
        return places
    return places[[i for i, _ in _longest(enumerate(values.tolist()))]]


def _longest(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """A longest run of pairs in which both places ascend. pairs: by the first place, and of one
    first place from the last second one on, so that each is used once."""
    ends: list[int] = []
    chains: list[tuple[int, int, tuple | None]] = []
    for i, j in pairs:
        at = bisect_left(ends, j)
        chain = (i, j, chains[at - 1] if at else None)
        if at == len(ends):
            ends.append(j)
            chains.append(chain)
        else:
            ends[at] = j
            chains[at] = chain
    found = []
    chain = chains[-1] if chains else None
    while chain is not None:
        i, j, chain = chain
        found.append((i, j))
    return found[::-1]


def common(mine: Sequence[Hashable], golden: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pairs of places that make a longest common subsequence, in order (Hunt and Szymanski)."""
    start, stop, other = 0, len(mine), len(golden)
    while start < min(stop, other) and mine[start] == golden[start]:
        start += 1
    while stop > start and other > start and mine[stop - 1] == golden[other - 1]:
        stop, other = stop - 1, other - 1
    pairs = [(i, i) for i in range(start)]
    pairs += _common(mine, golden, start, stop, other)
    return pairs + [(stop + i, other + i) for i in range(len(mine) - stop)]


def _common(
    mine: Sequence[Hashable], golden: Sequence[Hashable], start: int, stop: int, other: int
) -> list[tuple[int, int]]:
    where: dict[Hashable, list[int]] = {}
    for j in range(other - 1, start - 1, -1):
        where.setdefault(golden[j], []).append(j)
    if sum(len(where.get(mine[i], ())) for i in range(start, stop)) > _MOST:
        return _in_turn(mine, where, start, stop)
    return _longest((i, j) for i in range(start, stop) for j in where.get(mine[i], ()))


def _in_turn(
    mine: Sequence[Hashable], where: dict[Hashable, list[int]], start: int, stop: int
) -> list[tuple[int, int]]:
    found, last = [], -1
    for i in range(start, stop):
        left = where.get(mine[i], [])
        while left and left[-1] <= last:
            left.pop()
        if left:
            last = left.pop()
            found.append((i, last))
    return found
