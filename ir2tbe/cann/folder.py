"""The dump files of a folder and of all folders below it.

Names are judged before any file is opened, links that lead out of the folder are not followed, and
files under a short name are taken as what `mapping.csv` says they are called.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dumper.errors import DumpError

from .names import DumpName, parse

MOST_DEPTH = 30
"""Levels of folders that are looked into, as in the original."""

_MAPPING = "mapping.csv"
_MAPPING_BYTES = 16 << 20
_SHORT = re.compile(r"[A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file with a dump's name. name: what it is called, or what mapping.csv says it is."""

    path: Path
    name: DumpName


@dataclass
class Missed:
    """What a walk left out. passed: (path, why) of what was not looked at. errors: what is not as
    it should be."""

    passed: list[tuple[Path, str]] = field(default_factory=list)
    errors: list[DumpError] = field(default_factory=list)


def walk(root: Path, missed: Missed) -> Iterator[tuple[Path, list[DumpFile]]]:
    """Each folder from `root` down, with the dump files in it, by name. OSError of `root` alone."""
    real = root.resolve()
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        folders, files = _entries(folder, missed)
        if folders and depth == MOST_DEPTH:
            missed.passed += [(path, f"{MOST_DEPTH} folders deep") for path in folders]
            folders = []
        waiting += [(path, depth + 1) for path in reversed(folders)]
        yield folder, list(_dumps(folder, files, real, missed))


def _entries(folder: Path, missed: Missed) -> tuple[list[Path], list[os.DirEntry[str]]]:
    """Folders and files, by name."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        reason = error.strerror or str(error)
        todo = "check its mode"
        missed.errors.append(DumpError(f"this folder cannot be read ({reason})", folder, todo))
        return [], []
    folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    return folders, [entry for entry in entries if not entry.is_dir(follow_symlinks=False)]


def _dumps(
    folder: Path, files: Sequence[os.DirEntry[str]], real: Path, missed: Missed
) -> Iterator[DumpFile]:
    known = {}
    if any(entry.name == _MAPPING and entry.is_file(follow_symlinks=False) for entry in files):
        try:
            known = _mapping(folder / _MAPPING)
        except DumpError as error:
            missed.errors.append(error)
    for entry in files:
        name = parse(entry.name) or known.get(entry.name)
        if name is None:
            continue
        path = Path(entry.path)
        if entry.is_symlink() and not _leads_inside(path, real):
            missed.passed.append((path, "a link that leads out of the folder, or to no file"))
        elif not entry.is_file():
            missed.passed.append((path, "no regular file"))
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
