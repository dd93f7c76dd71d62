"""`msaccucmp overflow` on HDF5 dumps: one file, or the files of several ranks.

A file made with `check_overflow=True` has the events and ranges that the check found. Of any other
the recorded values tell (scan). Both end as the same events, and are told of alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dumper.errors import DumpError, printable
from dumper.overflow.events import TEXT as OVERFLOWS
from dumper.overflow.events import Overflow, events_of
from dumper.overflow.happened import Calls, OpCall
from dumper.overflow.margins import margins
from dumper.overflow.phrases import Say
from dumper.overflow.ranges import TEXT as RANGES
from dumper.overflow.ranges import Range, ranges_of
from dumper.overflow.report import is_fault, report_events
from dumper.overflow.scales import TEXT as SCALE
from dumper.overflow.scales import LossScale, scale_of
from dumper.reader import Dump

from ..opening import opening
from ..origin import origin_of
from ..program import TROUBLE, complain, no_records, say
from ..progress import with_progress
from ..terminal import show_missing
from .scan import scan

_ENDINGS = (".h5", ".hdf5")


class _Found(NamedTuple):
    """What one file says. checked: it was made with an overflow check."""

    path: Path
    rank: int
    checked: bool
    events: list[Overflow]
    ranges: list[Range]
    loss_scale: LossScale | None
    calls: dict[int, OpCall]


_DAMAGED = "what is told is the rest; run the check again"


def dumps_in(path: Path) -> list[Path]:
    """The HDF5 dumps that a path names: the file itself, or those of a directory, by name.

    None for a directory without any, which may hold dumps of another kind.
    """
    if not path.is_dir():
        if path.exists() and not path.is_file():
            raise DumpError("this is no file", path, "name an HDF5 dump, or a folder of them")
        if not path.exists():
            raise DumpError(
                "there is no such file",
                path,
                "check the path; a check that finds no overflow writes no file",
            )
        return [path]
    return sorted(
        each for each in path.iterdir() if each.suffix in _ENDINGS and each.is_file()
    )  # fmt: skip


def report_dump(paths: Sequence[Path], lang: str = "en", *, exit_zero: bool = False) -> int:
    """Say what overflowed in these dumps, one of each rank; the exit status.

    0: nothing that is a fault, or exit_zero. 1: a fault. 2: a file could not be read, and in what
    could be there is no fault. lang: `en` or `zh`.
    """
    spoken, found, trouble = Say(lang), [], False
    for path in paths:
        try:
            with opening(str(path)) as dump:
                one, errors = _read(dump)
        except DumpError as error:
            errors = [error]
        else:
            found.append(one)
        for error in errors:
            complain(str(error))
        trouble = trouble or bool(errors)
    if not found:
        return TROUBLE
    runs = _runs(found)
    for run in runs:
        if len(runs) > 1:
            say(f"{printable(str(run[0].path))}:")
        for line in _lines(run, spoken):
            say(line)
        if run is not runs[-1]:
            say("")
    fault = any(is_fault(one.events) for one in found)
    if fault and not exit_zero:
        return 1
    return TROUBLE if trouble else 0


def _read(dump: Dump) -> tuple[_Found, list[DumpError]]:
    """What a dump says of overflow, and what of it could not be read."""
    errors: list[DumpError] = []
    show_missing("dump", origin_of(dump))
    checked = dump.environment.get("mode") == "overflow"
    checked = checked or any(dump.text(name) for name in (OVERFLOWS, RANGES))
    events = events_of(dump.lines(OVERFLOWS))
    # A file of ops that overflowed of which nothing is said is cut, or damaged.
    says_nothing = dump.environment.get("mode") == "overflow" and dump.records and not events
    if checked and not says_nothing:
        damaged = [(what, where) for where, what in dump.skipped if where.endswith(OVERFLOWS)]
        errors = [DumpError(*found, _DAMAGED) for found in damaged]
        ranges, loss_scale = ranges_of(dump.lines(RANGES)), scale_of(dump.lines(SCALE))
    elif not dump.records:
        raise no_records(dump)
    else:
        passing = partial(with_progress, title="looking", total=len(dump.records))
        events, ranges, loss_scale, errors = scan(dump, passing)
    found = _Found(dump.path, dump.rank, checked, events, ranges, loss_scale, {})
    named = set(_named(events))
    for record in dump.records:
        if record.seqid in named:
            found.calls[record.seqid] = OpCall(record.ir, record.entry.module)
    return found, errors


def _named(events: Sequence[Overflow]) -> Iterator[int]:
    """Seqids that the events speak of."""
    for event in events:
        yield from (way.seqid for way in event.trail)
        yield from (
            seqid
            for seqid in (event.producer, event.again, event.masked_by)
            if seqid is not None
        )  # fmt: skip


def _runs(found: list[_Found]) -> list[list[_Found]]:
    """The files of one run together, by rank; where two name one rank, each by itself."""
    if max(Counter(one.rank for one in found).values()) > 1:
        return [[one] for one in found]
    for one in found:
        for event in one.events:
            event.rank = one.rank
    return [sorted(found, key=lambda one: one.rank)]


def _lines(found: list[_Found], spoken: Say) -> Iterator[str]:
    several = len(found) > 1
    events = [event for one in found for event in one.events]
    calls: Calls = {
        (one.rank, seqid): call for one in found for seqid, call in one.calls.items()
    }  # fmt: skip
    yield report_events(events, calls, lang=spoken.lang, ranks=several)
    for one in found:
        if several:
            yield ""
            yield spoken("file", rank=one.rank, path=printable(str(one.path)))
        if not one.checked:
            yield spoken("from values")
        yield from margins(one.ranges, one.loss_scale, lang=spoken.lang)
