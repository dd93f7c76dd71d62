"""One op call as entries of the file: every argument and result, tensors and all the rest.

The values come in schema order (`ops.Op.bind`); `encode` walks them into datasets. What the
original wrote keeps the original's `Type`; what it dropped (strings, devices, lists of bool or
float, generators) has a `Type` of ours, since a record must hold everything to run the op again. An
absent optional writes nothing, except where None differs from leaving the argument out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from .dtypes import BY_NAME
from .layout import MEMORY_FORMATS, SIDES, Type
from .ops import Argument, Op
from .tensors import TORCH_DTYPES, Unstorable, attributes_of, bits_of, row_of
from .values import StoredValues
from .writer import Writer

_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}
_NONE = np.zeros((), np.int8)


class Recorder:
    """Writes records into one file; holds what links one record to earlier ones."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._values = StoredValues()
        self.omitted = 0
        self.first_omitted: str | None = None

    def inputs(self, record: str, op: Op, values: list[Any]) -> None:
        """Store a call's arguments as they are before the op runs. record: `/<IR>/<seqid>`."""
        base = f"{record}/{SIDES[0]}"
        wrote = False
        for argument, value in zip(op.arguments, values, strict=True):
            wrote |= self._argument(f"{base}/{argument.key}", argument.key, argument, value)
        if not wrote:
            self._writer.group(base)  # its absence would mean a load-mode record

    def outputs(self, record: str, op: Op, values: list[Any], result: Any) -> None:
        """Store a call's results, and the arguments it changed without returning them."""
        base = f"{record}/{SIDES[1]}"
        for i in op.written:
            for tensor in tensors_in(values[i]):
                self._values.written(tensor)
        results = (result,) if len(op.returns) == 1 else tuple(result or ())
        for key, value in zip(op.returns, results, strict=True):
            self._argument(f"{base}/{key}", key, None, value)
        for i in op.silent_outputs:
            key = op.arguments[i].key
            self._argument(f"{base}/{key}", key, None, values[i])

    def _argument(self, path: str, key: str, argument: Argument | None, value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            self._tensor(path, value)
        elif value is None:
            if argument is None or not argument.has_default or argument.default is None:
                return False
            self._writer.argument(path, Type.NONE, _NONE)
        elif isinstance(value, (list, tuple)) and _holds_tensors(value, argument):
            self._list(path, key, value)
        else:
            encoded = encode(argument, value)
            if encoded is None:
                self.omit(path, f"a value of type {type(value).__name__} is not stored")
                return False
            self._writer.argument(path, *encoded)
        return True

    def _list(self, path: str, key: str, values: list[torch.Tensor | None]) -> None:
        if not values:
            self._writer.group(path)
        for i, value in enumerate(values):
            if value is None:
                self._writer.argument(f"{path}/{key}_{i}", Type.NONE, _NONE)
            else:
                self._tensor(f"{path}/{key}_{i}", value)

    def _tensor(self, path: str, tensor: torch.Tensor) -> None:
        try:
            row = row_of(tensor)
            attributes = attributes_of(tensor)
            earlier = self._values.find(tensor, attributes.format_type)
            if earlier is not None:
                self._writer.same(path, earlier)
                return
            bits = bits_of(tensor)
        except Unstorable as reason:
            self.omit(path, str(reason), shape=list(tensor.shape), dtype=str(tensor.dtype))
            return
        self._writer.tensor(path, bits, row, attributes)
        self._values.stored(tensor, attributes.format_type, path)

    def omit(self, path: str, reason: str, **facts: Any) -> None:
        """List a value, or a whole record, that is not in the file."""
        self.first_omitted = self.first_omitted or f"{path}: {reason}"
        self.omitted += 1
        self._writer.line("omitted", {"path": path, "reason": reason, **facts})


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of one argument or result: itself, or the members of a list."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        yield from (member for member in value if isinstance(member, torch.Tensor))


def _holds_tensors(value: list | tuple, argument: Argument | None) -> bool:
    if argument is not None:
        return "Tensor" in argument.type
    return any(isinstance(member, torch.Tensor) for member in value)


def encode(argument: Argument | None, value: Any) -> tuple[Type, np.ndarray, str | None] | None:
    """Turn a non-tensor value into (Type, array, dtype name); None when there is no way to store
    it.

    argument: where it was declared; None for a result.
    """
    scalar = argument is None or argument.is_scalar
    optional = argument is not None and argument.is_optional
    number = Type.OPT_SCALAR if optional else Type.SCALAR
    if isinstance(value, torch.SymInt):
        value = int(value)
    elif isinstance(value, torch.SymBool | torch.SymFloat):
        value = float(value)
    if isinstance(value, bool):
        return number if scalar else Type.BOOL, np.array(value, np.int8), None
    if isinstance(value, int):
        plain = Type.OPT_INT64 if optional else Type.I64
        return number if scalar else plain, _int64(value), None
    if isinstance(value, float):
        plain = Type.OPT_DOUBLE if optional else Type.DOUBLE
        return number if scalar else plain, np.array(value, "<f8"), None
    if isinstance(value, complex):
        return number, np.array((value.real, value.imag), [("r", "<f8"), ("i", "<f8")]), None
    if isinstance(value, str):
        return Type.STRING, _bytes(value.encode()), None
    if isinstance(value, torch.dtype):
        name = _NAMES.get(value)
        return None if name is None else _dtype_entry(name)
    if isinstance(value, torch.device):
        return Type.DEVICE, _bytes(str(value).encode()), None
    if isinstance(value, torch.layout):
        return Type.LAYOUT, _bytes(str(value).removeprefix("torch.").encode()), None
    if isinstance(value, torch.memory_format):
        number = MEMORY_FORMATS.index(str(value).removeprefix("torch."))
        return Type.OPT_MEM_FMT, np.array(number, np.int32), None
    if isinstance(value, torch.Generator):
        return Type.GENERATOR, value.get_state().cpu().numpy(), None
    if isinstance(value, (list, tuple)):
        return _list_entry(value, argument)
    return None


def _list_entry(
    values: list | tuple, argument: Argument | None
) -> tuple[Type, np.ndarray, None] | None:
    kinds = {type(value) for value in values}
    if argument is not None and "number" in argument.type:
        return (
            Type.VEC_SCALAR,
            _bytes(json.dumps([_json_number(value) for value in values]).encode()),
            None,
        )
    if kinds <= {bool} and (kinds or (argument is not None and "bool" in argument.type)):
        return Type.VEC_BOOL, np.array(values, np.int8), None
    if kinds == {float} or (not kinds and argument is not None and "float" in argument.type):
        return Type.VEC_DOUBLE, np.array(values, "<f8"), None
    if kinds <= {int, torch.SymInt}:
        return Type.VEC_I64, np.array([int(value) for value in values], "<i8"), None
    if kinds <= {int, float}:
        return Type.VEC_DOUBLE, np.array(values, "<f8"), None
    return None


def _dtype_entry(name: str) -> tuple[Type, np.ndarray, str | None]:
    row = BY_NAME[name]
    return Type.SCALAR_TYPE, np.array(row.code, np.int32), name if row.named else None


def _int64(value: int) -> np.ndarray:
    # Scalars of uint64 tensors exceed int64; they keep their value as unsigned.
    return np.array(value, "<i8" if -(2**63) <= value < 2**63 else "<u8")


def _json_number(value: bool | int | float | complex) -> Any:
    return {"complex": [value.real, value.imag]} if isinstance(value, complex) else value


def _bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)
