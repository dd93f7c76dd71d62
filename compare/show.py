"""One record in full: `msaccucmp show`. What its tensors hold, where they come from and go to.

Only this record's values are read, and those of its counterpart in golden.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dumper.errors import DumpError
from dumper.index import Stub
from dumper.layout import unescape
from dumper.links import Links, hands_on
from dumper.reader import Dump, Record
from dumper.stored import Tensor
from npu_core.formats import parse

from .info import device_of
from .kinds import comparable
from .metrics import Metrics, compare_arrays
from .pairing import pair_values, pairing_of

FIRST, WORST = 8, 5
"""Values shown of a tensor: its first, and its largest or those that differ most."""

_NPU = 10
_PATH = re.compile(r"/?(?P<ir>[^/]+)/(?P<seqid>[0-9]{1,18})(/.*)?", re.DOTALL)
_NEAR = 5


@dataclass(frozen=True)
class Statistics:
    """Of a tensor's elements; least, greatest, mean and norm of the finite ones, of their moduli
    where they are complex, None where there are none."""

    size: int
    least: float | int | None
    greatest: float | int | None
    mean: float | None
    norm: float | None
    nan: int
    infinite: int
    zero: int


@dataclass(frozen=True)
class Element:
    """One element. value, golden: as Python numbers; golden and difference only of a comparison."""

    index: tuple[int, ...]
    value: Any
    golden: Any = None
    difference: float | None = None


@dataclass
class Shown:
    """A tensor of the record. made_by: path of the record that made it. used_by: paths of those
    that take it later, seen_by: of those that only view it. note: why it is only described or
    cannot be read."""

    side: str
    name: str
    dtype: str
    shape: tuple[int | str, ...]
    stride: tuple[int, ...] | None = None
    format: str | None = None
    device: str | None = None
    parameter: str | None = None
    uninitialised: bool = False
    note: str | None = None
    made_by: str | None = None
    used_by: list[str] = field(default_factory=list)
    seen_by: list[str] = field(default_factory=list)
    statistics: Statistics | None = None
    first: list[Any] = field(default_factory=list)
    worst: list[Element] = field(default_factory=list)
    golden_path: str | None = None
    metrics: Metrics | None = None

    def as_dict(self) -> dict[str, Any]:
        """All of it by name."""
        return {**asdict(self), "metrics": self.metrics and self.metrics._asdict()}


@dataclass
class Case:
    """A record as it is shown. arguments: (side, name, value) of what is no tensor. partner:
    golden's record, None without -g or where there is none."""

    record: Record
    tensors: list[Shown]
    arguments: list[tuple[str, str, Any]]
    partner: Record | None = None

    def as_json(self) -> dict[str, Any]:
        """JSON values; numbers that JSON lacks as text."""
        entry = self.record.entry
        keys = ("phase", "api", "module", "source", "node", "step", "thread")
        return {
            "path": self.record.path,
            **{key: getattr(entry, key) for key in keys},
            "golden": self.partner.path if self.partner else None,
            "arguments": [
                {"side": side, "name": name, "value": _plain(value)}
                for side, name, value in self.arguments
            ],
            "tensors": [_plain(shown.as_dict()) for shown in self.tensors],
        }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value


