"""What one element of a recorded result is in float64, and what its op was given for it.

The formulas are those by which results are judged; each operand is cut down to what the element
needs, so that a row and a column stand for a product. No torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from dumper.errors import DumpError
from dumper.overflow.events import Operand
from dumper.reader import Record
from dumper.stored import Argument, Tensor

from ..judging import Class, OpClass, class_of
from ..judging.bounds import Call, has_formula, predict
from ..judging.judge import UNFIT

LARGEST = 1 << 24
"""Elements of an op's inputs together up to which they are read for one element."""

_SHOWN = 8
"""Values of an operand that an event holds."""

_ELEMENTWISE = ("_to_copy", "clone", "copy", "where", "masked_fill", "clamp", "relu")
"""Ops besides the pointwise whose elements depend on the elements at their place."""

_NOT_ELEMENTWISE = ("nll_loss_backward", "nll_loss2d_backward", "mse_loss_backward")

_ALONG = ("_softmax", "_log_softmax", "_safe_softmax", "softmax", "log_softmax")
"""Ops whose elements depend on the row along `dim`."""

Index = tuple[int, ...]
Pick = tuple[int | None, ...]
"""Part of a tensor: a place on each axis, None for all of it."""


class Exact(NamedTuple):
    """value: the element in float64; None where no formula tells. inputs: by argument."""

    value: float | None = None
    inputs: Mapping[str, Operand] = {}


def exact(record: Record, output: Tensor, index: Index) -> Exact:
    """One element of a result by the op's formula, from the inputs in the file.

    index: of the element. Never raises for what is in the file: what cannot be read or computed is
    left out.
    """
    op = class_of(record.ir)
    tensors = [each for each in record.inputs if _matters(each.name, output.name)]
    if sum(each.size for each in tensors) > LARGEST:
        return Exact()
    try:
        arrays = {each.name: each.read() for each in tensors}
        values = {name: _value(each) for name, each in record.arguments.items()}
    except (DumpError, MemoryError):
        return Exact()
    need = _need(op, arrays, values, output.shape, index)
    parts = {name: _part(arrays[name], pick) for name, pick in need.picks.items()}
    inputs = {
        name: operand
        for name, part in parts.items()
        if (operand := _operand(part, need.picks[name])) is not None
    }
    if op.kind is Class.POINTWISE:
        inputs |= {name: _number(value) for name, value in values.items() if _is_number(value)}
    if not has_formula(op) or _is_cut(record):
        return Exact(None, inputs)
    names = {each.name: each.dtype for each in tensors}
    try:
        with np.errstate(all="ignore"):
            call = Call(parts, names, values)
            found = np.asarray(predict(op, output.name, call, output.size).v)
            value = found.reshape(need.shape)[need.at]  # ValueError where it is another result
            return Exact(None if np.iscomplexobj(value) else float(value), inputs)
    except (*UNFIT, MemoryError):
        return Exact(None, inputs)


def _matters(name: str, output: str) -> bool:
    """Whether an input is part of what one output depends on: of lists, only the same member."""
    given, made = name.rpartition("/")[2], output.rpartition("/")[2]
    if "/" not in name or "/" not in output:
        return True
    return given.rpartition("_")[2] == made.rpartition("_")[2]


def _is_cut(record: Record) -> bool:
    """Whether an input is not in the file."""
    return any(key.startswith("input/") for key in record.entry.stubs)


class _Need(NamedTuple):
    """What an element needs. picks: of each input. shape: of what comes of these. at: where in it
    the element is."""

    picks: Mapping[str, Pick]
    shape: tuple[int, ...]
    at: Index


