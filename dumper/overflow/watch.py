"""Looks at every op of a step: what its results hold, where its inputs came from.

In the usual case an op costs one reduction over each of its results (smallest and largest element,
which are NaN if one is) and a line in the log of who made what. Only where that shows an overflow,
or an operand holds one, the call is looked at closely (`verdict`). Optimizer ops cost less still:
their results are proven harmless by intervals (`intervals`), where that can be.

An op that overwrites an operand is preceded by a copy of it, unless the same intervals prove that
it cannot overflow: what is said about an overflow, and dumped, is the call as it was before.

A proof is of arithmetic, and holds where kernels are right. On an npu, whose kernels are what is in
doubt, nothing is proven.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from ..names import Names
from ..ops import Op
from ..record import Call
from ..scopes import BACKWARD, OPTIMIZER
from ..tensors import storage_of
from ..values import StoredValues
from .events import Overflow
from .extent import LARGEST, Extent, extent_of, extents_of, is_looked_at
from .findings import Findings
from .intervals import RULES, Interval, bound, is_safe
from .log import Log
from .pending import Pending, is_immediate, may_wait
from .ranges import Range
from .register import CLEARER, READERS, Register
from .samples import PRODUCTS, Samples
from .scaler import Scaler
from .scales import LossScale, loss_scale
from .seen import Look, Made, dense, results_of, saved, unread
from .vanished import LOSING, vanished
from .verdict import Judge

_ROUNDING = 8
"""Units in the last place of what is summed that a sum of 0 may be off by."""


class Watch:
    """The checker of one run.

    names: of parameters. findings: is told of each event. register: of a saturating npu, or None.
    rank: of this process.
    """

    def __init__(
        self,
        names: Names,
        findings: Findings,
        register: Register | None = None,
        rank: int = 0,
    ) -> None:
        self._register = register
        self._findings = findings
        self._values = StoredValues()
        self._log = Log()
        self._samples = Samples()
        self._last_products: dict[int, set[int]] = {}
        self._products: dict[int, set[int]] = {}  # of backward, and whose results they multiply
        self._scaler = Scaler(findings.change)

        def found(event: Overflow, look: Look) -> None:
            self._scaler.note(event)
            findings.say(event, look)

        self._judge = Judge(self._log, names, register, found, findings.change, self._outside, rank)
        self._pending = Pending(self._settle)

    @property
    def reads_register(self) -> bool:
        """Whether there is anything to do before each op."""
        return self._register is not None

    def new_step(self) -> None:
        """Another step begins: ranges and events of loss scaling are its own."""
        self._pending.finish()
        self._findings.passing(None)
        self._scaler.new_step()
        self._samples.clear()
        if self._products:
            self._last_products, self._products = self._products, {}

    def finish(self) -> None:
        """The context ends: what is still being computed is waited for."""
        self._pending.finish()
        self._findings.passing(None)
        self._scaler.end_step()
        if self._register is not None:
            self._register.put_back()

    def end_pass(self) -> None:
        """A run of autograd's engine has ended."""
        self._findings.passing(None)

    def forget(self) -> None:
        """Ops went unseen: what storages hold is not known any more."""
        self._pending.finish()
        self._values.forget()

    def gradients(self, found: Iterable[tuple[str, torch.Tensor]], step: int) -> None:
        """Keep the gradients of parameters, as an optimizer is about to use them."""
        self._pending.finish()
        found = [(name, tensor) for name, tensor in found if is_looked_at(tensor)]
        memories = {storage_of(tensor)._cdata for _, tensor in found}
        if len(memories) < len(found):
            self._findings.limited("combined")
        extents = [self._extent_as_made(tensor) for _, tensor in found]
        unknown = [place for place, extent in enumerate(extents) if extent is None]
        looked = self._extents([found[place][1] for place in unknown])
        for place, extent in zip(unknown, looked, strict=True):
            extents[place] = extent
        unscaled = self._scaler.has_unscaled
        for (name, tensor), extent in zip(found, extents, strict=True):
            rounding = self._rounding(tensor)
            self._samples.gradient(name, tensor, step, extent, unscaled, rounding)

    def _rounding(self, tensor: torch.Tensor) -> float:
        """How large what rounding leaves of a sum that is 0 may be (the bias of a key, say)."""
        storage = self._values.of(tensor)
        made = None if storage is None else storage.maker
        if made is None or not made.ir.startswith("sum"):
            return 0.0
        before = [self._log.get(seqid) for seqid in made.sources]
        most = max((one.magnitude or 0.0 for one in before if one is not None), default=0.0)
        return _ROUNDING * torch.finfo(tensor.dtype).eps * most

    def _extent_as_made(self, tensor: torch.Tensor) -> Extent | None:
        """The extent of a tensor that is all that one call left, as it was looked at then."""
        storage = self._values.of(tensor)
        made = None if storage is None else storage.maker
        if made is None or made.low is None or not (made.exact and made.single):
            return None
        return (made.low, made.high) if _covers(tensor, storage.nbytes) else None

    def ranges(self) -> list[Range]:
        """How far the results of the last step reach, and the gradients, with the loss scale."""
        return self._samples.ranges(self._scale)

    @property
    def looked(self) -> bool:
        """Whether any op was looked at."""
        return self._log.any

    @property
    def _scale(self) -> float:
        return self._scaler.scale or self._scaler.last or 1.0

    def loss_scale(self) -> LossScale | None:
        """The loss scales that work for the last step."""
        scale = self._scale
        gradients, backward, arriving = self._samples.gradients(
            scale, self._products or self._last_products
        )
        return loss_scale(gradients, backward, scale, arriving)

    def before(self, call: Call) -> Look | None:
        """What a call is given, where that will be gone when it has run: an op that overwrites an
        operand, and any op around which the status register is read."""
        op = call.op
        if op.is_view:
            return None
        by_register = self._register is not None and _is_on_npu(call.values)
        if not (op.written or by_register):
            return None
        look = self._look(call)
        if op.written:
            self._keep(look)
        if by_register:
            look.by_register = True
            self._before_register(op)
        return look

    def after(self, call: Call, look: Look | None, result: Any) -> None:
        """Look at what a call made. look: what `before` kept."""
        op = call.op
        if op.is_view:
            return
        if call.phase == BACKWARD:
            self._scaler.backward()
        look = look or self._look(call)
        made = look.made
        look.result, look.after = result, call.values
        if look.by_register:
            look.bits = self._after_register(op)
        self._wrote(look, result)
        if self._scaler.is_its(op):
            self._scaler.saw(look)
            self._hand_on(look)
            return
        if op.arrives_later and not op.waits(call.values):
            return  # it is not there yet
        proven = call.phase == OPTIMIZER and (
            made.low is not None or (not op.written and self._prove(look, list(dense(result))))
        )
        if proven:
            self._log.add(made)
            if look.has_overflow:
                self._judge.settle(look)
            made.take_in_rest()
            return
        made.low = made.high = None
        made.exact = True
        look.results = [
            (key, tensor)
            for key, tensor in results_of(op, result, call.values)
            if is_looked_at(tensor) and key not in op.blank
        ]
        if look.results and not is_immediate(look.results[0][1]):
            self._pending.add(look)
            return
        look.ranges = [extent_of(tensor) for _, tensor in look.results]
        self._settle(look)

    def _hand_on(self, look: Look) -> None:
        """A loss scaler divided the gradients: what they hold is what they held."""
        for source in look.sources:
            if source is not None and source.event is not None:
                look.made.event, look.made.root = source.event, source.root

    def _look(self, call: Call) -> Look:
        """A call as it is seen, and what made the values it is given."""
        sources, seqids, overflowed = [], [], False
        carries = call.phase == BACKWARD and call.node is None  # the loss's own gradient
        skipped = unread(call.op)
        for place, value in enumerate(call.values):
            for tensor in dense(value):
                storage = self._values.of(tensor)
                made = None if storage is None else storage.maker
                if made is not None and storage.volatile and made.event is None:
                    made = None  # numpy may have written since
                sources.append(made)
                if made is not None and place not in skipped:
                    seqids.append(made.seqid)
                    overflowed = overflowed or made.event is not None
                    carries = carries or made.carries
        made = Made(call.seqid, call.op.ir, seqids)
        if carries and call.phase == BACKWARD:
            made.carries = True
            if call.op.base in PRODUCTS:
                self._products[call.seqid] = {one.seqid for one in sources if one and one.carries}
        look = Look(call, call.values, sources, made)
        look.has_overflow = overflowed
        return look

    def _settle(self, look: Look) -> None:
        """The extents of a call's results are there."""
        if self._findings.held:
            self._findings.passing(look.call)
        made, harmless = look.made, not (look.bits or look.has_overflow)
        for (key, tensor), extent in zip(look.results, look.ranges, strict=True):
            largest = LARGEST[tensor.dtype]
            harmless = harmless and -largest < extent[0] and extent[1] < largest
            made.widen(*extent)
            gone = vanished(look, key, tensor, extent) if tensor.dtype in LOSING else (0, 0)
            self._samples.add(look.call, key, tensor, extent, gone, made.carries)
        made.single = len(look.results) == 1
        self._log.add(made)
        if not harmless:
            self._judge.settle(look)
        if made.rest is not None:
            made.take_in_rest()

    def _keep(self, look: Look) -> None:
        """Copy what the op is about to overwrite, unless it cannot overflow."""
        op, values = look.call.op, look.call.values
        written = [t for place in op.written for t in dense(values[place])]
        self._pending.about_to_write(written)
        for one in self._findings.held:
            one.look.keep(written)
        if not self._prove(look, written):
            look.given = saved(values, written)

    def _prove(self, look: Look, results: list[torch.Tensor]) -> bool:
        """Whether results of the dtypes of these tensors cannot overflow."""
        op, values, made = look.call.op, look.call.values, look.made
        largest = min((LARGEST.get(t.dtype, 0.0) for t in results), default=0.0)
        if not (largest and op.base in RULES) or _is_on_npu(values):
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
        extents = self._extents([tensors[place] for place in unknown])
        for place, extent in zip(unknown, extents, strict=True):
            made = found[place] = Made(0, "", ())
            made.widen(*extent)
            if _covers(tensors[place], storages[place].nbytes):
                storages[place].maker = made
        if any(made.low is None or made.event or made.low != made.low for made in found):
            return None
        low = min((made.low for made in found), default=math.nan)
        high = max((made.high for made in found), default=math.nan)
        return (low, high) if low <= high else None

    def _extents(self, tensors: list[torch.Tensor]) -> list[Extent]:
        if not tensors:
            return []
        device = tensors[0].device
        with may_wait(device):
            return extents_of(tensors, is_immediate(tensors[0]))

    def _outside(self, tensor: torch.Tensor) -> Made:
        """What is known of memory from before the context."""
        storage = self._values.of(tensor)
        if storage is None:
            return Made(0, "", ())
        if storage.maker is None:
            storage.maker = Made(0, "", ())
        return storage.maker

    def _wrote(self, look: Look, result: Any) -> None:
        """Note who made what is in the results' memory now."""
        op, made = look.call.op, look.made
        for place in op.written:
            for tensor in dense(look.call.values[place]):
                storage = self._values.of(tensor)
                if storage is None:
                    continue
                if not _covers(tensor, storage.nbytes):
                    made.rest = storage.maker or Made(0, "", ())
                self._values.written(tensor, made)
        for tensor in dense(result):
            storage = self._values.of(tensor)
            if storage is not None:
                storage.maker = made

    def _before_register(self, op: Op) -> None:
        if op.qualified in READERS:
            self._findings.limited("reader")
            self._register.before_reader()
        else:
            self._register.clear()

    def _after_register(self, op: Op) -> int:
        if op.qualified in READERS:
            self._register.after_reader()
        elif op.qualified == CLEARER:
            self._register.cleared()
        else:
            return self._register.read()
        return 0


def _is_on_npu(values: list[Any]) -> bool:
    """Whether an op runs on the npu: its first tensor lies there; of one without, it may."""
    for value in values:
        for tensor in dense(value):
            return tensor.device.type == "npu"
    return True


def _covers(tensor: torch.Tensor, nbytes: int) -> bool:
    """Whether a tensor is all that lies in its memory."""
    return tensor.numel() * tensor.element_size() == nbytes
