"""Arguments that are no tensors, as arrays with a `Type`.

What the original wrote keeps the original's `Type`; what it dropped (strings, devices, lists of
bool or float, generators) has a `Type` of ours, since a record must hold everything to run the op
again. An absent optional writes nothing, except where None differs from leaving the argument out.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from .dtypes import BY_NAME
from .layout import MEMORY_FORMATS, Type
from .ops import Argument
from .tensors import TORCH_DTYPES, dtype_name

_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


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
        return _dtype_entry(value)
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
    if isinstance(value, torch.ScriptObject):
        return Type.OBJECT, _bytes(_of_torch(value).encode()), None
    return None


def _list_entry(
    values: list | tuple, argument: Argument | None
) -> tuple[Type, np.ndarray, None] | None:
    kinds = {type(value) for value in values}
    if argument is not None and "number" in argument.type:
        return Type.VEC_SCALAR, json_bytes([_json_number(value) for value in values]), None
    if kinds <= {bool} and (kinds or (argument is not None and "bool" in argument.type)):
        return Type.VEC_BOOL, np.array(values, np.int8), None
    if kinds == {float} or (not kinds and argument is not None and "float" in argument.type):
        return Type.VEC_DOUBLE, np.array(values, "<f8"), None
    if kinds <= {int, torch.SymInt}:
        return Type.VEC_I64, np.array([int(value) for value in values], "<i8"), None
    if kinds <= {int, float}:
        return Type.VEC_DOUBLE, np.array(values, "<f8"), None
    return None


def _dtype_entry(dtype: torch.dtype) -> tuple[Type, np.ndarray, str | None]:
    row = BY_NAME.get(_NAMES.get(dtype, ""))
    if row is None:  # of a quantized tensor, or newer than the table: known by its name
        return Type.SCALAR_TYPE, np.array(-1, np.int32), dtype_name(dtype)
    return Type.SCALAR_TYPE, np.array(row.code, np.int32), row.name if row.named else None


def _of_torch(value: torch.ScriptObject) -> str:
    """What a torch object is called: of a process group its name and ranks."""
    kind = str(value._type()).removeprefix("__torch__.torch.classes.")
    if kind != "c10d.ProcessGroup":
        return kind
    group = torch.distributed.ProcessGroup.unbox(value)
    ranks = torch.distributed.get_process_group_ranks(group)
    return f"group {group.group_name}, ranks {','.join(map(str, ranks))}"


def _int64(value: int) -> np.ndarray:
    # Scalars of uint64 tensors exceed int64; they keep their value as unsigned.
    return np.array(value, "<i8" if -(2**63) <= value < 2**63 else "<u8")


def _json_number(value: bool | int | float | complex) -> Any:
    return {"complex": [value.real, value.imag]} if isinstance(value, complex) else value


def json_bytes(value: Any) -> np.ndarray:
    """A JSON value as the bytes of its text."""
    return _bytes(json.dumps(value).encode())


def _bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)
