"""`-p 1`: the rows of a result whose cosine is low or not there, and both arrays of each.

The rule is the original's: CosineSimilarity at most 0.95, or not a number, or not there, so that
what could not be compared, has no partner or was not measured is among them. Its arrays came out
empty and under names that other rows took too; here a value is one file, and the csv names it.

    kept = [row for row in rows if is_low(row)]
    write_filtered(kept, mine, golden, Path("result_1.csv"), header, cells).folder
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dumper.errors import DumpError
from dumper.reader import Dump
from dumper.stored import Tensor

from .columns import ABSENT, csv_line
from .convert import WIDENED, is_widened
from .engine import Row
from .whole import folder_with_room, replacing

LOW = 0.95
"""Cosine up to which a row is taken out, the original's."""

FILES = ("MyFile", "GoldenFile")
"""Columns after those of the result: the arrays' files, `NaN` where there is none."""

_STEMS = ("my_dump", "gold_dump")
_HEADER_BYTES = 128


class Written(NamedTuple):
    """What was written. errors: arrays that could not be read; their rows are in the csv."""

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
    that is stored once is written once. bfloat16 and float8 become float32, as in convert. Raises
    DumpError where the folder cannot be written.
    """
    folder = result.with_name(f"{result.stem}_filtered")
    sides = [
        _tensors(dump, {path for path in paths if path})
        for dump, paths in (
            (mine, [row.my_path for row in rows]),
            (golden, [row.golden_path for row in rows]),
        )
    ]
    values = {_key(tensor): tensor for found in sides for tensor in found.values()}
    needed = sum(_HEADER_BYTES + tensor.nbytes * 2 for tensor in values.values())
    folder_with_room(folder, needed, "make room, or name another -out")
    errors: list[DumpError] = []
    names: dict[tuple, str] = {}
    numbers: Counter[int] = Counter()

    def files(row: Row) -> Iterator[str]:
        numbers[row.index] += 1
        paths = (row.my_path, row.golden_path)
        for stem, path, found in zip(_STEMS, paths, sides, strict=True):
            tensor = found.get(path)
            if tensor is None:
                yield ABSENT
                continue
            key = (stem, *_key(tensor))
            if key not in names:
                name = f"{stem}{row.index}_{numbers[row.index]}.npy"
                try:
                    write_npy(folder / name, tensor)
                except DumpError as error:
                    errors.append(error)
                    name = ABSENT
                names[key] = name
            yield names[key]

    with replacing(folder / "filtered_result.csv") as file:
        file.write(csv_line((*header, *FILES)).encode())
        for row in rows:
            file.write(csv_line((*cells(row), *files(row))).encode())
    return Written(folder, len(rows), tuple(errors))


def write_npy(path: Path, tensor: Tensor) -> None:
    """Write a tensor's values, those that numpy lacks as float32. Raises DumpError."""
    values = tensor.read()
    if is_widened(tensor):
        values = values.astype(WIDENED)
    with replacing(path) as file:
        np.save(file, values, allow_pickle=False)


def _key(tensor: Tensor) -> tuple:
    """What tells stored values apart within one dump; a name of its own where there is no link."""
    return tensor.address, tensor.dtype, tensor.shape


def _tensors(dump: Dump, paths: set[str]) -> dict[str, Tensor]:
    found = {}
    for record in dump.records:
        for tensor in (*record.inputs, *record.outputs):
            if tensor.path in paths:
                found[tensor.path] = tensor
    return found
