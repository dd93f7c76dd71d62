"""A comparison from two open dumps to its files: what is already known, then what is not.

Rows come in an order that follows from the two dumps alone, so that a run which takes up another
one's partial result leaves out as many rows as that has, and ends with the same files.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dumper.dtypes import BY_NAME
from dumper.reader import Dump

from .columns import NOWHERE, Columns, Place
from .comparing import Options
from .document import options_of
from .engine import compare_and_write
from .origin import environment_of, origin_of
from .pairing import Pairing
from .partial import Head, Partial
from .progress import with_progress
from .results import Results, lines_of, results
from .row import Row


class Stopped(KeyboardInterrupt):
    """Somebody stopped a run. rows: how many another run can go on from."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows


@contextlib.contextmanager
def one_stop() -> Iterator[None]:
    """Let only the first signal stop what runs here; the next one would stop its clearing up.

    A stop may well come twice: to the process group, and handed on by the process above (guard.py).
    """
    stops = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.default_int_handler  # not what nohup ignores
    ]

    def stop(*_: object) -> None:
        for number in stops:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in stops:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in stops:
            signal.signal(number, signal.default_int_handler)


def head_of(mine: Dump, golden: Dump, columns: Columns, **options: Any) -> Head:
    """What is compared with what. options: JSON values."""
    return Head(
        origin_of(mine),
        origin_of(golden),
        options_of(columns, **options),
        {"mine": environment_of(mine), "golden": environment_of(golden)},
    )


def run(
    mine: Dump,
    golden: Dump,
    head: Head,
    columns: Columns,
    options: Options,
    folder: Path,
    pairing: Pairing,
    *,
    left: Partial | None = None,
    see: Callable[[Row], None] = lambda row: None,
) -> Results:
    """Compare everything and write the csv and the json.

    head: of this comparison. pairing: of these two. left: a partial result of it, to go on from.
    see: is given every row. Raises DumpError where something cannot be written, and Stopped for
    KeyboardInterrupt once there are rows.
    """
    place = places_of(mine)
    rows = 0
    try:
        with results(folder, columns, head, left) as result:
            done = 0
            for row in result.known():
                see(row)
                done += bytes_of(row)
                rows += 1
            scale = result.summary.start.scale
            found = compare_and_write(
                mine, golden, lambda row: lines_of(row, columns, place(row)),
                replace(options, skip=rows), pairing, scale,
            )  # fmt: skip
            total = bytes_in(mine, golden) - done if sys.stderr.isatty() else 0
            steps = with_progress(found, "comparing", total, lambda each: bytes_of(each[0]))
            for row, lines in steps:
                result.add(row, lines, place(row))
                see(row)
                rows += 1
    except KeyboardInterrupt:
        if not rows:
            raise
        raise Stopped(rows) from None
    return result


def places_of(dump: Dump) -> Callable[[Row], Place]:
    """What tells where in the user's program the op of a row of this dump stands."""
    entries = {record.path: record.entry for record in dump.records}

    def place(row: Row) -> Place:
        entry = entries.get(row.record_path)
        return Place(entry.api, entry.module, entry.source) if entry else NOWHERE

    return place


def bytes_of(row: Row) -> int:
    """Bytes of both tensors of a row."""
    kind = BY_NAME.get(row.dtype)
    if kind is None or row.metrics is None:
        return 0
    return 2 * math.prod(row.shape) * kind.bits.itemsize


def bytes_in(mine: Dump, golden: Dump) -> int:
    """Bytes of all tensors that may be compared, on both sides."""
    loaded = mine.load_mode or golden.load_mode
    return 2 * sum(
        tensor.nbytes
        for record in mine.records
        for tensor in (*record.outputs, *(() if loaded else record.inputs))
    )
