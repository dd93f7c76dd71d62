"""What a result says of the two dumps that it is of: enough to print it again, and to tell whether
a partial result is of the same two.

A file's name tells nothing, a device and an inode are used again, and a time can be set back. So a
file is the same where its size, its time, the digest of its index and what its writer noted at its
root are.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from typing import Any

from dumper.errors import DumpError, decoded
from dumper.reader import Dump


@dataclass(frozen=True, slots=True)
class Gap:
    """Parts of a file that are not there. count: of them. path, reason: of the first."""

    count: int = 0
    path: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """One of the two dumps.

    path: as it was given. size: bytes. modified: nanoseconds since 1970. digest: of the index, as
    its writer noted it. device: `DeviceType`. finished: None where the writer does not say.
    last_record: its path. unreadable, left_out: what is missing.
    """

    path: str
    size: int
    modified: int
    digest: str | None
    device: int | None
    records: int
    load_mode: bool
    finished: bool | None
    last_record: str
    unreadable: Gap
    left_out: Gap

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def origin_of(dump: Dump) -> Origin:
    """What to say of an open dump."""
    _ = dump.environment  # which may turn out unreadable
    status = os.stat(dump.path)
    return Origin(
        decoded(str(dump.path)),
        status.st_size,
        status.st_mtime_ns,
        dump.index_digest,
        dump.device_type,
        len(dump.records),
        dump.load_mode,
        dump.finished,
        dump.records[-1].path if dump.records else "",
        _gap(dump.skipped),
        _gap(dump.omitted),
    )


def from_json(value: Any) -> Origin:
    """The origin that `as_json` gave. Raises DumpError where it is none."""
    try:
        gaps = {name: Gap(**_typed(Gap, value[name])) for name in ("unreadable", "left_out")}
        return Origin(**_typed(Origin, {**value, **gaps}))
    except (KeyError, TypeError, ValueError) as error:
        raise DumpError(
            f"this result does not say what it is of ({error})", "files", "compare the dumps again"
        ) from None


def environment_of(dump: Dump) -> dict[str, Any]:
    """What the writer of a file noted about its versions and flags, as JSON that others can read.

    A number that is none becomes a text.
    """
    try:
        return json.loads(json.dumps(dump.environment), parse_constant=_constant)
    except RecursionError:  # thousands of lists inside each other
        return {}


_CONSTANTS = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


def _constant(name: str) -> str:
    return _CONSTANTS[name]


def _gap(missing: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> Gap:
    return Gap(len(missing), *missing[0]) if missing else Gap()


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "str | None": (str, type(None)),
    "int | None": (int, type(None)),
    "bool | None": (bool, type(None)),
    "Gap": (Gap,),
}


def _typed(cls: type, value: dict[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass, each of its type."""
    for field in fields(cls):
        found = value[field.name]
        if type(found) not in _KINDS[field.type]:
            raise TypeError(f"{field.name} is {found!r}")
    return {field.name: value[field.name] for field in fields(cls)}
