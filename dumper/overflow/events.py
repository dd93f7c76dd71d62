"""What is said of one overflow, as data: in the context's `overflows`, in the file, in reports.

An event is a JSON line of the text `overflows` in the file, written when it is found, so that a
kill does not take it. What becomes known later (a mask, a loss scaler that skipped the step) is a
further line with the same number. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from .jsonvalues import is_count, number_of, worded

CREATED, SATURATED = "created", "saturated"
PROPAGATED, MASKED, INTENDED = "propagated", "masked", "intended"
KINDS = (CREATED, SATURATED, PROPAGATED, MASKED, INTENDED)
"""created: infinity or NaN out of finite inputs. saturated: the dtype's largest number (or 0 for a
NaN) in place of one. propagated: it came with an input. masked: it came with an input and went no
further. intended: an infinity that the program asked for (a mask)."""

ORIGINS = (CREATED, SATURATED)
"""Kinds at which an overflow begins."""

TEXT = "overflows"
"""Name of the text in the file."""


class Operand(NamedTuple):
    """What an input holds where an output element was computed from it.

    index: its place in the input; None for a whole axis (a row of a product); () with size 1 for a
    number. values: at most 8 of them, the largest by magnitude first where there are more, in
    float64. size: how many there are. low, high: over all of them.
    """

    index: tuple[int | None, ...]
    values: tuple[float, ...]
    size: int
    low: float
    high: float


class Way(NamedTuple):
    """One op on the way to an overflow: `magnitude` is the largest absolute value it returned."""

    seqid: int
    ir: str
    magnitude: float


@dataclass(slots=True)
class Overflow:
    """One op call that overflowed, or that took an overflow on.

    ir, seqid, phase, step, rank: the call. kind: of KINDS. output: name of the result. dtype: of
    it. index: the first element of the result that it is about; None where no element of the
    result shows it. value: what the op computes there from its inputs, in float64; None where it
    could not be computed. stored: what it returned there. count, size: elements of the result that
    overflowed, and all. inputs: by argument name, what they hold there. api, module, source: where
    the call is from. producer: seqid of the op that the overflow came from; None where it begins,
    or came from outside of the step (then `origin` names what it came with). trail: the ops that
    led to it, the first one first, this one last. bits: of the device's status register; 0 where
    values told. again: seqid of an earlier origin whose value had been masked and was used again.
    masked_by: seqid of the op at which it ended. scale: the loss scale of the gradients it is
    among. skipped: whether the loss scaler left the step out because of it.
    """

    ir: str
    seqid: int
    phase: str
    kind: str
    dtype: str
    output: str = "result"
    index: tuple[int, ...] | None = None
    value: float | None = None
    stored: float | None = None
    count: int = 0
    size: int = 0
    inputs: dict[str, Operand] = field(default_factory=dict)
    api: str | None = None
    module: str | None = None
    source: str | None = None
    producer: int | None = None
    origin: str | None = None
    trail: tuple[Way, ...] = ()
    bits: int = 0
    again: int | None = None
    masked_by: int | None = None
    scale: float | None = None
    skipped: bool = False
    step: int = 0
    rank: int = 0

    @property
    def begins(self) -> bool:
        """Whether an overflow begins here."""
        return self.kind in ORIGINS

    @property
    def fault(self) -> bool:
        """Whether it begins here and no loss scaler took care of it.

        None can where the number is infinite or NaN in exact arithmetic, at any scale.
        """
        helps = self.value is None or math.isfinite(self.value)
        return self.begins and not (self.skipped and helps)


def facts_of(event: Overflow) -> dict[str, Any]:
    """An event as JSON values, without what is not known. Infinity and NaN are words."""
    defaults = {f.name: f.default for f in fields(Overflow)}
    found = {}
    for name, value in asdict(event).items():
        if name == "inputs":
            value = {key: Operand(*operand)._asdict() for key, operand in event.inputs.items()}
        if value == defaults.get(name) or value in ({}, ()):
            continue
        found[name] = value
    return worded(found)


def events_of(lines: Iterable[Mapping[str, Any]]) -> list[Overflow]:
    """The events that lines of the text make up, in order. What is not as expected is left out."""
    found: dict[int, dict[str, Any]] = {}
    for line in lines:
        number = line.get("event")
        if isinstance(number, int) and not isinstance(number, bool):
            found.setdefault(number, {}).update(line)
    events = (_event(facts) for _, facts in sorted(found.items()))
    return [event for event in events if event is not None]


_TEXTS = ("ir", "phase", "kind", "dtype", "output", "api", "module", "source", "origin")
_COUNTS = ("seqid", "count", "size", "producer", "bits", "again", "masked_by", "step", "rank")
_NUMBERS = ("value", "stored", "scale")
_NEEDED = ("ir", "seqid", "phase", "kind", "dtype")


def _event(facts: Mapping[str, Any]) -> Overflow | None:
    known: dict[str, Any] = {}
    for name in _TEXTS:
        if isinstance(facts.get(name), str):
            known[name] = facts[name]
    for name in _COUNTS:
        if is_count(facts.get(name)):
            known[name] = facts[name]
    for name in _NUMBERS:
        if (found_number := number_of(facts.get(name))) is not None:
            known[name] = found_number
    if any(name not in known for name in _NEEDED) or known["kind"] not in KINDS:
        return None
    if isinstance(index := facts.get("index"), list) and all(is_count(i) for i in index):
        known["index"] = tuple(index)
    known["skipped"] = facts.get("skipped") is True
    if isinstance(inputs := facts.get("inputs"), dict):
        operands = {key: _operand(value) for key, value in inputs.items()}
        known["inputs"] = {key: value for key, value in operands.items() if value is not None}
    if isinstance(trail := facts.get("trail"), list):
        known["trail"] = tuple(way for way in map(_way, trail) if way is not None)
    return Overflow(**known)


def _operand(facts: Any) -> Operand | None:
    if not isinstance(facts, dict):
        return None
    index, values, size = facts.get("index"), facts.get("values"), facts.get("size")
    low, high = number_of(facts.get("low")), number_of(facts.get("high"))
    if not (isinstance(index, list) and isinstance(values, list) and is_count(size)):
        return None
    numbers = [number_of(value) for value in values]
    if low is None or high is None or None in numbers:
        return None
    if not all(i is None or is_count(i) for i in index):
        return None
    return Operand(tuple(index), tuple(numbers), size, low, high)


def _way(facts: Any) -> Way | None:
    if not (isinstance(facts, list) and len(facts) == 3):
        return None
    seqid, ir, magnitude = facts[0], facts[1], number_of(facts[2])
    if not (is_count(seqid) and isinstance(ir, str)) or magnitude is None:
        return None
    return Way(seqid, ir, magnitude)
