"""What the index of a dump says about its records, beyond what lies in their groups. No torch.

JSON lines of three texts: `index` has a line a record, `calls` one for each API call or module that
an op belongs to, `ops` one for each IR. A line that is not as expected is passed over, since a kill
may cut it, and a file may be anyone's: what it would have said is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


def function_of(api: str) -> str:
    """The name of a call without its number."""
    stem, _, number = api.rpartition(".")
    return stem if number.isdecimal() else api


class Stub(NamedTuple):
    """A tensor that is described only. reason: `view`, `meta`, `max_bytes` or why it is opaque."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    reason: str


VIEW, LIMIT, LATER, LAZY = "view", "max_bytes", "arrives later", "lazy"
WITHOUT_DATA = ("meta", "fake")
"""Reasons of stubs: a tensor the file need not hold, or not yet, and those without values."""

BY_CHOICE = (VIEW, *WITHOUT_DATA, LATER, LAZY)
"""Reasons by which nothing is lost."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one record belongs.

    phase: forward, backward, optimizer, recompute; grad, update for values. api: outermost torch
    call with its number; of backward, the forward call whose node runs. module: qualified name, ''
    the model itself. source: `file:line`. node: autograd node that ran. step, thread: from 0.
    names: of parameters by argument. values: number of the value of each tensor, by `input/<name>`
    or `output/<name>`: equal numbers are one value, or views of it. stubs: what is described only,
    by the same keys.
    """

    phase: str | None = None
    api: str | None = None
    module: str | None = None
    source: str | None = None
    node: str | None = None
    step: int | None = None
    thread: int = 0
    names: dict[str, str] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    stubs: dict[str, Stub] = field(default_factory=dict)


UNKNOWN = Entry()
"""Of a record that the index does not have."""


def entries(
    lines: Iterable[dict[str, Any]], calls: Iterable[dict[str, Any]]
) -> dict[tuple[str, int], Entry]:
    """What the index says, by (IR, seqid)."""
    places = {
        call["call"]: tuple(_text(call.get(key)) for key in ("api", "module", "source"))
        for call in calls
        if isinstance(call.get("call"), int)
    }
    found = {}
    shared: dict[str, str] = {}
    for line in lines:
        ir, seqid = line.get("ir"), line.get("seqid")
        if not (isinstance(ir, str) and isinstance(seqid, int)):
            continue
        ir = shared.setdefault(ir, ir)
        number = line.get("call")
        place = places.get(number) if isinstance(number, int) else None
        found[ir, seqid] = Entry(
            _shared(line.get("phase"), shared),
            *(place or (None, None, None)),
            _shared(line.get("node"), shared),
            _number(line.get("step")),
            _number(line.get("thread")) or 0,
            _table(line.get("names"), str, shared),
            _table(line.get("values"), int, shared),
            _stubs(line.get("stubs")),
        )
    return found


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _shared(value: Any, known: dict[str, str]) -> str | None:
    return known.setdefault(value, value) if isinstance(value, str) else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_NOTHING: dict[str, Any] = {}


def _table(value: Any, kind: type, known: dict[str, str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        return _NOTHING
    return {
        known.setdefault(key, key): item for key, item in value.items() if isinstance(item, kind)
    }


def _stubs(value: Any) -> dict[str, Stub]:
    if not isinstance(value, dict):
        return _NOTHING
    found = {}
    for key, item in value.items():
        if not (isinstance(item, list) and len(item) == 4):
            continue
        dtype, shape, stride, reason = item
        if isinstance(dtype, str) and isinstance(reason, str) and _sizes(shape):
            known = tuple(stride) if _sizes(stride) else None
            found[key] = Stub(dtype, tuple(shape), known, reason)
    return found


def _sizes(value: Any) -> bool:
    """Whether this is a shape; a jagged size is a text."""
    return isinstance(value, list) and all(isinstance(size, int | str) for size in value)
