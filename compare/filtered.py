"""`-p 1`: the rows of a result whose cosine is low or not there, and both arrays of each.

The rule is the original's: CosineSimilarity at most 0.95, or not a number, or not there, so that
what could not be compared, has no partner or was not measured is among them. Its arrays came out
empty and under names that other rows took too; here a value is one file, and the csv names it.

    kept = [row for row in rows if is_low(row)]
    write_filtered(kept, mine, golden, Path("result_1.csv"), header, cells).folder
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dumper.errors import DumpError
from dumper.reader import Dump, Record
from dumper.stored import Tensor

from .columns import ABSENT, FILES, csv_line
from .convert import WIDENED, estimate, is_widened, tensors_of
from .row import Row
from .whole import folder_with_room, replacing

LOW = 0.95
"""Cosine up to which a row is taken out, the original's."""

_STEMS = ("my_dump", "gold_dump")
_MAKE_ROOM = "make room, or name another -out"
_NAMES_BYTES = 128
"""What the two names of a row take at most."""


class Written(NamedTuple):
    """What was written. errors: of each array that is not; its rows are in the csv."""

    folder: Path
    rows: int
    errors: tuple[DumpError, ...]


def is_low(row: Row) -> bool:
    """Whether the row's cosine is at most LOW, not a number, or not there."""
    cosine = row.metrics.cosine if row.metrics else None
    return cosine is None or not cosine > LOW


def write_filtered(
    rows: Sequence[Row],
    mine: Dump,
    golden: Dump,
    result: Path,
    header: Sequence[str],
    cells: Callable[[Row], Sequence[str]],
) -> Written:
    """Write `<result>_filtered/` beside the csv `result`: filtered_result.csv and an npy each.

    rows: those to write. header, cells: of the result's csv. Arrays are
    `my_dump<Index>_<n>.npy` and `gold_dump<Index>_<n>.npy`, the n-th row of that Index; a value
    that is stored once is written once. bfloat16 and float8 become float32, as in convert. An array
    that cannot be read, or for which there is no room beside the csv, is `NaN` in the csv. Raises
    DumpError where the csv cannot be written.
    """
    folder = result.with_name(f"{result.stem}_filtered")
    lines = [csv_line(cells(row)).removesuffix("\r\n") for row in rows]
    spare = sum(len(line.encode()) + _NAMES_BYTES for line in lines)
    folder_with_room(folder, spare, _MAKE_ROOM)
    errors: list[DumpError] = []
    of_mine, of_golden = (
        _Arrays(_tensors(dump, set(paths)), stem, folder, spare, errors)
        for stem, dump, paths in (
            ("my_dump", mine, [row.my_path for row in rows]),
            ("gold_dump", golden, [row.golden_path for row in rows]),
        )
    )
    numbers: Counter[int] = Counter()
    with replacing(folder / "filtered_result.csv") as file:
        file.write(csv_line((*header, *FILES)).encode())
        for row, line in zip(rows, lines, strict=True):
            numbers[row.index] += 1
            own = f"{row.index}_{numbers[row.index]}.npy"
            names = of_mine.file(row.my_path, own), of_golden.file(row.golden_path, own)
            file.write(f"{line},{','.join(names)}\r\n".encode())
    return Written(folder, len(rows), tuple(errors))


class _Arrays:
    """The arrays of one side. A stored value is one file, written when a row first needs it.

    tensors: by path. spare: bytes of `folder` to leave free. errors: takes what goes wrong.
    """

    def __init__(
        self,
        tensors: dict[str, tuple[Record, Tensor]],
        stem: str,
        folder: Path,
        spare: int,
        errors: list[DumpError],
    ) -> None:
        self._tensors, self._stem, self._folder = tensors, stem, folder
        self._spare, self._errors = spare, errors
        self._names: dict[tuple, str] = {}

    def file(self, path: str | None, own: str) -> str:
        """Name of the file of a tensor, ABSENT where there is none. own: the end of a new name."""
        if path not in self._tensors:
            return ABSENT
        record, tensor = self._tensors[path]
        key = tensor.address, tensor.dtype, tensor.shape  # a link has the address of its value
        if key not in self._names:
            self._names[key] = self._written(record, tensor, f"{self._stem}{own}")
        return self._names[key]

    def _written(self, record: Record, tensor: Tensor, name: str) -> str:
        try:
            tensor.check()  # before its size is believed
            self._check_room(record, tensor)
            write_npy(self._folder / name, tensor, tensor.read())
        except DumpError as error:
            self._errors.append(error)
        except MemoryError:
            what = "there is not enough memory for this value"
            self._errors.append(DumpError(what, tensor.path, "free some, or use another machine"))
        else:
            return name
        return ABSENT

    def _check_room(self, record: Record, tensor: Tensor) -> None:
        needed = estimate([(record, tensor)], "npy")
        try:
            folder_with_room(self._folder, needed + self._spare, _MAKE_ROOM)
        except DumpError as error:
            what = f"no room for this value: {error.what}"
            raise DumpError(what, tensor.path, error.todo) from None


def write_npy(path: Path, tensor: Tensor, values: np.ndarray) -> None:
    """Write values of a tensor, those that numpy lacks as float32. Raises DumpError."""
    if is_widened(tensor):
        values = values.astype(WIDENED)
    with replacing(path) as file:
        np.save(file, values, allow_pickle=False)


def _tensors(dump: Dump, paths: set[str | None]) -> dict[str, tuple[Record, Tensor]]:
    return {
        tensor.path: (record, tensor)
        for record, tensor in tensors_of(dump.records)
        if tensor.path in paths
    }
