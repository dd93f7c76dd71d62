"""All that one comparison writes: a csv for people and old scripts, a json for programs, and, until
both are complete, the partial result that a killed run is taken up from.

Each row goes to the csv, to the partial result, and into the summary. In the end both files appear
under one name, and the partial ones are gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from .columns import NOWHERE, Columns, Place
from .document import summary_of, write
from .partial import Head, Partial
from .result import PARTIAL, ResultFile, create, csv_file, explained, publish, reserve
from .row import Row
from .rows import unnumbered
from .summary import Summary

Lines = tuple[str, bytes]
"""A row in the csv, and in the json without its number."""


def lines_of(row: Row, columns: Columns, place: Place = NOWHERE) -> Lines:
    """What is written of a row."""
    return columns.line(row, place), unnumbered(row, place)


class Results:
    """Files of one comparison. csv, json: where they are, once they are complete."""

    csv: Path
    json: Path

    def __init__(self, partial: Partial, table: ResultFile, left: bool, summary: Summary) -> None:
        self._partial, self._table, self._left = partial, table, left
        self.summary = summary

    def add(self, row: Row, lines: Lines, place: Place = NOWHERE) -> None:
        """Take the next row, with what `lines_of` made of it. Raises DumpError when it cannot be
        written."""
        self._partial.add(row, lines[1])
        self._table.write(lines[0])
        self.summary.add(row, place)

    def known(self) -> Iterator[Row]:
        """Take the rows that another run has left, and hand them out; before any other."""
        if self._left:
            for _, row, place in self._partial.rows():
                self._table.add(row, place)
                self.summary.add(row, place)
                yield row


@contextlib.contextmanager
def results(
    folder: Path, columns: Columns, head: Head, left: Partial | None = None
) -> Iterator[Results]:
    """Create `result_<time>.csv` and `.json` in `folder`; complete when the block ends.

    left: the partial result of another run, which is gone on with, under its name: its rows are
    taken by `known`. Raises DumpError when something cannot be written. If the block raises, the
    partial result stays, once it has a row.
    """
    partial = left or Partial(*reserve(folder), head)
    try:
        with explained(folder):
            stem = partial.path.stem
            halves = {end: folder / f"{stem}{end}{PARTIAL}" for end in (".csv", ".json")}
            for path in halves.values():  # a killed run's
                path.unlink(missing_ok=True)
            opened = create(halves[".csv"])
        with csv_file(halves[".csv"], opened, columns) as table:
            found = Results(partial, table, left is not None, summary_of(head))
            yield found
            table.close()
            try:
                with explained(folder), open(create(halves[".json"]), "wb") as file:
                    write(file, head, partial, found.summary)
                paths = publish(halves, stem)
            finally:
                halves[".json"].unlink(missing_ok=True)
            found.csv, found.json = paths[".csv"], paths[".json"]
            partial.drop()
    finally:
        partial.close()
