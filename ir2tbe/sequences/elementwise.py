"""Elementwise ops that are more than one operator, or another one for some of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .registry import builds
from .steps import Call, Number, Operand, cast_to


@builds("add", "add_")
def add(call: Call) -> bool:
    """Add; "alpha != 1" is AxpyV2, but of a number, which is multiplied before."""
    a, b, alpha = call["self"], call.scalar(call["other"]), call["alpha"]
    if isinstance(b, Tensor) and alpha != 1:
        _binary(call, "AxpyV2", a, b, lambda x, y: torch.add(x, y, alpha=alpha), [alpha])
    else:
        _binary(call, "Add", a, b if isinstance(b, Tensor) else b * alpha, torch.add)
    return True


@builds("sub", "sub_")
def subtract(call: Call) -> bool:
    """Sub; "alpha != 1" multiplies first what is taken away."""
    a, b, alpha = call["self"], call.scalar(call["other"]), call["alpha"]
    if not isinstance(b, Tensor):
        b = b * alpha
    elif alpha != 1:
        b = call.compute("Mul", [b, alpha], b * alpha)
    _binary(call, "Sub", a, b, torch.sub)
    return True


@builds("rsub")
def subtract_from(call: Call) -> bool:
    """Sub the other way round."""
    a, b, alpha = call["self"], call["other"], call["alpha"]
    if alpha != 1:  # "alpha != 1"
        a = call.compute("Mul", [a, alpha], a * alpha)
    call.whole("Sub", [b, a])
    return True


@builds("mul", "mul_")
def multiply(call: Call) -> bool:
    """Mul."""
    _binary(call, "Mul", call["self"], call["other"], torch.mul)
    return True


@builds("div", "div_")
def divide(call: Call) -> bool:
    """RealDiv; "rounding_mode trunc" cuts off what comes of it, and another is one operator."""
    a, b, mode = call["self"], call["other"], call.given.get("rounding_mode")
    if mode is None:
        _binary(call, "RealDiv", a, b, torch.div)
    elif mode == "trunc":
        quotient = call.compute("RealDiv", [a, b], a / b)
        call.compute("Trunc", [quotient], quotient.trunc().to(call.result().dtype), 0)
    return mode in (None, "trunc")


def _binary(
    call: Call,
    op: str,
    a: Operand,
    b: Operand,
    formula: Callable[..., Tensor],
    more: Sequence[Operand] = (),
) -> None:
    """One operator of two operands, which are cast to one dtype before if they are of two.

    formula: what it computes of the two, for results that are of yet another dtype: one written in
    place, narrower than what the operands promote to, is cast back. more: further inputs.
    """
    a, b = call.scalar(a), call.scalar(b)
    common = torch.result_type(a, b)
    if len({t.dtype for t in (a, b) if isinstance(t, Tensor)}) > 1:
        a, b = (call.cast(t, common) if isinstance(t, Tensor) else t for t in (a, b))
        if call.result().dtype is not common and call.op.written:
            wide = call.compute(op, [a, b, *more], formula(a, b))
            call.whole("Cast", [wide], cast_to(call.result().dtype))
            return
    call.whole(op, [a, b, *more])


@builds("pow")
def power(call: Call) -> bool:
    """Pow, which some exponents are not."""
    if call.op.func._schema.overload_name != "Tensor_Scalar":
        return False
    x, exponent = call["self"], call["exponent"]
    if exponent == 2:  # "exponent == 2"
        call.whole("Square", [x])
    elif exponent == 0:  # "exponent == 0"
        call.whole("Fill", [call.sizes(x.shape), 1], dtype=call.result().dtype)
    elif exponent != 1:  # "exponent == 1" runs nothing
        call.whole("Pow", [x, exponent])
    return True


@builds("clamp", "clamp_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_")
def clamp(call: Call) -> bool:
    """One operator of two numbers. Of tensors it broadcasts those that are smaller, the larger
    bound first."""
    x, low, high = call["self"], call.given.get("min"), call.given.get("max")
    if not isinstance(low, Tensor) and not isinstance(high, Tensor):
        call.whole("ClipByValueV2", [x, *bounds(x, low, high)])
        return True
    shape = call.result().shape
    if low is None or high is None or shape in (low.shape, high.shape):
        return False
    high, low = (
        call.compute("BroadcastTo", [t, call.sizes(shape)], t.expand(shape).contiguous())
        for t in (high, low)
    )
    call.whole("ClipByValueV2", [x, low, high])
    return True


def bounds(x: Tensor, low: Number | None, high: Number | None) -> tuple[Number, Number]:
    """The bounds of a clamp, with the limit of the dtype for one that is absent."""
    limits = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
    return limits.min if low is None else low, limits.max if high is None else high


@builds("_safe_softmax")
def safe_softmax(call: Call) -> bool:
    """Softmax whose rows of minus infinity only are zero, of the ops PyTorch makes it of."""
    x, dim, dtype = call["self"], call["dim"], call["dtype"]
    if dtype is not None and dtype is not x.dtype:
        return False
    soft = torch.softmax(x, dim)
    call.compute("SoftmaxV2", [x], soft, attributes={"axes": [dim]})
    shape, infinity = call.sizes([]), call.tensor(-float("inf"), [x])
    call.compute("Fill", [shape, infinity.clone()], infinity)
    same = call.compute("Equal", [x, infinity], x == infinity)
    none = same.all(dim, keepdim=True)
    call.compute("ReduceAll", [same, call.sizes([dim])], none, attributes={"keep_dims": True})
    zero = call.tensor(0.0, [x])
    call.compute("Fill", [shape, zero.clone()], zero)
    call.compute("Select", [none, zero, soft], torch.where(none, zero, soft), 0)
    return True
