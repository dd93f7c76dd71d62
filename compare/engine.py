"""From two open dumps to rows: what belongs together is taken up, measured, and let go.

A unit is what two records (or groups of them) have in common, whose rows are made together. Rows
come in one order, and what is in memory at a time is bounded, so that neither the size of a dump
nor the number of cores matters: threads take a unit each, or parts of a tensor that is large; many
small units are the work of forked processes.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, groupby, islice
from typing import TypeVar

from dumper.index import Stub
from dumper.reader import Dump
from dumper.stored import Tensor

from .common import Pair
from .comparing import ALL, Known, Options, row_of, unwritten
from .forks import Forks, can_fork
from .judged import context_of, judged, made_in
from .loss_scale import LossScale
from .pairing import Pairing, pairing_of
from .row import Row
from .streams import PART, can_stream

_LARGE = 1 << 18
"""Bytes from which on a tensor is worth handing its unit to another thread."""

_AHEAD = 64
"""Units that are looked at before the oldest one's rows are due."""

BUDGET = 256 << 20
"""Bytes that may be in use for pairs that must be read whole; one that needs more is alone."""

Unit = tuple[Pair, ...]

T = TypeVar("T")
"""What is written of a row."""


def compare_dumps(
    mine: Dump,
    golden: Dump,
    options: Options = ALL,
    pairing: Pairing | None = None,
    scale: LossScale | None = None,
) -> Iterator[Row]:
    """Compare everything that pairs, in the order of my seqids; unpaired things have rows too.

    pairing: of these two, where it is known. scale: of the loss, to be divided out.
    """
    for row, _ in compare_and_write(mine, golden, lambda _: None, options, pairing, scale):
        yield row


def compare_and_write(
    mine: Dump,
    golden: Dump,
    write: Callable[[Row], T],
    options: Options = ALL,
    pairing: Pairing | None = None,
    scale: LossScale | None = None,
) -> Iterator[tuple[Row, T]]:
    """The rows as `compare_dumps` has them, each with what is written of it.

    write: makes that of a row, in the process that has measured it; of texts and numbers.
    """
    pairing = pairing or pairing_of(mine, golden)
    known = Known(
        options,
        (unwritten(mine), unwritten(golden)),
        scale,
        made=made_in(mine.records),
        turned=golden.load_mode and not mine.load_mode,
    )
    known.context = context_of(mine, golden, known)
    units, skip = _after(_units(pairing), options.skip, known)
    count = sum(len(record.inputs) + len(record.outputs) for record in mine.records)
    with contextlib.ExitStack() as stack:
        forks = None
        if can_fork(count):
            forks = stack.enter_context(Forks(partial(_share, pairing, known, write)))
        yield from islice(_rows(units, known, write, forks), skip, None)


def _units(pairing: Pairing) -> Iterator[Unit]:
    """The pairs of each two records together, or of two groups of them."""
    for _, pairs in groupby(pairing.pairs(), lambda found: id(found.match or found.record)):
        yield tuple(pairs)


def _after(units: Iterator[Unit], skip: int, known: Known) -> tuple[Iterator[Unit], int]:
    """The units in which the first `skip` rows are not all of them; and how many of the first one's
    are known."""
    for unit in units:
        # two tensors always have a row
        count = sum(_tensors(found) or row_of(found, known) is not None for found in unit)
        if count > skip:
            return chain((unit,), units), skip
        skip -= count
    return iter(()), 0


def _rows(
    units: Iterator[Unit], known: Known, write: Callable[[Row], T], forks: Forks | None
) -> Iterator[tuple[Row, T]]:
    pool = ThreadPoolExecutor(os.cpu_count())  # reading and the loops release the GIL
    waiting: deque[tuple[Unit | Future[list[Row]], int]] = deque()
    in_use = 0

    def oldest() -> list[tuple[Row, T]]:
        nonlocal in_use
        item, cost = waiting.popleft()
        in_use -= cost
        if isinstance(item, Future):
            return [(row, write(row)) for row in item.result()]
        if forks and _is_for_forks(item, known):
            found = forks.next()
            if found is not None:
                return found
        rows = _rows_of(item, known, pool.map if _is_huge(item) else map)
        return [(row, write(row)) for row in rows]

    try:
        for unit in units:
            small = _is_small(unit)
            cost = 0 if small else max(_cost(found, known.options) for found in unit)
            while waiting and (len(waiting) > _AHEAD or cost and in_use + cost > BUDGET):
                yield from oldest()
            in_use += cost
            # A huge unit is not one thread's: all of them take parts of it when its turn comes.
            own = small or _is_huge(unit)
            waiting.append((unit if own else pool.submit(_rows_of, unit, known), cost))
        while waiting:
            yield from oldest()
    finally:
        pool.shutdown(cancel_futures=True)


def _rows_of(unit: Unit, known: Known, spread: Callable = map) -> list[Row]:
    """The rows of a unit, judged. spread: maps a function over parts of a pair."""
    rows = [(found, row_of(found, known, spread)) for found in unit]
    return judged([(found, row) for found, row in rows if row is not None], known)


def _share(
    pairing: Pairing, known: Known, write: Callable[[Row], T], is_mine: Callable[[int], bool]
) -> Iterator[list[tuple[Row, T]]]:
    """What a forked process does: the rows of its share, and what is written of them."""
    units, _ = _after(_units(pairing), known.options.skip, known)
    for count, unit in enumerate(each for each in units if _is_for_forks(each, known)):
        if is_mine(count):
            yield [(row, write(row)) for row in _rows_of(unit, known)]


def _is_for_forks(unit: Unit, known: Known) -> bool:
    """Whether a unit is a forked process's, which must not call HDF5."""
    return (
        _is_small(unit)
        and not known.options.custom
        and all(
            value is None or isinstance(value, Stub) or value.is_plain
            for found in unit
            for value in (found.mine, found.golden)
        )
    )


def _tensors(found: Pair) -> bool:
    return isinstance(found.mine, Tensor) and isinstance(found.golden, Tensor)


def _is_small(unit: Unit) -> bool:
    """Whether a unit costs less than handing it to a thread."""
    return (
        sum(found.mine.nbytes + found.golden.nbytes for found in unit if _tensors(found)) < _LARGE
    )


def _is_huge(unit: Unit) -> bool:
    return any(
        _tensors(found) and found.mine.size > PART and can_stream(found.mine, found.golden)
        for found in unit
    )


def _cost(found: Pair, options: Options) -> int:
    """Bytes that a large pair takes if it must be read whole, what widening takes included."""
    if not _tensors(found) or can_stream(found.mine, found.golden) and not options.custom:
        return 0
    return 2 * (found.mine.nbytes + found.golden.nbytes)
