"""Named faults of the emulated device planted in one call of a step: is that op called wrong?

In load mode: each op is fed golden's inputs, so that only the faulty one can differ.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch

import npu_core
from compare.judging import Class, Kind, class_of
from dumper import open_dump
from npu_core.fault_kinds import KINDS

from .dumps import can, dump, judged

_FLOATING = (Class.POINTWISE, Class.REDUCTION, Class.PRODUCT)


PAIRS = (("npu exact", "npu exact"), ("npu 910A", "cpu"))
"""The faulty side, and golden."""


def measure(
    chosen: list[str], folder: Path, pair: tuple[str, str], per_kind: int = 2
) -> tuple[dict[str, Counter], list[str]]:
    """By kind of fault: how many were planted, changed the op's result, changed it by less than
    rounding, and were flagged; and a line for each that was neither. per_kind: how many ops of a
    family each kind is planted in."""
    counts = {kind: Counter() for kind in KINDS}
    missed: list[str] = []
    for family in chosen:
        if not all(can(family, way) for way in pair):
            continue
        golden = dump(family, pair[1], folder)
        for kind, count in counts.items():
            left = per_kind
            for op, ir, nth in _targets(golden, kind):
                if not left:
                    break
                said = _planted(family, pair[0], folder, golden, op, ir, kind, nth)
                if said is None:
                    continue
                left -= 1
                count["planted"] += 1
                count["changed"] += said != "same"
                count["flagged"] += said == "differs"
                count["below rounding"] += said.startswith("rounding")
                if not said.startswith(("same", "differs", "rounding")):
                    missed.append(f"{family}: {kind} in call {nth} of {op}: {said}")
        golden.unlink()
    return counts, missed


def _targets(golden: Path, kind: str) -> Iterator[tuple[str, str, int]]:
    """Ops that a kind can be planted in, with their IR and a call in the middle, each class in
    turn."""
    with open_dump(golden) as opened:
        calls = Counter(record.ir for record in opened.records if record.has_inputs)
    by_class: dict[Class, list[str]] = {found: [] for found in _FLOATING}
    for ir, _ in calls.most_common():
        op = class_of(ir)
        if op.kind in by_class and _aten(ir) and KINDS[kind].fits(_aten(ir)):
            by_class[op.kind].append(ir)
    while any(by_class.values()):
        for found in by_class.values():
            if found:
                ir = found.pop(0)
                yield _aten(ir), ir, calls[ir] // 2 + 1


def _aten(ir: str) -> str | None:
    """The aten `name.overload` of an IR."""
    pieces = ir.split("_")
    for cut in range(len(pieces), 0, -1):
        name, overload = "_".join(pieces[:cut]), "_".join(pieces[cut:]) or "default"
        packet = getattr(torch.ops.aten, name, None)
        if packet is not None and overload in packet.overloads():
            return f"{name}.{overload}"
    return None


def _planted(
    family: str, way: str, folder: Path, golden: Path, op: str, ir: str, kind: str, nth: int
) -> str | None:
    """What is said of the faulty op; None where the fault could not be applied."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with npu_core.fault(op, kind, nth=nth) as fault:
                path = dump(family, way, folder, source=golden)
        except (RuntimeError, ValueError):  # this kind does not fit that call
            return None
    if not fault.applied:
        return None
    seqid = _seqid(golden, ir, nth)
    found = [verdict for record, _, verdict in judged(path, golden) if record.seqid == seqid]
    path.unlink()
    if any(verdict.kind is Kind.DIFFERS for verdict in found):
        return "differs"
    apart = [verdict for verdict in found if verdict.kind is not Kind.SAME]
    return f"{apart[0].kind.value}, {apart[0].code}, {apart[0].margin}" if apart else "same"


def _seqid(golden: Path, ir: str, nth: int) -> int:
    with open_dump(golden) as opened:
        return [record.seqid for record in opened.records if record.ir == ir][nth - 1]
