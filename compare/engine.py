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

from .ahead import measure_ahead
from .common import Pair
from .comparing import ALL, Known, Options, row_of, unwritten
from .forks import SHARE, Forks, can_fork
from .judged import context_of, judged, made_in
from .loss_scale import LossScale
from .pairing import Pairing, pairing_of
from .row import Row
from .streams import PART, can_stream

_LARGE = 1 << 18
"""Bytes from which on a tensor is worth handing its unit to another thread."""

_MOST = 2000
"""Pairs of a share, or little more: an op on lists has many."""

_AHEAD = 64
"""Shares and other units that are looked at before the oldest one's rows are due."""

BUDGET = 256 << 20
"""Bytes that may be in use for pairs that must be read whole; one that needs more is alone."""

Unit = tuple[Pair, ...]

Share = list[Unit]
"""Small plain units in a row, whose pairs are measured together."""

Block = Share | Unit

T = TypeVar("T")
"""What is written of a row."""

Made = list[list[tuple[Row, T]]]
"""Of a share: the rows of each unit, and what is written of them."""


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
    blocks, skip = _blocks(pairing, known)
    count = sum(len(record.inputs) + len(record.outputs) for record in mine.records)
    with contextlib.ExitStack() as stack:
        forks = None
        if can_fork(count):
            forks = stack.enter_context(Forks(partial(_shares, pairing, known, write)))
        yield from islice(_rows(blocks, known, write, forks), skip, None)


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


def _blocks(pairing: Pairing, known: Known) -> tuple[Iterator[Block], int]:
    """The units whose rows are not all known already; and how many of the first one's are."""
    units, skip = _after(_units(pairing), known.options.skip, known)
    return _together(units, known), skip


def _together(units: Iterator[Unit], known: Known) -> Iterator[Block]:
    """Up to SHARE small plain units in a row together; any other one alone."""
    share: Share = []
    pairs = 0
    for unit in units:
        together = _is_small(unit) and _is_plain(unit, known)
        if share and (not together or len(share) == SHARE or pairs > _MOST):
            yield share
            share, pairs = [], 0
        if together:
            share.append(unit)
            pairs += len(unit)
        else:
            yield unit
    if share:
        yield share


def _rows(
    blocks: Iterator[Block], known: Known, write: Callable[[Row], T], forks: Forks | None
) -> Iterator[tuple[Row, T]]:
    pool = ThreadPoolExecutor(os.cpu_count())  # reading and the loops release the GIL
    waiting: deque[tuple[Block | Future[list[Row]], int]] = deque()
    in_use = 0
    ahead = forks.ahead if forks else _AHEAD
    shares: dict[int, Share] = {}  # in `waiting`, by number
    ended = 0  # shares

    def own(number: int) -> Made | None:
        share = shares.get(number)
        return None if share is None else _made(share, known, write)

    def oldest() -> Iterator[tuple[Row, T]]:
        nonlocal in_use, ended
        item, cost = waiting.popleft()
        in_use -= cost
        if isinstance(item, list):
            made = forks.made(ended, own) if forks else _made(item, known, write)
            del shares[ended]
            ended += 1
            return chain.from_iterable(made)
        if isinstance(item, Future):
            rows = item.result()
        else:
            rows = _rows_of(item, known, pool.map if _is_huge(item) else map)
        return ((row, write(row)) for row in rows)

    try:
        for block in blocks:
            small = isinstance(block, list) or _is_small(block)
            cost = 0 if small else max(_cost(found, known.options) for found in block)
            while waiting and (len(waiting) > ahead or cost and in_use + cost > BUDGET):
                yield from oldest()
            in_use += cost
            if isinstance(block, list):
                shares[ended + len(shares)] = block
            # A huge unit is not one thread's: all of them take parts of it when its turn comes.
            here = small or _is_huge(block)
            waiting.append((block if here else pool.submit(_rows_of, block, known), cost))
        while waiting:
            yield from oldest()
    finally:
        pool.shutdown(cancel_futures=True)


def _rows_of(unit: Unit, known: Known, spread: Callable = map) -> list[Row]:
    """The rows of a unit, judged. spread: maps a function over parts of a pair."""
    rows = [(found, row_of(found, known, spread)) for found in unit]
    return judged([(found, row) for found, row in rows if row is not None], known)


def _made(share: Share, known: Known, write: Callable[[Row], T]) -> Made:
    """The rows of a share, and what is written of them."""
    measure_ahead(chain.from_iterable(share), known)
    return [[(row, write(row)) for row in _rows_of(unit, known)] for unit in share]


def _shares(
    pairing: Pairing, known: Known, write: Callable[[Row], T]
) -> Iterator[Callable[[], Made]]:
    """What forked processes choose from."""
    for block in _blocks(pairing, known)[0]:
        if isinstance(block, list):
            yield partial(_made, block, known, write)


def _is_plain(unit: Unit, known: Known) -> bool:
    """Whether a unit can be a forked process's, which must not call HDF5."""
    return not known.options.custom and all(
        value is None or isinstance(value, Stub) or value.is_plain
        for found in unit
        for value in (found.mine, found.golden)
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
