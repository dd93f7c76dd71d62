"""Looks at every op of a step: what its results hold, where its inputs came from.

In the usual case an op costs one reduction over each of its results (smallest and largest element,
which are NaN if one is) and a line in the log of who made what. Only where that shows an overflow,
or an operand holds one, the call is looked at closely (`verdict`). Optimizer ops cost less still:
their results are proven harmless (`proof`), where that can be.

An op that overwrites an operand is preceded by a copy of it, unless it is proven that it cannot
overflow: what is said about an overflow, and dumped, is the call as it was before.
"""

from __future__ import annotations

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
from .extent import LARGEST, Extent, extent_of, is_looked_at
from .findings import Findings
from .log import Log
from .pending import Pending, is_immediate
from .proof import Proofs, covers, extents_of, is_on_npu
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
        self._before = self._samples  # those of the last step in which anything was seen
        self._scaler = Scaler(findings.change)
        self._proofs = Proofs(self._values)

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
        self._end_step()
        self._scaler.new_step()
        if self._samples:
            self._before, self._samples = self._samples, Samples()

    def _end_step(self) -> None:
        """What is still being computed is waited for."""
        self._pending.finish()
        self._findings.passing(None)
        self._scaler.end_step()
        self._samples.scale = self._scaler.scale or 1.0

    def finish(self) -> None:
        """The context ends."""
        self._end_step()
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
        looked = extents_of([found[place][1] for place in unknown])
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
        return (made.low, made.high) if covers(tensor, storage.nbytes) else None

    def ranges(self) -> list[Range]:
        """How far the results of the last step reach, and the gradients, with the loss scale."""
        return self._told.ranges()

    @property
    def looked(self) -> bool:
        """Whether any op was looked at."""
        return self._log.any

    @property
    def _told(self) -> Samples:
        """The step that is told of: the one before, until there is something of this one."""
        return self._samples or self._before

    def loss_scale(self) -> LossScale | None:
        """The loss scales that work for the last step."""
        told = self._told
        gradients, backward, arriving = told.gradients()
        return loss_scale(gradients, backward, told.scale, arriving)

    def before(self, call: Call) -> Look | None:
        """What a call is given, where that will be gone when it has run: an op that overwrites an
        operand, and any op around which the status register is read."""
        op = call.op
        if op.is_view:
            return None
        by_register = self._register is not None and is_on_npu(call.values)
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
            made.low is not None
            or (not op.written and self._proofs.prove(look, list(dense(result))))
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
                into = {one.seqid for one in sources if one and one.carries}
                self._samples.products[call.seqid] = into
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
        if not self._proofs.prove(look, written):
            look.given = saved(values, written)

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
                if not covers(tensor, storage.nbytes):
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
