"""A call run once more with sound operands: what overflows all the same begins there.

No op needs to be known for this. It runs twice, with 1 and with 0 in place of every infinity, NaN
and largest number that came in, since either may overflow by itself in some op, but hardly both.
"""

from __future__ import annotations

from typing import Any

import torch

from ..record import tensors_in
from .extent import is_looked_at
from .looks import at_limit, nonfinite
from .register import Register
from .seen import Look, results_of

REFUSALS = (RuntimeError, ValueError, IndexError, TypeError)
"""What an op raises that does not take such operands."""


class Trial:
    """Runs calls on trial. register: the device's status register, or None."""

    def __init__(self, register: Register | None) -> None:
        self._register = register

    def overflows(
        self, look: Look, unsound: list[torch.Tensor]
    ) -> tuple[dict[str, torch.Tensor], int]:
        """Where results overflow with sound operands, and the status bits of that.

        unsound: the operands to be changed. Nowhere for a call that must not be repeated.
        """
        op = look.call.op
        if op.seeded or op.arrives_later or not op.qualified.startswith("aten::"):
            return {}, 0
        lost = {id(tensor) for tensor in unsound}
        if not lost <= {id(tensor) for tensor in tensors_in(look.given)}:
            return {}, 0  # a part of a sparse tensor, which is not put together again
        found, bits = self._with(look, lost, 1.0)
        if bits or any(mask.any() for mask in found.values()):
            again, again_bits = self._with(look, lost, 0.0)
            found = {key: mask & again[key] for key, mask in found.items() if key in again}
            bits &= again_bits
        return found, bits

    def _with(
        self, look: Look, lost: set[int], number: float
    ) -> tuple[dict[str, torch.Tensor], int]:
        """Where results overflow, and the status bits, with a number in place of every infinity,
        NaN and largest number of the operands in `lost`."""
        op = look.call.op
        given = [
            _sound(value, lost, number, place in op.written)
            for place, value in enumerate(look.given)
        ]
        if look.by_register:
            self._register.clear()
        try:
            with torch.no_grad():
                result = op.call(given)
        except REFUSALS:
            return {}, 0  # an op that refuses such operands; then it came in
        bits = self._register.peek() if look.by_register else 0
        found = {
            key: overflowed(tensor)
            for key, tensor in results_of(op, result, given)
            if is_looked_at(tensor)
        }
        return found, bits


def overflowed(tensor: torch.Tensor) -> torch.Tensor:
    """Where a tensor is infinite, NaN or its dtype's largest number."""
    return nonfinite(tensor) | at_limit(tensor)


def _sound(value: Any, lost: set[int], number: float, written: bool) -> Any:
    """An operand with a number in place of what overflowed; copied if it is written."""
    if isinstance(value, torch.Tensor):
        if id(value) in lost:
            sound = torch.full((), number, dtype=value.dtype, device=value.device)
            return torch.where(overflowed(value), sound, value)
        return value.clone() if written else value
    if isinstance(value, (list, tuple)) and next(tensors_in(value), None) is not None:
        return [_sound(one, lost, number, written) for one in value]
    return value
