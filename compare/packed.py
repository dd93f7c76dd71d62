"""Rows on their way from a forked process: as plain tuples for marshal, half the cost of pickling.

Both ends are one program, so that nothing here is of another version, and nobody else writes into
the pipe.
"""

from __future__ import annotations

import marshal
import struct
from typing import Any, BinaryIO

from .judging.verdict import Kind, Verdict
from .metrics import Metrics, Ulp, Worst
from .row import Row, Status

_LENGTH = struct.Struct("<Q")
_STATUS = {status.value: status for status in Status}
_KIND = {kind.value: kind for kind in Kind}


_ROW, _METRICS, _VERDICT = (
    {name: i for i, name in enumerate(kind._fields)} for kind in (Row, Metrics, Verdict)
)


def write_rows(number: int | None, units: list[list[tuple[Row, Any]]], file: BinaryIO) -> None:
    """Write the rows of units, each with what is written of it (texts and numbers), and a number,
    so that `read_rows` has them again."""
    packed = [[(_packed(row), more) for row, more in unit] for unit in units]
    data = marshal.dumps((number, packed))
    file.write(_LENGTH.pack(len(data)) + data)
    file.flush()


def read_rows(file: BinaryIO) -> tuple[int | None, list[list[tuple[Row, Any]]]]:
    """The next number and its rows. Raises EOFError, ValueError or TypeError where they are not
    whole."""
    # In one piece: marshal would ask the file for every few bytes.
    (size,) = _LENGTH.unpack(_read(file, _LENGTH.size))
    number, found = marshal.loads(_read(file, size))
    return number, [[(_unpacked(row), more) for row, more in unit] for unit in found]


def _read(file: BinaryIO, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = file.readinto(view)
        if not count:
            raise EOFError
        view = view[count:]
    return data


def _packed(row: Row) -> list[Any]:
    found = list(row)
    found[_ROW["status"]] = row.status.value
    if row.metrics is not None:
        numbers = found[_ROW["metrics"]] = list(row.metrics)
        for name in ("ulp", "worst"):
            if (value := numbers[_METRICS[name]]) is not None:
                numbers[_METRICS[name]] = tuple(value)
    if row.judged is not None:
        judged = found[_ROW["judged"]] = list(row.judged)
        judged[_VERDICT["kind"]] = row.judged.kind.value
    return found


def _unpacked(found: list[Any]) -> Row:
    found[_ROW["status"]] = _STATUS[found[_ROW["status"]]]
    if (numbers := found[_ROW["metrics"]]) is not None:
        for name, kind in (("ulp", Ulp), ("worst", Worst)):
            if (value := numbers[_METRICS[name]]) is not None:
                numbers[_METRICS[name]] = kind(*value)
        found[_ROW["metrics"]] = Metrics(*numbers)
    if (judged := found[_ROW["judged"]]) is not None:
        judged[_VERDICT["kind"]] = _KIND[judged[_VERDICT["kind"]]]
        found[_ROW["judged"]] = Verdict(*judged)
    return Row(*found)
