"""What people see of a comparison: the answer in a few lines, then the worst rows in a table that
fits.

Plain text, unwrapped, when the output is no terminal. Names come from files and are shown inert.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from dumper.errors import printable
from dumper.layout import DEVICE_NAMES
from dumper.reader import Dump

from .engine import Row, Status
from .result import number, share
from .summary import Summary

T = TypeVar("T")

_PIPED_WIDTH = 10_000
_PROGRESS_AFTER = 1.0  # seconds
_WIDE = 110  # columns


def console(stream: TextIO) -> Console:
    """A rich console that neither wraps nor colours what goes into a pipe."""
    width = None if stream.isatty() else _PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def show_summary(mine: Dump, golden: Dump, summary: Summary) -> None:
    """Print files, counts, the first difference and the worst rows on stdout."""
    out = console(sys.stdout)
    for title, dump in (("my dump", mine), ("golden", golden)):
        mode = ", load mode" if dump.load_mode else ""
        what = f"{device_name(dump.device_type)}, {len(dump.records)} records{mode}"
        out.print(Text(f"{title:8}  {printable(str(dump.path))} ({what})"), soft_wrap=True)
    counts = summary.counts
    out.print(
        f"{summary.rows} rows: {summary.compared} compared, of which {counts[Status.EQUAL]} "
        f"bit-equal and {counts[Status.DIFFERS]} differing; {counts[Status.UNPAIRED]} unpaired, "
        f"{counts[Status.INCOMPARABLE]} not comparable"
        + f", {counts[Status.UNINITIALISED]} uninitialised"
        * (Status.UNINITIALISED in counts)
    )
    out.print(Text(_first(mine, golden, summary)), soft_wrap=True)
    if summary.worst:
        out.print("rows that differ most:")
        out.print(_table(summary.worst, out))


def show_gaps(title: str, dump: Dump) -> None:
    """Say on stderr what is missing from a file: its end, damaged parts, what the writer left
    out."""
    out = console(sys.stderr)

    def say(text: str) -> None:
        out.print(Text(f"{title} {printable(str(dump.path))} {text}"), soft_wrap=True)

    if dump.finished is False:
        last = dump.records[-1]
        say(f"is unfinished: its last record is {printable(last.path)}; compared as far as it goes")
    if dump.skipped:
        path, reason = dump.skipped[0]
        say(f"has {len(dump.skipped)} unreadable parts, first {printable(path)}: {reason}")
    if dump.omitted:
        path, reason = (printable(text) for text in dump.omitted[0])
        say(f"lacks {len(dump.omitted)} values its writer left out, first {path}: {reason}")


def with_progress(items: Iterable[T], title: str, total: int) -> Iterator[T]:
    """Pass items on, with a bar on stderr if that is a terminal and it takes over a second."""
    out = console(sys.stderr)
    if not out.is_terminal:
        yield from items
        return
    start = time.monotonic()
    bar = Progress(console=out, transient=True)
    task = bar.add_task(title, total=total)
    started = False
    try:
        for item in items:
            if not started and time.monotonic() - start > _PROGRESS_AFTER:
                bar.start()
                started = True
            bar.advance(task)
            yield item
    finally:
        if started:
            bar.stop()


def device_name(code: int | None) -> str:
    """The name of a `DeviceType`."""
    if code is None:
        return "no tensors"
    return DEVICE_NAMES.get(code, f"device type {code}")


def _first(mine: Dump, golden: Dump, summary: Summary) -> str:
    row = summary.first_differing
    if row is None:
        if summary.nothing_differs:
            return "nothing differs"
        return "no compared tensor differs, but not everything could be compared"
    if mine.load_mode or golden.load_mode:
        return f"first difference: {_place(row)}; in load mode every op ran on the recorded inputs"
    if not summary.has_inputs:
        return f"first differing row: {_place(row)}; there are no inputs to tell whose doing it is"
    if summary.first_own is None:
        reason = "no op with bit-equal inputs has a differing output"
        return f"first differing row: {_place(row)}; {reason}"
    return f"first difference: {_place(summary.first_own)}; all its inputs are bit-equal"


def _place(row: Row) -> str:
    return f"seqid {row.index}, {printable(row.op)}, {printable(row.my_path)}"


def _table(rows: list[Row], out: Console) -> Table:
    """The rows as a table; a narrow terminal gets fewer columns, so that paths stay readable."""
    wide = out.width >= _WIDE
    table = Table(box=None, pad_edge=False)
    table.add_column("seqid", justify="right", no_wrap=True)
    table.add_column("tensor", overflow="fold")
    for title in ("RelativeEuclidean", "MaxAbsolute", "ExactMatch", *(("Cosine",) * wide)):
        table.add_column(title, justify="right", no_wrap=True)
    if wide:
        table.add_column("dtype", no_wrap=True)
    for row in rows:
        m = row.metrics
        cells = [str(row.index), Text(printable(row.my_path))]
        cells += [number(m.relative_euclidean), number(m.max_absolute), share(m.exact)]
        table.add_row(*cells, *((number(m.cosine), row.dtype) if wide else ()))
    return table
