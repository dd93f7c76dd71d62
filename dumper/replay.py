"""A record run again: from the file's datasets back to the arguments of an op, on any device.

The record alone is enough, so that one op extracted from a dump is a whole case. Load mode feeds
live calls through the same decoding.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from .errors import DumpError
from .layout import MEMORY_FORMATS, Type
from .ops import Argument, op_of, overload_named
from .reader import Record
from .stored import Tensor
from .tensors import own_memory, tensor_of


def run(record: Record, device: str | torch.device = "cpu") -> Any:
    """Run a record's op on its recorded inputs and return what the op returns.

    device: where tensors, and a `device` argument, are put. An op that writes its arguments writes
    copies. Raises DumpError when the op is unknown to this torch or the record lacks an argument.
    """
    func = overload_named(record.ir)
    if func is None:
        raise DumpError(
            f"this torch ({torch.__version__}) has no op for this IR",
            record.path,
            "use the torch that made the dump",
        )
    op = op_of(func)
    inputs, place = {tensor.name: tensor for tensor in record.inputs}, torch.device(device)
    return op.call([argument_of(argument, record, inputs, place) for argument in op.arguments])


def members(argument: Argument, record: Record, inputs: dict[str, Tensor]) -> list[Tensor | None]:
    """The members of a recorded tensor list in order; None for a member that was None."""
    found: list[Tensor | None] = []
    while True:
        key = f"{argument.key}/{argument.key}_{len(found)}"
        if key in inputs:
            found.append(inputs[key])
        elif key in record.arguments:
            found.append(None)
        else:
            return found


def scalar_of(recorded: Any) -> Any:
    """Undo `record.encode`: the Python or torch value of one stored argument that is no tensor."""
    if recorded.type == Type.VEC_SCALAR:
        numbers = json.loads(recorded.raw().tobytes())
        return [complex(*v["complex"]) if isinstance(v, dict) else v for v in numbers]
    value = recorded.value
    if recorded.type == Type.SCALAR_TYPE:
        return getattr(torch, value)
    if recorded.type == Type.DEVICE:
        return torch.device(value)
    if recorded.type == Type.LAYOUT:
        return getattr(torch, value)
    if recorded.type == Type.OPT_MEM_FMT:
        return getattr(torch, MEMORY_FORMATS[value])
    return value


def argument_of(
    argument: Argument, record: Record, inputs: dict[str, Tensor], device: torch.device
) -> Any:
    """One recorded argument. inputs: the record's input tensors by name. Raises DumpError."""
    if "Tensor" in argument.type:
        if argument.key in inputs:
            return _tensor(argument, inputs[argument.key], device)
        if argument.type.startswith(("List", "Optional[List")):
            stored = members(argument, record, inputs)
            if stored or not argument.type.startswith("Optional"):
                return [None if t is None else _tensor(argument, t, device) for t in stored]
    recorded = record.arguments.get(argument.key)
    if recorded is None:
        if argument.has_default or argument.is_optional:
            return argument.default
        raise DumpError(
            f"this record lacks the argument {argument.name}",
            record.path,
            "it cannot be run again; see its omissions",
        )
    if recorded.type == Type.DEVICE:
        return device
    if recorded.type == Type.GENERATOR:
        generator = torch.Generator(device)
        state = torch.frombuffer(bytearray(recorded.value), dtype=torch.uint8)
        generator.set_state(state)
        return generator
    return scalar_of(recorded)


def _tensor(argument: Argument, stored: Tensor, device: torch.device) -> torch.Tensor:
    tensor = tensor_of(stored.bits(), stored.dtype, stored.live_stride, device)
    return own_memory(tensor) if argument.written else tensor
