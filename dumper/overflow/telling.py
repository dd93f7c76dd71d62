"""An event made of a call: its element, what was there, and what should have been.

Where a device saturates, the results show nothing but their dtype's largest number, which may be
right; so elements are computed again until one is found that should be more.
"""

from __future__ import annotations

from typing import Any

import torch

from ..record import tensors_in
from ..tensors import dtype_name
from . import exact
from .events import CREATED, SATURATED, Overflow
from .extent import PARTS
from .formats import FORMATS
from .looks import first
from .seen import Look, results_of
from .trial import REFUSALS

_CANDIDATES, _CHEAP = 64, 4096
"""Elements at the dtype's largest number of which is asked whether they should be larger; of ops
that take them one by one."""

_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


class Teller:
    """Makes events of calls. rank: of this process."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def event(
        self,
        look: Look,
        kind: str,
        output: str,
        tensor: torch.Tensor,
        where: torch.Tensor | None = None,
    ) -> Overflow:
        """An event about a result. where: its elements, of which the first is named."""
        call = look.call
        scope = call.scope
        event = Overflow(
            ir=call.op.ir,
            seqid=call.seqid,
            phase=call.phase,
            kind=kind,
            dtype=dtype_name(tensor.dtype),
            output=output,
            size=tensor.numel(),
            api=scope.api,
            module=scope.module,
            source=scope.source,
            step=call.step,
            rank=self._rank,
        )
        if where is not None:
            event.count = int(where.sum())
            event.index = first(where)
            if event.index is not None and not tensor.is_complex():
                event.stored = float(tensor[event.index].item())
        return event

    def explain(self, event: Overflow, look: Look) -> float | None:
        """Say what the inputs hold at the event's element; returns what should have been there."""
        if event.index is None:
            return None
        found = exact.element(look.call.op, look.given, look.result, event.output, event.index)
        event.inputs = found.inputs
        return found.value

    def saturated(self, look: Look, full: list) -> Overflow | None:
        """The element that should be larger than it is. full: (name, result, where) of results that
        reach their dtype's largest number."""
        for key, tensor, where in full:
            event = self._among(look, key, tensor, where)
            if event is not None:
                return event
        if not look.bits:
            return None
        for key, tensor in look.results:  # a NaN is stored as 0
            event = self._among(look, key, tensor, tensor == 0)
            if event is not None:
                return event
        tensors = list(results_of(look.call.op, look.result, look.after))
        for key, tensor in tensors:
            if tensor.dtype in _INTEGERS and (event := self._wrapped(look, key, tensor)):
                return event
        key, tensor = tensors[0] if tensors else ("result", torch.empty(0))
        return self.event(look, SATURATED, key, tensor)

    def _wrapped(self, look: Look, key: str, tensor: torch.Tensor) -> Overflow | None:
        """The first integer that is not what it should be: it wrapped around."""
        if exact.refused(look.call.op, look.given) is not None:
            return None  # a call that must not be repeated
        wide = [_in_float64(value) for value in look.given]
        try:
            again = dict(results_of(look.call.op, look.call.op.call(wide), wide))
        except REFUSALS:
            return None  # an op that has no float64
        where = (again[key] - tensor.cpu()).abs() >= 1
        if not where.any():
            return None
        event = self.event(look, CREATED, key, tensor, where)
        event.value = float(again[key][event.index].item())
        self.explain(event, look)
        return event

    def _among(
        self, look: Look, key: str, tensor: torch.Tensor, where: torch.Tensor
    ) -> Overflow | None:
        op = look.call.op
        one_by_one = torch.Tag.pointwise in op.func.tags or op.base in ("copy", "_to_copy")
        places = where.nonzero()[: _CHEAP if one_by_one else _CANDIDATES].tolist()
        if not places:
            return None
        places = [tuple(place) for place in places]
        found = exact.elements(op, look.given, look.result, key, places)
        limit = FORMATS[dtype_name(PARTS.get(tensor.dtype, tensor.dtype))].overflows_from
        over = [
            (place, one)
            for place, one in zip(places, found, strict=True)
            if one.value is not None and not abs(one.value) < limit
        ]
        if not over:
            return None
        place, one = over[0]
        event = self.event(look, SATURATED, key, tensor)
        event.index, event.value, event.inputs = place, one.value, one.inputs
        event.stored = float(tensor[place].item())
        at_limit = int(where.sum())
        event.count = len(over) if at_limit == len(places) else at_limit
        return event


def _in_float64(value: Any) -> Any:
    """An operand's numbers where nothing wraps around, on the CPU."""
    if isinstance(value, torch.Tensor):
        return value.cpu() if value.dtype is torch.bool else value.cpu().double()
    if isinstance(value, (list, tuple)) and next(tensors_in(value), None) is not None:
        return [_in_float64(one) for one in value]
    return value
