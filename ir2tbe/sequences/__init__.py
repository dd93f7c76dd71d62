"""An op call as the sequence of TBE operators a chip runs for it, with the values between them.

No Ascend chip is here, so what an ACL dump would show is computed: `run` takes a call of an aten op
that was made, and gives the operators that the table (`ir2tbe.table`) has for it, with all inputs
and outputs. Values between the operators are computed by torch's ops on the call's own device, so
that they are the emulated chip's on npu, and on the CPU the golden ones to compare them with. An op
that the table has no sequence for, or one that nobody broke down, is one operator, and says so.

Inputs are taken as they are: that the chip first copies one that is not contiguous, unless the
operator can be told, is no step here, as the table has none for it.

`steps` has what comes out, `layouts` in which formats; the other modules have the builders, each of
one kind of op.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

from dumper.layout import member
from dumper.ops import Op
from ir2tbe.table import Entry, How, table

from . import convolution, elementwise, generic, lists, losses, matrix, memory, norm  # noqa: F401
from .registry import BUILDERS
from .steps import Call, Port, Ran, Step, tensors

__all__ = ["Port", "Ran", "Step", "entry_of", "results_of", "run"]


def results_of(op: Op, values: list[Any], returned: Any) -> list[tuple[str, Tensor | None]]:
    """The tensor results of a call in the order in which `run` counts them, by their names in a
    record.

    What it returned, lists flattened; then what it wrote without returning it (running statistics,
    lists of foreach ops and of fused optimizers). An absent tensor is None and keeps its place.
    values: the arguments after the call, in the order of the schema.
    """
    found = list(op.named_results(returned)) if op.returns else []
    found += [(op.arguments[i].key, values[i]) for i in op.silent_outputs]
    return [each for name, value in found for each in _named(name, value)]


def _named(name: str, value: Any) -> Iterator[tuple[str, Tensor | None]]:
    if value is None or isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for i, each in enumerate(value):
            yield from _named(member(name, i), each)


def run(op: Op, values: list[Any], results: list[Tensor | None]) -> Ran:
    """The TBE operators of an op call, in order.

    values: the arguments in the order of the schema, tensors as they were before the call. results:
    the tensors that `results_of` names. Nothing is written and no random number is drawn; call it
    where torch's ops are nobody's calls (`ir2tbe.acl.tap.undisturbed`).
    """
    if not op.recorded or op.is_view:
        return Ran(())
    call = Call(op, values, results)
    instead_of = _build(call)
    return Ran(tuple(call.steps), instead_of)


def _build(call: Call) -> tuple[str, ...] | None:
    """Append a call's steps; what one stand-in is instead of, None where they are its own."""
    builder = BUILDERS.get(call.op.qualified)
    if builder is None and lists.is_foreach(call.op):
        builder = lists.foreach
    # The chip has no sparse tensors, so no operator of the table takes one.
    dense = all(t.layout is torch.strided for t in tensors([call.values, call.results]))
    if builder is not None and dense and builder(call):
        return None
    entry = entry_of(call.op)
    if dense and entry is not None and entry.steps is not None:
        if len(entry.steps) == 1:
            generic.one(call, entry.steps[0])
        if len(entry.steps) < 2:
            return None
    generic.stand_in(call)
    return (entry and entry.tbe) or ()


@cache
def entry_of(op: Op) -> Entry | None:
    """The table's line of an op or of the same op not in place; None where it has only others."""
    overload = op.func._schema.overload_name
    found = table().find(f"{op.qualified}.{overload}" if overload else op.qualified)
    return found.entries[0] if found and found.how in (How.EXACT, How.IN_PLACE) else None
