"""Whether a dump is whole: `msaccucmp info --verify`.

Three questions: is the index the text whose digest the writer left, is every record that the index
tells of in the file, and does the file hold the bytes that every dataset claims. Values are not
read, so a bit that changed inside of one is not found.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from dumper.errors import DumpError
from dumper.layout import COMFORT, SIDES
from dumper.reader import Dump


@dataclass
class Verdict:
    """problems: (where, what). notes: what could not be checked. datasets: how many were."""

    problems: list[tuple[str, str]]
    notes: list[str]
    records: int
    datasets: int

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong with what could be checked."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        problems = [{"path": path, "problem": what} for path, what in self.problems]
        counts = {"records": self.records, "datasets": self.datasets}
        return {"whole": self.whole, "problems": problems, "notes": self.notes, **counts}


def verify(dump: Dump) -> Verdict:
    """Check a dump against what its writer left."""
    found = Verdict(list(dump.skipped), [], len(dump.records), 0)
    if dump.finished is None:
        found.notes.append("the writer of this file does not say whether it is finished")
    elif not dump.finished:
        last = dump.records[-1].path if dump.records else "nothing"
        found.problems.append(("/", f"unfinished: the last record is {last}"))
    if dump.finished is not False:  # until the end there is no digest
        _check_digest(dump, found)
    _check_records(dump, found)
    for record in dump.records:
        datasets = (
            *record.inputs,
            *record.outputs,
            *record.arguments.values(),
            *record.results.values(),
        )
        for dataset in datasets:
            if dataset.stored is None:  # an empty list, which is a group
                continue
            found.datasets += 1
            try:
                dataset.check()
            except DumpError as error:
                found.problems.append((dataset.path, error.what))
    return found


def _check_digest(dump: Dump, found: Verdict) -> None:
    place = f"/{COMFORT}/0/index"
    try:
        digest = f"sha256:{hashlib.sha256(dump.text('index')).hexdigest()}"
    except DumpError:
        found.problems.append((place, "the index cannot be read"))
        return
    if dump.index_digest is None:
        found.notes.append("this file has no digest of its index; an older writer made it")
    elif dump.index_digest != digest:
        found.problems.append((place, "the index is not what the writer wrote"))


def _check_records(dump: Dump, found: Verdict) -> None:
    """Whether what the index tells of is there.

    Where every tensor is stored or a stub (level "op"), each that bears a number must be there.
    Else records hold only what crosses a boundary, which the index does not tell.
    """
    choice = dump.environment.get("choice")
    choice = choice if isinstance(choice, dict) else {}
    if choice.get("level") != "op":
        found.notes.append("only of level op it is known which tensors must be there")
        return
    noted = choice.get("sides")
    sides = noted if isinstance(noted, list) else list(SIDES)
    if dump.load_mode:
        sides = ["output"]
    for record in dump.records:
        there = {f"{t.side}/{t.name}" for t in (*record.inputs, *record.outputs)}
        there.update(record.entry.stubs)
        for key in record.entry.values:
            if key.partition("/")[0] in sides and key not in there:
                found.problems.append((f"{record.path}/{key}", "in the index, but not in the file"))
