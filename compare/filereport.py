"""What a comparison of plain files leaves behind: lines for one pair, the worst rows of many.

`file_result_<time>.txt` has a line `Name: value` for each of the ten algorithms, the original's
eight in its order first. Cells are those of the csv.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.table import Table
from rich.text import Text

from dumper.errors import printable

from .columns import ABSENT, Columns, number, share
from .phrases import phrase
from .program import say
from .progress import console, show_table
from .row import Row, Status
from .summary import Summary
from .terminal import counted
from .whole import adding

_LATER = ("KullbackLeiblerDivergence", "StandardDeviation")
"""Algorithms that the original leaves out here."""

_SHOWN = {"NPUDumpPath": "mine", "GroundTruthPath": "golden"}
"""What a person reads for the columns that speak of dumps."""

_NOT_OF_FILES = ("Index", "NPUDump", "Phase", "Api", "Module", "Source", "PairedBy")


class FirstOwn:
    """Finds, among the rows of files that `convert` wrote, the first output that is not as in
    golden although all inputs of its record are."""

    def __init__(self) -> None:
        self.row: Row | None = None
        self._record: str | None = None
        self._fed = True

    def add(self, row: Row) -> None:
        """Take the next row; those of a record come together, its inputs first."""
        if row.record_path != self._record:
            self._record, self._fed = row.record_path, True
        if row.side == "input":
            self._fed = self._fed and row.status is Status.EQUAL
        elif row.side == "output" and self._fed and self.row is None:
            if row.status in (Status.DIFFERS, Status.INCOMPARABLE):
                self.row = row


def lines_of(row: Row) -> list[tuple[str, str]]:
    """(name, value) of a pair: the algorithms, then what else the csv would say."""
    columns = Columns()
    cells = dict(zip(columns.names, columns.cells(row), strict=True))
    chosen = sorted(columns.chosen, key=_LATER.__contains__)
    rest = [name for name in columns.names if name not in (*chosen, *_NOT_OF_FILES)]
    return [(name, cells[name]) for name in (*chosen, *rest)]


def write_pair(folder: Path, row: Row) -> Path:
    """Write `file_result_<time>.txt` and return its path. Raises DumpError where it cannot be."""
    with adding(folder, "file_result", ".txt") as (file, paths):
        file.write("".join(f"{name}: {value}\n" for name, value in lines_of(row)).encode())
    return paths[0]


def show_pair(row: Row) -> None:
    """Print what there is to say of a pair on stdout."""
    for name, value in lines_of(row):
        if value not in ("", ABSENT):
            say(f"{_SHOWN.get(name, name):26} {value}")


def show_rows(mine: Path, golden: Path, summary: Summary, own: Row | None) -> None:
    """Print the two names, the counts, the first difference and the worst rows on stdout.

    own: what `FirstOwn` found, which is the first difference, if there is one.
    """
    out = console(sys.stdout)
    for title, path in (("mine", mine), ("golden", golden)):
        out.print(Text(f"{title:6}  {printable(str(path))}"), soft_wrap=True)
    counts = summary.counts
    out.print(
        f"{counted(summary.rows, 'row')}: {summary.compared} compared, of which "
        f"{counts[Status.EQUAL]} bit-equal and {counts[Status.DIFFERS]} differing; "
        f"{counts[Status.UNPAIRED]} unpaired, {counts[Status.INCOMPARABLE]} not comparable"
        + (f", {counts[Status.ALIKE]} equal in value" if counts[Status.ALIKE] else ""),
        soft_wrap=True,
    )
    first = own or summary.odd
    if first is None:
        out.print("nothing differs" if summary.rows else "nothing was compared: there is no tensor")
        return
    path = first.golden_path if first.my_path is None else first.my_path
    why = f" ({_why(first)})" if first.metrics is None else ""
    place = printable(f"{path}{why}")
    out.print(Text(f"first difference: {place}"), soft_wrap=True)
    if summary.worst:
        table = Table(box=None, pad_edge=False)
        table.add_column("tensor", overflow="fold")
        for title in ("RelativeEuclidean", "MaxAbsolute", "ExactMatch"):
            table.add_column(title, justify="right", no_wrap=True)
        for row in summary.worst:
            m = row.metrics
            numbers = number(m.relative_euclidean), number(m.max_absolute), share(m.exact)
            table.add_row(Text(printable(row.my_path)), *numbers)
        out.print("rows that differ most:")
        show_table(out, table)
        if summary.again:
            out.print(phrase("again", count=summary.again), soft_wrap=True)


def _why(row: Row) -> str:
    """Why a row has no numbers. The csv says of what has no partner what the original says."""
    if row.status is Status.UNPAIRED:
        return "only in mine" if row.golden_path is None else "only in golden"
    return "; ".join(row.reasons)
