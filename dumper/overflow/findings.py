"""What becomes of the events of a run: a list, the original's line, a record and lines in the file.

    IR: mm SeqId: 12 is overflow!

is printed for each call at which an overflow begins, and for each after which the status register
shows one. Such a call is recorded as it was before and after, unless everything is recorded anyway.
What is only taken on (propagated, masked, intended) makes no file, but is in one that there is.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch

from ..errors import warn
from ..record import Call
from ..scopes import BACKWARD, RECOMPUTE
from .events import INTENDED, PROPAGATED, Overflow, facts_of
from .seen import Look

if TYPE_CHECKING:
    from ..session import Session

MOST = 10_000
"""Events that are kept of one context; a loop that goes on with NaN has no end of them."""

_LIMITS = {
    "many": (
        f"there are more than {MOST} overflow events; later ones are printed and not listed",
        "leave the context after the step that overflows first",
    ),
    "reader": (
        "the program reads the device's overflow status itself (a dynamic loss scale does); both "
        "use one register",
        "it is given what overflowed since it last cleared the register; a static loss scale needs "
        "none of this",
    ),
    "distributed": (
        "the overflow status is of one device; gradients that were reduced also bear what "
        "overflowed on other ranks",
        "look at the lines and files of all ranks; the first to overflow is the one at fault",
    ),
    "combined": (
        "several gradients lie in one combined tensor: an op on it overflows for all of them",
        "switch combined tensors off (combine_grad=False) to learn which parameter it is",
    ),
}


class _Wait(NamedTuple):
    """Until when an event is held back. covers: (its call, a later one) that one is still in it."""

    covers: Callable[[Call, Call], bool]


_CALLS = 256

_NODE = _Wait(lambda call, later: (later.node, later.scope) == (call.node, call.scope))
"""Autograd's own formulas divide by 0 and mask what comes of it: until its node has run."""

_GRADIENT = _Wait(lambda call, later: later.seqid - call.seqid <= _CALLS)
"""log(0) of what needs no gradient often becomes an integer (a bucket): so many calls."""


class _Held(NamedTuple):
    event: Overflow
    look: Look
    waits: _Wait


def _waits(event: Overflow, look: Look) -> _Wait | None:
    if not event.begins or look.made.root is None:
        return None
    if look.call.node is not None and event.phase == BACKWARD:
        return _NODE
    infinite = event.value is not None and math.isinf(event.value)
    return _GRADIENT if infinite and not look.needs_gradient else None


class Findings:
    """The events of one run. rank: of this process, world: how many there are."""

    def __init__(self, session: Session, rank: int, world: int) -> None:
        self.events: list[Overflow] = []
        self._session = session
        self._rank, self._world = rank, world
        self._numbers: dict[int, int] = {}
        self._lines: list[str] = []
        self._warned: set[str] = set()
        self.held: list[_Held] = []  # events of which is not known yet whether they are faults
        self.error: str | None = None  # what anomaly detection is to raise

    def say(self, event: Overflow, look: Look) -> None:
        """An event was found."""
        if len(self.events) < MOST:
            self._numbers[id(event)] = len(self.events)
            self.events.append(event)
            self.change(event)
        else:
            self.limited("many")
        waits = _waits(event, look)
        if waits is not None:
            look.hold()
            self.held.append(_Held(event, look, waits))
            return
        root = look.made.root
        if event.kind == PROPAGATED and self.held and look.needs_gradient:
            for one in [one for one in self.held if one.look.made.root is root]:
                self._release(one)
        if event.begins or event.bits:
            self._announce(event, look)

    def passing(self, call: Call | None) -> None:
        """Another call is to be looked at; None: a pass or the step ends. What was held back for
        what its own node, or what reads no gradient, would make of it is settled."""
        for one in list(self.held):
            root = one.look.made.root
            if call is None or not one.waits.covers(one.look.call, call):
                self._release(one)
            elif not root.live and one.waits is _GRADIENT:
                self._release(one)

    def _release(self, held: _Held) -> None:
        self.held.remove(held)
        root = held.look.made.root
        if root is not None and root.ended and not root.live:
            for event in root.events:  # made and masked by the same piece of a program
                event.kind = INTENDED
                self.change(event)
        else:
            self._announce(held.event, held.look)

    def _announce(self, event: Overflow, look: Look) -> None:
        call = look.call
        if not self._session.choice.takes(call.op.ir, call.phase, call.scope.module):
            return
        self._print(event)
        self._session.overflowed(look, self.take_lines())
        anomaly = torch.is_anomaly_enabled() and event.phase in (BACKWARD, RECOMPUTE)
        if anomaly and call.node is not None and event.begins:
            self.error = f"Function '{call.node}' has overflow."

    def change(self, event: Overflow) -> None:
        """More is known of an event."""
        number = self._numbers.get(id(event))
        if number is not None:
            facts = {"event": number, **facts_of(event)}
            self._lines.append(json.dumps(facts, separators=(",", ":")))

    def take_lines(self) -> list[str]:
        """The lines that are not in the file yet."""
        lines, self._lines = self._lines, []
        return lines

    @property
    def arrived(self) -> bool:
        """Whether this is one of several ranks and took an overflow on: its part of what happened
        must not be missing from the others' files."""
        return self._world > 1 and any(event.kind == PROPAGATED for event in self.events)

    def take_error(self) -> str | None:
        """What is to be raised, once."""
        error, self.error = self.error, None
        return error

    def limited(self, kind: str) -> None:
        """Say once what makes the answer less than it might be."""
        if kind not in self._warned:
            self._warned.add(kind)
            what, todo = _LIMITS[kind]
            warn(what, self._session.path, todo)

    def _print(self, event: Overflow) -> None:
        rank = f" (rank {self._rank})" if self._world > 1 else ""
        with contextlib.suppress(OSError, ValueError, AttributeError):  # no stdout any more
            sys.stdout.write(f"IR: {event.ir} SeqId: {event.seqid} is overflow!{rank}\n")
            sys.stdout.flush()
