"""`-map`: what belongs to what, without comparing a value: `mapping_<time>.csv`.

The columns are the original's. An op is `<IR>/<seqid>`, as -op takes it, and TensorIndex says which
`-o` or `-i` of it a tensor is. What has no partner has a row too, with `NaN` for the other side.

    write_mapping(mine, golden, Path("out")).path
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dumper.reader import Dump, Record
from dumper.stored import Argument

from .columns import ABSENT, csv_line, inert
from .common import Pair
from .pairing import pairing_of
from .whole import adding

COLUMNS = (
    "Index",
    "OpType",
    "NPUDump",
    "GroundTruth",
    "TensorIndex",
    "NPUDumpPath",
    "GroundTruthPath",
)


class Mapping(NamedTuple):
    """The file, its rows, and how many of them have one side only."""

    path: Path
    rows: int
    unpaired: int


def write_mapping(mine: Dump, golden: Dump, folder: Path) -> Mapping:
    """Write which tensor of golden `compare` would set against which of mine.

    Tensors that a file only describes are among them, arguments are not. Raises DumpError where
    the file cannot be written.
    """
    rows = unpaired = 0
    record, places = None, {}
    with adding(folder, "mapping", ".csv") as (file, found):
        file.write(csv_line(COLUMNS).encode())
        for each in pairing_of(mine, golden).pairs():
            if isinstance(each.mine or each.golden, Argument):
                continue
            if each.record is not record:
                record, places = each.record, _places(each.record)
            rows += 1
            unpaired += each.mine is None or each.golden is None
            cells = map(inert, _cells(each, places))
            file.write(csv_line([str(each.index), *cells]).encode())
    return Mapping(found[0], rows, unpaired)


def _places(record: Record | None) -> dict[str, str]:
    """TensorIndex of each tensor that the record holds, by path."""
    if record is None:
        return {}
    sides = (("input", record.inputs), ("output", record.outputs))
    return {
        tensor.path: f"{_name(record)}:{side}:{number}"
        for side, tensors in sides
        for number, tensor in enumerate(tensors)
    }


def _cells(each: Pair, places: dict[str, str]) -> tuple[str, ...]:
    """The row after its Index."""
    mine = _name(each.record) if each.record else _op(each.my_path)
    golden = _name(each.partner) if each.partner else _op(each.golden_path)
    return (
        (golden if mine == ABSENT else mine).partition("/")[0],
        mine,
        golden,
        places.get(each.my_path, ABSENT),
        each.my_path or ABSENT,
        each.golden_path or ABSENT,
    )


def _name(record: Record) -> str:
    return f"{record.ir}/{record.seqid}"


def _op(path: str | None) -> str:
    """The op that a path names, where there is no record of it."""
    return "/".join(path.split("/")[1:3]) if path else ABSENT
