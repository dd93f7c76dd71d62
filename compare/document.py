"""`result_<time>.json`: everything that a comparison found, for programs, and to be read again.

It is made of a partial result when that is complete: what was compared or judged first, then what
has no partner. Each row is a line of its own, and bears its number in the csv, so that both lists
together are the csv again. docs/result.md has every field; what is there stays as it is within a
version.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dumper.errors import DumpError, first_line

from .columns import ALGORITHMS, Columns
from .loss_scale import LossScale
from .origin import from_json
from .partial import Head, Partial
from .rows import Numbered, row_of
from .start import Start, flags_of
from .summary import Summary

FORMAT, VERSION = "msaccucmp result", 2

_AGAIN = "name a result_<time>.json that compare wrote, or compare the dumps again"


@dataclass(frozen=True, slots=True)
class Document:
    """A result that was read. rows: in the order of the csv."""

    head: Head
    columns: Columns
    rows: list[Numbered]


def options_of(columns: Columns, **others: Any) -> dict[str, Any]:
    """What a result notes of what was asked: the columns, and other JSON values by name."""
    custom = list(columns.custom)
    chosen = list(columns.chosen)
    return {"algorithm": chosen, "custom": custom, "overflow_detection": columns.overflow, **others}


def summary_of(head: Head) -> Summary:
    """An empty summary of what a result is of: it knows the flags and the loss scale already."""
    flags = flags_of(head.environments["mine"], head.environments["golden"])
    return Summary(Start(flags, _loss_scale(head.options.get("loss_scale"))))


def _loss_scale(value: Any) -> LossScale | None:
    """What a result notes of the loss scale. Raises TypeError where that is none."""
    if value is None:
        return None
    scale = LossScale(**value)
    numbers = [each for each in scale if each is not None]
    known = all(type(each) is float and 0 < each < math.inf for each in numbers)
    if not known or scale.ratio is None or (scale.mine is None) is not (scale.golden is None):
        raise TypeError(f"loss_scale is {value!r}")
    return scale


def write(file: BinaryIO, head: Head, partial: Partial, summary: Summary) -> None:
    """Write the whole result. Raises OSError."""
    parts = {"format": FORMAT, "version": VERSION, **head.as_json(), "summary": summary.as_json()}
    file.write(b"{\n")
    for key, value in parts.items():
        file.write(f"{json.dumps(key)}: {json.dumps(value)},\n".encode())
    for name, unpaired, end in (("rows", False, b",\n"), ("unpaired", True, b"\n}\n")):
        file.write(f'"{name}": ['.encode())
        _list(file, partial.lines(unpaired))
        file.write(b"]" + end)


def _list(file: BinaryIO, pieces: Iterable[bytes]) -> None:
    """Write lines with commas between them."""
    before = b"\n"
    for piece in pieces:
        file.write(before)
        file.write(piece.replace(b"\n", b",\n"))
        before = b""
    if not before:
        file.seek(-2, os.SEEK_CUR)  # the last comma
        file.write(b"\n")


def read(path: Path) -> Document:
    """Read a result again. Raises DumpError where it is none, or damaged."""
    try:
        if not path.is_file():
            what = "there is no such file" if not os.path.lexists(path) else "not a regular file"
            raise DumpError(what, path, _AGAIN)
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise DumpError(f"it cannot be read ({error.strerror})", path, _AGAIN) from None
    except (ValueError, RecursionError) as error:
        raise DumpError(f"this is no JSON text ({first_line(error)})", path, _AGAIN) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DumpError("this is no result of a comparison", path, _AGAIN)
    if found.get("version") != VERSION:
        what = f"this result is of version {found.get('version')!r}; this program reads {VERSION}"
        raise DumpError(what, path, _AGAIN)
    try:
        return _document(found)
    except DumpError as error:
        raise DumpError(error.what, f"{path}, {error.where}", error.todo) from None


def _document(found: dict[str, Any]) -> Document:
    try:
        files, options, environments = (
            found[key] for key in ("files", "options", "environments")
        )  # fmt: skip
        lists = found["rows"], found["unpaired"]
        head = Head(from_json(files["mine"]), from_json(files["golden"]), options, environments)
        columns = _columns(options)
        summary_of(head)  # which may be what cannot be read
        rows = sorted(map(row_of, [*lists[0], *lists[1]]), key=lambda row: row.number)
    except (KeyError, TypeError) as error:
        raise DumpError(
            f"this result is damaged ({type(error).__name__} {error})", "its fields", _AGAIN
        ) from None
    if [row.number for row in rows] != list(range(1, len(rows) + 1)):
        raise DumpError("rows of this result are missing or there twice", "rows", _AGAIN)
    return Document(head, columns, rows)


def _columns(options: dict[str, Any]) -> Columns:
    names, custom = options["algorithm"], options["custom"]
    ours = {each.name: each for each in ALGORITHMS}
    chosen = tuple(name if name in custom else ours[name] for name in names)
    return Columns(chosen, options["overflow_detection"] is True)
