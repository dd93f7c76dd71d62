"""What a person reads of a comparison of folders: counts, the first operator that parts, the worst.

Two devices do not agree bit for bit, and what an operator may round by is not derived here. What
tells an operator at fault from one that hands on what it was given is whether its inputs are equal,
and what tells it from one that rounds is how much it adds; so those two are the answer, where
inputs were compared, and next to it how far each tensor is apart.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

from rich.cells import set_cell_size
from rich.table import Table
from rich.text import Text

from dumper.errors import printable

from ..columns import number, share
from ..progress import console, show_table
from ..row import Status
from ..summary import Summary
from .added import Added
from .pairs import Golden
from .phrases import Words
from .rows import FolderRow
from .scan import Folder

_AS_IN_GOLDEN = (Status.EQUAL, Status.ALIKE)
_PASSED = 10
"""Paths that are named of those that were passed over."""


class Parting:
    """Takes rows in order, and keeps the few that the answer is made of.

    own: the first output that is not as in golden although its operator's inputs are. first: the
    first output that is not, of those that could be read; fed: whether its operator's inputs are,
    None where not all of them were compared. most: the output that adds most to what its operator
    was given (`added`). odd: the first row of all that is not as in golden. ops: how many of my
    operators there were.
    expected: rows that are nobody's fault, by code.
    """

    def __init__(self) -> None:
        self.summary = Summary()
        self.own: FolderRow | None = None
        self.first: FolderRow | None = None
        self.most: FolderRow | None = None
        self.added = Added()
        self.odd: FolderRow | None = None
        self.fed: bool | None = None
        self.ops = 0
        self.expected: Counter[str] = Counter()
        self._index: int | None = None
        self._inputs: list[bool | None] = []

    def add(self, found: FolderRow) -> None:
        """Take the next row; those of an operator come together, its inputs first."""
        row, pair = found
        self.summary.add(row)
        if pair.mine is not None and pair.index != self._index:
            self._index, self._inputs = pair.index, []
            self.added.begin()
            self.ops += 1
        if pair.code and row.status is Status.UNPAIRED:
            self.expected[pair.code] += 1
        odd = row.status in (Status.DIFFERS, Status.INCOMPARABLE)
        if odd and self.odd is None:
            self.odd = found
        if pair.where == "input" and pair.mine is not None:
            known = row.status in (*_AS_IN_GOLDEN, Status.DIFFERS)
            self._inputs.append(row.status in _AS_IN_GOLDEN if known else None)
            self.added.input(row)
        elif pair.where == "output" and odd and not pair.damaged:
            fed = self._fed
            if self.first is None:
                self.first, self.fed = found, fed
            if fed and self.own is None:
                self.own = found
            if self._inputs and self.added.output(row):
                self.most = found

    @property
    def _fed(self) -> bool | None:
        """Whether all inputs of the operator are as in golden."""
        if False in self._inputs:
            return False
        return None if None in self._inputs or not self._inputs else True


def show(mine: Folder, golden: Golden, golden_path: str, found: Parting, words: Words) -> None:
    """Print what there is to say on stdout."""
    out = console(sys.stdout)

    def say(text: str) -> None:
        out.print(Text(text), soft_wrap=True)

    path = printable(str(mine.root))
    say(_titled(words, "my dump", words("operators", path=path, count=len(mine.ops))))
    what = words(golden.kind, path=printable(golden_path), count=golden.count)
    say(_titled(words, "golden", what))
    for line in answer(found, words):
        say(line)
    worst = found.summary.worst
    if worst:
        table = Table(box=None, pad_edge=False)
        table.add_column("Index", justify="right", no_wrap=True)
        for title in ("type", "tensor"):
            table.add_column(words(title), overflow="fold")
        for title in ("RelativeEuclidean", "MaxAbsolute", "ExactMatch"):
            table.add_column(title, justify="right", no_wrap=True)
        for row in worst:
            m = row.metrics
            names = Text(printable(row.op or "")), Text(printable(row.my_path))
            numbers = number(m.relative_euclidean), number(m.max_absolute), share(m.exact)
            table.add_row(str(row.index), *names, *numbers)
        say(words("worst rows"))
        show_table(out, table)
        if found.summary.again:
            say(words("again", count=found.summary.again))


def passed_over(folder: Folder, npy: int, words: Words) -> Iterator[str]:
    """Lines on what of a folder was not looked at. npy: files of that kind that lie in it."""
    if npy:
        yield words("npy beside", path=printable(str(folder.root)), count=npy)
    for path, why in folder.passed[:_PASSED]:
        yield words("passed", path=printable(str(path)), why=why)
    if len(folder.passed) > _PASSED:
        yield words("more passed", count=len(folder.passed) - _PASSED)


def _titled(words: Words, title: str, what: str) -> str:
    return f"{set_cell_size(words(title), 8)}  {what}"


def answer(found: Parting, words: Words) -> list[str]:
    """The counts, and where the two part."""
    summary = found.summary
    counts, expected = summary.counts, found.expected
    lines = [
        words(
            "counts",
            ops=found.ops,
            rows=summary.rows,
            compared=summary.compared,
            equal=counts[Status.EQUAL],
            alike=counts[Status.ALIKE],
            differing=counts[Status.DIFFERS],
            unpaired=counts[Status.UNPAIRED] - expected.total(),
            incomparable=counts[Status.INCOMPARABLE],
        )
    ]
    if expected:
        what = words("comma").join(
            words(f"code {code}", count=count) for code, count in expected.items()
        )
        lines.append(words("expected", count=expected.total(), what=what))
    if found.own is not None:
        lines.append(words("parts", **_place(found.own, words)))
        if found.first is not found.own:
            name = "before it" if found.fed is False else "before it unknown"
            lines.append(words(name, **_place(found.first, words)))
    elif found.first is not None:
        why = words("inputs unknown" if found.fed is None else "inputs differ")
        lines.append(words("first output", why=why, **_place(found.first, words)))
    elif found.odd is not None:
        name = "first unread" if found.odd.pair.damaged else "first row"
        lines.append(words(name, **_place(found.odd, words)))
    else:
        lines.append(words("nothing differs" if summary.compared else "nothing compared"))
    if found.most not in (None, found.own):
        factor = f"{found.added.factor:.3g}"
        lines.append(words("adds most", factor=factor, **_place(found.most, words)))
    return lines


def _place(found: FolderRow, words: Words) -> dict[str, str]:
    """What the phrases about one row say of it."""
    row, pair = found
    side = pair.mine or pair.golden
    kind, name = printable(pair.op_type or ""), printable(side.op)
    what = printable("; ".join(row.reasons))
    if row.metrics is not None:
        m = row.metrics
        what = words(
            "distance",
            relative=number(m.relative_euclidean),
            absolute=number(m.max_absolute),
            exact=share(m.exact),
        )
    return {
        "op": words("operator", type=kind, name=name, index=pair.index).strip(),
        "tensor": printable(side.label.removeprefix(f"{side.op}:")),
        "what": what,
    }
