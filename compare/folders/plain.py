"""Tensors of CANN dumps in a layout that two sides have in common.

A device keeps tensors in tiles, which pad, and another device, or another CANN, in others. So what
is tiled is brought to the plain format that it is a layout of, with the shape from before padding;
plain formats with named axes are brought to golden's. What nobody names is taken as it lies. How a
tile becomes plain is `ir2tbe.relayout`'s to say.
"""

from __future__ import annotations

import numpy as np

from dumper.dtypes import BY_NAME
from dumper.errors import DumpError
from ir2tbe.cann.content import Tensor
from ir2tbe.cann.formats import format_name
from ir2tbe.relayout import MOST_AXES, TARGETS, relayout

from ..files import LONE, FileTensor

_TILED = {
    "NC1HWC0": "NCHW",
    "FRACTAL_Z": "NCHW",
    "NDC1HWC0": "NCDHW",
    "FRACTAL_Z_3D": "NCDHW",
    "FRACTAL_NZ": "ND",
}
"""Tiled formats, and the plain one that each becomes where the other side names none."""

_ND = "ND"
_NAMED = frozenset(TARGETS) - _TILED.keys() - {_ND}
"""Plain formats that name their axes."""


def dtype_of(tensor: Tensor) -> str:
    """CANN's name of the data type; of an unknown one its code."""
    try:
        return tensor.kind.name
    except DumpError:
        return f"code {tensor.data_type}"


def both_plain(
    mine: Tensor, golden: Tensor, names: tuple[str, str]
) -> tuple[FileTensor, FileTensor, str]:
    """Two tensors in one plain format, and a note on what was assumed, '' if nothing.

    names: what to call them in messages. What one format keeps in one stored shape on both sides,
    and nobody can unpack for want of a shape, is compared as it lies. Raises DumpError for values
    that cannot be had.
    """
    target = in_common(mine, golden)
    try:
        found = [plain(tensor, target, name)
                 for tensor, name in zip((mine, golden), names, strict=True)]  # fmt: skip
    except DumpError:
        if mine.format != golden.format or mine.dims != golden.dims:
            raise
        a, b = (_tensor(_widened(tensor), name)
                for tensor, name in zip((mine, golden), names, strict=True))  # fmt: skip
        return a, b, f"compared as both lie in {format_name(mine.format)}, with what pads"
    return *found, ""


def in_common(mine: Tensor, golden: Tensor) -> str:
    """The plain format that two tensors are brought to: golden's, if that names its axes."""
    named = [_plain_name(tensor) for tensor in (golden, mine)]
    bases = [_TILED.get(format_name(tensor.format)) for tensor in (golden, mine)]
    return next((name for name in (*named, *bases) if name is not None), _ND)


def axes(tensor: Tensor, target: str | None) -> str:
    """The names of the axes that `plain` gives a tensor, as NHWC; '' where they have none."""
    form = format_name(tensor.format)
    if target in _NAMED and (form in _TILED or form in _NAMED and len(form) == len(target)):
        return target
    found = _TILED.get(form, form)
    return found if found in _NAMED else ""


def plain(tensor: Tensor, target: str | None, name: str) -> FileTensor:
    """One tensor in a plain format.

    target: the format; one that names no axes is that which the tensor's own is a layout of. What
    has no names for its axes, or another number of them, stays as it is. Raises DumpError for
    values that cannot be had or a layout that nobody knows.
    """
    values, form = _widened(tensor), format_name(tensor.format)
    original = tensor.original_shape
    wanted = target if target in _NAMED else _TILED.get(form)
    if len(original) > MOST_AXES:
        what = f"its shape before padding has {len(original)} axes"
        raise DumpError(what, tensor.where, "the file is damaged: copy it again, or dump again")
    try:
        if form in _TILED:
            groups = max(1, tensor.sub_format)
            values = relayout(values, form, wanted, groups=groups, original=original)
        elif form in _NAMED and target in _NAMED and len(form) == len(target) == values.ndim:
            values = relayout(values, form, target)
        elif form not in TARGETS and original not in ((), values.shape):
            raise ValueError(f"the layout of format {form} is not known")
    except (ValueError, OverflowError) as error:
        what = f"{form} of shape {list(tensor.shape)} cannot become plain"
        todo = f"its shape before padding is {list(original)}: dump again if that is wrong"
        raise DumpError(f"{what} ({error})", tensor.where, todo) from None
    return _tensor(values, name)


def without_ones(tensor: FileTensor, shape: tuple[int, ...]) -> tuple[FileTensor, str]:
    """A tensor in a shape that differs in axes of 1 only, which a chip adds (a 1-D convolution has
    images), and a note; the tensor itself, and none, where more differs."""
    both = (tensor.shape, shape)
    if len({tuple(n for n in each if n != 1) for each in both}) > 1:
        return tensor, ""
    note = f"{list(tensor.shape)} has axes of 1 besides those of golden's {list(shape)}"
    return _tensor(tensor.read().reshape(shape), tensor.path), note


def _plain_name(tensor: Tensor) -> str | None:
    form = format_name(tensor.format)
    return form if form in _NAMED and len(form) == len(tensor.shape) else None


def _widened(tensor: Tensor) -> np.ndarray:
    """The values in a dtype that is compared; exactly."""
    values = tensor.values()
    return values if values.dtype.name in BY_NAME else values.astype(tensor.kind.plain)


def _tensor(values: np.ndarray, name: str) -> FileTensor:
    return FileTensor(LONE, values.dtype.name, values.shape, name, lambda: values)
