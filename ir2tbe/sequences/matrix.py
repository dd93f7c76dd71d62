"""Matrix products: on the chip alpha and beta are operators of their own around the product.

910A multiplies by alpha even where it is 1. From 910B on a bias that is one row goes into MatMul.
A transposed operand is read as it lies, and MatMul is told.
"""

from __future__ import annotations

import torch
from torch import Tensor

from npu_core import options

from .registry import builds
from .steps import Call

_NAMES = {"MatMul": ("transpose_x1", "transpose_x2"), "BatchMatMul": ("adj_x1", "adj_x2")}


@builds("mm", "bmm")
def product(call: Call) -> bool:
    """One product."""
    a, b = call["self"], call["mat2"]
    op = "BatchMatMul" if a.dim() == 3 else "MatMul"
    inputs, attributes = _as_they_lie(op, a, b)
    call.whole(op, inputs, attributes)
    return True


@builds("addmm", "addmm_")
def addmm(call: Call) -> bool:
    """beta * self + alpha * (mat1 @ mat2)."""
    bias, a, b, beta, alpha = (call[n] for n in ("self", "mat1", "mat2", "beta", "alpha"))
    if "out_dtype" in call.given or not a.is_floating_point():
        return False
    if options.profile() == "910B" and (bias.dim() == 1 or bias.dim() == 2 and len(bias) == 1):
        if alpha == beta == 1:  # "910B, bias 1-D or (1,N), alpha==beta==1"
            inputs, attributes = _as_they_lie("MatMul", a, b)
            call.whole("MatMul", [*inputs, bias], attributes)
            return True
        # "910B, alpha/beta != 1"
        scaled = call.compute("Mul", [a, alpha], a * alpha)
        start = call.compute("Mul", [bias, beta], bias * beta)
        inputs, attributes = _as_they_lie("MatMul", scaled, b)
        total = torch.addmm(start, scaled, b)
        call.compute("MatMul", [*inputs, start], total, 0, attributes=attributes)
        return True
    scaled = call.compute("Mul", [a, alpha], a * alpha)
    inputs, attributes = _as_they_lie("MatMul", scaled, b)
    multiplied = call.compute("MatMul", inputs, scaled @ b, attributes=attributes)
    _add(call, multiplied, bias, beta)
    return True


@builds("addmv", "addmv_")
def addmv(call: Call) -> bool:
    """beta * self + alpha * (mat @ vec): the vector is scaled, and is a column to MatMul."""
    bias, a, b, beta, alpha = (call[n] for n in ("self", "mat", "vec", "beta", "alpha"))
    if beta != 1 or not a.is_floating_point():
        return False
    scaled = call.compute("Mul", [a, alpha], a * alpha)
    column = b.unsqueeze(1)
    inputs, attributes = _as_they_lie("MatMul", scaled, column)
    multiplied = call.compute("MatMul", inputs, scaled @ column, attributes=attributes)
    call.compute("Add", [bias, multiplied.squeeze(1)], bias + multiplied.squeeze(1), 0)
    return True


@builds("baddbmm", "baddbmm_")
def baddbmm(call: Call) -> bool:
    """beta * self + alpha * (batch1 @ batch2)."""
    bias, a, b, beta, alpha = (call[n] for n in ("self", "batch1", "batch2", "beta", "alpha"))
    if "out_dtype" in call.given or not a.is_floating_point():
        return False
    inputs, attributes = _as_they_lie("BatchMatMul", a, b)
    multiplied = call.compute("BatchMatMul", inputs, torch.bmm(a, b), attributes=attributes)
    multiplied = call.compute("Mul", [multiplied, alpha], multiplied * alpha)
    if beta == 0:  # self is not looked at, whatever is in it
        start = call.compute("ZerosLike", [bias], torch.zeros_like(bias))
    else:
        start = call.compute("Mul", [bias, beta], bias * beta)
    call.compute("Add", [multiplied, start], multiplied + start, 0)
    return True


def _add(call: Call, multiplied: Tensor, bias: Tensor, beta: float) -> None:
    if beta == 1:
        call.compute("Add", [multiplied, bias], multiplied + bias, 0)
    else:  # "beta != 1 (910A)"
        start = bias if beta else torch.zeros_like(bias)  # not looked at, whatever is in it
        total = torch.add(multiplied, start, alpha=beta)
        call.compute("AxpyV2", [multiplied, bias, beta], total, 0)


def _as_they_lie(op: str, *operands: Tensor) -> tuple[list[Tensor], dict[str, object]]:
    """The operands as they are in memory, and which of them are to be transposed."""
    turned = [not t.is_contiguous() and t.mT.is_contiguous() for t in operands]
    inputs = [t.mT if turn else t for t, turn in zip(operands, turned, strict=True)]
    return inputs, dict(zip(_NAMES[op], turned, strict=True))
