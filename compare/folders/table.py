"""The csv of a comparison of folders, and that of `-map`.

The columns are the original's for folders, in its order, `DataType` and `Address` for both sides;
then those that a comparison of dumps has after its own. An address is what the file says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from dumper.errors import DumpError
from ir2tbe.cann.content import Tensor

from ..columns import ABSENT, NOWHERE, Columns, Place, csv_line, inert
from ..mapping import COLUMNS as MAPPING
from ..whole import adding
from .pairs import Pair, Side
from .rows import FolderRow

_OF_DUMPS = ("Index", "NPUDump", "NPUDumpPath", "GroundTruthPath", "DataType", "Shape")
"""Columns of a comparison of dumps in whose place others stand."""

_OF_FOLDERS = ("OpSequence", "OpType", "Address", "GroundTruth", "TensorIndex")
_OF_PLACES = ("Phase", "Api", "Module", "Source")
_OF_BOUNDS = ("Allowed", "Actual", "Margin", "VerdictReason")
"""Columns for which a folder holds nothing."""


@dataclass(frozen=True)
class FolderColumns:
    """The columns of one result. of_dumps: which algorithms, and whether OverFlow. golden_address:
    golden's tensors have an address. sequence: -r or -s was given, for which the original has
    OpSequence. Raises DumpError for a custom algorithm that is called like a column."""

    of_dumps: Columns
    golden_address: bool
    sequence: bool = False

    def __post_init__(self) -> None:
        for name in self.of_dumps.custom:
            if name.casefold() in map(str.casefold, _OF_FOLDERS):
                what = f"{name} is a column of what a comparison of folders writes"
                raise DumpError(what, "-c", "call the algorithm something else")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The header."""
        return (
            "Index",
            *(("OpSequence",) * self.sequence),
            *("OpType", "NPUDump", "DataType", "Address", "GroundTruth", "DataType"),
            *(("Address",) * self.golden_address),
            *("TensorIndex", "Shape"),
            *self._rest,
        )

    @cached_property
    def _rest(self) -> tuple[str, ...]:
        left_out = {*_OF_DUMPS, *_OF_PLACES, *_OF_BOUNDS}
        return tuple(name for name in self.of_dumps.names if name not in left_out)

    def line(self, found: FolderRow, _: Place = NOWHERE) -> str:
        """The row as a line of a csv, with its end."""
        row, pair = found
        cells = dict(zip(self.of_dumps.names, self.of_dumps.cells(row), strict=True))
        mine, golden = pair.mine, pair.golden
        front = [
            cells["Index"],
            *([cells["Index"]] * self.sequence),
            _text(pair.op_type),
            _text(mine and mine.op),
            _text(mine and mine.dtype),
            _address(mine),
            _text(golden and golden.op),
            _text(golden and golden.dtype),
            *([_address(golden)] * self.golden_address),
            tensor_index(pair),
            cells["Shape"],
        ]
        return csv_line([*front, *(cells[name] for name in self._rest)])


class Mapping(NamedTuple):
    """The file, its rows, and how many of them have one side only, which is somebody's fault, or
    are of a file that could not be read."""

    path: Path
    rows: int
    unpaired: int
    damaged: int


def write_mapping(pairs: Iterable[Pair], folder: Path) -> Mapping:
    """Write `mapping_<time>.csv`: what belongs to what. Raises DumpError where it cannot be."""
    rows = unpaired = damaged = 0
    with adding(folder, "mapping", ".csv") as (file, paths):
        file.write(csv_line(MAPPING).encode())
        for pair in pairs:
            rows += 1
            damaged += pair.damaged
            unpaired += not (pair.code or pair.damaged) and None in (pair.mine, pair.golden)
            sides = (pair.mine, pair.golden)
            cells = [
                str(pair.index), _text(pair.op_type), *(_text(side and side.op) for side in sides),
                tensor_index(pair), *(_text(side and side.path) for side in sides),
            ]  # fmt: skip
            file.write(csv_line(cells).encode())
    return Mapping(paths[0], rows, unpaired, damaged)


def tensor_index(pair: Pair) -> str:
    """`<op>:output:0` of the side that there is, mine first; of a whole operator `NaN`."""
    side = pair.mine or pair.golden
    return _text(side.label if pair.where is not None else None)


def _text(value: str | None) -> str:
    return ABSENT if value is None else inert(value)


def _address(side: Side | None) -> str:
    if side is None or not isinstance(side.tensor, Tensor):
        return ABSENT
    return str(side.tensor.address)
