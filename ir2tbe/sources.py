"""Which files a conversion is of, from what `-d` says: a file, a folder, or several, by commas.

A file that is named is taken whatever it is called. Of a folder those are taken that have a dump's
name, or that its mapping.csv gives one, in all folders below it, 30 deep; links that lead out of it
are not followed. Where files of one name come from two places, the later one is called after its
path too.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dumper.errors import DumpError

from .cann.folder import Missed, walk
from .cann.names import parse

_HDF5 = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True, slots=True)
class Source:
    """One file. name: what its parts are called after. folder: where it lies below what was named.
    size: bytes. opdebug: it is a report of overflows."""

    path: Path
    name: str
    folder: Path
    size: int
    opdebug: bool


@dataclass
class Sources(Missed):
    """What was found."""

    files: list[Source] = field(default_factory=list)


def paths_of(given: str) -> list[Path]:
    """The paths that a text names: itself where there is such a path, else parts at commas."""
    if "," not in given or os.path.lexists(given):
        return [Path(given)]
    return [Path(part.strip()) for part in given.split(",") if part.strip()]


def is_cann(path: Path) -> bool:
    """Whether a path is a CANN dump file or a folder of such, and not an HDF5 dump: by its name or
    else by how it begins. False for what cannot be read."""
    try:
        if path.is_dir():
            return True
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return False
            start = file.read(8)
    except (OSError, ValueError):
        return False
    if start == _HDF5:
        return False
    return parse(path.name) is not None or 0 < int.from_bytes(start, "little") <= size - 8


def find(paths: list[Path]) -> Sources:
    """Find the dump files that the paths are or have below them, by place and name."""
    found = Sources()
    taken: set[tuple[Path, str]] = set()
    for path in paths:
        try:
            items = list(_below(path, found) if path.is_dir() else _itself(path))
        except (OSError, ValueError) as error:
            found.errors.append(_unreadable(path, error))
            continue
        for item in items:
            if (item.folder, item.name) in taken:
                digest = hashlib.sha256(os.fsencode(item.path)).hexdigest()[:16]
                name = f"{item.name}.{digest}"
                item = Source(item.path, name, item.folder, item.size, item.opdebug)
            taken.add((item.folder, item.name))
            found.files.append(item)
    return found


def _itself(path: Path) -> Iterator[Source]:
    size = path.stat().st_size
    name = parse(path.name)
    yield Source(path, path.name, Path(), size, name is not None and name.is_opdebug)


def _below(root: Path, found: Sources) -> Iterator[Source]:
    for folder, files in walk(root, found):
        place = folder.relative_to(root)
        for file in files:
            try:
                size = file.path.stat().st_size
            except OSError as error:  # it was there a moment ago
                found.errors.append(_unreadable(file.path, error))
                continue
            yield Source(file.path, file.path.name, place, size, file.name.is_opdebug)


def _unreadable(path: Path, error: Exception) -> DumpError:
    reason = getattr(error, "strerror", None) or str(error)
    return DumpError(f"this file cannot be read ({reason})", path, "check the path")
