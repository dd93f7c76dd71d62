"""What is in a dump, counted once over its records: `msaccucmp info`.

A value that several tensors link to is stored once, by the record that has it first; the others are
what links save. Nothing but descriptions is read, never a value.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dumper.layout import DEVICE_NAMES, VALUES
from dumper.reader import Dump, Record
from dumper.stored import Tensor

HEAVIEST = 10
"""Ops, and modules, in the tables of the heaviest."""


@dataclass
class Share:
    """What one op, or one module, takes. calls: its records. stored: bytes of values."""

    calls: int = 0
    tensors: int = 0
    stored: int = 0


@dataclass
class Info:
    """What a dump holds. described: tensors without values in the file, by reason. modules: by
    name, None for what ran outside of any; values of parameters count for the parameter's."""

    path: str
    size: int
    finished: bool | None
    last: str | None
    environment: dict[str, Any]
    load_mode: bool
    records: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    steps: set[int] = field(default_factory=set)
    threads: set[int] = field(default_factory=set)
    devices: Counter[str] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)
    tensors: int = 0
    linked: int = 0
    uninitialised: int = 0
    stored_bytes: int = 0
    linked_bytes: int = 0
    described: Counter[str] = field(default_factory=Counter)
    ops: dict[str, Share] = field(default_factory=lambda: defaultdict(Share))
    modules: dict[str | None, Share] = field(default_factory=lambda: defaultdict(Share))
    omitted: tuple[tuple[str, str], ...] = ()
    unmatched: int = 0
    skipped: tuple[tuple[str, str], ...] = ()

    def heaviest(self, shares: dict[Any, Share]) -> list[tuple[Any, Share]]:
        """At most HEAVIEST of `ops` or `modules` by bytes stored, then by name."""
        order = sorted(shares.items(), key=lambda item: (-item[1].stored, str(item[0])))
        return [item for item in order if item[1].stored][:HEAVIEST]

    def as_json(self) -> dict[str, Any]:
        """JSON values of everything; a module's name is null outside of modules."""
        return {
            "path": self.path,
            "bytes": self.size,
            "finished": self.finished,
            "last_record": self.last,
            "load_mode": self.load_mode,
            "environment": self.environment,
            "records": self.records,
            "phases": dict(self.phases),
            "steps": sorted(self.steps),
            "threads": sorted(self.threads),
            "devices": dict(self.devices),
            "dtypes": dict(self.dtypes),
            "tensors": {
                "stored": self.tensors - self.linked,
                "linked": self.linked,
                "uninitialised": self.uninitialised,
                "described": dict(self.described),
            },
            "stored_bytes": self.stored_bytes,
            "linked_bytes": self.linked_bytes,
            "ops": [{"ir": ir, **vars(share)} for ir, share in sorted(self.ops.items())],
            "modules": [
                {"module": name, **vars(share)}
                for name, share in sorted(self.modules.items(), key=lambda item: item[0] or "")
            ],
            "omitted": [{"path": path, "reason": reason} for path, reason in self.omitted],
            "unmatched": self.unmatched,
            "unreadable": [{"path": path, "reason": reason} for path, reason in self.skipped],
        }


def info_of(dump: Dump) -> Info:
    """Count what a dump holds."""
    info = Info(
        os.fspath(dump.path),
        dump.path.stat().st_size,
        dump.finished,
        dump.records[-1].path if dump.records else None,
        dump.environment,
        dump.load_mode,
        len(dump.records),
    )
    seen: set[int] = set()
    for record in dump.records:
        entry = record.entry
        info.phases[entry.phase or "unknown"] += 1
        info.threads.add(entry.thread)
        if entry.step is not None:
            info.steps.add(entry.step)
        for stub in entry.stubs.values():
            info.described[stub.reason] += 1
        shares = info.ops[record.ir], info.modules[_module(record)]
        for share in shares:
            share.calls += 1
        for tensor in (*record.inputs, *record.outputs):
            _count(tensor, info, shares, seen)
    info.omitted = tuple(dump.omitted)
    info.unmatched = sum(1 for _ in dump.lines("unmatched"))
    info.skipped = tuple(dump.skipped)
    return info


def _count(tensor: Tensor, info: Info, shares: tuple[Share, ...], seen: set[int]) -> None:
    info.tensors += 1
    info.uninitialised += tensor.uninitialised
    info.dtypes[tensor.dtype] += 1
    info.devices[device_of(tensor)] += 1
    for share in shares:
        share.tensors += 1
    if tensor.address in seen:
        info.linked += 1
        info.linked_bytes += tensor.nbytes
        return
    seen.add(tensor.address)
    info.stored_bytes += tensor.nbytes
    for share in shares:
        share.stored += tensor.nbytes


def device_of(tensor: Tensor) -> str:
    """The name of a tensor's device."""
    if tensor.device_type is None:
        return "unknown"
    return DEVICE_NAMES.get(tensor.device_type, f"device type {tensor.device_type}")


def _module(record: Record) -> str | None:
    names = _names(record) if record.phase in VALUES else iter(())
    return next(names, record.entry.module)


def _names(record: Record) -> Iterator[str]:
    return (name.rpartition(".")[0] for name in record.entry.names.values())
