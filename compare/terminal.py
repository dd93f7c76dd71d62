"""What people see of a comparison: the answer in a few lines, then the worst rows in a table that
fits.

Plain text, unwrapped, when the output is no terminal. Names come from files and are shown inert.
All of it is said of a result, so that one that is read again says the same.
"""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dumper.errors import printable
from dumper.layout import DEVICE_NAMES

from .columns import element, number, shape_text, share
from .origin import Gap, Origin
from .progress import console, show_table
from .row import Row, Status
from .summary import Summary

WIDE = 110  # columns
_WIDEST = 150

_RARE = {
    Status.ALIKE: "equal in value in another dtype",
    Status.ARGUMENT: "with another argument",
    Status.UNINITIALISED: "uninitialised",
    Status.DESCRIBED: "without data",
}


def show_summary(mine: Origin, golden: Origin, summary: Summary) -> None:
    """Print files, counts, the first difference and the worst rows on stdout."""
    out = console(sys.stdout)
    for title, origin in (("my dump", mine), ("golden", golden)):
        mode = ", load mode" if origin.load_mode else ""
        what = f"{device_name(origin.device)}, {counted(origin.records, 'record')}{mode}"
        out.print(Text(f"{title:8}  {printable(origin.path)} ({what})"), soft_wrap=True)
    out.print(counts_of(summary), soft_wrap=True)
    out.print(Text(_first(mine, golden, summary)), soft_wrap=True)
    if summary.worst:
        out.print("rows that differ most:")
        show_table(out, _table(summary.worst, out))
        show_again(summary, out)


def counts_of(summary: Summary) -> str:
    """How many rows there are of each status; of the rare ones only where there are some."""
    counts = summary.counts
    text = (
        f"{counted(summary.rows, 'row')}: {summary.compared} compared, "
        f"of which {counts[Status.EQUAL]} bit-equal and {counts[Status.DIFFERS]} differing; "
        f"{counts[Status.UNPAIRED]} unpaired, {counts[Status.INCOMPARABLE]} not comparable"
    )
    for status, words in _RARE.items():
        if counts[status]:
            text += f", {counts[status]} {words}"
    return text


def show_again(summary: Summary, out: Console) -> None:
    """Print how many rows the table of the worst leaves out, if any."""
    if summary.again:
        verb = "differs" if summary.again == 1 else "differ"
        out.print(
            f"{summary.again} more {verb} with the same numbers as one of these", soft_wrap=True
        )


def show_missing(title: str, origin: Origin) -> None:
    """Say on stderr what is missing from a file: its end, damaged parts, what the writer left
    out."""
    out = console(sys.stderr)

    def say(text: str) -> None:
        out.print(Text(f"{title} {printable(origin.path)} {text}"), soft_wrap=True)

    def first(gap: Gap) -> str:
        return f"first {printable(gap.path)}: {printable(gap.reason)}"

    if origin.finished is False:
        last = printable(origin.last_record)
        say(f"is unfinished: its last record is {last}; compared as far as it goes")
    if origin.unreadable.count:
        parts = counted(origin.unreadable.count, "unreadable part")
        say(f"has {parts}, {first(origin.unreadable)}")
    if origin.left_out.count:
        values = counted(origin.left_out.count, "value")
        say(f"lacks {values} its writer left out, {first(origin.left_out)}")


def counted(count: int, thing: str) -> str:
    """A number of things, in the plural unless there is one."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def device_name(code: int | None) -> str:
    """The name of a `DeviceType`."""
    if code is None:
        return "no tensors"
    return DEVICE_NAMES.get(code, f"device type {code}")


def _first(mine: Origin, golden: Origin, summary: Summary) -> str:
    """Where the two go apart: the first row that is not as in golden, and the first op whose doing
    it is."""
    first, own = summary.first, summary.first_own
    unread = mine.unreadable.count + golden.unreadable.count
    if first is None:
        if not summary.rows:
            return "nothing was compared: the two dumps have no tensor in common"
        if unread:
            parts = counted(unread, "part")
            return f"nothing that was compared differs, but {parts} could not be read"
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
    place = path
    if row.record_path is not None:
        place = f"seqid {row.index}, {printable(row.op or '?')}, {path}"
    return place if row.metrics else f"{place} ({printable('; '.join(row.reasons))})"


def _table(rows: list[Row], out: Console) -> Table:
    """The rows as a table; a narrow terminal gets fewer columns, so that paths stay readable."""
    wide, widest = out.width >= WIDE, out.width >= _WIDEST
    table = Table(box=None, pad_edge=False)
    titles = ["RelativeEuclidean", "MaxAbsolute", "ExactMatch"]
    titles += ["worst at", "mine", "golden"] * wide + ["Cosine"] * widest
    table.add_column("seqid", justify="right", overflow="fold")
    table.add_column("tensor", overflow="fold")  # an ellipsis is no sign of every console
    for title in titles:
        table.add_column(title, justify="right", overflow="fold", no_wrap=True)
    if widest:
        table.add_column("dtype", overflow="fold")
    for row in rows:
        m = row.metrics
        cells = [str(row.index), Text(printable(row.my_path or "?"))]
        cells += [number(m.relative_euclidean), number(m.max_absolute), share(m.exact)]
        if wide:
            cells += ["", "", ""] if m.worst is None else _worst(row)
        if widest:
            cells += [number(m.cosine), printable(row.dtype or "?")]
        table.add_row(*cells)
    return table


def _worst(row: Row) -> list[str]:
    """The element that differs most: its index, and both values."""
    index, mine, golden = row.metrics.worst
    return [shape_text(index), element(mine, row.dtype), element(golden, row.dtype)]
