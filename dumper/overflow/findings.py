"""What becomes of the events of a run: a list, the original's line, a record and lines in the file.

    IR: mm SeqId: 12 is overflow!

is printed for each call at which an overflow begins, and for each after which the status register
shows one. Such a call is recorded as it was before and after, unless everything is recorded anyway.
What is only taken on (propagated, masked, intended) makes no file, but is in one that there is.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING

import torch

from ..errors import warn
from ..scopes import BACKWARD, RECOMPUTE
from .events import Overflow, facts_of
from .seen import Look

if TYPE_CHECKING:
    from ..session import Session

MOST = 10_000
"""Events that are kept of one context; a loop that goes on with NaN has no end of them."""

_LIMITS = {
    "many": (
        f"there are more than {MOST} overflow events; later ones are printed and not listed",
        "say dump.step() and steps=0, or leave the context after the first step",
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


class Findings:
    """The events of one run. rank: of this process, world: how many there are."""

    def __init__(self, session: Session, rank: int, world: int) -> None:
        self.events: list[Overflow] = []
        self._session = session
        self._rank, self._world = rank, world
        self._numbers: dict[int, int] = {}
        self._lines: list[str] = []
        self._warned: set[str] = set()
        self.error: str | None = None  # what anomaly detection is to raise

    def say(self, event: Overflow, look: Look) -> None:
        """An event was found."""
        call = look.call
        if not self._session.choice.takes(call.op.ir, call.phase, call.scope.module):
            return
        told = event.begins or event.bits
        if len(self.events) < MOST:
            self._numbers[id(event)] = len(self.events)
            self.events.append(event)
            self.change(event)
        else:
            self.limited("many")
        if not told:
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
