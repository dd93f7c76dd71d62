"""The dump files of a folder and of all folders below it, and one more in a folder.

Names are judged before any file is opened, links that lead out of the folder are not followed, and
files under a short name are taken as what `mapping.csv` says they are called. What is written here
is named so that it is found again.
"""

from __future__ import annotations

import csv
import fcntl
import os
import re
import stat
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dumper.errors import DumpError

from .content import Dump
from .file import write
from .names import DumpName, name_part, parse

MOST_DEPTH = 30
"""Levels of folders that are looked into, as in the original."""

_MAPPING = "mapping.csv"
_MAPPING_BYTES = 16 << 20
_SHORT = re.compile(r"[A-Za-z0-9]+")
_LONGEST = 254
"""Bytes of a file's name; CANN shortens one of 255, which Linux would still take."""

_LONGEST_MAPPED = 1 << 16
"""Bytes of a name in mapping.csv; csv reads fields of twice as many."""


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
        with open(path, encoding="utf-8-sig", newline="") as file:
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


def write_in(folder: Path, name: DumpName, dump: Dump) -> Path:
    """Write a new dump file, mode 0600, where `walk` finds it under this name; return its path.

    folder: there already. name: its type and name of the op as they are called, and written as they
    stand in names of files. A name of 255 bytes or more goes to mapping.csv, and the file gets its
    uuid3. Threads and processes may write to one folder. Raises DumpError for a name that could not
    be read again, and where nothing can be written; then nothing is left.
    """
    name = replace(name, op_type=name_part(name.op_type), op_name=name_part(name.op_name))
    full = str(name)
    if len(full) > _LONGEST_MAPPED or parse(full) != name:
        what = f"a dump file cannot be called {full[:_LONGEST]}"
        todo = "give the op a type and a name, ids of 0 or more, and a timestamp of 16 digits"
        raise DumpError(what, folder, todo)
    if len(full) <= _LONGEST:
        write(folder / full, dump)
        return folder / full
    path = folder / uuid.uuid3(uuid.NAMESPACE_DNS, full).hex
    write(path, dump)
    try:
        _add_to_mapping(folder / _MAPPING, f"{path.name},{full}\n".encode())
    except BaseException:
        path.unlink()
        raise
    return path


def _add_to_mapping(path: Path, line: bytes) -> None:
    """Add a line, whole or not at all. Raises DumpError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(path, flags, 0o600), "r+b", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DumpError("this is not a regular file", path, "remove it")
            fcntl.flock(file, fcntl.LOCK_EX)  # or a line could follow one that is taken back
            size = os.fstat(file.fileno()).st_size
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                line = b"\n" + line
            if size + len(line) > _MAPPING_BYTES:
                what = f"with one name more it has more than {_MAPPING_BYTES} bytes"
                raise DumpError(what, path, "dump to another folder")
            if file.write(line) != len(line):
                os.truncate(file.fileno(), size)
                raise DumpError("there is no room for one name more", path, "make room")
    except OSError as error:
        reason = error.strerror or str(error)
        todo = "remove what is in the way, or make room"
        raise DumpError(f"this cannot be written ({reason})", path, todo) from None
