"""What a loss scaler made of a step: with which scale, and whether it left the step out.

Gradients that were scaled too far are the scaler's daily bread: it finds them, skips the step and
takes a smaller scale. So an overflow among them is no fault if it did; at scale 1 it is one. All
scalers of torch say it by one op, which divides the scale out of the gradients.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..ops import Op
from ..scopes import BACKWARD, RECOMPUTE
from .events import Overflow
from .seen import Look

_UNSCALE = "aten::_amp_foreach_non_finite_check_and_unscale_"
_FOUND, _INVERSE = 1, 2  # places of its arguments


class _Round:
    """One backward pass, or some that add up, and what scalers made of it."""

    def __init__(self) -> None:
        self.events: list[Overflow] = []
        self.said: list[tuple[torch.Tensor, torch.Tensor]] = []


class Scaler:
    """Follows the loss scalers of one step. change: is told of events whose fate became known."""

    def __init__(self, change: Callable[[Overflow], None]) -> None:
        self._change = change
        self._rounds = [_Round()]
        self.scale: float | None = None  # the last one of a step, when it has ended

    def is_its(self, op: Op) -> bool:
        """Whether this op is a scaler's."""
        return op.qualified == _UNSCALE

    @property
    def has_unscaled(self) -> bool:
        """Whether a scaler has taken the scale out of the gradients as they are now."""
        return bool(self._rounds[-1].said) or self.scale is not None

    def saw(self, look: Look) -> None:
        """A scaler took the scale out of some gradients."""
        values = look.call.values
        # Read at the end of the step: nothing may wait for the device here.
        self._rounds[-1].said.append((values[_FOUND].clone(), values[_INVERSE].clone()))

    def backward(self) -> None:
        """Backward runs: what scalers say from now on is of its gradients."""
        if self._rounds[-1].said:
            self._rounds.append(_Round())

    def note(self, event: Overflow) -> None:
        """An event was found."""
        if event.phase in (BACKWARD, RECOMPUTE):
            self._rounds[-1].events.append(event)

    def end_step(self) -> None:
        """The step ends: say of its events what became of them."""
        for one in self._rounds:
            skipped = False
            for found, inverse in one.said:
                factor = float(inverse.item())
                self.scale = 1 / factor if factor else None
                skipped = skipped or float(found.item()) != 0
            for event in one.events if one.said else ():
                event.scale, event.skipped = self.scale, skipped
                self._change(event)
        self._rounds = [_Round()]

    def new_step(self) -> None:
        """Another step begins."""
        self.scale = None
