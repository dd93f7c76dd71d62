"""What -p and -advisor write of a comparison once all rows are known.

after = After(asked)
for row in rows:
    after.add(row)
whole = after.write(result, left, right, summary, columns.names, columns.cells)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dumper.errors import DumpError, printable

from .advisor import Advice, Advisor, write_advice
from .filtered import is_low, write_filtered
from .options import Asked
from .program import complain, say
from .row import Row

if TYPE_CHECKING:
    from dumper.reader import Dump

    from .summary import Summary

_SAID = 10
"""Errors of -p that are printed; the next ones are counted."""


class After:
    """What -p and -advisor write when all rows are known; takes the rows as they come."""

    def __init__(self, asked: Asked) -> None:
        self._kept: list[Row] | None = [] if asked.filtered else None
        self._advisor = Advisor(overflow=asked.overflow) if asked.advisor else None

    def add(self, row: Row) -> None:
        """Take the next row."""
        if self._kept is not None and is_low(row):
            self._kept.append(row)
        if self._advisor:
            self._advisor.add(row)

    def write(
        self,
        result: Path,
        mine: Dump,
        golden: Dump,
        summary: Summary,
        header: Sequence[str],
        cells: Callable[[Row], Sequence[str]],
    ) -> bool:
        """Write the files beside `result`, the csv, and say so; whether all could be written.

        header, cells: of that csv. What cannot be is complained of, and costs nothing else.
        """
        errors: list[DumpError] = []
        if self._kept is not None:
            try:
                written = write_filtered(self._kept, mine, golden, result, header, cells)
            except DumpError as error:
                errors.append(error)
            else:
                errors += written.errors
                say(f"{written.rows} rows with a low cosine: {printable(str(written.folder))}")
        if self._advisor:
            try:
                self._advise(self._advisor, result, mine, golden, summary)
            except DumpError as error:
                errors.append(error)
        for error in errors[:_SAID]:
            complain(str(error))
        if len(errors) > _SAID:
            complain(f"{len(errors) - _SAID} more, as the last one")
        return not errors

    @staticmethod
    def _advise(advisor: Advisor, result: Path, mine: Dump, golden: Dump, summary: Summary) -> None:
        unread = len(mine.skipped) + len(golden.skipped)
        loaded = mine.load_mode or golden.load_mode
        advice = advisor.advice(summary, load_mode=loaded, unread=unread)
        give_advice(advice, result.parent)


def give_advice(advice: Advice, folder: Path) -> None:
    """Say an advice, and write it into a folder. Raises DumpError where it cannot be written."""
    for line in advice.lines:
        say(line)
    say(f"advice: {printable(str(write_advice(advice, folder)))}")
