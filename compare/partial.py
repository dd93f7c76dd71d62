"""What a comparison that did not end leaves, and how another one goes on from there.

`result_<time>.partial` has a line of JSON that says what is compared with what, and then one for
each row, in the order of the csv. It is the rows' only copy until the end, so that every line that
is whole can be used: a kill may tear the last one. A run that is alive holds a lock on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dumper.errors import DumpError, first_line

from .origin import Origin
from .result import PARTIAL, explained, unwritable
from .row import Row, Status
from .rows import Numbered, numbered, row_of

FORMAT, VERSION = "msaccucmp partial result", 2

_LONGEST = 1 << 26
"""Bytes that a line may have; no line of ours has."""

_PIECE = 1 << 20

_FLUSH_AFTER = 1.0
"""Seconds of work that a kill may cost."""

_NAME = re.compile(r"result_(\d{14})(?:_(\d{1,3}))?")


@dataclass(frozen=True, slots=True)
class Head:
    """What is compared with what, and how. options: JSON values by name. environments: of mine and
    golden."""

    mine: Origin
    golden: Origin
    options: dict[str, Any]
    environments: dict[str, dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        files = {"mine": self.mine.as_json(), "golden": self.golden.as_json()}
        return {"files": files, "options": self.options, "environments": self.environments}


class Partial:
    """A partial result being written. count: rows that are in it."""

    def __init__(self, path: Path, opened: int, head: Head) -> None:
        """Write the first line. opened: descriptor of the new file, for reading and writing."""
        self._begin(path, opened, new=True)
        try:
            _lock(opened)
            with explained(path.parent):
                self._start = self._end = self._file.write(_first_line(head))
            self.flush()
        except BaseException:
            self.close()
            raise

    @classmethod
    def again(cls, path: Path, opened: int) -> Partial:
        """One that another run has left, whose rows are to be read first. opened: descriptor."""
        found = cls.__new__(cls)
        found._begin(path, opened, new=False)
        return found

    def _begin(self, path: Path, opened: int, *, new: bool) -> None:
        self.path, self.count, self._new = path, 0, new
        self._file = open(opened, "r+b", buffering=1 << 16)  # noqa: SIM115 - its user closes it
        self._start = self._end = 0  # of the rows in the file
        self._unpaired: list[tuple[int, int]] = []  # stretches of rows without partner

    def rows(self) -> Iterator[Numbered]:
        """Read the rows, and cut off what follows the last whole one; then rows can be added."""
        self._file.seek(0)
        self._start = self._end = len(self._file.readline(_LONGEST))
        while (line := self._file.readline(_LONGEST)).endswith(b"\n"):
            try:
                found = row_of(json.loads(line))
            except (ValueError, RecursionError, DumpError):
                break
            if found.number != self.count + 1:
                break
            self._note(found.row, len(line))
            yield found
        with explained(self.path.parent):
            self._file.truncate(self._end)
            self._file.seek(self._end)
        self._flushed = time.monotonic()

    def add(self, row: Row, rest: bytes) -> None:
        """Append one row. rest: what `rows.unnumbered` made of it. Raises DumpError when it cannot
        be written."""
        line = numbered(self.count + 1, rest) + b"\n"
        try:
            self._file.write(line)
        except OSError as error:
            raise unwritable(self.path.parent, error) from None
        self._note(row, len(line))
        if time.monotonic() - self._flushed > _FLUSH_AFTER:
            self.flush()

    def lines(self, unpaired: bool) -> Iterator[bytes]:
        """The rows as they are written, in pieces of some lines: those without partner, or all
        others."""
        self.flush()
        edges = [self._start, *(edge for stretch in self._unpaired for edge in stretch), self._end]
        starts, ends = edges[unpaired:-1:2], edges[1 + unpaired :: 2]
        for start, end in zip(starts, ends, strict=True):
            self._file.seek(start)
            while start < end and (piece := self._file.read(min(_PIECE, end - start))):
                start += len(piece)
                yield piece

    def flush(self) -> None:
        """Let what was added survive a kill."""
        with explained(self.path.parent):
            self._file.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Close it, and let it lie for another run, unless it is of this one and has no rows."""
        if self._new and not self.count:
            self.drop()
        with contextlib.suppress(OSError):  # of a full disk, which is being reported already
            self._file.close()

    def drop(self) -> None:
        """There is nothing left to go on with."""
        self.path.unlink(missing_ok=True)

    def _note(self, row: Row, length: int) -> None:
        """A line of this length is in the file now."""
        self.count += 1
        start, self._end = self._end, self._end + length
        if row.status is not Status.UNPAIRED:
            return
        if self._unpaired and self._unpaired[-1][1] == start:
            start = self._unpaired.pop()[0]
        self._unpaired.append((start, self._end))


def find(folder: Path, head: Head) -> tuple[Partial | None, list[str]]:
    """The newest partial result in `folder` that is of the same comparison.

    Returns it, open and locked, or None; and of each newer one, why it is not taken.
    """
    refused = []
    for path in _newest_first(folder):
        try:
            # a link could lead anywhere, and what it leads to would be cut and written to
            opened = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            refused.append(f"{path.name}: it cannot be opened ({error.strerror})")
            continue
        reason = _unfit(opened, head)
        if not reason:
            return Partial.again(path, opened), refused
        os.close(opened)
        refused.append(f"{path.name}: {reason}")
    return None, refused


def _newest_first(folder: Path) -> list[Path]:
    try:
        found = [path for path in folder.iterdir() if path.suffix == PARTIAL]
    except OSError:  # there is no such folder yet
        return []
    named = [(match, path) for path in found if (match := _NAME.fullmatch(path.stem))]
    key = [(match[1], int(match[2] or 0), path) for match, path in named]
    return [path for *_, path in sorted(key, reverse=True)]


def _unfit(opened: int, head: Head) -> str | None:
    """Why a partial result is not of this comparison; None where it is. It is locked then."""
    try:
        _lock(opened)
        with open(os.dup(opened), "rb") as file:
            file.seek(0)
            given = json.loads(file.readline(_LONGEST))
    except BlockingIOError:
        return "another run is writing it"
    except (OSError, ValueError, RecursionError) as error:
        return f"it is no partial result ({first_line(error)})"
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        return "it is no partial result"
    if given.get("version") != VERSION:
        return f"it is of version {given.get('version')}, and this program writes {VERSION}"
    wanted = json.loads(_first_line(head))
    return next(_differences(given, wanted, ()), None)


def _differences(given: Any, wanted: Any, where: tuple[str, ...]) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(wanted, dict) and len(where) < 3:
        for key in [*wanted, *(key for key in given if key not in wanted)]:
            yield from _differences(given.get(key), wanted.get(key), (*where, key))
    elif given != wanted:
        yield f"{'.'.join(where)} differs"


def _first_line(head: Head) -> bytes:
    return json.dumps({"format": FORMAT, "version": VERSION, **head.as_json()}).encode() + b"\n"


def _lock(opened: int) -> None:
    """Keep other runs off the file. Raises BlockingIOError while one is at work."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks: nothing to keep others off with
        return
