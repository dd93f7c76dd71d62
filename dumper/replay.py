"""A record run again: from the file's datasets back to the arguments of an op, on any device.

The record alone is enough, so that one op extracted from a dump is a whole case: tensors come back
at their places in memory, sparse and quantized ones from their parts, and the generator stands
where it stood. Load mode feeds live calls through the same decoding.

What cannot repeat: what `empty` leaves is whatever lay there, `as_strided` may reach past the
tensor that it was given, and a subclass is not made from a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch

from .draws import STATE, device_of, drawing_from
from .errors import DumpError, first_line
from .index import Stub
from .layout import KIND, MEMORY_FORMATS, Type, member
from .ops import Argument, Op, op_of, overload_named
from .parts import assemble
from .reader import Record
from .stored import Argument as StoredArgument
from .stored import Tensor
from .tensors import TORCH_DTYPES, tensor_of

_STORED_VIEWS = "dump again with views='dump'"


class Replayed(NamedTuple):
    """values: the arguments after the op, in schema order, so that what it wrote is seen too."""

    op: Op
    values: list[Any]
    result: Any


def run(record: Record, device: str | torch.device = "cpu") -> Any:
    """Run a record's op on its recorded inputs and return what the op returns.

    device: where tensors, and a `device` argument, are put. An op that writes its arguments writes
    copies. An op that draws numbers draws the recorded ones; the generator stands afterwards where
    it stood before. Raises DumpError when the op is unknown to this torch, when the record lacks an
    argument or only describes it, and when its random state is none of the device's.
    """
    return replay(record, device).result


def replay(
    record: Record,
    device: str | torch.device = "cpu",
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Replayed:
    """Run a record's op as `run` does, and return its arguments too.

    around: entered for the op alone, when its arguments lie on the device.
    """
    func = overload_named(record.ir)
    if func is None:
        raise DumpError(
            f"this torch ({torch.__version__}) has no op for this IR",
            record.path,
            "use the torch that made the dump",
        )
    op, decoder = op_of(func), Decoder(record, torch.device(device))
    values = [decoder.argument(argument) for argument in op.arguments]
    with _generator(op, record, values), around():
        return Replayed(op, values, op.call(values))


def _generator(op: Op, record: Record, values: list[Any]) -> AbstractContextManager[None]:
    state = record.arguments.get(STATE)
    if state is None or state.type != Type.GENERATOR:
        return nullcontext()
    place = device_of(op, values)
    try:
        return drawing_from(place, state.value)
    except RuntimeError as error:
        raise _no_state(record, place, error) from None


def _no_state(record: Record, device: torch.device, error: Exception) -> DumpError:
    return DumpError(
        f"the recorded random state is none of device {device} ({first_line(error)})",
        record.path,
        "run it on the device it was recorded on",
    )


class Decoder:
    """The arguments of one record as an op takes them, on one device."""

    def __init__(self, record: Record, device: torch.device) -> None:
        self._record = record
        self._device = device
        self._tensors = {tensor.name: tensor for tensor in record.inputs}
        self._known = self._keys()

    def argument(self, argument: Argument) -> Any:
        """One argument. Raises DumpError where the record does not hold it."""
        key, record = argument.key, self._record
        if "Tensor" in argument.type:
            if key in self._known:
                return self._value(key)
            members = self._members(key)
            stored = record.arguments.get(key)
            is_empty = stored is not None and stored.type == Type.VEC_TENSOR
            if members or is_empty:
                return [self._value(name) for name in members]
            if stored is None and argument.type.startswith("List") and not argument.has_default:
                return []  # the original wrote nothing for one
        recorded = record.arguments.get(key)
        if recorded is None:
            if argument.has_default or argument.is_optional:
                return argument.default
            raise self._lacks(argument.name)
        if recorded.type == Type.DEVICE:
            return self._device
        if recorded.type == Type.GENERATOR:
            return self._own_generator(recorded)
        return scalar_of(recorded)

    def tensor_named(self, key: str) -> torch.Tensor | None:
        """One tensor, or member of a list. Raises DumpError where the record does not hold it."""
        if key not in self._known:
            raise self._lacks(key)
        return self._value(key)

    def _lacks(self, name: str) -> DumpError:
        return DumpError(
            f"this record lacks the argument {name}",
            self._record.path,
            "it cannot be run again; see its omissions",
        )

    def _keys(self) -> set[str]:
        """Names of the tensors and list members that the record knows of."""
        found = set(self._tensors)
        for name, stored in self._record.arguments.items():
            if stored.type == Type.PARTS:
                found.add(name.removesuffix(f"/{KIND}"))
            elif stored.type == Type.NONE and "/" in name:
                found.add(name)
        sides = (place.partition("/") for place in self._record.entry.stubs)
        return found | {name for side, _, name in sides if side == "input"}

    def _members(self, key: str) -> list[str]:
        """Names of the members of a tensor list, in order."""
        found: list[str] = []
        while (name := member(key, len(found))) in self._known:
            found.append(name)
        return found

    def _value(self, key: str) -> torch.Tensor | None:
        if key in self._tensors:
            return self.tensor(self._tensors[key])
        kind = self._record.arguments.get(f"{key}/{KIND}")
        if kind is not None and kind.type == Type.PARTS:
            return self._whole(key, kind.value)
        if key in self._record.arguments:
            return None
        return self._described(key, self._record.entry.stubs[f"input/{key}"])

    def tensor(self, stored: Tensor) -> torch.Tensor:
        """A stored tensor in memory as it lay. Raises DumpError for what no memory can be."""
        bits = stored.bits()
        try:
            return tensor_of(
                bits, stored.dtype, stored.live_stride, self._device, stored.live_offset
            )
        except (MemoryError, RuntimeError, ValueError) as error:
            raise DumpError(
                f"this tensor cannot be laid out as it was ({first_line(error)})",
                stored.path,
                "run it where there is memory enough; else the file is damaged",
            ) from None

    def _whole(self, key: str, facts: dict[str, Any]) -> torch.Tensor:
        """A tensor from its parts, which may have parts themselves."""
        parts = {}
        depth = key.count("/") + 1
        for name in self._known:
            if name.startswith(f"{key}/") and name.count("/") == depth:
                kind = self._record.arguments.get(f"{name}/{KIND}")
                part = name.rpartition("/")[2]
                if name in self._tensors:
                    parts[part] = self.tensor(self._tensors[name])
                elif kind is not None:
                    parts[part] = self._whole(name, kind.value)
        return assemble(facts, parts, f"{self._record.path}/input/{key}")

    def _described(self, key: str, stub: Stub) -> torch.Tensor:
        if stub.reason == "meta" and stub.dtype in TORCH_DTYPES:
            return torch.empty_strided(
                stub.shape, stub.stride, dtype=TORCH_DTYPES[stub.dtype], device="meta"
            )
        raise DumpError(
            f"the argument {key} is only described ({stub.reason})",
            self._record.path,
            _STORED_VIEWS if stub.reason == "view" else "dump this op again without that limit",
        )

    def _own_generator(self, recorded: StoredArgument) -> torch.Generator:
        generator = torch.Generator(self._device)
        try:
            generator.set_state(torch.frombuffer(bytearray(recorded.value), dtype=torch.uint8))
        except RuntimeError as error:
            raise _no_state(self._record, self._device, error) from None
        return generator


def scalar_of(recorded: StoredArgument) -> Any:
    """Undo `encode`: the Python or torch value of one stored argument that is no tensor."""
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
