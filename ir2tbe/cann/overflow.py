"""Reports of overflows in a folder of dumps, and the op dump that each is about.

A report names no op, only ids. The op's own dump lies in the same folder, with the same ids in its
name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dumper.errors import DumpError

from . import opdebug
from .file import read
from .folder import DumpFile, Missed, walk
from .opdebug import Entry, Report

_OUTPUTS = 64
_REPORT_BYTES = 1 << 16
"""Of one output; the layouts that are known take less than a tenth of it."""


@dataclass
class Tree(Missed):
    """What there is under a folder. reports: Opdebug files by timestamp. ops: the other dumps of a
    folder that has one."""

    reports: list[DumpFile] = field(default_factory=list)
    ops: dict[Path, list[DumpFile]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Match:
    """The dump of an op. missing: ids that the report has and the file's name has not. others: how
    many more dumps fit as well; of those, the earliest is taken."""

    file: DumpFile
    missing: tuple[str, ...]
    others: int


def look_through(root: Path) -> Tree:
    """Find the dumps under a folder. Raises DumpError where that is no folder or cannot be read."""
    try:
        if not root.is_dir():
            raise DumpError("this is no folder", root, "name the folder that holds the dump files")
        root.resolve()  # which the walk does too, where nobody would say why it cannot
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DumpError(f"cannot look at this ({reason})", root, "check the path") from None
    tree = Tree()
    for folder, found in walk(root, tree):
        if reports := [file for file in found if file.name.is_opdebug]:
            tree.reports += reports
            tree.ops[folder] = [file for file in found if not file.name.is_opdebug]
    tree.reports.sort(key=lambda file: (file.name.timestamp, file.path))
    return tree


def reports_of(path: Path) -> list[Report]:
    """The reports that an Opdebug file holds, one an output. Raises DumpError for what is none."""
    outputs = read(path).outputs
    if not 1 <= len(outputs) <= _OUTPUTS:
        what = f"it has {len(outputs)} outputs, and a report of overflows is in 1 to {_OUTPUTS}"
        raise DumpError(what, path, "the file is damaged: copy it again, or dump again")
    found = []
    for output in outputs:
        if output.size > _REPORT_BYTES:
            what = f"a report of overflows has no {output.size} bytes"
            raise DumpError(what, output.where, "the file is damaged: copy it again, or dump again")
        found.append(opdebug.parse(output.read().tobytes(), output.where))
    return found


def match(entry: Entry, ops: Sequence[DumpFile]) -> Match | None:
    """The dump of the op that an entry is about; None where there is none.

    ops: the dumps of its folder. An id that a name leaves out fits, but one that has it is nearer.
    """
    asked = {
        name: value
        for name in ("task_id", "stream_id", "context_id", "thread_id")
        if (value := entry.known_id(name)) is not None
    }
    fitting: list[tuple[tuple[str, ...], DumpFile]] = []
    for file in ops:
        has = {name: getattr(file.name, name) for name in asked}
        if all(value in (None, asked[name]) for name, value in has.items()):
            fitting.append((tuple(name for name, value in has.items() if value is None), file))
    if not fitting:
        return None
    fewest = min(len(missing) for missing, _ in fitting)
    nearest = [each for each in fitting if len(each[0]) == fewest]
    missing, file = min(nearest, key=lambda each: (each[1].name.timestamp, each[1].path))
    return Match(file, missing, len(nearest) - 1)
