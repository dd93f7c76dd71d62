"""The csv of a comparison: the original's 17 columns in their order, then ours; safe to open
anywhere.

Rows stream to a `.partial` file, which takes the result's name when it is complete, so that a csv
that exists is a whole one. Names come from files that nobody vouches for: a
cell that a spreadsheet would run as a formula gets an apostrophe, control characters become
escapes.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from dumper.errors import DumpError, printable

from .engine import Row

COLUMNS = (
    "Index",
    "NPUDump",
    "NPUDumpPath",
    "GroundTruthPath",
    "DataType",
    "Shape",
    "CosineSimilarity",
    "MaxAbsoluteError",
    "AccumulatedRelativeError",
    "RelativeEuclideanDistance",
    "KullbackLeiblerDivergence",
    "StandardDeviation",
    "MeanAbsoluteError",
    "RootMeanSquareError",
    "MaxRelativeError",
    "MeanRelativeError",
    "CompareFailReason",
    "ExactMatch",
)

_ABSENT = "NaN"
"""Not computed, as the original writes it; a computed not-a-number is `nan`."""

_FORMULA = tuple("=+-@%\t\r＝＋－＠％")


class ResultFile:
    """A csv being written. path: where it is, once it is complete."""

    path: Path

    def __init__(self, folder: Path, file: TextIO) -> None:
        self._folder, self._file = folder, file
        self._write(COLUMNS)

    def add(self, row: Row) -> None:
        """Append one row. Raises DumpError when it cannot be written."""
        self._write(cells(row))

    def _write(self, values: tuple[str, ...]) -> None:
        with _explained(self._folder):
            self._file.write(",".join(map(_quoted, values)) + "\r\n")


@contextlib.contextmanager
def result_file(folder: Path) -> Iterator[ResultFile]:
    """Create `result_<time>.csv` in `folder`, mode 0600; a name that exists gets a number.

    folder: made with mode 0700 if it is missing. Raises DumpError when it cannot be written. If the
    block raises, nothing is left behind.
    """
    with _explained(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial, number = _reserve(folder)
    file = open(number, "w", encoding="utf-8", newline="")  # noqa: SIM115 - closed below
    try:
        result = ResultFile(folder, file)
        yield result
        with _explained(folder):
            file.close()
            result.path = _publish(partial)
    finally:
        with contextlib.suppress(OSError):  # of a full disk, which is being reported already
            file.close()
        partial.unlink(missing_ok=True)


def cells(row: Row) -> tuple[str, ...]:
    """The row as text, in the order of COLUMNS."""
    names = (row.op, row.my_path, row.golden_path, row.dtype)
    m = row.metrics
    numbers = (_ABSENT,) * 10
    if m is not None:
        numbers = (
            number(m.cosine),
            number(m.max_absolute),
            number(m.accumulated_relative),
            number(m.relative_euclidean),
            number(m.kullback_leibler),
            f"({_short(m.mine[0])};{_short(m.mine[1])}),({_short(m.golden[0])};{_short(m.golden[1])})",
            number(m.mean_absolute),
            number(m.root_mean_square),
            number(m.max_relative),
            number(m.mean_relative),
        )
    return (
        str(row.index),
        *(_ABSENT if name is None else inert(name) for name in names),
        _ABSENT if row.shape is None else "[" + ",".join(map(str, row.shape)) + "]",
        *numbers,
        inert(",".join(row.reasons)),
        _ABSENT if m is None else share(m.exact),
    )


def number(value: float | None) -> str:
    """`%.6f` where that keeps the number, else `%.6e`; `NaN` for what is not defined."""
    if value is None:
        return _ABSENT
    if not math.isfinite(value):
        return f"{value:f}"
    value += 0.0  # no -0.000000
    if value == 0 or 1e-3 <= abs(value) < 1e16:
        return f"{value:.6f}"
    return f"{value:.6e}"


def share(value: float) -> str:
    """`%.6f`, but 1.000000 only for all of them and 0.000000 only for none."""
    if 0.0 < value < 1.0:
        value = min(max(value, 1e-6), 1 - 1e-6)
    return f"{value:.6f}"


def inert(text: str) -> str:
    """Make `text` a cell that no spreadsheet runs and no terminal obeys."""
    text = printable(text)
    # Where the list separator is a semicolon, what follows one starts a cell.
    parts = text.split(";")
    return ";".join("'" + part if part.lstrip().startswith(_FORMULA) else part for part in parts)


def _short(value: float) -> str:
    if not math.isfinite(value):
        return f"{value:f}"
    value += 0.0
    return f"{value:.3f}" if value == 0 or 1e-3 <= abs(value) < 1e16 else f"{value:.3e}"


def _quoted(cell: str) -> str:
    if any(character in cell for character in ',";\r\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _names(folder: Path) -> Iterator[Path]:
    """What a result of now may be called."""
    stem = time.strftime("result_%Y%m%d%H%M%S")
    yield folder / f"{stem}.csv"
    for attempt in range(1, 1000):
        yield folder / f"{stem}_{attempt}.csv"
    raise OSError(f"1000 results of this second exist ({stem}.csv)")


def _reserve(folder: Path) -> tuple[Path, int]:
    """Create the file that will be the result and open it; no other run has its name."""
    for path in _names(folder):
        partial = path.with_suffix(".partial")
        if not os.path.lexists(path):
            with contextlib.suppress(FileExistsError):
                return partial, os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    raise AssertionError  # _names ends with an exception


def _publish(partial: Path) -> Path:
    """Give the complete file its name, or the next one that is free; nothing is overwritten."""
    own = partial.with_suffix(".csv")
    for path in itertools.chain([own], _names(partial.parent)):
        try:
            os.link(partial, path)
        except FileExistsError:
            continue
        except OSError:  # no hard links on this disk
            if os.path.lexists(path):
                continue
            os.rename(partial, path)
        return path
    raise AssertionError  # _names ends with an exception


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error) from None


def _unwritable(folder: Path, error: Exception) -> DumpError:
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, FileExistsError | NotADirectoryError):
        reason = "there is a file in the way"
    return DumpError(
        f"the result cannot be written ({reason})",
        folder,
        "name another directory with -out, or make room",
    )
