"""The ops of a model from what a profiler saved: a chrome trace, packed or not, or a printed table.

Profiles hold more than ops: labels of the script, kernels, and autograd nodes, whose ops are in the
profile themselves. Only names of ops are counted. A profile does not say which overload ran.
"""

from __future__ import annotations

import gzip
import re
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dumper.errors import DumpError, first_line

from .trace import count, ops_of_trace

CUT = "..."
"""The end of a name that a printed table had no room for."""

DEFAULT_ROWS = 100
"""Rows that a table has at most, unless it was asked for more."""

_HDF5 = b"\x89HDF\r\n\x1a\n"
_GZIP = b"\x1f\x8b"
_LARGEST_TABLE = 64 << 20
_LONGEST_LINE = 1 << 20
_CALLS = ("# of Calls", "Number of Calls")
_RULE = re.compile(r"\s*-{3,}(?:\s+-{3,})+\s*")
_SCOPED = re.compile(r"([A-Za-z_]\w*)::\w+(?:\.\w+)?(?:\.\.\.)?")
_BARE = re.compile(r"[a-z_]\w*(?:\.\.\.)?")
_NO_OPS = ("profiler", "autograd", "torch")  # namespaces of what is no op

_TODO = (
    "name a dump, a trace of prof.export_chrome_trace(...), or the saved text of "
    "prof.key_averages().table(row_limit=-1, max_name_column_width=200)"
)


@dataclass(frozen=True)
class Profile:
    """What a profiler saved. calls: of each op, in the order of the file.

    kind: `trace` or `table`. passed: names that are no ops. full: whether a table has as many rows
    as are printed by default, so that there may have been more.
    """

    kind: str
    calls: Counter[str]
    passed: int
    full: bool = False


def is_dump(path: Path) -> bool:
    """Whether a file is a dump, by its name or by how it begins."""
    if path.suffix in (".h5", ".hdf5"):
        return True
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its writer
            return False
        with path.open("rb") as file:
            return file.read(len(_HDF5)) == _HDF5
    except (OSError, ValueError):
        return False  # read_profile says why


def read_profile(path: Path) -> Profile:
    """The ops of a saved profile.

    Raises DumpError where there is no such file, where it is neither a trace nor a table, is
    damaged or cut, or holds no op.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DumpError("this is no file", path, _TODO)
        with path.open("rb") as file:
            start = file.read(2)
            file.seek(0)
            if start == _GZIP:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    return _profile("trace", ops_of_trace(unpacked, path), path)
            if _begins_json(file):
                return _profile("trace", ops_of_trace(file, path), path)
            raw, rows = _ops_of_table(file, path)
            return _profile("table", raw, path, rows == DEFAULT_ROWS)
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        reason = getattr(error, "strerror", None) or first_line(error)
        raise DumpError(f"this file cannot be read ({reason})", path, "check the path") from None


def _begins_json(file: BinaryIO) -> bool:
    start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    file.seek(0)
    return start[:1] in (b"{", b"[")


def _profile(kind: str, raw: Counter[str], path: Path, full: bool = False) -> Profile:
    """Names that are ops. Before torch 1.8 they had no namespace: then plain names are ops too."""
    scoped = {name: each for name in raw if (each := _SCOPED.fullmatch(name))}
    ops = {name for name, each in scoped.items() if each[1] not in _NO_OPS}
    calls: Counter[str] = Counter()
    for name, number in raw.items():
        if name in ops:
            calls[name] += number
        elif not ops and _BARE.fullmatch(name):
            calls[f"aten::{name}"] += number
    if not calls:
        raise DumpError("there is no op in this profile", path, _TODO)
    return Profile(kind, calls, len(raw) - len(calls), full)


def _ops_of_table(file: BinaryIO, path: Path) -> tuple[Counter[str], int]:
    """How often each name of the first table was called, and how many rows it has."""
    lines = _lines(file, path)
    for line in lines:
        if not _RULE.fullmatch(line):
            continue
        columns = [slice(*each.span()) for each in re.finditer("-+", line)]
        head = next(lines, "")
        titles = [_cell(head, each) for each in columns]
        numbers = [i for i, title in enumerate(titles) if title in _CALLS]
        if titles[0] == "Name" and numbers:
            return _rows(lines, columns[0], columns[numbers[0]], path)
    raise DumpError("this file is neither a trace nor a table of a profiler", path, _TODO)


def _rows(
    lines: Iterator[str], names: slice, numbers: slice, path: Path
) -> tuple[Counter[str], int]:
    next(lines, "")  # the line below the titles
    calls: Counter[str] = Counter()
    for rows, line in enumerate(lines):
        if _RULE.fullmatch(line):
            return calls, rows
        name, number = _cell(line, names), _cell(line, numbers)
        if not (name and number.isdecimal() and len(number) < 16):
            raise DumpError(f"row {rows + 1} of this table is damaged: {line[:80]}", path, _TODO)
        count(calls, name, int(number), path)
    raise DumpError("this table has no last line: it was cut", path, _TODO)


def _cell(line: str, column: slice) -> str:
    return line[column].strip()


def _lines(file: BinaryIO, path: Path) -> Iterator[str]:
    size = 0
    while line := file.readline(_LONGEST_LINE):
        size += len(line)
        if size > _LARGEST_TABLE or len(line) == _LONGEST_LINE:
            what = "this file is too large for a table of a profiler"
            raise DumpError(what, path, _TODO)
        yield line.decode("utf-8", "replace").rstrip("\r\n")
