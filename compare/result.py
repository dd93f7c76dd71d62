"""The csv of a comparison, and how files of a result get their name.

What is written streams to a `.partial` file, which takes the result's name when it is complete, so
that a csv that exists is a whole one. No name is used twice, and nothing is overwritten.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

from dumper.errors import DumpError

from .columns import ALL, NOWHERE, Columns, Place, csv_line, inert
from .row import Row
from .whole import name_files, stems

PARTIAL = ".partial"


class ResultFile:
    """A csv being written. path: where it is, once it is complete."""

    path: Path

    def __init__(self, folder: Path, file: TextIO, columns: Columns) -> None:
        self._folder, self._file, self._columns = folder, file, columns
        self.write(csv_line([inert(name) for name in columns.names]))

    def add(self, row: Row, place: Place = NOWHERE) -> None:
        """Append one row. Raises DumpError when it cannot be written."""
        self.write(self._columns.line(row, place))

    def close(self) -> None:
        """Write out what is left. Raises DumpError when it cannot be."""
        with explained(self._folder):
            self._file.close()

    def write(self, line: str) -> None:
        """Append a line with its end. Raises DumpError when it cannot be written."""
        try:
            self._file.write(line)
        except OSError as error:
            raise unwritable(self._folder, error) from None


@contextlib.contextmanager
def result_file(folder: Path, columns: Columns = ALL) -> Iterator[ResultFile]:
    """Create `result_<time>.csv` in `folder`, mode 0600; a name that exists gets a number.

    folder: made with mode 0700 if it is missing. Raises DumpError when it cannot be written. If the
    block raises, nothing is left behind.
    """
    partial, opened = reserve(folder)
    with csv_file(partial, opened, columns) as result:
        yield result
        result.close()
        result.path = publish({".csv": partial}, partial.stem)[".csv"]


@contextlib.contextmanager
def csv_file(partial: Path, opened: int, columns: Columns) -> Iterator[ResultFile]:
    """A csv under its partial name, which is gone in the end. opened: its descriptor."""
    file = open(opened, "w", encoding="utf-8", newline="")  # noqa: SIM115 - closed below
    try:
        yield ResultFile(partial.parent, file, columns)
    finally:
        with contextlib.suppress(OSError):  # of a full disk, which is being reported already
            file.close()
        partial.unlink(missing_ok=True)


def reserve(folder: Path) -> tuple[Path, int]:
    """Create `<name>.partial` for a result of now and open it; no other run has its name.

    Returns its path and descriptor, for reading and writing. folder: made if it is missing. Raises
    DumpError when it cannot be.
    """
    with explained(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for stem in stems("result"):
            if not _taken(folder, stem, (".csv", ".json")):
                with contextlib.suppress(FileExistsError):
                    partial = folder / f"{stem}{PARTIAL}"
                    return partial, create(partial)
    raise AssertionError  # stems ends with an exception


def create(path: Path) -> int:
    """Open a new file that only its owner may read. Raises FileExistsError where it is one."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


def publish(partials: Mapping[str, Path], stem: str) -> dict[str, Path]:
    """Give complete files one name, each with its suffix: `stem`, or the next that is free.

    partials: by suffix, in one folder. Returns the paths. Raises DumpError when it cannot be.
    """
    with explained(next(iter(partials.values())).parent):
        return name_files(partials, itertools.chain([stem], stems("result")))


def _taken(folder: Path, stem: str, suffixes: tuple[str, ...]) -> bool:
    return any(os.path.lexists(folder / f"{stem}{suffix}") for suffix in suffixes)


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Say as a DumpError why nothing can be written to `folder`."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from None


def unwritable(folder: Path, error: Exception) -> DumpError:
    """What to say of an error of writing."""
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, FileExistsError | NotADirectoryError):
        reason = "there is a file in the way"
    return DumpError(
        f"the result cannot be written ({reason})",
        folder,
        "name another directory with -out, or make room",
    )
