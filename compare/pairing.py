"""Which record of one dump belongs to which of the other: the original comparator's rules.

In a free run the k-th call of an IR belongs to the k-th call of that IR on the other side, by
seqid. A load-mode file bears the seqids of the file that it was made from, so there equal seqids
belong together, and only outputs are compared, because its inputs are the other file's. Devices
name some ops and some arguments differently; two tables and a rule for prefixes say how.

These rules are ordinal: one extra call shifts every later pair of its IR. Pure functions of
records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dumper.reader import Record
from dumper.stored import Tensor

_CONVOLUTIONS = ("CudnnConvolutionBackward", "ThnnConvDepthwise2DBackward")
"""Counted as one IR: together they are what NpuConvolutionBackward is."""

_IRS = {
    "CudnnBatchNormBackward": ("NativeBatchNormBackward",),
    "NativeBatchNormBackward": ("CudnnBatchNormBackward",),
    "CudnnConvolutionBackward": ("NpuConvolutionBackward",),
    "ThnnConvDepthwise2DBackward": ("NpuConvolutionBackward",),
    "NpuConvolutionBackward": _CONVOLUTIONS,
}

_ARGUMENTS = {
    "CudnnBatchNormBackward": {"epsilon": "eps"},
    "NativeBatchNormBackward": {"eps": "epsilon"},
    "CudnnConvolutionBackward": {"self": "input"},
    "ThnnConvDepthwise2DBackward": {"self": "input"},
    "NpuConvolutionBackward": {"input": "self"},
}

_CPU, _CUDA = 0, 1


class Pair(NamedTuple):
    """Two tensors that belong together, or one that has no partner, with the reason.

    index: seqid of my record; one past my last for what only golden has. record: mine. A row about
    a whole record without partner has no tensor on either side and golden_path where golden has it.
    """

    index: int
    record: Record | None
    mine: Tensor | None
    golden: Tensor | None
    golden_path: str | None = None
    reason: str = ""


def pair(
    mine: Sequence[Record],
    golden: Sequence[Record],
    *,
    golden_device: int | None,
    by_seqid: bool,
) -> Iterator[Pair]:
    """Pair the tensors of two dumps; everything compared appears exactly once.

    mine, golden: records in seqid order. golden_device: `DeviceType` of golden's tensors. by_seqid:
    one of the files was made in load mode. Yields in the order of `index`, inputs before outputs.
    """
    sides = ("output",) if by_seqid else ("input", "output")
    partners = match_records(mine, golden, golden_device=golden_device, by_seqid=by_seqid)
    used: set[str] = set()
    for record in mine:
        partner = partners.get(record.path)
        rows = list(_tensors(record, partner, sides)) if partner else []
        if any(row.mine and row.golden for row in rows):
            used.add(partner.path)
            yield from rows
        elif any(_of(record, side) for side in sides):
            reason = f"No data match with op:{record.ir} in golden dump data."
            yield Pair(record.seqid, record, None, None, reason=reason)
    after = mine[-1].seqid + 1 if mine else 1
    for record in golden:
        if record.path not in used and any(_of(record, side) for side in sides):
            reason = f"No data match with {record.path} in my dump data."
            yield Pair(after, None, None, None, golden_path=record.path, reason=reason)


def match_records(
    mine: Sequence[Record],
    golden: Sequence[Record],
    *,
    golden_device: int | None,
    by_seqid: bool,
) -> dict[str, Record]:
    """Golden's record for each of mine, by my record's path; equal names before mapped ones."""
    keys = _by_seqid if by_seqid else _by_count
    free = {}
    for record, key in zip(golden, keys(golden), strict=True):
        free.setdefault((record.ir, key), record)
    found: dict[str, Record] = {}
    rest = []
    for record, key in zip(mine, keys(mine), strict=True):
        same = free.pop((record.ir, key), None)
        if same is not None:
            found[record.path] = same
        else:
            rest.append((record, key))
    for record, key in rest:
        for name in _other_names(record.ir, golden_device):
            other = free.pop((name, key), None)
            if other is not None:
                found[record.path] = other
                break
    return found


def _by_seqid(records: Sequence[Record]) -> Iterator[int]:
    return (record.seqid for record in records)


def _by_count(records: Sequence[Record]) -> Iterator[int]:
    counts: dict[str, int] = {}
    for record in records:
        name = _CONVOLUTIONS[0] if record.ir in _CONVOLUTIONS else record.ir
        counts[name] = counts.get(name, -1) + 1
        yield counts[name]


def _other_names(ir: str, golden_device: int | None) -> Iterator[str]:
    yield from _IRS.get(ir, ())
    if ir.startswith("Npu"):
        prefix = {_CPU: "Thnn", _CUDA: "Cudnn"}.get(golden_device)
        if prefix:
            yield prefix + ir.removeprefix("Npu")
    for prefix in ("Thnn", "Cudnn"):
        if ir.startswith(prefix):
            yield "Npu" + ir.removeprefix(prefix)


def _tensors(record: Record, partner: Record, sides: Sequence[str]) -> Iterator[Pair]:
    left = {(side, tensor.name): tensor for side in sides for tensor in _of(partner, side)}
    for side in sides:
        for tensor in _of(record, side):
            other = left.pop((side, tensor.name), None)
            if other is None:
                other = left.pop((side, _renamed(record.ir, tensor.name)), None)
            if other is None:
                reason = f"No data match with {tensor.path} in golden dump data."
                yield Pair(record.seqid, record, tensor, None, reason=reason)
            else:
                yield Pair(record.seqid, record, tensor, other, other.path)
    for tensor in left.values():
        reason = f"No data match with {tensor.path} in my dump data."
        yield Pair(record.seqid, record, None, tensor, tensor.path, reason)


def _renamed(ir: str, name: str) -> str:
    parent, slash, last = name.rpartition("/")
    return parent + slash + _ARGUMENTS.get(ir, {}).get(last, last)


def _of(record: Record, side: str) -> tuple[Tensor, ...]:
    return record.inputs if side == "input" else record.outputs
