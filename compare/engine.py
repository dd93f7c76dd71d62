"""From two open dumps to rows: each pair read, judged for shape and dtype, measured, and let go.

One pair of tensors is in memory at a time and rows are yielded as they come, so that the size of a
dump does not matter. What cannot be compared is a row with its reason, never an exception.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum

from dumper.errors import DumpError
from dumper.reader import Dump
from dumper.stored import Tensor

from .metrics import Metrics, comparable, compare_arrays
from .pairing import Pair, pair

_REMEMBERED = 4096
"""Pairs of stored values whose metrics are kept: an input that is an earlier output is a hard link
to it."""

_LARGE = 1 << 18
"""Bytes from which on a tensor is worth handing to another thread."""

_AHEAD = 64
"""Pairs that are looked at before the oldest one's row is due."""


_EMPTY = re.compile(r"(new_)?empty(_like|_strided|_permuted|_quantized)?(_|$)")
"""IRs whose result is memory as it was found."""

Unwritten = tuple[set[int], set[int]]
"""Addresses of uninitialised values: mine, golden's."""


class Status(Enum):
    """What a row says: `EQUAL` is every element equal, `INCOMPARABLE` a shape, a dtype, or
    damage, `UNINITIALISED` memory that no op has written yet."""

    EQUAL = "bit-equal"
    DIFFERS = "differing"
    UNPAIRED = "unpaired"
    INCOMPARABLE = "not comparable"
    UNINITIALISED = "uninitialised"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the result. Paths, op, side, dtype and shape are None where there is nothing to
    say."""

    index: int
    op: str | None
    side: str | None
    record_path: str | None
    my_path: str | None
    golden_path: str | None
    dtype: str | None
    shape: tuple[int, ...] | None
    status: Status
    metrics: Metrics | None
    reasons: tuple[str, ...] = ()


def compare_dumps(mine: Dump, golden: Dump) -> Iterator[Row]:
    """Compare everything that pairs, in the order of my seqids; unpaired things have rows too."""
    pairs = pair(
        mine.records,
        golden.records,
        golden_device=golden.device_type,
        by_seqid=mine.load_mode or golden.load_mode,
    )
    known: dict[tuple, Metrics] = {}
    unwritten = (_unwritten(mine), _unwritten(golden))
    pool = ThreadPoolExecutor(os.cpu_count())  # reading and the loops release the GIL
    try:
        waiting: deque[Pair | Future[Row]] = deque()
        for found in pairs:
            large = found.mine is not None and found.mine.nbytes >= _LARGE
            waiting.append(pool.submit(_row, found, known, unwritten) if large else found)
            if len(waiting) > _AHEAD:
                yield _done(waiting.popleft(), known, unwritten)
        while waiting:
            yield _done(waiting.popleft(), known, unwritten)
    finally:
        pool.shutdown(cancel_futures=True)


def _done(item: Pair | Future[Row], known: dict[tuple, Metrics], unwritten: Unwritten) -> Row:
    return item.result() if isinstance(item, Future) else _row(item, known, unwritten)


def _unwritten(dump: Dump) -> set[int]:
    """Addresses of values that are whatever lay in memory: results of `empty` and its like.

    An op that takes such a tensor before anything is written to it has a hard link to that value.
    """
    made = (record for record in dump.records if _EMPTY.match(record.ir))
    return {tensor.address for record in made for tensor in record.outputs}


def _row(found: Pair, known: dict[tuple, Metrics], unwritten: Unwritten) -> Row:
    mine, golden, record = found.mine, found.golden, found.record
    place = (
        found.index,
        record.ir if record else None,
        (mine or golden).side if mine or golden else None,
        record.path if record else None,
        mine.path if mine else None,
        golden.path if golden else found.golden_path,
    )
    if mine is None or golden is None:
        return Row(*place, None, None, Status.UNPAIRED, None, (found.reason,))
    reason = _obstacle(mine, golden)
    if reason:
        return Row(*place, None, None, Status.INCOMPARABLE, None, (reason,))
    if mine.size and (mine.address in unwritten[0] or golden.address in unwritten[1]):
        reason = "uninitialised memory is not compared"
        return Row(*place, mine.dtype, mine.shape, Status.UNINITIALISED, None, (reason,))
    try:
        metrics = _measure(mine, golden, known)
    except DumpError as error:
        reason = f"{error.what}: {error.where}"
        return Row(*place, mine.dtype, mine.shape, Status.INCOMPARABLE, None, (reason,))
    status = Status.EQUAL if metrics.exact == 1.0 else Status.DIFFERS
    notes = tuple(_notes(mine, golden, metrics))
    return Row(*place, mine.dtype, mine.shape, status, metrics, notes)


def _obstacle(mine: Tensor, golden: Tensor) -> str | None:
    if mine.shape != golden.shape:
        return f"shapes differ: {list(mine.shape)} in my dump, {list(golden.shape)} in golden"
    if not comparable(mine.dtype, golden.dtype):
        return f"dtypes differ: {mine.dtype} in my dump, {golden.dtype} in golden"
    return None


def _measure(mine: Tensor, golden: Tensor, known: dict[tuple, Metrics]) -> Metrics:
    key = (mine.address, golden.address, mine.dtype, golden.dtype)
    metrics = known.get(key)
    if metrics is None:
        metrics = compare_arrays(mine.read(), golden.read())
        if len(known) >= _REMEMBERED:
            known.clear()
        known[key] = metrics
    return metrics


def _notes(mine: Tensor, golden: Tensor, metrics: Metrics) -> Iterator[str]:
    if mine.dtype != golden.dtype:
        yield f"dtypes: {mine.dtype} in my dump, {golden.dtype} in golden"
    if metrics.size == 0:
        yield "This tensor is empty."
    elif metrics.size == 1:
        yield "This tensor is scalar."
    if metrics.cosine is None:
        zero = golden.path if not any(metrics.golden) else mine.path
        yield f"Cannot compare by Cosine Similarity. All the data is zero in {zero}."
    if metrics.same_nonfinite:
        same = f"{metrics.same_nonfinite} of {metrics.size} elements"
        yield f"{same} are the same NaN or infinity on both sides"
    apart = (metrics.mine_nonfinite, metrics.golden_nonfinite, metrics.other_nonfinite)
    if any(apart):
        yield (
            "NaN or infinite: {} of {} elements in my dump only, {} in golden only, "
            "{} on both sides but not alike".format(apart[0], metrics.size, *apart[1:])
        )
