"""A tensor as it stands in a CANN dump file: its bits, in the storage format the chip has it in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from dumper.dtypes import as_values
from dumper.tensors import Unstorable, bits_of, row_of
from npu_core import formats

from ..cann.content import Origin, Tensor, tensor_of
from ..cann.types import BY_NAME, DataType
from ..sequences.steps import Port

_RENAMED = {"float8_e8m0fnu": "float8_e8m0"}
"""Where CANN calls a dtype otherwise than torch does."""


def kind_of(tensor: torch.Tensor) -> DataType:
    """CANN's data type of a tensor. Raises Unstorable for one that CANN has not."""
    name = row_of(tensor).name
    found = BY_NAME.get(_RENAMED.get(name, name))
    if found is None:
        raise Unstorable(f"CANN has no data type for {name}")
    return found


def values_of(tensor: torch.Tensor) -> np.ndarray:
    """The numbers of a tensor on any device, as `ir2tbe.cann.types` takes them. Raises
    Unstorable."""
    return as_values(bits_of(tensor), row_of(tensor).name)


def encoded(port: Port, origin: Origin | None = None) -> Tensor:
    """An input or output of a TBE operator as a tensor to be written.

    Raises Unstorable for what has no dense values or a dtype that CANN has not.
    """
    kind, values = kind_of(port.value), values_of(port.value)
    stored = formats.to_storage(values, port.format, port.groups)
    shape = tuple(values.shape)
    tensor = tensor_of(stored, kind, port.format.name, shape, origin)
    return tensor if port.groups == 1 else replace(tensor, sub_format=port.groups)
