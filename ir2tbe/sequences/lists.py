"""Ops of lists of tensors, and fused optimizers.

910A has no operator of lists: PyTorch calls the plain op for each tensor, and a fused optimizer is
the maths of one that is not, tensor by tensor. From 910B on a foreach op is one operator that takes
all lists at once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from dumper.ops import Op
from ir2tbe.table import table
from npu_core import options

from .elementwise import bounds
from .norm import two_steps_of_norm
from .registry import builds
from .steps import Call, Operand, tensors


def is_foreach(op: Op) -> bool:
    """Whether this is an op of lists of tensors."""
    return op.qualified.startswith("aten::_foreach_")


def foreach(call: Call) -> bool:
    """One operator for all, or one for each tensor in the order of the list."""
    if options.profile() == "910B" and (op := _of_lists(call.op)):
        call.whole(op, [t for value in call.values for t in _all(call, value)])
        return True
    if call.op.base == "norm":
        for i, x in enumerate(call["self"]):
            two_steps_of_norm(call, x, call["ord"], list(range(x.dim())), False, i)
        return True
    if call.op.base == "copy":
        return _copies(call)
    if call.op.base in ("clamp_min", "clamp_max"):
        return _clamps(call)
    op, alpha = _of_one(call.op), call.given.get("alpha", 1)
    if op is None or alpha != 1 and call.op.base != "add":
        return False
    given = {
        n: v for n, v in call.given.items() if not (n == "dtype" or n == "alpha" and alpha == 1)
    }
    for i, result in enumerate(call.results):
        assert result is not None
        inputs = [v[i] if n == "scalars" else _member(v, i) for n, v in given.items()]
        call.step(op if alpha == 1 else "AxpyV2", inputs, [result], {0: i})
    return True


def _copies(call: Call) -> bool:
    """Casts; a copy that is none moves memory."""
    for i, source in enumerate(call["src"]):
        result = call.result(i)
        if source.device == result.device and source.dtype is not result.dtype:
            call.step("Cast", [source], [result], {0: i})
    return True


def _clamps(call: Call) -> bool:
    """Of numbers, each with the limit of the dtype for the other bound."""
    bound = next(v for n, v in call.given.items() if n in ("scalar", "scalars", "other"))
    low = call.op.base == "clamp_min"
    for i, x in enumerate(call["self"]):
        number = _member(bound, i)
        if isinstance(number, Tensor):
            return False
        both = bounds(x, number, None) if low else bounds(x, None, number)
        call.step("ClipByValueV2", [x, *both], [call.result(i)], {0: i})
    return True


@cache
def _of_lists(op: Op) -> str | None:
    """The operator of 910B: the table's variant, else the one its aclnn kernel is named after."""
    found = table().find(op.qualified + _overload(op))
    if found is None:
        return None
    entry = found.entries[0]
    variants = dict(entry.variants)
    if "910B" in variants:
        return variants["910B"][0]
    return entry.aclnn[0].removeprefix("aclnn").removesuffix("V2") if entry.aclnn else None


@cache
def _of_one(op: Op) -> str | None:
    """The operator of 910A for one tensor: the table's, else that of the plain op."""
    for name in (op.qualified + _overload(op), f"aten::{op.base}", f"aten::{op.base}_"):
        found = table().find(name, whole=False)
        tbe = found and found.entries[0].tbe
        if tbe and len(tbe) == 1:
            return tbe[0]
    return None


def _overload(op: Op) -> str:
    name = op.func._schema.overload_name
    return f".{name}" if name else ""


def _member(value: Any, i: int) -> Operand:
    return value[i] if isinstance(value, (list, tuple)) else value


def _all(call: Call, value: Any) -> list[Operand]:
    if isinstance(value, (list, tuple)) and value and not isinstance(value[0], Tensor):
        return [torch.tensor(value, dtype=torch.float32, device=call.device)]
    if isinstance(value, (bool, int, float, complex)):
        return [value]
    return list(tensors(value))


@builds("_fused_sgd_")
def fused_sgd(call: Call) -> bool:
    """One step of SGD: the recipe of the table, of which the options leave out some operators."""
    decay, momentum, damp = call["weight_decay"], call["momentum"], call["dampening"]
    lr, count = _number(call["lr"]), len(call["self"])
    if _skips(call):
        return True
    for i, (p, grad) in enumerate(zip(call["self"], call["grads"], strict=True)):
        grad = _prepared(call, grad, i, count)
        if decay:
            grad = _axpy(call, grad, p, decay)
        if momentum:
            buffer, end = call["momentum_buffer_list"][i], 2 * count + i
            if call["is_first_step"]:  # a copy of memory
                buffer = grad.clone()
            else:
                buffer = call.compute("Mul", [buffer, momentum], buffer * momentum)
                buffer = _axpy(call, buffer, grad, 1 - damp, end)
            grad = _axpy(call, grad, buffer, momentum) if call["nesterov"] else buffer
        _axpy(call, p, grad, -lr, i)
    return True


