"""What people see of a comparison: the answer in a few lines, then the worst rows in a table that
fits.

Plain text, unwrapped, when the output is no terminal. Names come from files and are shown inert.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
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
WIDE = 110  # columns


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
        + f", {counts[Status.ARGUMENT]} with another argument" * (Status.ARGUMENT in counts)
        + f", {counts[Status.UNINITIALISED]} uninitialised" * (Status.UNINITIALISED in counts)
        + f", {counts[Status.DESCRIBED]} without data" * (Status.DESCRIBED in counts)
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
    if not console(sys.stderr).is_terminal:
        yield from items
        return
    with _late(*Progress.get_default_columns()) as bar:
        task = bar.add_task(title, total=total)
        for item in items:
            bar.advance(task)
            yield item


@contextlib.contextmanager
def working(title: str) -> Iterator[None]:
    """Show on stderr that work of unknown length goes on, as `with_progress` does."""
    if not console(sys.stderr).is_terminal:
        yield
        return
    with _late(
        SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    ) as bar:
        bar.add_task(title, total=None)
        yield


@contextlib.contextmanager
def _late(*columns: ProgressColumn) -> Iterator[Progress]:
    """A bar on the terminal that appears when the block has taken a second."""
    bar = Progress(*columns, console=console(sys.stderr), transient=True)
    timer = threading.Timer(_PROGRESS_AFTER, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield bar
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()


def device_name(code: int | None) -> str:
    """The name of a `DeviceType`."""
    if code is None:
        return "no tensors"
    return DEVICE_NAMES.get(code, f"device type {code}")


def _first(mine: Dump, golden: Dump, summary: Summary) -> str:
    """Where the two go apart: the first row that is not as in golden, and the first op whose doing
    it is."""
    first, own = summary.first, summary.first_own
    unread = len(mine.skipped) + len(golden.skipped)
    if first is None:
        if not summary.rows:
            return "nothing was compared: the two dumps have no tensor in common"
        if unread:
            return f"nothing that was compared differs, but {unread} parts could not be read"
        return "nothing differs"
    loaded = mine.load_mode or golden.load_mode
    if loaded:
        why = "in load mode every op ran on the recorded inputs"
    elif not summary.has_inputs:
        why = "there are no inputs to tell whose doing it is"
    elif own is None:
        why = "no op with bit-equal inputs has a differing output"
    elif own is first:
        why = "all its inputs are bit-equal"
    else:
        why = f"first op that differs on bit-equal inputs: {_place(own)}"
    title = "first difference" if own is first else "first differing row"
    text = f"{title}: {_place(first)}; {why}"
    if loaded and own not in (None, first):
        text += f"; first output that differs: {_place(own)}"
    if not summary.counts[Status.DIFFERS] and not summary.counts[Status.ARGUMENT]:
        text = f"no compared tensor differs, but not everything could be compared\n{text}"
    return text


def _place(row: Row) -> str:
    """Which row it is, and why it has no numbers."""
    path = printable(row.my_path or row.golden_path or row.record_path or "?")
    # what only golden has bears an index of its own, which is no seqid
    place = path if row.record_path is None else f"seqid {row.index}, {printable(row.op)}, {path}"
    return place if row.metrics else f"{place} ({printable('; '.join(row.reasons))})"


def _table(rows: list[Row], out: Console) -> Table:
    """The rows as a table; a narrow terminal gets fewer columns, so that paths stay readable."""
    wide = out.width >= WIDE
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
