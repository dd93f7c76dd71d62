"""What CANN writes when an operator overflows: the bytes of an output of an `Opdebug` dump file.

Two layouts. The old one has 2048 bytes: one place each for the atomic adds of DHA and L2 and for
the AI Core. The new one begins with 0x5a5a5a5a and lists the units that overflowed. Neither says
which op it was: only its task, its stream and, with FFTS+, its context and thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dumper.errors import DumpError

MAGIC = 0x5A5A5A5A
NO_ID = 65535
"""Of a context or thread that there is not."""

_OLD_BYTES = 2048
_OLD_FIELDS = ("model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base")
_OLD_PLACES = {
    "DHA Atomic Add": (0, 512, ("status",)),
    "L2 Atomic Add": (128, 768, ("status",)),
    "AI Core": (256, 1024, ("kernel_code", "block_idx", "status")),
}
"""Where the fields of a unit begin, where its status does, and what stands there."""

_CORE = (
    "model_id", "stream_id", "task_id", "task_type", "context_id", "thread_id", "pc_start",
    "para_base", "core_id", "block_id", "status",
)  # fmt: skip
_UNITS = {
    0: ("AIC", _CORE),
    1: ("AIV", _CORE),
    2: (
        "AICPU",
        (
            "model_id", "stream_id", "task_id", "task_type", "context_id", "cpu_id", "thread_id",
            "status",
        ),
    ),
    3: (
        "SDMA",
        (
            "model_id", "stream_id", "task_id", "task_type", "context_id", "thread_id", "src_addr",
            "dst_addr", "channel_id", "status",
        ),
    ),
}  # fmt: skip
_CORES = (0, 1)
_WORDS_OF_VERSION_1 = 4
"""Status words of a core."""

_HEAD = struct.Struct("<2I")
_ENTRY = struct.Struct("<4I")
_IN_HEX = ("pc_start", "para_base", "src_addr", "dst_addr", "kernel_code")
_DAMAGED = "the file is damaged: copy it again, or dump again"


@dataclass(frozen=True, slots=True)
class Entry:
    """What one unit reports. fields: in the file's order, without the status. status: its words;
    all 0 where nothing overflowed. head: valid, acc_type, rsv and data_len of the new layout."""

    unit: str
    fields: dict[str, int]
    status: tuple[int, ...]
    head: tuple[int, int, int, int] | None = None

    @property
    def overflowed(self) -> bool:
        """Whether any bit of the status is set."""
        return any(self.status)

    def known_id(self, name: str) -> int | None:
        """The id of this name; None where the unit has none."""
        value = self.fields.get(name)
        return None if value == NO_ID and name in ("context_id", "thread_id") else value

    @property
    def shown_status(self) -> int | list[int]:
        """The status as the parsed json has it: a number, or the list of the words."""
        return self.status[0] if len(self.status) == 1 else list(self.status)

    def as_json(self) -> dict[str, Any]:
        """The fields as CANN's guide prints them, addresses in hex."""
        shown = {k: hex(v) if k in _IN_HEX else v for k, v in self.fields.items()}
        return {**shown, "status": self.shown_status}


@dataclass(frozen=True, slots=True)
class Report:
    """One output of an Opdebug file. version: None in the old layout. notes: what is not as it
    should be, and did not keep it from being read."""

    entries: tuple[Entry, ...]
    version: int | None = None
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """What the original's parsed json holds; `acc_list` is a list where it has several."""
        if self.version is None:
            return {entry.unit: entry.as_json() for entry in self.entries}
        entries = []
        for entry in self.entries:
            valid, _, rsv, length = entry.head
            entries.append(
                {
                    "valid": valid,
                    "acc_type": entry.unit,
                    "rsv": rsv,
                    "data_len": length,
                    "data": entry.as_json(),
                }
            )
        acc_list = entries[0] if len(entries) == 1 else entries
        return {"magic": hex(MAGIC), "version": self.version, "acc_list": acc_list}