@builds("_fused_adam_", "_fused_adamw_")
def fused_adam(call: Call) -> bool:
    """One step of Adam or AdamW: "Adam (torch 2.x single tensor)" of the table, and its options."""
    beta1, beta2, eps, decay = (call[n] for n in ("beta1", "beta2", "eps", "weight_decay"))
    lr, count = _number(call["lr"]), len(call["self"])
    if _skips(call):
        return True
    if options.profile() == "910B" and call.op.base == "_fused_adamw":
        _apply_adam(call)
        return True
    for i, (p, grad) in enumerate(zip(call["self"], call["grads"], strict=True)):
        mean, square = call["exp_avgs"][i], call["exp_avg_sqs"][i]
        passed = _number(call["state_steps"][i])
        grad = _prepared(call, grad, i, count)
        if decay and call.op.base == "_fused_adamw":
            p = call.compute("Mul", [p, 1 - lr * decay], p * (1 - lr * decay))
        elif decay:
            grad = _axpy(call, grad, p, decay)
        new = torch.lerp(mean, grad, 1 - beta1)
        mean = call.compute("Lerp", [mean, grad, 1 - beta1], new, 2 * count + i)
        square = call.compute("Mul", [square, beta2], square * beta2)
        new = torch.addcmul(square, grad, grad, value=1 - beta2)
        square = call.compute("Addcmul", [square, grad, grad, 1 - beta2], new, 3 * count + i)
        if call["amsgrad"]:
            largest = call["max_exp_avg_sqs"][i]
            new = torch.maximum(largest, square)
            square = call.compute("Maximum", [largest, square], new, 4 * count + i)
        root = call.compute("Sqrt", [square], square.sqrt())
        corrected = (1 - beta2**passed) ** 0.5
        root = call.compute("RealDiv", [root, corrected], root / corrected)
        root = call.compute("Add", [root, eps], root + eps)
        size = -lr / (1 - beta1**passed)
        new = torch.addcdiv(p, mean, root, value=size)
        call.compute("Addcdiv", [p, mean, root, size], new, i)
    return True


def _apply_adam(call: Call) -> None:
    """One operator for each tensor ("910B"): parameter, both averages and their largest if asked
    for are written, of the gradient and the number of the step."""
    written = ["self", "exp_avgs", "exp_avg_sqs"] + ["max_exp_avg_sqs"] * call["amsgrad"]
    order = [call.op.arguments[i].name for i in call.op.silent_outputs]
    places, count = [order.index(name) for name in written], len(call["self"])
    numbers = ("lr", "beta1", "beta2", "weight_decay", "eps", "amsgrad", "maximize")
    attributes = {n: _number(call[n]) if n == "lr" else call[n] for n in numbers}
    for i in range(count):
        inputs = [*(call[name][i] for name in written), call["grads"][i], call["state_steps"][i]]
        ends = [place * count + i for place in places]
        outputs = [call.result(end) for end in ends]
        call.step("ApplyAdamWV2", inputs, outputs, dict(enumerate(ends)), attributes)


def _skips(call: Call) -> bool:
    """Whether the step is left out, since the loss scaler found infinity."""
    return call["found_inf"] is not None and _number(call["found_inf"]) == 1


def _prepared(call: Call, grad: Tensor, i: int, count: int) -> Tensor:
    """The gradient, divided by the scale of the loss, and turned where the loss is maximized."""
    if (scale := call["grad_scale"]) is not None:
        divided = (grad / scale).to(grad.dtype)
        grad = call.compute("RealDiv", [grad, scale], divided, count + i)
    if call["maximize"]:
        grad = call.compute("Neg", [grad], -grad)
    return grad


def _axpy(call: Call, x: Tensor, y: Tensor, alpha: float, end: int | None = None) -> Tensor:
    """x + alpha * y. "Add is used instead of AxpyV2 when alpha==1"."""
    total = torch.add(x, y, alpha=alpha)
    if alpha == 1:
        return call.compute("Add", [x, y], total, end)
    return call.compute("AxpyV2", [x, y, alpha], total, end)


def _number(value: Tensor | float) -> float:
    return float(value)
