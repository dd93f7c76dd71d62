"""What an NPU has for the ops of a model: the question before a migration, by the table.

An op is told by the table or not at all: whatever is said of one names where that comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .table import Entry, Found, How, Table

COMPOSITE_SOURCE = "PyTorch 2.13.0, Composite*Autograd"
"""Where it is said that an op is made of others."""

BY_HAND = "by hand"
"""The source of what was set down from no one place in the releases that the table names."""


class State(Enum):
    """What there is for an op; in the order in which one looks at them."""

    UNKNOWN = "unknown"  # the table does not have it, or not what it runs
    ACLNN_ONLY = "aclnn_only"  # an aclnn kernel, which 910B and later have, and no TBE sequence
    SEQUENCE = "sequence"  # TBE ops
    NOTHING = "nothing"  # it needs no TBE op: a view, or a copy of memory
    COMPOSITE = "composite"  # PyTorch makes it of other ops, which are what the device sees


@dataclass(frozen=True)
class Support:
    """What there is for one op. found: what the table has; None for what it does not have."""

    state: State
    found: Found | None = None

    @property
    def entry(self) -> Entry | None:
        """What the table says of it, of the likeliest overload."""
        return self.found.entries[0] if self.found else None

    @property
    def approximate(self) -> bool:
        """Whether what the table says may be of another overload, or was not checked."""
        return self.found is not None and self.found.approximate

    @property
    def source(self) -> str | None:
        """Where it comes from; None of what is unknown."""
        if self.state is State.COMPOSITE:
            return COMPOSITE_SOURCE
        return (self.entry.source or BY_HAND) if self.entry else None


@dataclass(frozen=True)
class Op:
    """One op of a model. calls: how often it ran."""

    name: str
    calls: int
    support: Support

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        support, entry = self.support, self.support.entry
        return {
            "op": self.name,
            "calls": self.calls,
            "state": support.state.value,
            "tbe": entry.tbe if entry else None,
            "overloads": support.found.sequences if support.found else [],
            "aclnn": entry.aclnn if entry else [],
            "confidence": entry.confidence if entry else None,
            "approximate": support.approximate,
            "table": entry.name if entry else None,
            "match": support.found.how.value if support.found else None,
            "source": support.source,
        }


def support_of(table: Table, name: str, *, whole: bool = True) -> Support:
    """What there is for an op of this name. whole: whether a name without overload is the op that
    has none, and not any."""
    found = table.find(name, whole=whole)
    if found is None or found.how in (How.OTHER_OVERLOAD, How.IN_PLACE):
        if table.is_composite(name):
            return Support(State.COMPOSITE)
        if found is None:
            return Support(State.UNKNOWN)
    entry = found.entries[0]
    if entry.steps is None:
        return Support(State.ACLNN_ONLY, found)
    if entry.steps:
        return Support(State.SEQUENCE, found)
    return Support(State.UNKNOWN if entry.unresolved else State.NOTHING, found)


def supported(table: Table, calls: Mapping[str, int], *, whole: bool = True) -> list[Op]:
    """The ops of a model in the order in which they are given. calls: how often each ran."""
    return [Op(name, count, support_of(table, name, whole=whole)) for name, count in calls.items()]