def parse(data: bytes, where: object) -> Report:
    """Read the bytes of one output, in either layout.

    where: for messages. Raises DumpError for what is neither.
    """
    if len(data) >= _HEAD.size and _HEAD.unpack_from(data)[0] == MAGIC:
        return _new(data, where)
    if len(data) == _OLD_BYTES:
        return Report(tuple(_old(data)))
    raise DumpError(
        f"a report of overflows begins with {MAGIC:#x} or has {_OLD_BYTES} bytes, this has "
        f"{len(data)}",
        where,
        _DAMAGED,
    )


def pack_old(entries: dict[str, dict[str, int]]) -> bytes:
    """The old layout's bytes. entries: fields and status by unit; what is left out is 0."""
    data = bytearray(_OLD_BYTES)
    for unit, given in entries.items():
        at, status_at, tail = _OLD_PLACES[unit]
        for place, names in ((at, _OLD_FIELDS), (status_at, tail)):
            struct.pack_into(f"<{len(names)}Q", data, place, *(given.get(n, 0) for n in names))
    return bytes(data)


def pack_new(entries: list[tuple[str, dict[str, int], tuple[int, ...]]], version: int = 0) -> bytes:
    """The new layout's bytes. entries: unit, fields, and its status words."""
    codes = {unit: code for code, (unit, _) in _UNITS.items()}
    parts = [_HEAD.pack(MAGIC, version)]
    for unit, given, status in entries:
        fields = [given.get(name, 0) for name in _UNITS[codes[unit]][1][:-1]]
        body = struct.pack(f"<{len(fields) + len(status)}Q", *fields, *status)
        parts += [_ENTRY.pack(1, codes[unit], 0, len(body)), body]
    return b"".join(parts)


def _old(data: bytes) -> Iterator[Entry]:
    for unit, (at, status_at, tail) in _OLD_PLACES.items():
        fields = _named(_OLD_FIELDS, data, at) | _named(tail, data, status_at)
        status = fields.pop("status")
        yield Entry(unit, fields, (status,))


def _named(names: tuple[str, ...], data: bytes, at: int) -> dict[str, int]:
    return dict(zip(names, struct.unpack_from(f"<{len(names)}Q", data, at), strict=True))


def _new(data: bytes, where: object) -> Report:
    _, version = _HEAD.unpack_from(data)
    notes = [] if version in (0, 1) else [f"version {version} of the layout is not known"]
    entries: list[Entry] = []
    at = _HEAD.size
    while at + _ENTRY.size <= len(data):
        head = _ENTRY.unpack_from(data, at)
        if entries and head[0] != 1:
            break
        if head[0] != 1:
            notes.append(f"its entry says valid {head[0]}, not 1")
        entry, expected = _entry(data, at, head, version, where)
        entries.append(entry)
        at += _ENTRY.size + expected
        if head[3] != expected:
            notes.append(f"data_len of {entry.unit} is {head[3]}, not {expected}")
            break
    if not entries:
        raise DumpError("the report of overflows has no entry", where, _DAMAGED)
    if any(data[at:]):
        notes.append(f"what the last {len(data) - at} bytes mean is not known")
    return Report(tuple(entries), version, tuple(notes))


def _entry(
    data: bytes, at: int, head: tuple[int, int, int, int], version: int, where: object
) -> tuple[Entry, int]:
    """The entry at a place, and how many bytes it has after its head."""
    if head[1] not in _UNITS:
        what = f"its entry is of acc_type {head[1]}, and there are 0 to {len(_UNITS) - 1}"
        raise DumpError(what, where, _DAMAGED)
    unit, names = _UNITS[head[1]]
    words = _WORDS_OF_VERSION_1 if version == 1 and head[1] in _CORES else 1
    count = len(names) - 1 + words
    if at + _ENTRY.size + 8 * count > len(data):
        left = len(data) - at - _ENTRY.size
        what = f"its entry of {unit} has {8 * count} bytes and {left} are left"
        raise DumpError(what, where, _DAMAGED)
    values = struct.unpack_from(f"<{count}Q", data, at + _ENTRY.size)
    fields = dict(zip(names[:-1], values[:-words], strict=True))
    return Entry(unit, fields, values[-words:], head), 8 * count
