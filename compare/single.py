"""`-op`: one tensor of one op, element by element, as the original's single-op files.

In the output folder, with `<op>_<input|output>_<i>` before each name: `.npy` (mine, as it is
compared), `_<n>.csv` from element n on, `_absolute_error_topn.csv`, `_relative_error_topn.csv`,
`_summary.txt`. Numbers keep their digits, and a NaN or an infinity of one side only comes first
among the worst, where the original counts it as no error. Elements stream, so that a file is never
in memory as text.

    write_single(mine, golden, SingleOp("relu/3"), Path("out")).summary
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dumper.errors import DumpError, printable
from dumper.reader import Dump, Record
from dumper.stored import Tensor

from .convert import estimate, safe, select
from .elements import Table, Top, coordinates
from .files import FileTensor
from .filtered import write_npy
from .kinds import comparable
from .metrics import compare_arrays
from .options import SingleOp
from .pairing import pair_values, pairing_of
from .sparse import coalesced, to_coalesce, whole_of
from .whole import folder_with_room, replacing

_LINE_BYTES = 120


class Shown(NamedTuple):
    """What was written. summary: lines of the summary. differing: elements that are not equal."""

    paths: tuple[Path, ...]
    summary: tuple[str, ...]
    differing: int


def write_single(mine: Dump, golden: Dump, asked: SingleOp, folder: Path, first: int = 0) -> Shown:
    """Write the files of one tensor against its counterpart in golden.

    first: only so many elements, 0 for all. Element files of an earlier run on the same tensor are
    removed. Raises DumpError where there is no such tensor, no counterpart or another shape or
    dtype, and where values cannot be read or files be written.
    """
    record = _record(mine, asked.name)
    tensor = _tensor(record, asked)
    partner, other = _counterpart(mine, golden, record, tensor)
    x, y = _arrays(record, tensor, partner, other)
    numbered = asked.name.strip("/") not in (record.ir, printable(record.ir))
    op = safe(record.ir) + (f"_{record.seqid}" if numbered else "")
    paths = tensor.path, other.path
    bytes_ = estimate([(record, tensor)], "npy")
    return write_elements(x, y, tensor, paths, op, bytes_, asked, folder, first)


def write_elements(
    x: np.ndarray,
    y: np.ndarray,
    tensor: Tensor | FileTensor,
    sources: tuple[str, str],
    op: str,
    needed: int,
    asked: SingleOp,
    folder: Path,
    first: int = 0,
    axes: str = "",
) -> Shown:
    """Write the files of two tensors of one shape.

    tensor: mine, of which the dtype counts. sources: where the two come from. op: what the files'
    names begin with. needed: bytes of the npy. axes: names of theirs, as NHWC. Raises DumpError as
    `write_single` does.
    """
    whole, shape, x, y = x, x.shape, x.reshape(-1), y.reshape(-1)
    if first:
        x, y = x[:first], y[:first]
    lines = x.size * asked.elements + 2 * min(asked.topn, x.size)
    folder_with_room(
        folder,
        needed + lines * _LINE_BYTES,
        "make room, name another -out, or leave out the elements with --ignore_single_op_result",
    )
    prefix = f"{op}_{asked.side}_{asked.number}"
    table = Table(x, y, shape, axes)
    tops = Top(asked.topn), Top(asked.topn)
    paths = [folder / f"{prefix}.npy"]
    write_npy(paths[0], tensor, whole)
    for start in range(0, max(x.size, 1), asked.max_line):
        stop = min(start + asked.max_line, x.size)
        if not asked.elements:
            table.scan(start, stop, tops, None)
            continue
        paths.append(folder / f"{prefix}_{start}.csv")
        with replacing(paths[-1]) as file:
            file.write(table.header)
            table.scan(start, stop, tops, file)
    for kind, top in zip(("absolute", "relative"), tops, strict=True):
        paths.append(folder / f"{prefix}_{kind}_error_topn.csv")
        with replacing(paths[-1]) as file:
            file.write(table.header)
            file.writelines(table.lines(top.indices))
    differing = round((1.0 - compare_arrays(x, y).exact) * x.size)
    limits = zip(("Absolute", "Relative"), table.least, table.greatest, strict=True)
    summary = (
        f"TotalCount:{x.size}",
        f"NPUDump:{printable(sources[0])}",
        f"GroundTruth:{printable(sources[1])}",
        f"Format:{coordinates(len(shape), axes)}",
        *(
            f"{end}{kind}Error:{table.number % (value,)}"
            for kind, least, greatest in limits
            for end, value in (("Min", least), ("Max", greatest))
        ),
        f"DifferingCount:{differing}",
    )
    paths.append(folder / f"{prefix}_summary.txt")
    with replacing(paths[-1]) as file:
        file.write("".join(f"{line}\n" for line in summary).encode("utf-8"))
    _remove_others(folder, prefix, paths)
    return Shown(tuple(paths), summary, differing)


def _record(mine: Dump, name: str) -> Record:
    records = select(mine, name)
    if len(records) > 1:
        some = ", ".join(f"{record.ir}/{record.seqid}" for record in records[:10])
        todo = f"name one of them: {some}" + ", ..." * (len(records) > 10)
        raise DumpError(f"there are {len(records)} calls of {name}", mine.path, todo)
    return records[0]


def _tensor(record: Record, asked: SingleOp) -> Tensor:
    tensors = record.inputs if asked.side == "input" else record.outputs
    if asked.number >= len(tensors):
        names = ", ".join(f"{i} is {tensor.name}" for i, tensor in enumerate(tensors[:10]))
        raise DumpError(
            f"this op has {len(tensors)} {asked.side} tensors, counted from 0",
            f"{record.path}, {asked.side} {asked.number}",
            f"choose with -o or -i{': ' + names if names else ''}",
        )
    return tensors[asked.number]


def _counterpart(mine: Dump, golden: Dump, record: Record, tensor: Tensor) -> tuple[Record, Tensor]:
    """What `compare` would set the tensor against. Raises DumpError where it would not."""
    pairing = pairing_of(mine, golden)
    if pairing.by_seqid and tensor.side == "input":
        raise DumpError(
            "a dump made in load mode has golden's inputs, which are not compared",
            tensor.path,
            "name an output with -o",
        )
    partner = pairing.partner(record)
    found = () if partner is None else pair_values(record, partner, by_seqid=pairing.by_seqid)
    other = next((each.golden for each in found if each.mine is tensor), None)
    todo = "see what belongs together with -map"
    if not isinstance(other, Tensor):
        what = "this tensor has no counterpart in golden, or one without values"
        raise DumpError(what, tensor.path, todo)
    if not comparable(tensor.dtype, other.dtype):
        what = f"dtypes differ: {tensor.dtype} in my dump, {other.dtype} in golden"
        raise DumpError(what, tensor.path, todo)
    if tensor.uninitialised or other.uninitialised:
        raise DumpError("uninitialised memory is not compared", tensor.path, "name another tensor")
    return partner, other


def _arrays(
    record: Record, tensor: Tensor, partner: Record, other: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Both tensors' values in one shape; those of a sparse one in order."""
    pairs = (record, tensor), (partner, other)
    wholes = [whole_of(owner, tensor.side, value) for owner, value in pairs]
    if to_coalesce(wholes):
        part = tensor.name.rpartition("/")[2]
        x, y = (coalesced(whole)[part] for whole in wholes)
    else:
        x, y = tensor.read(), other.read()
    if x.shape != y.shape:
        what = f"shapes differ: {list(x.shape)} in my dump, {list(y.shape)} in golden"
        raise DumpError(what, tensor.path, "an element has no counterpart; see result_<time>.csv")
    return x, y


def _remove_others(folder: Path, prefix: str, written: list[Path]) -> None:
    """Remove element files of an earlier run, which would look as if they went on."""
    stale = re.compile(re.escape(prefix) + r"_[0-9]+\.csv")
    for path in folder.iterdir():
        if stale.fullmatch(path.name) and path not in written and path.is_file():
            path.unlink()
