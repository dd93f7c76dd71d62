"""What a terminal shows while it waits: how far it is, how fast, and how long it will still take.

On stderr, only if that is a terminal, and only once a second has passed. A console that cannot
encode the signs of a bar gets plain ones.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

T = TypeVar("T")

_PIPED_WIDTH = 10_000
_PROGRESS_AFTER = 1.0  # seconds
_BETWEEN = 0.1  # seconds


def console(stream: TextIO) -> Console:
    """A rich console that neither wraps nor colours what goes into a pipe."""
    width = None if stream.isatty() else _PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def show_table(out: Console, table: Table) -> None:
    """Print a table; what goes into a pipe has no blanks at the end of its lines."""
    if out.is_terminal:
        out.print(table)
        return
    with out.capture() as found:
        out.print(table)
    for line in found.get().splitlines():
        out.print(Text(line.rstrip()), soft_wrap=True)


def with_progress(
    items: Iterable[T], title: str, total: int, size: Callable[[T], int] | None = None
) -> Iterator[T]:
    """Pass items on, with a bar on stderr if that is a terminal and it takes over a second.

    total: how many items there are. size: bytes of an item, for a rate; `total` is then of bytes.
    """
    if not console(sys.stderr).is_terminal:
        yield from items
        return
    rate = (TransferSpeedColumn(),) if size else ()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        *rate,
        TimeRemainingColumn(),
    )
    with _late(*columns) as bar:
        task = bar.add_task(title, total=total)
        done, shown = 0, time.monotonic()
        for item in items:
            done += size(item) if size else 1
            if (now := time.monotonic()) - shown >= _BETWEEN:  # a bar costs more than a small row
                bar.update(task, completed=done)
                shown = now
            yield item


@contextlib.contextmanager
def working(title: str) -> Iterator[None]:
    """Show on stderr that work of unknown length goes on, as `with_progress` does."""
    out = console(sys.stderr)
    if not out.is_terminal:
        yield
        return
    spinner = SpinnerColumn("line" if out.options.ascii_only else "dots")
    with _late(spinner, TextColumn("{task.description}", markup=False), TimeElapsedColumn()) as bar:
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
