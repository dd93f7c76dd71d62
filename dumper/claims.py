"""What a dataset says it is, which is not yet checked against the file.

A dataset has two types, the one HDF5 stores and the one its attributes name. They differ by design
(bool is int8, the original fork's half is float32, its uint8 is signed), and by damage or malice.
The named one is believed where the stored one can hold it; otherwise the stored one is what the
tensor is.

Most datasets of a dump say the same as many others, so what they say is one object for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from . import dtypes, layout
from .facts import Facts

_BY_DESIGN = {("float16", "float32"), ("uint8", "int8"), ("bool", "uint8"), ("bool", "bool")}
"""(named, stored) that differ by design; the original widens half and stores bytes signed."""

NOTHING: Mapping = MappingProxyType({})
"""An empty mapping, one for all."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What tensors and arguments say alike.

    stored: numpy's dtype of the elements as they are read, None for a type that no dump has. held:
    bytes of the file that the header gives them, where they lie there in one piece and as in
    memory; else None. size: number of elements.
    """

    shape: tuple[int, ...]
    stored: np.dtype | None
    held: int | None
    size: int


@dataclass(frozen=True, slots=True)
class TensorClaims(Claims):
    """Of a tensor; `Tensor` says what is what."""

    nbytes: int
    needs_order: bool
    dtype: str
    data_type: int | None
    device_type: int | None
    format_type: int | None
    stride: tuple[int, ...] | None
    live_stride: tuple[int, ...] | None
    live_offset: int
    uninitialised: bool


@dataclass(frozen=True, slots=True)
class ArgumentClaims(Claims):
    """Of what is no tensor. dtype: the name beside a dtype's code."""

    type: layout.Type | int
    attributes: Mapping[str, int]
    dtype: str | None


EMPTY_LIST = ArgumentClaims((0,), None, None, 0, layout.Type.VEC_TENSOR, NOTHING, None)
"""Of a tensor list without members, which is an empty group."""


def claims_of(facts: Facts) -> TensorClaims | ArgumentClaims | str:
    """What a dataset of these facts says it is; or why it is nothing that a dump has."""
    numbers, strides = facts.numbers, facts.strides
    code = numbers.get(b"Type")
    if facts.shape is None:
        return "a dataset without a dataspace, which holds nothing"
    if b"Type" in facts.odd:
        return f"the attribute Type {facts.odd[b'Type']}"
    if code is None:
        return "no attribute Type"
    held = facts.data[1] if facts.data else None
    common = (facts.shape, facts.stored, held, math.prod(facts.shape))
    if code != layout.Type.TENSOR:
        kind = layout.Type(code) if code in layout.Type._value2member_map_ else code
        attributes = {key.decode(): number for key, number in numbers.items() if key != b"Type"}
        return ArgumentClaims(*common, kind, attributes, facts.torch_dtype)
    data_type, device_type = numbers.get(b"DataType"), numbers.get(b"DeviceType")
    dtype = _dtype(facts.torch_dtype, data_type, facts.stored_name, facts.stored)
    stride = strides.get(b"Stride")
    return TensorClaims(
        *common,
        math.prod(facts.shape) * _itemsize(dtype, facts.stored),
        device_type in (0, 1) and stride is not None and _is_permuted(facts.shape, stride),
        dtype,
        data_type,
        device_type,
        numbers.get(b"FormatType"),
        stride,
        strides.get(b"LiveStride"),
        (strides.get(b"LiveOffset") or (0,))[0],
        bool(numbers.get(b"Uninitialised")),
    )


def _dtype(
    named: str | None, code: int | None, stored_name: str | None, stored: np.dtype | None
) -> str:
    """The dtype that the attributes name, if the stored type can hold it, else the stored
    type's."""
    own, old = dtypes.BY_NAME.get(named or ""), dtypes.BY_CODE.get(code)
    if own and stored == own.bits:
        return own.name
    if old and stored is not None and stored_name != "bfloat16":
        if stored == old.bits or (old.name, stored_name) in _BY_DESIGN:
            return old.name
    return stored_name or "unknown"


def _itemsize(dtype: str, stored: np.dtype | None) -> int:
    kind = dtypes.BY_NAME.get(dtype)
    if kind is not None:
        return kind.bits.itemsize
    return 0 if stored is None else stored.itemsize


def _is_permuted(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether strides visit every element once, in another order than C's."""
    if len(shape) != len(stride) or 0 in shape:
        return False
    axes = [(step, size) for step, size in zip(stride, shape, strict=True) if size > 1]
    axes.reverse()
    ordered, expected = sorted(axes), 1
    for step, size in ordered:
        if step != expected:
            return False
        expected *= size
    return ordered != axes