def find_record(dump: Dump, path: str) -> Record:
    """The record at `/IR/SEQID`. Raises DumpError when there is none, with the nearest that are."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise DumpError(
            f"{path!r} is no record's path", dump.path, f"give one as in {dump.records[0].path}"
        )
    ir, seqid = match["ir"], int(match["seqid"])
    same = [record for record in dump.records if ir in (record.ir, unescape(record.ir))]
    for record in same:
        if record.seqid == seqid:
            return record
    if same:
        near = sorted(same, key=lambda record: abs(record.seqid - seqid))[:_NEAR]
        near.sort(key=lambda record: record.seqid)
    else:
        names = difflib.get_close_matches(ir, dump.by_ir, n=_NEAR)
        near = [dump.by_ir[name][0] for name in names]
        near += [record for record in dump.records if record.seqid == seqid][:1]
    hint = ", ".join(record.path for record in near) or dump.records[0].path
    raise DumpError(f"there is no record {path}", dump.path, f"the nearest are {hint}")


def case_of(dump: Dump, record: Record, golden: Dump | None = None) -> Case:
    """All that is shown of a record. golden: the dump to compare it with."""
    links = Links(dump.records)
    tensors = [_stored(record, tensor) for tensor in (*record.inputs, *record.outputs)]
    tensors += [_described(record, key, stub) for key, stub in record.entry.stubs.items()]
    tensors.sort(key=lambda shown: shown.side)
    for shown in tensors:
        _link(shown, record, links)
    arguments = [
        (side, name, _value_of(argument))
        for side, found in (("input", record.arguments), ("output", record.results))
        for name, argument in found.items()
    ]
    case = Case(record, tensors, arguments)
    if golden is not None:
        _compare(case, dump, golden)
    return case


def _stored(record: Record, tensor: Tensor) -> Shown:
    shown = Shown(
        tensor.side,
        tensor.name,
        tensor.dtype,
        tensor.shape,
        tensor.live_stride or tensor.stride,
        _format(tensor),
        device_of(tensor),
        record.entry.names.get(tensor.name) if tensor.side == "input" else None,
        tensor.uninitialised,
    )
    try:
        values = tensor.read()
    except DumpError as error:
        shown.note = error.what
        return shown
    shown.statistics = statistics(values)
    shown.first = values.reshape(-1)[:FIRST].tolist()
    shown.worst = largest(values)
    return shown


def _described(record: Record, key: str, stub: Stub) -> Shown:
    side, _, name = key.partition("/")
    parameter = record.entry.names.get(name) if side == "input" else None
    return Shown(
        side, name, stub.dtype, stub.shape, stub.stride, parameter=parameter,
        note=f"no values: {stub.reason}",
    )  # fmt: skip


def _link(shown: Shown, record: Record, links: Links) -> None:
    value = record.entry.values.get(f"{shown.side}/{shown.name}")
    if value is None:
        return
    maker = links.maker(value)
    if maker is not None and maker.record is not record:
        shown.made_by = maker.record.path
    if shown.side == "output":
        for user, _ in links.users(value):
            if user.seqid > record.seqid:
                (shown.seen_by if hands_on(user, value) else shown.used_by).append(user.path)


def _value_of(argument: Any) -> Any:
    try:
        value = argument.value
    except DumpError as error:
        return f"({error.what})"
    return f"{len(value)} bytes" if isinstance(value, bytes) else value


def _format(tensor: Tensor) -> str | None:
    """The name of the storage format of a tensor on an npu."""
    if tensor.device_type != _NPU or tensor.format_type is None:
        return None
    try:
        return parse(tensor.format_type).name
    except ValueError:
        return f"format {tensor.format_type}"


def statistics(values: np.ndarray) -> Statistics:
    """Count and sum up a tensor's elements. values: of any dtype a dump has."""
    flat = values.reshape(-1)
    wide = _wide(flat)
    finite = np.isfinite(wide)
    nan = int(np.isnan(wide).sum())
    infinite = flat.size - nan - int(finite.sum())
    zero = int((wide == 0).sum())
    kept = wide if finite.all() else wide[finite]
    if not kept.size:
        return Statistics(flat.size, None, None, None, None, nan, infinite, zero)
    least, greatest = kept.min().item(), kept.max().item()
    if flat.dtype.kind in "iu":  # float64 does not hold every one of them
        least, greatest = flat.min().item(), flat.max().item()
    scale = float(np.abs(kept).max())
    norm = 0.0
    if scale:  # so that squares neither overflow nor vanish
        norm = scale * math.sqrt(float(np.sum((kept / scale) ** 2)))
    mean = float(np.mean(kept / scale)) * scale if scale else 0.0
    return Statistics(flat.size, least, greatest, mean, norm, nan, infinite, zero)


def largest(values: np.ndarray) -> list[Element]:
    """The elements of largest absolute value, NaN before all, at most WORST."""
    weight = np.abs(_wide(values.reshape(-1)))
    return [Element(index, values[index].item()) for index in _greatest(weight, values.shape)]


def furthest(mine: np.ndarray, golden: np.ndarray) -> list[Element]:
    """The elements that differ most, at most WORST; those that agree are none of them."""
    a, b = mine.reshape(-1), golden.reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        if a.dtype.kind in "iu" and b.dtype.kind in "iu":
            kind = np.uint64 if np.uint64 in (a.dtype, b.dtype) else np.int64
            a, b = a.astype(kind), b.astype(kind)
            gap = np.where(a > b, a - b, b - a).view(np.uint64).astype(np.float64)
        else:
            kind = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
            gap = np.abs(a.astype(kind) - b.astype(kind))
    x, y = _wide(a), _wide(b)
    gap[(a == b) | (np.isnan(x) & np.isnan(y))] = 0.0
    return [
        Element(index, mine[index].item(), golden[index].item(), gap_at)
        for index in _greatest(gap, mine.shape)
        if (gap_at := gap[np.ravel_multi_index(index, mine.shape) if index else 0].item()) != 0
    ]


def _wide(values: np.ndarray) -> np.ndarray:
    """float64 of numbers, moduli of complex ones."""
    return np.abs(values).astype(np.float64) if values.dtype.kind == "c" else values.astype("f8")


def _greatest(weight: np.ndarray, shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Where the greatest weights are, the earlier first of equal ones, NaN above all."""
    ranked = np.where(np.isnan(weight), np.inf, weight)
    count = min(WORST, ranked.size)
    if not count:
        return []
    bar = np.partition(ranked, ranked.size - count)[ranked.size - count]
    above, equal = np.flatnonzero(ranked > bar), np.flatnonzero(ranked == bar)
    places = np.concatenate([above, equal[: count - above.size]])
    weights = np.where(np.isnan(weight[places]), 1, 0), ranked[places]
    order = np.lexsort((places, -weights[1], -weights[0]))
    return [tuple(map(int, np.unravel_index(places[i], shape))) for i in order]


def _compare(case: Case, dump: Dump, golden: Dump) -> None:
    pairing = pairing_of(dump, golden)
    case.partner = pairing.partner(case.record)
    if case.partner is None:
        return
    shown = {(tensor.side, tensor.name): tensor for tensor in case.tensors}
    for found in pair_values(case.record, case.partner, by_seqid=pairing.by_seqid):
        mine, other = found.mine, found.golden
        if not isinstance(mine, Tensor) or not isinstance(other, Tensor):
            continue
        tensor = shown[mine.side, mine.name]
        tensor.golden_path = other.path
        if mine.shape != other.shape or not comparable(mine.dtype, other.dtype):
            tensor.note = f"golden has {other.dtype} {list(other.shape)}"
            continue
        try:
            a, b = mine.read(), other.read()
        except DumpError as error:
            tensor.note = f"{error.what}: {error.where}"
            continue
        tensor.metrics = compare_arrays(a, b)
        tensor.worst = furthest(a, b)
