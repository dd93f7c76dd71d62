"""Did both runs start equal? What came from outside of the steps, and flags that change numbers.

A leaf is a value that no recorded op made: a batch, a parameter, a buffer, an optimizer's state.
What differs there is inherited by all that follows, so it is said first. A file without an index
does not say what a leaf is; there an input that differs before any output does came from outside.
A constant ratio over the backward rows is a different loss scale, and no difference
(loss_scale.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .loss_scale import LossScale
from .row import Row, Status

WEIGHTS, BATCH, STATE = "weights", "batch", "optimizer_state"
KINDS = (BATCH, WEIGHTS, STATE)

_FLAGS = (
    "default_dtype",
    "autocast",
    "matmul_precision",
    "cudnn_allow_tf32",
    "fp16_reduced_precision",
    "bf16_reduced_precision",
    "deterministic",
    "eval_modules",
    "npu.matmul_allow_hf32",
    "npu.conv_allow_hf32",
)
_OPTIONAL = ("autocast", "eval_modules")
"""Flags whose absence says something: there was none. Of the others it says nothing, since other
writers and devices do not note them."""

_OF_VALUES = (Status.DIFFERS, Status.INCOMPARABLE)
_AS_IN_GOLDEN = frozenset((Status.EQUAL, Status.ALIKE, Status.DESCRIBED, Status.UNINITIALISED))


class Flag(NamedTuple):
    """A setting that is not the same on both sides."""

    name: str
    mine: Any
    golden: Any


@dataclass
class Leaves:
    """Of one kind: how many were compared, how many are not as in golden, and the first of them, by
    its number in the csv."""

    compared: int = 0
    differ: int = 0
    first: Row | None = None
    first_number: int | None = None
    named: dict[str, bool] = field(default_factory=dict)
    """Whether one differs, by name: a parameter that is used in parts has a row for each."""

    def add(self, row: Row, number: int) -> None:
        """Take the row of a leaf, by its number in the csv."""
        differs = row.status not in _AS_IN_GOLDEN
        was = self.named.get(row.leaf)
        self.compared += was is None
        self.differ += differs and not was
        if row.leaf:
            self.named[row.leaf] = differs or bool(was)
        if differs and self.first is None:
            self.first, self.first_number = row, number


@dataclass
class Start:
    """What both runs started from. flags: that differ. scale: of the loss, if it is another one."""

    flags: tuple[Flag, ...] = ()
    scale: LossScale | None = None
    leaves: dict[str, Leaves] = field(default_factory=lambda: {kind: Leaves() for kind in KINDS})
    _apart: bool = False
    """Whether anything was not as in golden so far."""

    def add(self, row: Row, number: int) -> None:
        """Take the next row, by its number in the csv; only leaves count."""
        kind = kind_of(row)
        if row.status not in _AS_IN_GOLDEN:
            if row.status in _OF_VALUES and row.phase is None and row.side == "input":
                if not self._apart:  # of an old file; what has no partner may have made it
                    kind = kind or BATCH
            self._apart = True
        if kind is None or self._is_scale(row):
            return
        self.leaves[kind].add(row, number)

    def _is_scale(self, row: Row) -> bool:
        """Whether a row is of the loss scales, which are no part of a batch."""
        if self.scale is None or row.metrics is None or row.metrics.size != 1:
            return False
        return self.scale.is_of(row.metrics.reach)

    @property
    def compared(self) -> int:
        """How many leaves were compared."""
        return sum(each.compared for each in self.leaves.values())

    @property
    def equal(self) -> bool | None:
        """Whether everything was equal; None where no leaf could be compared."""
        if self.flags or any(each.differ for each in self.leaves.values()):
            return False
        return True if self.compared else None

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        found: dict[str, Any] = {"equal": self.equal, "compared": self.compared}
        for kind, each in self.leaves.items():
            found[kind] = {
                "compared": each.compared, "differ": each.differ, "first": each.first_number,
                "name": each.first.leaf or None if each.first else None,
            }  # fmt: skip
        found["flags"] = [flag._asdict() for flag in self.flags]
        found["loss_scale"] = self.scale._asdict() if self.scale else None
        return found


def kind_of(row: Row) -> str | None:
    """Of which kind of leaf a row is; None of another value."""
    if row.leaf is None:
        return None
    if row.leaf:
        return WEIGHTS
    return STATE if row.phase == "optimizer" else BATCH


def flags_of(mine: Mapping[str, Any], golden: Mapping[str, Any]) -> tuple[Flag, ...]:
    """The settings that differ, of two environments (`Dump.environment`)."""
    if not mine or not golden:  # an older file, which notes nothing
        return ()
    return tuple(_different(mine, golden))


def _different(mine: Mapping[str, Any], golden: Mapping[str, Any]) -> Iterator[Flag]:
    for name in _FLAGS:
        a, b = _value(mine, name), _value(golden, name)
        if name in _OPTIONAL:
            known = all("eval_modules" in each for each in (mine, golden))
            if known and _plain(name, a) != _plain(name, b):
                yield Flag(name, _plain(name, a), _plain(name, b))
        elif a is not None and b is not None and a != b:
            yield Flag(name, a, b)


def _plain(name: str, value: Any) -> Any:
    """Of autocast the dtypes, since its devices differ; of modules in eval mode their number and
    the first one's name."""
    if not isinstance(value, dict):
        return None
    if name == "autocast":
        return sorted({str(dtype) for dtype in value.values()}) or None
    names = value.get("names")
    first = names[0] if isinstance(names, list) and names else None
    return [value.get("count"), first] if value.get("count") else None


def _value(environment: Mapping[str, Any], name: str) -> Any:
    found: Any = environment
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
