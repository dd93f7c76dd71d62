"""That the results of a call cannot overflow, from what is known of its operands.

What an optimizer writes is so, almost always: by intervals (`intervals`) of what each call left in
each memory. A proof is of arithmetic, and holds where kernels are right. On an npu, whose kernels
are what is in doubt, nothing is proven.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..values import StoredValues
from .extent import LARGEST, Extent, extent_of, is_looked_at, largest_of
from .intervals import RULES, Interval, bound, is_safe
from .pending import is_immediate, may_wait
from .seen import Look, Made, dense


class Proofs:
    """Proves from what `values` says of each memory: who made it, and in which range."""

    def __init__(self, values: StoredValues) -> None:
        self._values = values

    def prove(self, look: Look, results: list[torch.Tensor]) -> bool:
        """Whether results of the dtypes of these tensors cannot overflow."""
        op, values, made = look.call.op, look.call.values, look.made
        largest = min((LARGEST.get(t.dtype, 0.0) for t in results), default=0.0)
        if not (largest and op.base in RULES) or is_on_npu(values):
            return False
        smallest = max(torch.finfo(t.dtype).tiny for t in results)
        proven = bound(op.base, values, self._known, smallest)
        if not is_safe(proven, largest):
            return False
        made.low, made.high = proven
        made.exact = False
        return True

    def _known(self, value: Any) -> Interval | None:
        """Between which numbers the elements of a tensor, or of a list of them, lie."""
        tensors = list(dense(value))
        if not all(map(is_looked_at, tensors)):
            return None
        storages = [self._values.of(tensor) for tensor in tensors]
        found = [storage.maker for storage in storages]
        # From before the context: the parameters, when the optimizer first meets them.
        # And what numpy may have written since.
        unknown = [
            place
            for place, (made, storage) in enumerate(zip(found, storages, strict=True))
            if made is None or storage.volatile
        ]
        extents = extents_of([tensors[place] for place in unknown])
        for place, extent in zip(unknown, extents, strict=True):
            made = found[place] = Made(0, "", ())
            made.widen(*extent)
            if covers(tensors[place], storages[place].nbytes):
                storages[place].maker = made
        if any(made.low is None or made.event or made.low != made.low for made in found):
            return None
        low = min((made.low for made in found), default=math.nan)
        high = max((made.high for made in found), default=math.nan)
        return (low, high) if low <= high else None


def extents_of(tensors: Sequence[torch.Tensor]) -> list[Extent]:
    """The extent of each. A device that must not be waited for is waited for once, for all; then
    both ends are of the largest absolute value."""
    if not tensors or is_immediate(tensors[0]):
        return [extent_of(tensor) for tensor in tensors]
    with may_wait(tensors[0].device):
        return [(-largest, largest) for largest in largest_of(tensors).tolist()]


def is_on_npu(values: list[Any]) -> bool:
    """Whether an op runs on the npu: its first tensor lies there; of one without, it may."""
    for value in values:
        for tensor in dense(value):
            return tensor.device.type == "npu"
    return True


def covers(tensor: torch.Tensor, nbytes: int) -> bool:
    """Whether a tensor is all that lies in its memory."""
    return tensor.numel() * tensor.element_size() == nbytes
