"""`-advisor`: three lines on where to look first, `advisor_summary.txt`.

The original reads its csv for a cosine below 0.99 and then guesses at causes. Here every sentence
is one that the rows show: which row, what about its op's inputs, which numbers. Causes are left to
the reader.

    advisor = Advisor(overflow=True)
    for row in rows: advisor.add(row)
    write_advice(advisor.advice(summary, load_mode=False), Path("out"))
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dumper.errors import printable

from .columns import OVERFLOW, number
from .judging.verdict import Kind
from .row import Row, Status
from .summary import Summary
from .whole import folder_with_room, replacing

LOW = 0.99
"""CosineSimilarity below which the original calls a tensor's accuracy low."""

CONSISTENCY, INPUT = "Global Consistency", "Input Inconsistent"
"""What the original calls two of its detections."""

NOTHING = "NA"
"""Index of an advice that is about no row."""


class Advice(NamedTuple):
    """Which of the original's detections, the Index of the row that it is about, and the words."""

    detection: str
    index: str
    text: str

    @property
    def lines(self) -> tuple[str, str, str]:
        """The file's lines, fit for a terminal."""
        return (
            f"Detection Type: {self.detection}",
            f"Operator Index: {self.index}",
            f"Expert Advice: {printable(self.text)}",
        )


class Advisor:
    """Takes the rows of a comparison as they come and keeps what an advice needs of them.

    overflow: look for float16 tensors of mine that reach 65504 where golden's does not.
    """

    def __init__(self, *, overflow: bool = False) -> None:
        self._wants_overflow = overflow
        self._overflow: Row | None = None
        self._low = 0
        self._last: Row | None = None

    def add(self, row: Row) -> None:
        """Take the next row."""
        m = row.metrics
        if m is None:
            return
        self._last = row
        self._low += m.cosine is None or not m.cosine >= LOW
        if self._overflow is None and row.dtype == "float16":
            if m.reach[0] >= OVERFLOW > m.reach[1]:
                self._overflow = row

    def advice(self, summary: Summary, *, load_mode: bool, unread: int = 0) -> Advice:
        """What to look at first in two dumps.

        summary: of the same rows. load_mode: every op ran on golden's inputs. unread: parts of the
        two files that could not be read.
        """
        gap = f" {unread} parts of the files could not be read." if unread else ""
        return self.at_once(summary, summary.odd, gap) or self._found(summary, load_mode, gap)

    def at_once(self, summary: Summary, odd: Row | None, gap: str) -> Advice | None:
        """What goes before all else: an overflow, or that nothing was compared; else None.

        odd: the first row of all that is not as in golden. gap: to be added.
        """
        if self._wants_overflow and self._overflow:
            return self._overflowed(self._overflow, odd, gap)
        if summary.compared:
            return None
        text = "Nothing was compared: no tensor of my dump was measured against one of golden."
        if odd is not None:
            text = f"Nothing could be measured. The first row says why: {said(odd)}."
        return Advice(CONSISTENCY, str(odd.index) if odd else NOTHING, text + gap)

    def _found(self, summary: Summary, load_mode: bool, gap: str) -> Advice:
        start, first, odd = summary.start, summary.first, summary.odd
        if start.equal is False and not load_mode:
            unlike = next((each for each in start.leaves.values() if each.differ), None)
            row = unlike and unlike.first
            what = f"an input from outside: {said(row)}" if row else f"{start.flags[0].name}"
            text = f"The two runs did not start equal, first {what}. What follows inherits it."
            if first is not None:
                text += f" An output differs beyond that: {said(first)}; {first.verdict.reason}."
            index = str(row.index) if row else NOTHING
            return Advice(INPUT, index, text + self.size(summary) + gap)
        if first is not None:
            text = f"This output differs beyond rounding: {said(first)}; {first.verdict.reason}."
            text += " Look at this op first."
            if odd is not first:
                text += f" Before it, another row is not as in golden: {said(odd)}."
            return Advice(CONSISTENCY, str(first.index), text + self.size(summary) + gap)
        if odd is not None:
            text = f"No op is shown to be at fault. The first row with a finding is {said(odd)}."
            return Advice(CONSISTENCY, str(odd.index), text + self.size(summary) + gap)
        text = _explained(summary)
        aside = summary.rows - summary.compared
        if aside:
            text += f" {aside} more have no values to compare."
        return Advice(CONSISTENCY, NOTHING, text + gap)

    def _overflowed(self, row: Row, odd: Row | None, gap: str) -> Advice:
        text = (
            f"This float16 tensor reaches {number(row.metrics.reach[0])} in my dump and "
            f"{number(row.metrics.reach[1])} in golden; float16 ends at 65504: {_place(row)}."
        )
        if odd is not None and odd is not row and odd.index <= row.index:
            text += f" The first row that is not as in golden is {said(odd)}."
        return Advice("FP16 Overflow", str(row.index), text + gap)

    def size(self, summary: Summary) -> str:
        """How many are far from golden by the original's measure, and whether the last one is."""
        if self._last is None:
            return ""
        cosine = number(self._last.metrics.cosine)
        return (
            f" {self._low} of {summary.compared} compared tensors have no CosineSimilarity of "
            f"{LOW} or more; that of the last one is {cosine}."
        )


def write_advice(advice: Advice, folder: Path) -> Path:
    """Write advisor_summary.txt into `folder`, in place of an older one; its path.

    Raises DumpError where it cannot be written.
    """
    folder_with_room(folder, 0, "")
    path = folder / "advisor_summary.txt"
    with replacing(path) as file:
        file.write("".join(f"{line}\n" for line in advice.lines).encode("utf-8", "replace"))
    return path


def _explained(summary: Summary) -> str:
    """What there is to say where no op is at fault."""
    verdicts, compared = summary.verdicts, summary.compared
    found = [
        (verdicts[Kind.ROUNDING], "by rounding"),
        (verdicts[Kind.INHERITED], "by what their inputs do"),
    ]
    rest = compared - verdicts[Kind.SAME] - sum(count for count, _ in found)
    found.append((rest, "by what is not meant to agree"))
    if verdicts[Kind.SAME] == compared:
        return f"All {compared} compared tensors are equal to golden."
    parts = "".join(f", apart {why} {count}" for count, why in found if count)
    return f"Of {compared} compared tensors, equal to golden {verdicts[Kind.SAME]}{parts}."


def _place(row: Row) -> str:
    return row.my_path or row.golden_path or row.record_path or "?"


def said(row: Row) -> str:
    """Which row, and what it says."""
    m = row.metrics
    if m is None or row.status is not Status.DIFFERS:
        return f"{_place(row)} ({'; '.join(row.reasons)})"
    numbers = f"RelativeEuclideanDistance {number(m.relative_euclidean)}"
    return f"{_place(row)} ({numbers}, CosineSimilarity {number(m.cosine)})"
