"""What kind of event a suspicious call is: does the overflow begin here, or did it come in?

The question is answered by the op itself, whatever op it is: it runs once more with every infinity
and NaN of its operands made 1, and 0. What still overflows begins here; the rest came in. Three
things are no such fault: an infinity that the program asked for (a mask), which is followed until
something other than infinity comes of it; an overflow that a mask stops; and one that was stopped
in forward and is used again in backward, which begins there anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ..names import Names
from ..record import tensors_in
from ..scopes import BACKWARD, FORWARD, OPTIMIZER, RECOMPUTE
from ..tensors import dtype_name, storage_of
from . import exact
from .events import CREATED, INTENDED, MASKED, PROPAGATED, SATURATED, Overflow
from .extent import LARGEST, NARROW, PARTS, extent_of, is_looked_at
from .formats import FORMATS
from .intended import asked_for, is_mask
from .log import Log
from .looks import at_limit, first, nonfinite
from .register import Register
from .seen import Look, Made, Root, results_of, unread

_CANDIDATES = 64
"""Elements at the dtype's largest number of which is asked whether they should be larger."""

_SELECTS = frozenset(
    "aten::index aten::index_select aten::gather aten::embedding aten::take aten::masked_select "
    "aten::narrow_copy aten::slice_copy aten::select_copy".split()
)
"""Ops that leave elements out by their place: those that overflowed are not masked by it."""


class _Input(NamedTuple):
    """An operand that holds infinity, NaN or, where that means one, the dtype's largest number."""

    key: str
    tensor: torch.Tensor
    made: Made
    extent: tuple[float, float]


Say = Callable[[Overflow, Look], None]


