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


class Scaler:
    """Follows the loss scaler of one step. change: is told of events whose fate became known."""

    def __init__(self, change: Callable[[Overflow], None]) -> None:
        self._change = change
        self._open: list[Overflow] = []  # of this step's gradients
        self._said: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.scale: float | None = None
        self.skipped = False

    def is_its(self, op: Op) -> bool:
        """Whether this op is a scaler's."""
        return op.qualified == _UNSCALE

    @property
    def has_unscaled(self) -> bool:
        """Whether a scaler has taken the scale out of this step's gradients."""
        return bool(self._said) or self.scale is not None

    def saw(self, look: Look) -> None:
        """A scaler took the scale out of some gradients."""
        values = look.call.values
        # Read at the end of the step: nothing may wait for the device here.
        self._said.append((values[_FOUND].clone(), values[_INVERSE].clone()))

    def note(self, event: Overflow) -> None:
        """An event was found."""
        if event.phase in (BACKWARD, RECOMPUTE):
            self._open.append(event)

    def end_step(self) -> None:
        """The step ends: say of its events what became of them."""
        for found, inverse in self._said:
            factor = float(inverse.item())
            self.scale = 1 / factor if factor else None
            self.skipped = self.skipped or float(found.item()) != 0
        for event in self._open if self._said else ():
            event.scale, event.skipped = self.scale, self.skipped
            self._change(event)
        self._open, self._said = [], []

    def new_step(self) -> None:
        """Another step begins."""
        self.end_step()
        self.scale, self.skipped = None, False
