"""Copies: what the chip runs to move a tensor hangs on how that lies in memory.

A strided tensor is the input as it is: what lies between its elements is read by nobody, and may
never have been written.
"""

from __future__ import annotations

import torch
from torch import Tensor

from npu_core import storage
from npu_core.formats import Format, base_of

from .registry import builds
from .steps import Call, cast_to


@builds("clone")
def clone(call: Call) -> bool:
    """Nothing for a contiguous tensor ("memcpy, no TBE op"); else by the kind of view."""
    x = call["self"]
    if x.is_contiguous():
        return True
    dense = x.contiguous()
    order = sorted(range(x.dim()), key=lambda d: (-x.stride(d), d))
    expanded = x[tuple(slice(1) if s == 0 else slice(None) for s in x.stride())]
    permuted = x.permute(order)
    if permuted.is_contiguous():  # "transposed view"
        places = [order.index(d) for d in range(x.dim())]
        call.compute("Transpose", [permuted, call.sizes(places)], dense, 0)
    elif expanded.shape != x.shape and expanded.is_contiguous():  # "expanded view"
        call.compute("BroadcastTo", [expanded, call.sizes(x.shape)], dense, 0)
    elif expanded.shape == x.shape and order == list(range(x.dim())):  # "strided slice view"
        call.compute("StridedSlice", [x], dense, 0, attributes=_strides(x))
    else:
        call.compute("AsStrided", [x], dense, 0, attributes=_strides(x))
    return True


def _strides(x: Tensor) -> dict[str, object]:
    return {"size": list(x.shape), "stride": list(x.stride()), "offset": x.storage_offset()}


@builds("copy_")
def copy(call: Call) -> bool:
    """The source made contiguous, cast and written into a view, whichever of these is needed."""
    target, source = call["self"], call["src"]
    if target.device != source.device:  # "host<->device"
        return True
    value = source.expand(target.shape)
    strided, cast = not value.is_contiguous(), source.dtype is not target.dtype
    write = not target.is_contiguous()
    if strided and (cast or not write):  # "strided source"
        end = None if cast or write else 0
        dense = value.contiguous()
        value = call.compute("AsStrided", [value], dense, end, attributes=_strides(value))
    value = call.cast(value, target.dtype, None if write else 0)  # "dtype differs"
    if write:
        copied = value.clone(memory_format=torch.contiguous_format)
        call.compute("ViewCopy", [target, value], copied, 0, attributes=_strides(target))
    elif not strided and not cast and _formats_differ(call.result(), source):  # "format differs"
        call.compute("Identity", [source], source.clone(), 0)
    return True


@builds("_to_copy")
def to_copy(call: Call) -> bool:
    """Cast where there is "dtype change on the device"; nothing "when dtype is unchanged"."""
    x, result = call["self"], call.result()
    if x.device == result.device and x.dtype is not result.dtype:
        call.whole("Cast", [x], cast_to(result.dtype))
    return True


@builds("npu::npu_format_cast", "npu::npu_format_cast_")
def format_cast(call: Call) -> bool:
    """Identity, "executed (and seen in ACL dumps / profiling) as TransData", where memory moves.

    Of a cast in place only the format after it is known: the one before is taken for plain, and one
    back to a plain format runs nothing.
    """
    x, result = call["self"], call.result()
    before, after = (Format(storage.get_format(t)) for t in (x, result))
    if base_of(after) is not after if call.op.written else result.data_ptr() != x.data_ptr():
        call.hold(x, before)
        call.hold(result, after)
        call.whole("TransData", [x])
    return True


def _formats_differ(a: Tensor, b: Tensor) -> bool:
    return a.device.type == "npu" and storage.get_format(a) != storage.get_format(b)


@builds("constant_pad_nd")
def pad(call: Call) -> bool:
    """The number as a tensor, what is to be added, and what is to be cut off."""
    x, pads, number = call["self"], list(call["pad"]), call["value"]
    if isinstance(number, complex):  # the chip's pads are of real numbers
        return False
    pairs = [(0, 0)] * (x.dim() - len(pads) // 2) + list(zip(pads[-2::-2], pads[::-2], strict=True))
    more = [max(n, 0) for pair in reversed(pairs) for n in pair]
    if not x.numel():  # "empty tensor"
        call.whole("Fill", [call.sizes(call.result().shape), number], dtype=x.dtype)
        return True
    cuts, adds = any(n < 0 for n in pads), any(n > 0 for n in pads) or all(n == 0 for n in pads)
    value = x
    if adds:
        filled = call.tensor(number, [x]).reshape(1)
        call.compute("Fill", [call.sizes([1]), number], filled, dtype=filled.dtype)
        value = torch.nn.functional.pad(x, more, value=number)
        paddings = call.sizes([max(n, 0) for pair in pairs for n in pair], torch.int32)
        ended = None if cuts else 0
        call.compute("PadV3", [x, paddings, filled], value, ended, attributes={"mode": "constant"})
    axes = [axis for axis, pair in enumerate(pairs) if min(pair) < 0]
    for axis in axes:  # one operator for each axis that is cut
        begin, end = [0] * x.dim(), list(value.shape)
        begin[axis], end[axis] = max(-pairs[axis][0], 0), end[axis] + min(pairs[axis][1], 0)
        cut = value.narrow(axis, begin[axis], end[axis] - begin[axis]).contiguous()
        numbers = [call.sizes(each) for each in (begin, end, [1] * x.dim())]
        last = 0 if axis == axes[-1] else None
        value = call.compute("StridedSlice", [value, *numbers], cut, last)
    return True


@builds("fill_", "fill", "full", "scalar_tensor", "new_full", "full_like")
def fill(call: Call) -> bool:
    """One operator of a shape and a number."""
    names = ("value", "fill_value", "s")
    number = next(call[name] for name in names if name in call.given)
    call.whole("Fill", [call.sizes(call.result().shape), number], dtype=call.result().dtype)
    return True