class Judge:
    """Decides what an overflow is. say: is told of each event. change: of what it became later.

    outside: gives what memory from before the context its entry. rank: of this process.
    """

    def __init__(
        self,
        log: Log,
        names: Names,
        register: Register | None,
        say: Say,
        change: Callable[[Overflow], None],
        outside: Callable[[torch.Tensor], Made],
        rank: int = 0,
    ) -> None:
        self.log = log
        self._names = names
        self._register = register
        self._say = say
        self._change = change
        self._outside = outside
        self._rank = rank

    def settle(self, look: Look) -> None:
        """Say what a call is whose results, operands or status register show an overflow."""
        taken = self._taken(look)
        shown = [
            (key, tensor)
            for (key, tensor), (low, high) in zip(look.results, look.ranges, strict=False)
            if not (-LARGEST[tensor.dtype] < low and high < LARGEST[tensor.dtype])
        ]
        if not look.bits and (not shown or self._is_masked(look, shown, taken)):
            self._ends(look, taken)
            return
        still, bits = ({}, 0) if not taken else self._still(look, taken)
        if look.bits:
            begins = not taken or bits
        else:
            begins = not taken or any(mask.any() for mask in still.values())
        if begins and look.call.op.arrives_later:
            self._arrived(look, shown)
        elif begins:
            self._begins(look, shown, still)
        elif all(one.made.event.kind == INTENDED for one in taken):
            if _is_infinity_only(shown, taken):
                look.made.holds(taken[0].made.event, None)
            else:
                self._begins(look, shown, {})
        elif look.call.phase in (BACKWARD, RECOMPUTE) and all(map(_is_contained, taken)):
            self._begins(look, shown, {}, taken[0].made)
        else:
            self._goes_on(look, shown, taken)

    def _taken(self, look: Look) -> list[_Input]:
        """The operands that hold an overflow."""
        found, op = [], look.call.op
        skipped = unread(op)
        for key, place, tensor, made in look.inputs():
            if place in skipped or not is_looked_at(tensor):
                continue
            if made is not None and made.seqid and made.event is None and made.exact:
                continue
            low, high = extent = extent_of(tensor)
            largest = LARGEST[tensor.dtype]
            bad = not (math.isfinite(low) and math.isfinite(high))
            if not bad and -largest < low and high < largest:
                continue
            if made is None or made.event is None:
                mask = is_mask(low, high, largest)
                if not bad and not mask:
                    continue  # a large number that nobody made an infinity of
                made = self._from_outside(look, key, tensor, INTENDED if mask else PROPAGATED)
            found.append(_Input(key, tensor, made, extent))
        return found

    def _from_outside(self, look: Look, key: str, tensor: torch.Tensor, kind: str) -> Made:
        """Something from before the context holds it: a mask, or something wrong already."""
        made = self._outside(tensor)
        if made.event is not None:
            return made
        event = self._event(look, kind, key, tensor)
        storage = storage_of(tensor)
        name = None if storage is None else self._names.of_storage(storage._cdata, tensor)
        event.origin = name or key
        event.producer = made.seqid or None  # of an op that was proven harmless, and was not
        self._point(event, tensor, nonfinite(tensor) | at_limit(tensor))
        made.holds(event, Root(event) if kind == PROPAGATED else None)
        self._say(event, look)
        return made

    def _is_masked(self, look: Look, shown: list, taken: list[_Input]) -> bool:
        """Whether infinite operands became finite numbers, if the largest ones (`nan_to_num`)."""
        return (
            not look.by_register
            and any(not all(map(math.isfinite, one.extent)) for one in taken)
            and not any(tensor.dtype in NARROW or nonfinite(tensor).any() for _, tensor in shown)
        )

    def _ends(self, look: Look, taken: list[_Input]) -> None:
        """Operands hold an overflow and no result does."""
        held = [one for one in taken if one.made.root is not None]
        held = [one for one in held if not all(map(math.isfinite, one.extent))]
        if look.call.phase in (BACKWARD, RECOMPUTE):  # what forward saved flows nowhere here
            held = [one for one in held if one.made.root.event.phase != FORWARD]
        if not held or not look.results or look.call.op.qualified in _SELECTS:
            return
        event = self._event(look, MASKED, *look.results[0])
        event.producer = held[0].made.seqid or None
        event.inputs = {}
        self._point(event, None, None)
        for one in held:
            root = one.made.root
            root.ended = True
            self._take_up(look, one.made)
            if root.contained and root.event.masked_by is None:
                root.event.masked_by = event.seqid
                self._change(root.event)
        self._say(event, look)

    def _goes_on(self, look: Look, shown: list, taken: list[_Input]) -> None:
        source = next((one for one in taken if one.made.event.kind != INTENDED), taken[0])
        key, tensor = shown[0] if shown else look.results[0]
        event = self._event(look, PROPAGATED, key, tensor)
        event.producer = source.made.seqid or None
        event.origin = source.made.event.origin
        event.bits = look.bits
        mask = _overflowed(tensor)
        self._point(event, tensor, mask)
        self._explain(event, look)
        look.made.holds(event, source.made.root)
        for one in taken:
            self._take_up(look, one.made)
        self._say(event, look)

    def _arrived(self, look: Look, shown: list) -> None:
        """What a collective brought: another rank's, or the sum over ranks."""
        key, tensor = shown[0]
        event = self._event(look, PROPAGATED, key, tensor)
        event.origin = "another rank"
        self._point(event, tensor, _overflowed(tensor))
        look.made.holds(event, Root(event))
        self._say(event, look)

    def _take_up(self, look: Look, made: Made) -> None:
        if look.call.phase in (FORWARD, OPTIMIZER):
            made.take_up()

    def _begins(
        self, look: Look, shown: list, still: dict[str, torch.Tensor], before: Made | None = None
    ) -> None:
        """An overflow begins here. still: where, if operands hold one too. before: an earlier one
        that had been masked and is used again."""
        infinite, full = [], []
        for key, tensor in shown:
            mask = still.get(key)
            for found, kind in ((infinite, nonfinite(tensor)), (full, at_limit(tensor))):
                where = kind if mask is None else kind & mask
                if where.any():
                    found.append((key, tensor, where))
        if infinite:
            key, tensor, where = infinite[0]
            event = self._event(look, CREATED, key, tensor)
            self._point(event, tensor, where)
            if asked_for(look.call.op, look.given, event.stored, tensor.dtype):
                event.kind = INTENDED
                look.made.holds(event, None)
                self._say(event, look)
                return
            found = self._explain(event, look)
            event.value = found.value
        else:
            event = self._saturated(look, full)
            if event is None:
                return
            if event.kind == INTENDED:
                look.made.holds(event, None)
                self._say(event, look)
                return
        event.bits = look.bits
        if before is not None:
            event.again = before.root.event.seqid
            event.producer = before.seqid or None
        event.trail = self.log.way_to(look.made, event.stored)
        look.made.holds(event, Root(event))
        self._say(event, look)

    def _saturated(self, look: Look, full: list) -> Overflow | None:
        """The element that should be larger than it is, among those at the dtype's largest."""
        for key, tensor, where in full:
            stored = tensor[first(where)].item() if tensor.dim() else tensor.item()
            if asked_for(look.call.op, look.given, stored, tensor.dtype):
                event = self._event(look, INTENDED, key, tensor)
                self._point(event, tensor, where)
                return event
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
            if not tensor.is_floating_point() and (event := self._wrapped(look, key, tensor)):
                return event
        key, tensor = tensors[0] if tensors else ("result", torch.empty(0))
        return self._event(look, SATURATED, key, tensor)

    def _wrapped(self, look: Look, key: str, tensor: torch.Tensor) -> Overflow | None:
        """The first integer that is not what it should be: it wrapped around."""
        wide = [_in_float64(value) for value in look.given]
        try:
            again = dict(results_of(look.call.op, look.call.op.call(wide), wide))
        except (RuntimeError, ValueError, IndexError, TypeError):
            return None  # an op that has no float64
        where = (again[key] - tensor.cpu()).abs() >= 1
        if not where.any():
            return None
        event = self._event(look, CREATED, key, tensor)
        self._point(event, tensor, where)
        event.value = float(again[key][event.index].item())
        self._explain(event, look)
        return event

    def _among(
        self, look: Look, key: str, tensor: torch.Tensor, where: torch.Tensor
    ) -> Overflow | None:
        places = where.nonzero()[:_CANDIDATES].tolist()
        if not places:
            return None
        found = exact.elements(
            look.call.op, look.given, look.result, key, [tuple(place) for place in places]
        )
        limit = FORMATS[dtype_name(PARTS.get(tensor.dtype, tensor.dtype))].overflows_from
        for place, one in zip(places, found, strict=True):
            if one.value is not None and not abs(one.value) < limit:
                event = self._event(look, SATURATED, key, tensor)
                event.index, event.value, event.inputs = tuple(place), one.value, one.inputs
                event.stored = float(tensor[tuple(place)].item())
                event.count = int(where.sum())
                return event
        return None

    def _still(self, look: Look, taken: list[_Input]) -> tuple[dict[str, torch.Tensor], int]:
        """Where results overflow with sound operands, and the status bits of that."""
        op = look.call.op
        if op.seeded or op.arrives_later or not op.qualified.startswith("aten::"):
            return {}, 0
        lost = {id(one.tensor) for one in taken}
        if not lost <= {id(tensor) for tensor in tensors_in(look.given)}:
            return {}, 0  # a part of a sparse tensor, which is not put together again
        found, bits = self._with(look, lost, 1.0)
        if bits or any(mask.any() for mask in found.values()):
            # A number out of place may overflow by itself, a 1 or a 0, but hardly both.
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
        except (RuntimeError, ValueError, IndexError, TypeError):
            return {}, 0  # an op that refuses such operands; then it came in
        bits = self._register.peek() if look.by_register else 0
        found = {
            key: _overflowed(tensor)
            for key, tensor in results_of(op, result, given)
            if is_looked_at(tensor)
        }
        return found, bits

    def _event(self, look: Look, kind: str, output: str, tensor: torch.Tensor) -> Overflow:
        call = look.call
        scope = call.scope
        return Overflow(
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

    def _point(
        self, event: Overflow, tensor: torch.Tensor | None, where: torch.Tensor | None
    ) -> None:
        """Name the first element that an event is about."""
        if tensor is None or where is None:
            return
        event.count = int(where.sum())
        event.index = first(where)
        if event.index is not None and not tensor.is_complex():
            event.stored = float(tensor[event.index].item())

    def _explain(self, event: Overflow, look: Look) -> exact.Exact:
        if event.index is None:
            return exact.Exact(None, {}, "no element shows it")
        found = exact.element(look.call.op, look.given, look.result, event.output, event.index)
        event.inputs = found.inputs
        return found


def _overflowed(tensor: torch.Tensor) -> torch.Tensor:
    return nonfinite(tensor) | at_limit(tensor)


def _sound(value: Any, lost: set[int], number: float, written: bool) -> Any:
    """An operand with a number in place of what overflowed; copied if it is written."""
    if isinstance(value, torch.Tensor):
        if id(value) in lost:
            sound = torch.full((), number, dtype=value.dtype, device=value.device)
            return torch.where(_overflowed(value), sound, value)
        return value.clone() if written else value
    if isinstance(value, (list, tuple)) and next(tensors_in(value), None) is not None:
        return [_sound(one, lost, number, written) for one in value]
    return value


def _in_float64(value: Any) -> Any:
    """An operand's numbers where nothing wraps around, on the CPU."""
    if isinstance(value, torch.Tensor):
        return value.cpu() if value.dtype is torch.bool else value.cpu().double()
    if isinstance(value, (list, tuple)) and next(tensors_in(value), None) is not None:
        return [_in_float64(one) for one in value]
    return value


def _is_contained(one: _Input) -> bool:
    root = one.made.root
    return root is not None and root.contained and root.event.phase == FORWARD


def _is_infinity_only(shown: list, taken: list[_Input]) -> bool:
    """Whether results hold no NaN, and infinity of no sign that the masks have not."""
    low = min(one.extent[0] for one in taken)
    high = max(one.extent[1] for one in taken)
    for _, tensor in shown:
        found_low, found_high = extent_of(tensor)
        largest = LARGEST[tensor.dtype]
        if found_low != found_low:
            return False
        if found_low <= -largest and -largest * 0.99 < low:
            return False
        if found_high >= largest and high < largest * 0.99:
            return False
    return True
