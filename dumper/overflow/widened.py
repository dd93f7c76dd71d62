"""A cut's arguments in float64 on the CPU, and what they hold.

All floats become float64 and so do the dtypes that are asked for, or a cast would overflow here as
it did there. What the op writes is a copy.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..layout import member
from ..ops import Argument
from .cuts import Cut, Place, base_of
from .events import Operand

SHOWN = 8
"""Values of one input that are kept."""

_OVERWRITTEN = ("copy", "fill", "zero")
"""Ops that take only shape and dtype from `self`."""

_OFF = ("half_to_float", "pin_memory", "non_blocking")
"""Arguments that ask for what only another device or dtype has."""

_OWN_EPS = ("rms_norm", "_fused_rms_norm")
"""Ops whose `eps`, where it is not given, is that of the dtype they compute in."""


def read_by(cut: Cut) -> list[Any]:
    """A cut's values without those that only take the result."""
    pairs = zip(cut.op.arguments, cut.values, strict=True)
    return [value for argument, value in pairs if not _is_out(argument)]


def widened(cut: Cut, ints: bool) -> list[Any]:
    """A cut's values in schema order, in float64 on the CPU.

    ints: whether integers are numbers like others (of elementwise ops), not places and sizes.
    Raises RuntimeError for a dtype that has no conversion.
    """
    if base_of(cut.op) in _OWN_EPS and cut["eps"] is None:
        if cut["input"].dtype is not torch.float64:
            cut["eps"] = torch.finfo(torch.float32).eps
    pairs = zip(cut.op.arguments, cut.values, strict=True)
    return [_wide(argument, value, ints) for argument, value in pairs]


def operands_of(cut: Cut, values: list[Any]) -> dict[str, Operand]:
    """What the tensors among `widened` values hold, by argument name."""
    skipped = "self" if base_of(cut.op) in _OVERWRITTEN else ""
    found = {}
    for i, (argument, value) in enumerate(zip(cut.op.arguments, values, strict=True)):
        if argument.name == skipped or _is_out(argument):
            continue
        if isinstance(value, torch.Tensor):
            named = [(argument.key, (i, None), value)]
        elif isinstance(value, list):
            named = [
                (cut.labels.get((i, n), member(argument.key, n)), (i, n), one)
                for n, one in enumerate(value)
            ]
        else:
            continue
        for name, at, tensor in named:
            if isinstance(tensor, torch.Tensor) and tensor.numel() and not tensor.is_complex():
                found[name] = _operand(tensor, cut.places.get(at))
    return found


def _is_out(argument: Argument) -> bool:
    return argument.written and argument.kwarg_only


def _wide(argument: Argument, value: Any, ints: bool) -> Any:
    if isinstance(value, torch.Tensor):
        if _is_out(argument):  # the op gives it its shape
            return torch.empty(0, dtype=_wide_dtype(value.dtype, ints), device="cpu")
        return _wide_tensor(value, argument.written, ints)
    if isinstance(value, (list, tuple)):
        return [_wide(argument, one, ints) for one in value]
    if isinstance(value, torch.dtype):
        return _wide_dtype(value, ints)
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return False if argument.name in _OFF and value is not None else value


def _wide_tensor(tensor: torch.Tensor, written: bool, ints: bool) -> torch.Tensor:
    if tensor._is_zerotensor():  # autograd's undefined zeros: no memory behind them
        dtype = _wide_dtype(tensor.dtype, ints)
        return torch.zeros(tensor.shape, dtype=dtype, device="cpu")
    plain = tensor.detach()
    if not plain.is_cpu:
        plain = plain.cpu()
    if plain.is_floating_point() and plain.element_size() == 1:
        plain = plain.float()  # the way that every such dtype has
    plain = plain.resolve_conj().resolve_neg()
    wide = plain.to(_wide_dtype(plain.dtype, ints)).contiguous()
    if written and wide.data_ptr() == tensor.data_ptr():
        return wide.clone()
    return wide


def _wide_dtype(dtype: torch.dtype, ints: bool) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    if dtype.is_floating_point or (ints and dtype is not torch.bool):
        return torch.float64
    return dtype


def _operand(tensor: torch.Tensor, place: Place | None) -> Operand:
    numbers = tensor.reshape(-1).to(torch.float64)
    shown = numbers
    if len(numbers) > SHOWN:
        shown = numbers[numbers.abs().topk(SHOWN).indices]  # NaN counts as the largest
    told = numbers[~numbers.isnan()]
    low, high = (float(end) for end in told.aminmax()) if len(told) else (math.nan, math.nan)
    place = (None,) * tensor.dim() if place is None else place
    return Operand(place, tuple(shown.tolist()), len(numbers), low, high)
