"""From two open dumps to rows: each pair read, judged for shape and dtype, measured, and let go.

Rows are yielded as they come and the tensors that are in memory at a time are bounded, so that
neither the size of a dump nor the number of cores matters. What cannot be compared is a row with
its reason, never an exception. Equal arguments have no rows, as in the original's csv.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum

from dumper.errors import DumpError
from dumper.reader import Dump
from dumper.stored import Argument, Tensor

from .metrics import Metrics, comparable, compare_arrays
from .pairing import Pair, pair

_REMEMBERED = 4096
"""Pairs of stored values whose metrics are kept: an input that is an earlier output is a hard link
to it."""

_LARGE = 1 << 18
"""Bytes from which on a tensor is worth handing to another thread."""

_AHEAD = 64
"""Pairs that are looked at before the oldest one's row is due."""

BUDGET = 1 << 30
"""Bytes that may be in use for large pairs at a time; a pair that needs more is alone."""

_EMPTY = re.compile(r"(new_)?empty(_like|_strided|_permuted|_quantized)?(_|$)")
"""IRs whose result is memory as it was found."""


class Status(Enum):
    """What a row says: `EQUAL` is every element equal, `INCOMPARABLE` a shape, a dtype, damage or
    something left out, `ARGUMENT` an argument that is no tensor and is another one in golden,
    `UNINITIALISED` memory that no op has written yet."""

    EQUAL = "bit-equal"
    DIFFERS = "differing"
    UNPAIRED = "unpaired"
    INCOMPARABLE = "not comparable"
    ARGUMENT = "another argument"
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


@dataclass(slots=True)
class _Known:
    """What is remembered of stored values by their addresses (mine, golden's)."""

    unwritten: tuple[set[int], set[int]]
    metrics: dict[tuple, Metrics] = field(default_factory=dict)
    arguments: dict[tuple, str] = field(default_factory=dict)


def compare_dumps(mine: Dump, golden: Dump) -> Iterator[Row]:
    """Compare everything that pairs, in the order of my seqids; unpaired things have rows too."""
    pairs = pair(
        mine.records,
        golden.records,
        golden_device=golden.device_type,
        by_seqid=mine.load_mode or golden.load_mode,
        omitted=(mine.omitted, golden.omitted),
        complete=mine.finished is not None and golden.finished is not None,
    )
    known = _Known((_unwritten(mine), _unwritten(golden)))
    pool = ThreadPoolExecutor(os.cpu_count())  # reading and the loops release the GIL
    waiting: deque[tuple[Pair | Future[Row | None], int]] = deque()
    in_use = 0

    def oldest() -> Iterator[Row]:
        nonlocal in_use
        item, cost = waiting.popleft()
        in_use -= cost
        row = item.result() if isinstance(item, Future) else _row(item, known)
        if row is not None:
            yield row

    try:
        for found in pairs:
            cost = _cost(found)
            while waiting and (len(waiting) > _AHEAD or cost and in_use + cost > BUDGET):
                yield from oldest()
            in_use += cost
            waiting.append((pool.submit(_row, found, known) if cost else found, cost))
        while waiting:
            yield from oldest()
    finally:
        pool.shutdown(cancel_futures=True)


def _cost(found: Pair) -> int:
    """Bytes that a pair takes while it is measured, what widening takes included; 0 for a small
    one."""
    if not isinstance(found.mine, Tensor) or not isinstance(found.golden, Tensor):
        return 0
    size = found.mine.nbytes + found.golden.nbytes
    return 2 * size if size >= _LARGE and found.mine.shape == found.golden.shape else 0


def _unwritten(dump: Dump) -> set[int]:
    """Addresses of values that are whatever lay in memory: results of `empty` and its like.

    An op that takes such a tensor before anything is written to it has a hard link to that value.
    """
    made = (record for record in dump.records if _EMPTY.match(record.ir))
    return {tensor.address for record in made for tensor in record.outputs}


def _row(found: Pair, known: _Known) -> Row | None:
    """The row of a pair; None for equal arguments."""
    mine, golden, record = found.mine, found.golden, found.record
    place = (
        found.index,
        record.ir if record else None,
        found.side,
        record.path if record else None,
        found.my_path,
        found.golden_path,
    )
    if mine is None or golden is None:
        status = Status.INCOMPARABLE if found.omitted else Status.UNPAIRED
        return Row(*place, None, None, status, None, (found.reason,))
    try:
        if isinstance(mine, Argument):
            difference = _argument_difference(mine, golden, known)
            if not difference:
                return None
            return Row(*place, None, None, Status.ARGUMENT, None, (difference,))
        reason = _obstacle(mine, golden)
        if reason:
            return Row(*place, None, None, Status.INCOMPARABLE, None, (reason,))
        if mine.size and (
            mine.address in known.unwritten[0] or golden.address in known.unwritten[1]
        ):
            reason = "uninitialised memory is not compared"
            return Row(*place, mine.dtype, mine.shape, Status.UNINITIALISED, None, (reason,))
        metrics = _measure(mine, golden, known)
    except DumpError as error:
        reason = f"{error.what}: {error.where}"
    except MemoryError:
        reason = f"not enough memory to compare {mine.path}"
    else:
        status = Status.EQUAL if metrics.exact == 1.0 else Status.DIFFERS
        notes = tuple(_notes(mine, golden, metrics))
        return Row(*place, mine.dtype, mine.shape, status, metrics, notes)
    claims = (mine.dtype, mine.shape) if isinstance(mine, Tensor) else (None, None)
    return Row(*place, *claims, Status.INCOMPARABLE, None, (reason,))


def _argument_difference(mine: Argument, golden: Argument, known: _Known) -> str:
    """What to say of two arguments; nothing where they are equal."""
    key = (mine.address, golden.address)
    said = known.arguments.get(key)
    if said is None:
        a, b = mine.value, golden.value
        said = ""
        if not _same(a, b):
            said = f"arguments differ: {_brief(a)} in my dump, {_brief(b)} in golden"
        if len(known.arguments) >= _REMEMBERED:
            known.arguments.clear()
        known.arguments[key] = said
    return said


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _same(a: object, b: object) -> bool:
    """Equal as arguments are: 1 and 1.0 are one number, 0.0 and -0.0 are two, NaN is itself."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return repr(a) == repr(b) or (type(a) is not type(b) and a == b)


def _obstacle(mine: Tensor, golden: Tensor) -> str | None:
    if mine.shape != golden.shape:
        return f"shapes differ: {list(mine.shape)} in my dump, {list(golden.shape)} in golden"
    if not comparable(mine.dtype, golden.dtype):
        return f"dtypes differ: {mine.dtype} in my dump, {golden.dtype} in golden"
    return None


def _measure(mine: Tensor, golden: Tensor, known: _Known) -> Metrics:
    key = (mine.address, golden.address, mine.dtype, golden.dtype)
    metrics = known.metrics.get(key)
    if metrics is None:
        metrics = compare_arrays(mine.read(), golden.read())
        if len(known.metrics) >= _REMEMBERED:
            known.metrics.clear()
        known.metrics[key] = metrics
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
