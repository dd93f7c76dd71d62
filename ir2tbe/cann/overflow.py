"""Reports of overflows in a folder of dumps, and the op dump that each is about.

A report names no op, only ids. The op's own dump lies in the same folder, with the same ids in its
name. Names are judged before any file is opened, links that lead out of the folder are not
followed, and files under a short name are taken as what `mapping.csv` says they are called.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dumper.errors import DumpError

from . import opdebug
from .file import read
from .names import DumpName, parse
from .opdebug import Entry, Report

MOST_DEPTH = 30
"""Levels of folders that are looked into, as in the original."""

_MAPPING = "mapping.csv"
_MAPPING_BYTES = 16 << 20
_OUTPUTS = 64
_REPORT_BYTES = 1 << 16
"""Of one output; the layouts that are known take less than a tenth of it."""

_SHORT = re.compile(r"[A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file with a dump's name. name: what it is called, or what mapping.csv says it is."""

    path: Path
    name: DumpName


@dataclass
class Tree:
    """What there is under a folder. reports: Opdebug files by timestamp. ops: the other dumps of a
    folder that has one. passed: (path, why) of what was not looked at. errors: what is not as it
    should be."""

    reports: list[DumpFile] = field(default_factory=list)
    ops: dict[Path, list[DumpFile]] = field(default_factory=dict)
    passed: list[tuple[Path, str]] = field(default_factory=list)
    errors: list[DumpError] = field(default_factory=list)


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
        real = root.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DumpError(f"cannot look at this ({reason})", root, "check the path") from None
    tree = Tree()
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        folders, files = _entries(folder, tree)
        if folders and depth == MOST_DEPTH:
            tree.passed += [(path, f"{MOST_DEPTH} folders deep") for path in folders]
            folders = []
        waiting += [(path, depth + 1) for path in reversed(folders)]
        found = list(_dumps(folder, files, real, tree))
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


def _entries(folder: Path, tree: Tree) -> tuple[list[Path], list[os.DirEntry[str]]]:
    """Folders and files, by name."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        reason = error.strerror or str(error)
        todo = "check its mode"
        tree.errors.append(DumpError(f"this folder cannot be read ({reason})", folder, todo))
        return [], []
    folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    return folders, [entry for entry in entries if not entry.is_dir(follow_symlinks=False)]


def _dumps(
    folder: Path, files: Sequence[os.DirEntry[str]], real: Path, tree: Tree
) -> Iterator[DumpFile]:
    known = {}
    if any(entry.name == _MAPPING and entry.is_file(follow_symlinks=False) for entry in files):
        try:
            known = _mapping(folder / _MAPPING)
        except DumpError as error:
            tree.errors.append(error)
    for entry in files:
        name = parse(entry.name) or known.get(entry.name)
        if name is None:
            continue
        path = Path(entry.path)
        if entry.is_symlink() and not _leads_inside(path, real):
            tree.passed.append((path, "a link that leads out of the folder, or to no file"))
        elif not entry.is_file():
            tree.passed.append((path, "no regular file"))
        else:
            yield DumpFile(path, name)


def _leads_inside(path: Path, real: Path) -> bool:
    try:
        target = path.resolve(strict=True)
        return target.is_file() and target.is_relative_to(real)
    except (OSError, RuntimeError):  # a broken link, or a ring of them
        return False


def _mapping(path: Path) -> dict[str, DumpName]:
    """Names by the short ones that files have on disk. Raises DumpError for what is no such csv."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            if os.fstat(file.fileno()).st_size > _MAPPING_BYTES:
                raise DumpError(f"it has more than {_MAPPING_BYTES} bytes", path, "shorten it")
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DumpError(
            f"the names of files with short names cannot be read ({error})",
            path,
            "each line is a short name, a comma, and the name that was too long",
        ) from None
    found = {}
    for row in rows:
        if len(row) == 2 and _SHORT.fullmatch(row[0]) and (name := parse(row[1])) is not None:
            found[row[0]] = name
    return found
