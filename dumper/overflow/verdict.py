"""What kind of event a suspicious call is: does the overflow begin here, or did it come in?

The op itself answers that, run once more with sound operands (`trial`). Beside those two there are
an infinity that the program asked for (a mask), which is followed until something other than
infinity comes of it; an overflow that a mask stops; and one that was stopped in forward and is used
again in backward, which begins there anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import torch

from ..names import Names
from ..scopes import BACKWARD, FORWARD, OPTIMIZER, RECOMPUTE
from ..tensors import storage_of
from .events import CREATED, INTENDED, MASKED, PROPAGATED, Operand, Overflow
from .extent import LARGEST, NARROW, extent_of, is_looked_at
from .intended import asked_for, is_mask
from .log import Log
from .looks import at_limit, nonfinite
from .register import Register
from .seen import Look, Made, Root, unread
from .telling import Teller
from .trial import Trial, overflowed

_SELECTS = frozenset(
    "aten::index aten::index_select aten::gather aten::embedding aten::take aten::masked_select "
    "aten::narrow_copy aten::slice_copy aten::select_copy".split()
)
"""Ops that leave elements out by their place: those that overflowed are not masked by it."""


_BY_DESIGN = {
    "aten::_ctc_loss": ("result1",),
    "aten::_cudnn_ctc_loss": ("result1",),
    "aten::_scaled_dot_product_flash_attention_for_cpu": ("logsumexp",),
    "aten::_scaled_dot_product_flash_attention": ("logsumexp",),
    "aten::_scaled_dot_product_efficient_attention": ("log_sumexp",),
    "aten::_scaled_dot_product_cudnn_attention": ("logsumexp",),
}
"""Results that are -infinity where nothing is summed: logarithms kept for the op's own backward."""


class _Input(NamedTuple):
    """An operand that holds infinity, NaN or, where that means one, the dtype's largest number."""

    key: str
    tensor: torch.Tensor
    made: Made
    extent: tuple[float, float]


