"""Whether a record's arguments are those of a live call, and how they differ.

Tensors must have the same shape and dtype (int32 and int64 count as one: migration scripts turn
targets into int32). Other arguments must be equal, but for those that say where and how, not what
(devices, layouts, memory formats, generators), and for numbers declared Scalar, of which the
recorded ones are used. What the original never wrote may be missing in its files.
"""

from __future__ import annotations

from typing import Any

import torch

from .layout import KIND, Type, member
from .ops import Argument, Op
from .parts import is_plain, parts_of
from .reader import Record
from .replay import scalar_of
from .stored import Argument as StoredArgument
from .tensors import TORCH_DTYPES

_INTS = {torch.int32: torch.int64}
_NOT_COMPARED = (Type.DEVICE, Type.LAYOUT, Type.OPT_MEM_FMT, Type.GENERATOR)
REPLACED = (Type.SCALAR, Type.OPT_SCALAR, Type.VEC_SCALAR)
"""Arguments whose recorded value is used, whatever the live one is."""

_NEVER_WRITTEN = ("str", "bool]", "Device", "Generator", "Layout", "MemoryFormat", "Storage")
_REMEMBERED = 4096
NO_INPUTS = "its inputs were not recorded"


class Agreement:
    """Compares live arguments with those of one file's records.

    indexed: whether the file is a whole one of ours, in which nothing is missing.
    """

    def __init__(self, indexed: bool) -> None:
        self._indexed = indexed
        self._scalars: dict[int, Any] = {}  # by address: most arguments are the same few datasets

    def difference(self, op: Op, values: list[Any], record: Record) -> str | None:
        """The first argument that differs, in words; None where all agree."""
        if not record.has_inputs and not record.entry.stubs:
            return NO_INPUTS
        shapes: dict[str, tuple[str, tuple]] = {
            tensor.name: (tensor.dtype, tensor.shape) for tensor in record.inputs
        }
        for place, stub in record.entry.stubs.items():
            if place.startswith("input/"):
                shapes[place.removeprefix("input/")] = stub.dtype, stub.shape
        for argument, value in zip(op.arguments, values, strict=True):
            found = self._of_argument(argument, value, record, shapes)
            if found is not None:
                return found
        return None

    def _of_argument(
        self, argument: Argument, value: Any, record: Record, shapes: dict[str, tuple[str, tuple]]
    ) -> str | None:
        key = argument.key
        if isinstance(value, torch.Tensor):
            return _of_tensor(key, value, record, shapes)
        if isinstance(value, (list, tuple)) and "Tensor" in argument.type:
            return _of_list(key, value, record, shapes)
        if key in shapes or f"{key}/{KIND}" in record.arguments:
            return f"{key}: recorded a tensor, live {_short(value)}"
        stored = record.arguments.get(key)
        if stored is None:
            if value is None or value == argument.default or self._may_lack(argument):
                return None
            return f"{key}: recorded nothing, live {_short(value)}"
        if stored.type in _NOT_COMPARED or stored.type in REPLACED:
            return None if value is not None else f"{key}: recorded a value, live None"
        recorded = self._scalar(stored)
        if isinstance(value, tuple):
            value = list(value)
        if recorded == value:
            return None
        return f"{key}: recorded {_short(recorded)}, live {_short(value)}"

    def _may_lack(self, argument: Argument) -> bool:
        return not self._indexed and any(word in argument.type for word in _NEVER_WRITTEN)

    def _scalar(self, stored: StoredArgument) -> Any:
        try:
            return self._scalars[stored.address]
        except KeyError:
            if len(self._scalars) >= _REMEMBERED:
                self._scalars.clear()
            value = self._scalars[stored.address] = scalar_of(stored)
            return value


def _of_tensor(
    key: str, live: torch.Tensor, record: Record, shapes: dict[str, tuple[str, tuple]]
) -> str | None:
    if not is_plain(live):
        return _of_parts(key, live, record)
    recorded = shapes.get(key)
    if recorded is None:
        if f"input/{key}" in record.entry.values:  # known, but not kept (Choice.level, .sides)
            return None
        what = "a number" if key in record.arguments else "nothing"
        return f"{key}: recorded {what}, live a tensor"
    dtype, shape = recorded
    if shape != tuple(live.shape):
        return f"shape of {key}: recorded {shape}, live {tuple(live.shape)}"
    ours = TORCH_DTYPES.get(dtype)
    if _INTS.get(ours, ours) != _INTS.get(live.dtype, live.dtype):
        return f"dtype of {key}: recorded {dtype}, live {_short(live.dtype)}"
    return None


def _of_parts(key: str, live: torch.Tensor, record: Record) -> str | None:
    """Tensors made of parts: of one kind, dtype and shape; how many values they hold may differ."""
    try:
        parts = parts_of(live)
    except RuntimeError:  # a subclass that will not be opened
        parts = None
    stored = record.arguments.get(f"{key}/{KIND}")
    if parts is None or stored is None or stored.type != Type.PARTS:
        return f"{key}: recorded another kind of tensor, live {_short(live.layout)}"
    recorded = stored.value
    for fact in ("kind", "dtype", "shape"):
        if recorded.get(fact) != parts.facts[fact]:
            return f"{fact} of {key}: recorded {recorded.get(fact)}, live {parts.facts[fact]}"
    return None


def _of_list(
    key: str, live: list | tuple, record: Record, shapes: dict[str, tuple[str, tuple]]
) -> str | None:
    for i, value in enumerate(live):
        name = member(key, i)
        is_none = name in record.arguments and name not in shapes
        if value is None or is_none:
            if (value is None) != is_none:
                return f"{name}: recorded {'None' if is_none else 'a tensor'}, live the other"
            continue
        found = _of_tensor(name, value, record, shapes)
        if found is not None:
            return found
    behind = member(key, len(live))
    if behind in shapes or behind in record.arguments:
        return f"{key}: recorded more than the {len(live)} live members"
    return None


def _short(value: Any) -> str:
    text = str(value).removeprefix("torch.")
    return text if len(text) <= 60 else text[:57] + "..."
