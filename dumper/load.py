"""Load mode: every op of a live run computes on the inputs that another run recorded for it.

So an op that computes wrongly spoils its own outputs and nobody else's. A call finds its
counterpart as the original did: the first record of its IR, in execution order, that no earlier
call took, whose tensors have the same shapes and dtypes (int32 and int64 count as one) and whose
other arguments are equal; floats declared Scalar are not compared, the recorded ones are used.

Three kinds of op need care. A view's result must alias the live tensor, or every later in-place
update is lost: it runs live, and runs once more on the recorded input for the record. An op that
writes its arguments is computed on the recorded ones, then the live ones take the values. An op
without a counterpart runs on what it was given and is listed, not recorded.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import torch

from .errors import DumpError, warn
from .layout import Type
from .ops import Argument, Op
from .reader import Dump, Record
from .record import tensors_in
from .replay import Decoder, scalar_of
from .stored import Tensor
from .tensors import TORCH_DTYPES
from .writer import Writer

_LONG = {torch.int32: torch.int64}
_NOT_COMPARED = (Type.DEVICE, Type.LAYOUT, Type.OPT_MEM_FMT, Type.GENERATOR)
"""Arguments that say where and how, not what: they may differ between two devices."""
_REPLACED = (Type.SCALAR, Type.OPT_SCALAR, Type.VEC_SCALAR)


class Loader:
    """Finds the counterparts of live calls in one recorded run."""

    def __init__(self, dump: Dump) -> None:
        self._waiting = {ir: list(records) for ir, records in dump.by_ir.items()}
        self._values = {
            (record.phase, name, record.step or 0): record.seqid
            for record in dump.records
            if record.phase in ("grad", "update")
            for name in record.entry.names.values()
        }
        self.matched = 0
        self.unmatched: list[str] = []

    def value(self, phase: str, name: str, step: int) -> int | None:
        """The seqid under which the recorded run holds a named value of a step, if it does."""
        return self._values.get((phase, name, step))

    def report(self, path: str, source: str) -> None:
        """Say once what was not fed."""
        if self.unmatched:
            counted = Counter(self.unmatched).most_common()
            names = ", ".join(f"{name} ({count})" for name, count in counted[:5])
            warn(
                f"{self.matched} ops ran on recorded inputs; {len(self.unmatched)} found no "
                f"counterpart in {source}, ran on their own inputs and are not "
                f"recorded: {names}" + (", ..." if len(counted) > 5 else ""),
                path,
                "compare what was fed; the file lists the others under unmatched",
            )

    def write_unmatched(self, writer: Writer) -> None:
        """List in the file what found no counterpart."""
        for ir in self.unmatched:
            writer.line("unmatched", json.dumps({"ir": ir}))

    def counterpart(
        self, op: Op, values: list[Any], place: tuple, step: int
    ) -> tuple[Record, list[Any]] | None:
        """Take the record that belongs to this call, and its arguments on the call's devices.

        None, and noted in `unmatched`, when there is none or its tensors cannot be read.
        """
        waiting = self._waiting.get(op.ir, [])
        for i, record in enumerate(waiting):
            if _agrees(op, values, record):
                del waiting[i]
                try:
                    recorded = _recorded_values(op, values, record)
                except DumpError:
                    break
                self.matched += 1
                return record, recorded
        self.unmatched.append(op.ir)
        return None


def run_on_recorded(op: Op, values: list[Any], recorded: list[Any]) -> tuple[Any, Any]:
    """Run a live call on its counterpart's arguments.

    Returns what the caller gets, and what the op computed from the recorded arguments, which is
    what is recorded.
    """
    if op.is_view:
        return op.call(values), op.call(recorded)
    result = op.call(recorded)
    live_of: dict[int, torch.Tensor] = {}
    for i in op.written:
        for ours, live in zip(tensors_in(recorded[i]), tensors_in(values[i]), strict=True):
            if live.shape != ours.shape:
                live.resize_(ours.shape)
            live.copy_(ours)
            live_of[id(ours)] = live
    return _swap(result, live_of), result


def _recorded_values(op: Op, values: list[Any], record: Record) -> list[Any]:
    """The record's tensors and scalars in the place of the live ones, on the live ones' devices."""
    recorded = []
    for argument, live in zip(op.arguments, values, strict=True):
        tensors = list(tensors_in(live))
        stored = record.arguments.get(argument.key)
        if tensors:
            recorded.append(_like(Decoder(record, tensors[0].device).argument(argument), live))
        elif stored is not None and stored.type in _REPLACED:
            recorded.append(scalar_of(stored))
        else:
            recorded.append(live)
    return recorded


def _like(recorded: Any, live: Any) -> Any:
    if isinstance(live, torch.Tensor):
        return recorded.to(device=live.device, dtype=live.dtype)
    if isinstance(live, (list, tuple)):
        return [_like(ours, theirs) for ours, theirs in zip(recorded, live, strict=True)]
    return live


def _swap(result: Any, live_of: dict[int, torch.Tensor]) -> Any:
    """Hand back the caller's own tensors where the op returned an argument."""
    if isinstance(result, (list, tuple)):
        return type(result)(_swap(member, live_of) for member in result)
    return live_of.get(id(result), result)


def _agrees(op: Op, values: list[Any], record: Record) -> bool:
    inputs = {tensor.name: tensor for tensor in record.inputs}
    return all(
        _argument_agrees(argument, value, record, inputs)
        for argument, value in zip(op.arguments, values, strict=True)
    )


def _argument_agrees(
    argument: Argument, value: Any, record: Record, inputs: dict[str, Tensor]
) -> bool:
    if isinstance(value, torch.Tensor):
        return argument.key in inputs and _tensor_agrees(inputs[argument.key], value)
    if isinstance(value, (list, tuple)) and "Tensor" in argument.type:
        stored = _members(argument, record, inputs)
        return len(stored) == len(value) and all(
            live is None
            if ours is None
            else isinstance(live, torch.Tensor) and _tensor_agrees(ours, live)
            for ours, live in zip(stored, value, strict=True)
        )
    if argument.key in inputs:
        return False
    stored = record.arguments.get(argument.key)
    if stored is None:
        return value is None or value == argument.default
    if stored.type in _NOT_COMPARED or stored.type in _REPLACED:
        return value is not None
    if isinstance(value, tuple):
        value = list(value)
    return scalar_of(stored) == value


def _tensor_agrees(recorded: Tensor, live: torch.Tensor) -> bool:
    ours = TORCH_DTYPES.get(recorded.dtype)
    return recorded.shape == tuple(live.shape) and _LONG.get(ours, ours) == _LONG.get(
        live.dtype, live.dtype
    )


def _members(argument: Argument, record: Record, inputs: dict[str, Tensor]) -> list[Tensor | None]:
    found: list[Tensor | None] = []
    while True:
        key = f"{argument.key}/{argument.key}_{len(found)}"
        if key in inputs:
            found.append(inputs[key])
        elif key in record.arguments:
            found.append(None)
        else:
            return found
