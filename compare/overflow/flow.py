"""What an op takes of an overflow and what it may do to it: rules on records and looks.

A value that holds an overflow flows from where that began until an op takes it up and gives nothing
of it on. An infinity that the program asked for flows likewise. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dumper.errors import DumpError
from dumper.overflow.events import Overflow
from dumper.overflow.formats import FORMATS
from dumper.reader import Record
from dumper.stored import Tensor

from ..judging import class_of
from .looks import Look

_FILLS = ("masked_fill", "fill", "full", "full_like", "new_full", "where", "scalar_tensor",
          "index_fill", "scatter", "constant_pad_nd", "clamp", "clamp_min", "clamp_max", "hardtanh",
          "threshold", "nan_to_num", "_foreach_clamp_max", "_foreach_clamp_min")  # fmt: skip
"""Ops whose numbers the program asked for."""

_OVERWRITES = ("copy", "zero", "fill", "zeros", "_foreach_zero", "_foreach_copy")
"""Ops that do not read what they write over."""

_LIKE = ("ones_like", "zeros_like", "full_like", "empty_like", "rand_like", "randn_like",
         "new_full", "new_zeros", "new_ones", "new_empty")  # fmt: skip
"""Ops that take nothing of their input but its shape and dtype."""

_SELECTS = ("index", "index_select", "gather", "embedding", "take", "masked_select", "narrow_copy",
            "slice_copy", "select_copy")  # fmt: skip
"""Ops that leave elements out by their place: what they leave out is not masked by it."""

_TURNS = ("neg", "sub", "rsub", "_foreach_neg", "_foreach_sub")
"""Ops that give an infinity the other sign."""


@dataclass
class Root:
    """Where an overflow begins. live: values that hold it and that no later op of forward took up;
    ended: seqid of the op at which a mask stopped it last."""

    event: Overflow
    live: set[object] = field(default_factory=set)
    ended: int | None = None


class Flow(NamedTuple):
    """What a value with an overflow is of. root: None for what the program asked for, or came in.
    by: seqid of the op that made the value. asked: the program asked for it."""

    root: Root | None
    by: int | None
    asked: bool = False


class Given(NamedTuple):
    """An input that holds an overflow. look: None where only a view of it is in the file."""

    name: str
    key: object
    look: Look | None
    flow: Flow


def may_be_asked(record: Record, look: Look, asked: Sequence[Given]) -> bool:
    """Whether what the program asked for, infinities mostly, explains those of a result."""
    if look.nan.count and not any(one.look is not None and one.look.nan.count for one in asked):
        return False
    if not look.above.count or class_of(record.ir).base in _TURNS:
        return True
    return any(one.look is None or one.look.above.count for one in asked)


def unread(record: Record) -> set[str]:
    """Names of the inputs of which an op reads no element."""
    base = class_of(record.ir).base
    if base in _LIKE:
        return {tensor.name for tensor in record.inputs}
    return {tensor.name for tensor in record.outputs} if base in _OVERWRITES else set()


def selects(record: Record) -> bool:
    """Whether it leaves elements out by their place."""
    return class_of(record.ir).base in _SELECTS


def only_hands_on(record: Record) -> bool:
    """Whether it makes nothing: its results are its inputs seen otherwise."""
    values = record.entry.values
    given = {number for key, number in values.items() if key.startswith("input/")}
    made = [number for key, number in values.items() if key.startswith("output/")]
    return bool(made) and all(number in given for number in made)


class Scaling(NamedTuple):
    """What a loss scaler said. scale: of the gradients; None where it is not told. skipped: it
    found one that is not finite, and left the step out."""

    scale: float | None
    skipped: bool


def scaling_of(record: Record) -> Scaling | None:
    """What a record of a loss scaler says; None of any other."""
    if not record.ir.startswith("_amp_foreach_non_finite_check_and_unscale"):
        return None
    inverse = _number_of(record.inputs, "inv_scale")
    return Scaling(1 / inverse if inverse else None, bool(_number_of(record.outputs, "found_inf")))


def is_scaled(event: Overflow, scaling: Scaling) -> bool:
    """Whether a loss scaler's answer is about this event: of the gradients, or of the loss as it
    was scaled."""
    if event.phase in ("backward", "recompute"):
        return True
    numbers = (each.values for each in event.inputs.values() if each.size == 1)
    return event.begins and (scaling.scale,) in numbers


def _number_of(tensors: Sequence[Tensor], name: str) -> float | None:
    """The one number of a tensor; None where there is none that can be read."""
    found = next((tensor for tensor in tensors if tensor.name == name), None)
    if found is None or found.size != 1 or found.dtype not in FORMATS:
        return None
    try:
        return float(found.read().reshape(-1)[0])
    except DumpError:
        return None


def is_odd(one: Given) -> bool:
    """Whether it holds infinity or NaN, as far as is known."""
    return one.look is None or one.look.nonfinite > 0


def is_contained(one: Given, record: Record) -> bool:
    """Whether it had been masked away in forward, and backward uses it again."""
    root = one.flow.root
    return (
        root is not None
        and root.ended is not None
        and not root.live
        and root.event.phase == "forward"
        and record.phase in ("backward", "recompute")
    )


def asked_for(record: Record, look: Look) -> bool:
    """Whether the program gave the op the infinities, or NaN, that it put into its result."""
    numbers = list(asked_numbers(record))
    if look.nan.count:
        return any(map(math.isnan, numbers))
    return any(map(math.isinf, numbers))


def asked_numbers(record: Record) -> Iterator[float]:
    """The numbers that a program gave an op that puts them into its result."""
    if class_of(record.ir).base not in _FILLS:
        return
    for argument in record.arguments.values():
        try:
            value = argument.value
        except DumpError:
            continue
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, float) or type(each) is int:
                try:
                    yield float(each)
                except OverflowError:
                    yield math.inf


def stored_at(look: Look, place: int) -> float:
    """What lies at a place that a look names."""
    for mark, value in (
        (look.nan, math.nan), (look.above, math.inf), (look.below, -math.inf),
    ):  # fmt: skip
        if mark.count and mark.first == place:
            return value
    return -look.magnitude if look.full_below else look.magnitude


def order_of(magnitude: float) -> float:
    """A magnitude as they are ordered: NaN beyond all others."""
    return math.inf if math.isnan(magnitude) else magnitude