NOWHERE: Mapping[str, torch.Tensor] = MappingProxyType({})
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
        self._trial = Trial(register)
        self._teller = Teller(rank)
        self._say = say
        self._change = change
        self._outside = outside

    def settle(self, look: Look) -> None:
        """Say what a call is whose results, operands or status register show an overflow."""
        taken = self._taken(look)
        hidden = _BY_DESIGN.get(look.call.op.qualified, ())
        shown = [
            (key, tensor)
            for (key, tensor), (low, high) in zip(look.results, look.ranges, strict=False)
            if not (-LARGEST[tensor.dtype] < low and high < LARGEST[tensor.dtype])
            and not (key in hidden and low == -math.inf)
        ]
        if not look.bits and (not shown or self._is_masked(look, shown, taken)):
            self._ends(look, taken)
            return
        still, bits = {}, 0
        if taken:
            still, bits = self._trial.overflows(look, [one.tensor for one in taken])
        if look.bits:
            begins = not taken or bits
        else:
            begins = not taken or any(mask.any() for mask in still.values())
        if begins and look.call.op.arrives_later:
            self._arrived(look, shown)
        elif begins:
            self._begins(look, shown, taken, still)
        elif all(one.made.event.kind == INTENDED for one in taken):
            if _is_infinity_only(shown, taken):
                look.made.holds(taken[0].made.event, None)
            else:
                self._begins(look, shown)
        elif look.call.phase in (BACKWARD, RECOMPUTE) and all(map(_is_contained, taken)):
            self._begins(look, shown, before=taken[0].made)
        else:
            self._goes_on(look, shown, taken)

    def _taken(self, look: Look) -> list[_Input]:
        """The operands that hold an overflow."""
        found, op = [], look.call.op
        skipped = unread(op)
        for key, place, tensor, made in look.inputs():
            if place in skipped or not is_looked_at(tensor):
                continue
            if made is not None and made.seqid and made.event is None and made.was_seen:
                continue
            low, high = extent = extent_of(tensor)
            largest = LARGEST[tensor.dtype]
            bad = not (math.isfinite(low) and math.isfinite(high))
            if not bad and -largest < low and high < largest:
                continue
            if made is None or made.event is None:
                mask = is_mask(low, high, largest) or (
                    made is None and tensor.numel() == 1 and abs(low) == math.inf
                )
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
        event = self._teller.event(look, kind, key, tensor, overflowed(tensor))
        storage = storage_of(tensor)
        name = None if storage is None else self._names.of_storage(storage._cdata, tensor)
        event.origin = name or key
        event.producer = made.seqid or None  # where nobody looked: proven, or left by `empty`
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
        if not held or look.call.op.qualified in _SELECTS:
            return
        if not look.results:  # what is made of it has no infinity, and no gradient
            for one in held:
                self._take_up(look, one.made)
                one.made.root.ended = True
            return
        event = self._teller.event(look, MASKED, *look.results[0])
        event.producer = held[0].made.seqid or None
        for one in held:
            root = one.made.root
            root.ended = True
            root.events.append(event)
            self._take_up(look, one.made)
            if root.contained and root.event.masked_by is None:
                root.event.masked_by = event.seqid
                self._change(root.event)
        self._say(event, look)

    def _goes_on(self, look: Look, shown: list, taken: list[_Input]) -> None:
        source = next((one for one in taken if one.made.event.kind != INTENDED), taken[0])
        key, tensor = shown[0] if shown else look.results[0]
        event = self._teller.event(look, PROPAGATED, key, tensor, overflowed(tensor))
        event.producer = source.made.seqid or None
        event.origin = source.made.event.origin
        event.bits = look.bits
        self._teller.explain(event, look)
        root = source.made.root
        look.made.holds(event, root)
        if root is not None:
            root.events.append(event)
        for one in taken:
            self._take_up(look, one.made)
        self._say(event, look)

    def _arrived(self, look: Look, shown: list) -> None:
        """What a collective brought where this rank gave sound numbers: infinity out of a sum over
        ranks, or what another rank gave."""
        key, tensor = shown[0]
        event = self._teller.event(look, PROPAGATED, key, tensor, overflowed(tensor))
        sums = "reduce" in look.call.op.base
        if sums and event.stored is not None and math.isinf(event.stored):
            event.kind = CREATED
            event.trail = self.log.way_to(look.made, event.stored)
        event.origin = "another rank"
        look.made.holds(event, Root(event))
        self._say(event, look)

    def _take_up(self, look: Look, made: Made) -> None:
        root = made.root
        if look.call.phase in (FORWARD, OPTIMIZER) or (
            root is not None and root.event.phase == look.call.phase
        ):
            made.take_up()

    def _begins(
        self,
        look: Look,
        shown: list,
        taken: Sequence[_Input] = (),
        still: Mapping[str, torch.Tensor] = NOWHERE,
        before: Made | None = None,
    ) -> None:
        """An overflow begins here. taken, still: the operands that hold one too, and where it
        begins all the same. before: an earlier one that had been masked and is used again."""
        infinite, full = [], []
        for key, tensor in shown:
            mask = still.get(key)
            for found, kind in ((infinite, nonfinite(tensor)), (full, at_limit(tensor))):
                where = kind if mask is None else kind & mask
                if where.any():
                    found.append((key, tensor, where))
        for key, tensor, where in infinite or full:
            event = self._teller.event(look, INTENDED, key, tensor, where)
            if asked_for(look.call.op, look.given, event.stored, tensor.dtype):
                look.made.holds(event, None)
                self._say(event, look)
                return
        if infinite:
            event = self._teller.event(look, CREATED, *infinite[0])
            event.value = self._teller.explain(event, look)
            if taken and any(map(_is_unsound, event.inputs.values())):
                self._goes_on(look, shown, taken)  # what this very element is made of had it
                return
        else:
            event = self._teller.saturated(look, full)
            if event is None:
                return
        event.bits = look.bits
        if before is not None:
            event.again = before.root.event.seqid
            event.producer = before.seqid or None
        event.trail = self.log.way_to(look.made, event.stored)
        look.made.holds(event, Root(event))
        self._say(event, look)


def _is_unsound(operand: Operand) -> bool:
    values = (*operand.values, operand.low, operand.high)
    return not all(map(math.isfinite, values))


def _is_contained(one: _Input) -> bool:
    root = one.made.root
    return root is not None and root.contained and root.event.phase == FORWARD


def _is_infinity_only(shown: list, taken: list[_Input]) -> bool:
    """Whether results hold no NaN, and infinity of no sign that the masks have not."""
    if any(one.extent[0] != one.extent[0] for one in taken):
        return True  # a NaN that was asked for is all that can come of it
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
