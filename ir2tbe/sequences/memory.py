"""Copies: what the chip runs to move a tensor hangs on how that lies in memory.

A strided tensor is the input as it is: what lies between its elements is read by nobody, and may
never have been written.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dumper.tensors import dtype_name
from npu_core import storage

from .registry import builds
from .steps import Call


@builds("clone", "contiguous")
def clone(call: Call) -> bool:
    """Nothing for a contiguous tensor ("memcpy, no TBE op"); else by the kind of view."""
    gather(call, call["self"], 0)
    return True


def gather(call: Call, x: Tensor, end: int | None = None) -> Tensor:
    """A strided tensor made contiguous by one operator; the tensor itself where it is that."""
    if x.is_contiguous():
        return x
    dense = x.contiguous()
    order = sorted(range(x.dim()), key=lambda d: (-x.stride(d), d))
    sizes = call.sizes(x.shape)
    if any(n > 1 and s == 0 for n, s in zip(x.shape, x.stride(), strict=True)):
        base = x[tuple(slice(1) if s == 0 else slice(None) for s in x.stride())]
        if base.is_contiguous():  # "expanded view"
            return call.compute("BroadcastTo", [base, sizes], dense, end)
    elif (base := x.permute(order)).is_contiguous():  # "transposed view"
        places = [order.index(d) for d in range(x.dim())]
        return call.compute("Transpose", [base, call.sizes(places)], dense, end)
    elif order == list(range(x.dim())):  # "strided slice view"
        return call.compute("StridedSlice", [x], dense, end, attributes=_strides(x))
    return call.compute("AsStrided", [x], dense, end, attributes=_strides(x))


def _strides(x: Tensor) -> dict[str, object]:
    return {"size": list(x.shape), "stride": list(x.stride()), "offset": x.storage_offset()}


@builds("copy_")
def copy(call: Call) -> bool:
    """The source made contiguous, cast and written into a view, whichever of these is needed."""
    target, source = call["self"], call["src"]
    if target.device != source.device:  # "host<->device"
        return True
    strided, cast = not source.is_contiguous(), source.dtype is not target.dtype
    write = not target.is_contiguous()
    last = "ViewCopy" if write else "Cast" if cast else "AsStrided"
    value = source
    if strided and (cast or not write):  # "strided source"
        dense = source.contiguous()
        end = 0 if last == "AsStrided" else None
        if end is not None:
            dense = dense.expand(target.shape).contiguous()
        value = call.compute("AsStrided", [source], dense, end, attributes=_strides(source))
    if cast:  # "dtype differs"
        value = _cast(call, value, target.dtype, 0 if last == "Cast" else None)
    if write:
        copied = value.expand(target.shape).clone(memory_format=torch.contiguous_format)
        call.compute("ViewCopy", [target, value], copied, 0, attributes=_strides(target))
    elif not strided and not cast and _formats_differ(call.result(), source):  # "format differs"
        call.compute("Identity", [source], source.clone(), 0)
    return True


@builds("_to_copy")
def to_copy(call: Call) -> bool:
    """ "dtype change on the device; [] when dtype is unchanged"."""
    x, result = call["self"], call.result()
    if x.device == result.device and x.dtype is not result.dtype:
        call.whole("Cast", [x], {"dst_type": dtype_name(result.dtype)})
    return True


def _cast(call: Call, x: Tensor, dtype: torch.dtype, end: int | None) -> Tensor:
    return call.compute("Cast", [x], x.to(dtype), end, attributes={"dst_type": dtype_name(dtype)})


def _formats_differ(a: Tensor, b: Tensor) -> bool:
    return a.device.type == "npu" and storage.get_format(a) != storage.get_format(b)


@builds("constant_pad_nd")
def pad(call: Call) -> bool:
    """The number as a tensor, what is to be added, and what is to be cut off."""
    x, pads, number = call["self"], list(call["pad"]), call["value"]
    pairs = [(0, 0)] * (x.dim() - len(pads) // 2) + list(zip(pads[-2::-2], pads[::-2], strict=True))
    more = [max(n, 0) for pair in reversed(pairs) for n in pair]
    if not x.numel():  # "empty tensor"
        call.whole("Fill", [call.sizes(call.result().shape), number])
        return True
    cuts, adds = any(n < 0 for n in pads), any(n > 0 for n in pads) or all(n == 0 for n in pads)
    value = x
    if adds:
        number = call.compute(
            "Fill", [call.sizes([1]), number], call.tensor(number, [x]).reshape(1)
        )
        value = torch.nn.functional.pad(x, more, value=number.item())
        added = [max(n, 0) for pair in pairs for n in pair]
        paddings = call.sizes(added, torch.int32)
        ended = None if cuts else 0
        call.compute("PadV3", [x, paddings, number], value, ended, attributes={"mode": "constant"})
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