def _need(
    op: OpClass,
    arrays: Mapping[str, np.ndarray],
    values: Mapping[str, object],
    shape: tuple[int, ...],
    index: Index,
) -> _Need:
    first, one = (0,) * len(index), (1,) * len(index)
    if _is_elementwise(op):
        if all(_broadcasts(array.shape, shape) for array in arrays.values()):
            picks = {name: _aligned(array.shape, index) for name, array in arrays.items()}
            return _Need(picks, one, first)
    elif op.base in _PRODUCTS and len(index) == _AXES[op.base]:
        picks = _row_and_column(_PRODUCTS[op.base](index), arrays, shape, index)
        if picks is not None:
            return _Need(picks, one, first)
    elif op.base in _ALONG and isinstance(dim := values.get("dim"), int) and shape:
        if -len(shape) <= dim < len(shape) and all(a.shape == shape for a in arrays.values()):
            axis = dim % len(shape)
            row = tuple(None if i == axis else place for i, place in enumerate(index))
            at = tuple(place if i == axis else 0 for i, place in enumerate(index))
            length = tuple(size if i == axis else 1 for i, size in enumerate(shape))
            return _Need(dict.fromkeys(arrays, row), length, at)
    whole = {name: (None,) * array.ndim for name, array in arrays.items()}
    return _Need(whole, shape, index)


def _row_and_column(
    rule: Mapping[str, Pick],
    arrays: Mapping[str, np.ndarray],
    shape: tuple[int, ...],
    index: Index,
) -> dict[str, Pick] | None:
    """What a product's element needs; None where the operands are not those of a product."""
    found = {}
    for name, array in arrays.items():
        pick = rule.get(name)
        if pick is None and _broadcasts(array.shape, shape):
            pick = _aligned(array.shape, index)
        if pick is None or len(pick) != array.ndim:
            return None
        places = zip(pick, array.shape, strict=True)
        if any(place is not None and place >= size for place, size in places):
            return None
        found[name] = pick
    return found


def _is_elementwise(op: OpClass) -> bool:
    if op.base in _NOT_ELEMENTWISE:
        return False
    return op.kind is Class.POINTWISE or op.base in _ELEMENTWISE


_Rule = Callable[[Index], dict[str, Pick]]

_PRODUCTS: dict[str, _Rule] = {
    "mm": lambda at: {"self": (at[0], None), "mat2": (None, at[1])},
    "addmm": lambda at: {"mat1": (at[0], None), "mat2": (None, at[1])},
    "_addmm_activation": lambda at: {"mat1": (at[0], None), "mat2": (None, at[1])},
    "bmm": lambda at: {"self": (at[0], at[1], None), "mat2": (at[0], None, at[2])},
    "baddbmm": lambda at: {"batch1": (at[0], at[1], None), "batch2": (at[0], None, at[2])},
    "mv": lambda at: {"self": (at[0], None), "vec": (None,)},
    "addmv": lambda at: {"mat": (at[0], None), "vec": (None,)},
}
"""Row and column of a product's element; what is not named is added to it, broadcast."""

_AXES = {"mm": 2, "addmm": 2, "_addmm_activation": 2, "bmm": 3, "baddbmm": 3, "mv": 1, "addmv": 1}


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False)
    )


def _aligned(shape: tuple[int, ...], index: Index) -> Pick:
    """Where an operand that is broadcast is read for an element."""
    places = index[len(index) - len(shape) :] if shape else ()
    return tuple(0 if size == 1 else place for size, place in zip(shape, places, strict=True))


def _part(array: np.ndarray, pick: Pick) -> np.ndarray:
    """The part with all of its axes, so that formulas find them."""
    return array[tuple(slice(None) if p is None else slice(p, p + 1) for p in pick)]


def _operand(part: np.ndarray, pick: Pick) -> Operand | None:
    if part.dtype.kind == "c" or not part.size:
        return None
    flat = part.reshape(-1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        weight = np.nan_to_num(np.abs(flat), nan=np.inf)
        order = np.argsort(-weight, kind="stable")[:_SHOWN]
        low, high = float(flat.min()), float(flat.max())
    return Operand(pick, tuple(flat[order].tolist()), flat.size, low, high)


def _number(value: float) -> Operand:
    number = float(value)
    return Operand((), (number,), 1, number, number)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**53)


def _value(argument: Argument) -> object:
    try:
        return argument.value
    except DumpError:
        return None
