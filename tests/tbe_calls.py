"""Calls of ops taken down as their TBE operators, and what must hold of each, for several tests.

What the operators end in must be what the op computed: bit-equal where the maths are the same, else
within a bound of rounding that follows from dtype, lengths and values (`BOUNDS`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import npu_core
from dumper.ops import Op, op_of
from ir2tbe.sequences import Ran, results_of, run
from ir2tbe.table import How, table
from npu_core import options
from npu_core.formats import from_storage, to_storage

PROFILES = ("910A", "910B")
DEVICES = ("npu", "cpu")
HALF, FLOAT = torch.float16, torch.float32
aten = torch.ops.aten

npu_core.register()


@dataclass
class Call:
    """One call of an op: arguments before it, results after it, and its operators."""

    op: Op
    values: list[Any]
    results: list[Tensor | None]
    ran: Ran

    def __getitem__(self, name: str) -> Any:
        return self.values[[a.name for a in self.op.arguments].index(name)]

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(step.op for step in self.ran.steps)


class Recorder(TorchDispatchMode):
    """Hands each recorded call to `seen`."""

    def __init__(self, seen: Callable[[Call], None]) -> None:
        super().__init__()
        self._seen = seen

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        op = op_of(func)
        if not op.recorded or op.is_view:
            return func(*args, **kwargs or {})
        values = op.bind(args, kwargs or {})
        before = list(values)
        for i in op.written:
            before[i] = tree_map_only(Tensor, torch.clone, values[i])
        returned = func(*args, **kwargs or {})
        with torch.no_grad(), torch.autocast("npu", enabled=False):
            results = [tensor for _, tensor in results_of(op, values, returned)]
            self._seen(Call(op, before, results, run(op, before, results)))
        return returned


def called(func: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Call:
    """One call of an op, taken down."""
    calls: list[Call] = []
    with torch.no_grad(), Recorder(calls.append):
        func(*args, **kwargs)
    return calls[-1]


_draws = torch.Generator().manual_seed(0)


def drawn(*shape: int, device: str = "npu", dtype: torch.dtype = FLOAT) -> Tensor:
    """Normal numbers."""
    return torch.randn(shape, generator=_draws).to(device, dtype)


def drawn_like(x: Tensor) -> Tensor:
    return drawn(*x.shape, device=x.device, dtype=x.dtype)


def ones(count: int, device: str = "npu") -> Tensor:
    """Positive numbers that are not far from 1."""
    return torch.rand(count, generator=_draws).to(device) + 0.5


@contextmanager
def profile(name: str) -> Iterator[None]:
    saved = options.snapshot()
    options.set_profile(name)
    try:
        yield
    finally:
        options.restore(saved)


# Rounding. Each bound is of |sequence's end - op's result|, for every element; both sides may be
# off from what is true by half of it.


def gamma(length: float, dtype: torch.dtype = torch.float32) -> float:
    """Of a sum of so many terms, in any order, against the sum of their magnitudes."""
    unit = torch.finfo(dtype).eps / 2
    return length * unit / (1 - length * unit)


def wide(*values: Any) -> list[Any]:
    """As float64 on the CPU."""
    return [v.detach().cpu().double() if isinstance(v, Tensor) else v for v in values]


def unit(tensor: Tensor) -> float:
    return torch.finfo(tensor.dtype).eps / 2


def of_product(call: Call, a: Tensor, b: Tensor, start: Tensor, result: Tensor) -> Tensor:
    """beta * start + alpha * (a @ b): fp32 sums, operands and numbers between rounded."""
    alpha, beta = float(call["alpha"]), float(call["beta"])
    x, y, s, r = wide(a, b, start, result)
    size, length = abs(alpha) * (x.abs() @ y.abs()), a.shape[-1]
    error = 2 * gamma(length + 3) * (size + abs(beta * s))
    if alpha != 1:  # scaled before it is narrowed, on one side only
        error = error + (unit(a) + 2 * 2**-11) * size
        error = error + 2**-24 * (x.abs().sum(-1, True) + y.abs().sum(-2, True))
    between = (alpha * (x @ y)).abs() + size * 2**-11 * (alpha != 1) + abs(beta * s)
    return error + unit(result) * 2 * (2 * between + r.abs()) + 2 * unit(a) * abs(beta * s)


def of_addmm(call: Call, i: int) -> Tensor:
    return of_product(call, call["mat1"], call["mat2"], call["self"], call.results[0])


def of_baddbmm(call: Call, i: int) -> Tensor:
    return of_product(call, call["batch1"], call["batch2"], call["self"], call.results[0])


def of_addmv(call: Call, i: int) -> Tensor:
    column, start, end = (t.unsqueeze(1) for t in (call["vec"], call["self"], call.results[0]))
    return of_product(call, call["mat"], column, start, end).squeeze(1)


def image(x: Tensor) -> tuple[list[int], tuple[int, ...], int]:
    """Axes of a batch norm's sums, the shape of a vector along them, and their length."""
    axes = [d for d in range(x.dim()) if d != 1]
    return axes, (1, -1, *[1] * (x.dim() - 2)), x.numel() // x.shape[1]


def of_batch_norm(call: Call, i: int) -> Tensor:
    """Of sums of numbers and of squares, whose difference may cancel: by intervals."""
    x, scale, offset, old, spread = wide(
        *(call[n] for n in ("input", "weight", "bias", "running_mean", "running_var"))
    )
    axes, along, count = image(x)
    momentum, eps, step = call["momentum"], call["eps"], gamma(4)
    mean, variance = x.mean(axes), x.var(axes, correction=0)
    of_mean = 2 * gamma(count + 2) * x.abs().mean(axes)
    of_variance = 8 * gamma(count + 8) * x.square().mean(axes)
    if i == 1:
        return of_mean
    if i == 3:
        return momentum * of_mean + step * (old.abs() + mean.abs())
    if i == 4:
        stretch = count / max(count - 1, 1)
        return momentum * stretch * of_variance + step * (spread.abs() + stretch * variance)
    inverse = (variance + eps).rsqrt()
    of_inverse = torch.maximum(
        ((variance - of_variance).clamp(min=0) + eps).rsqrt() - inverse,
        inverse - (variance + of_variance + eps).rsqrt(),
    )
    mean, inverse, of_mean, of_inverse, scale, offset = (
        v.reshape(along) for v in (mean, inverse, of_mean, of_inverse, scale, offset)
    )
    away = (x - mean).abs()
    error = scale.abs() * (away * of_inverse + of_mean * (inverse + of_inverse))
    sizes = scale.abs() * inverse * (x.abs() + mean.abs()) + offset.abs()
    return error + 2 * gamma(8) * sizes + 4 * unit(call.results[0]) * (sizes + error)


def of_batch_norm_backward(call: Call, i: int) -> Tensor:
    grad, x, scale, mean, inverse, running, spread = wide(
        *(call[n] for n in ("grad_out", "input", "weight", "save_mean", "save_invstd")),
        *(call[n] for n in ("running_mean", "running_var")),
    )
    axes, along, count = image(x)
    if not call["train"]:
        mean, inverse = running, (spread + call["eps"]).rsqrt()
    mean, inverse, scale = (v.reshape(along) for v in (mean, inverse, scale))
    normal, sizes = ((x - mean) * inverse).abs(), grad.abs()
    total = (sizes * normal).sum(axes, keepdim=True)
    step = 4 * gamma(count + 12)
    if i == 1:
        return (step * total).flatten()
    if i == 2:
        return step * sizes.sum(axes)
    shared = (sizes.sum(axes, keepdim=True) + normal * total) / count * call["train"]
    return (step + 4 * unit(call.results[0])) * (scale * inverse).abs() * (sizes + shared)


def of_norm(call: Call, i: int) -> Tensor:
    x = call["self"][i] if isinstance(call["self"], (list, tuple)) else call["self"]
    result = call.results[i]
    order = float(call["ord"])
    exact = math.isinf(order) or order == 0
    # Powers are within 4 units, and a root divides what they are off.
    each = 0 if exact else 2 * gamma(x.numel() + 16 + 8 * abs(order))
    return (each + 2 * unit(result) * (not exact)) * wide(result)[0].abs()


def of_adam(call: Call, i: int) -> Tensor:
    """Some twenty roundings of numbers whose magnitudes are summed."""
    count = len(call["self"])
    kind, at = divmod(i, count)
    p, grad, mean, square = wide(
        *(call[n][at] for n in ("self", "grads", "exp_avgs", "exp_avg_sqs"))
    )
    beta1, beta2, eps = (call[n] for n in ("beta1", "beta2", "eps"))
    lr, decay = float(call["lr"]), call["weight_decay"]
    passed, step = float(call["state_steps"][at]), gamma(24)
    coupled = call.op.base == "_fused_adam"
    grad = grad.abs() + decay * p.abs() * coupled
    mean = beta1 * mean.abs() + 2 * (1 - beta1) * grad
    if kind == 2:
        return step * mean
    square = beta2 * square + (1 - beta2) * grad.square()
    if kind in (3, 4):
        return 2 * step * square
    kept = call.results[(4 if call["amsgrad"] else 3) * count + at]
    root = wide(kept)[0].sqrt() / math.sqrt(1 - beta2**passed) + eps
    # The denominator is as far off as its squares are.
    loose = step * (1 + square / wide(kept)[0].clamp(min=1e-30))
    size = lr / (1 - beta1**passed) * mean / root
    return 4 * loose * size + step * (1 + lr * decay) * p.abs()


def of_sgd(call: Call, i: int) -> Tensor:
    count = len(call["self"])
    kind, at = divmod(i, count)
    p, grad = wide(call["self"][at], call["grads"][at])
    buffers = call["momentum_buffer_list"]
    old = wide(buffers[at])[0].abs() if buffers and not call["is_first_step"] else 0
    size = (grad.abs() + call["weight_decay"] * p.abs()) * (1 + call["momentum"]) ** 2 + 2 * old
    return gamma(16) * (size if kind == 2 else p.abs() + float(call["lr"]) * size)


BOUNDS: dict[str, Callable[[Call, int], Tensor]] = {
    "aten::addmm": of_addmm,
    "aten::addmm_": of_addmm,
    "aten::addmv": of_addmv,
    "aten::baddbmm": of_baddbmm,
    "aten::native_batch_norm": of_batch_norm,
    "aten::native_batch_norm_backward": of_batch_norm_backward,
    "aten::linalg_vector_norm": of_norm,
    "aten::_foreach_norm": of_norm,
    "aten::_fused_adam_": of_adam,
    "aten::_fused_adamw_": of_adam,
    "aten::_fused_sgd_": of_sgd,
}
"""By op: the bound of a result. Of all other ops the end is bit-equal."""

LEFT_OUT = {
    "aten::native_batch_norm": {2},  # the chip hands on the variance
    "aten::native_layer_norm": {2},
    "aten::native_dropout": {1},  # the chip packs the mask
}
"""Results that no operator has as an output."""


def same(end: Tensor, result: Tensor, bound: Tensor | None) -> bool:
    """Whether two tensors agree bit for bit, NaN with NaN, or within a bound for each element."""
    end, result = end.detach().cpu(), result.detach().cpu()
    if end.shape != result.shape or end.dtype != result.dtype:
        return False
    equal = (end == result) | (end.isnan() & result.isnan())
    if bound is None:
        return bool(equal.all())
    return bool((equal | ((end.double() - result.double()).abs() <= bound)).all())


def check_ends(call: Call) -> None:
    """That every result is some operator's output, and what that computed is the result."""
    bounds, ends = BOUNDS.get(call.op.qualified), set()
    for step in call.ran.steps:
        for port in step.outputs:
            if port.result is None:
                continue
            ends.add(port.result)
            result = port.of(call.results)
            bound = bounds and bounds(call, port.result).reshape(result.shape)
            where = call.op.ir, step.op, port.result
            assert same(port.value, result, bound), where
    if call.ran.steps and not call.op.qualified.startswith("aten::_fused"):
        there = {i for i, r in enumerate(call.results) if r is not None and r.numel()}
        assert ends >= there - LEFT_OUT.get(call.op.qualified, set()), call.op.ir


def check_formats(call: Call) -> None:
    """That each port's format can hold its tensor, and gives it back."""
    for step in call.ran.steps:
        for port in (*step.inputs, *step.outputs):
            array = port.value.detach().cpu().contiguous()
            if array.dtype is torch.bfloat16:
                array = array.view(torch.int16)
            array = array.numpy()
            stored = to_storage(array, port.format, port.groups)
            back = from_storage(stored, port.format, array.shape, port.groups)
            assert back.shape == array.shape and back.tobytes() == array.tobytes(), step.op


def sequences(name: str) -> list[tuple[str, ...]]:
    """All that the table has for an op: its sequence, and those on conditions and of releases."""
    found = table().find(name)
    if found is None or found.how not in (How.EXACT, How.IN_PLACE):
        return []
    entry = found.entries[0]
    more = (entry.releases or {}).values()
    return [entry.tbe or (), *(tbe for _, tbe in entry.variants), *more]


def full_name(op: Op) -> str:
    overload = op.func._schema.overload_name
    return op.qualified + (f".{overload}" if overload else "")


def check_table(call: Call) -> None:
    """That the operators are one of the table's sequences, once for each tensor of a list."""
    op, types = call.op, call.types
    known = sequences(full_name(op))
    if op.qualified.startswith("aten::_foreach_"):
        plain = table().find(f"aten::{op.base}", whole=False)
        known += sequences(plain.entries[0].name) if plain else []
        known += sequences("aten::_foreach_add_.List") if op.base == "add" else []
        entry = table().find(full_name(op)).entries[0]
        known += sequences(entry.name)
        known += [(a.removeprefix("aclnn").removesuffix("V2"),) for a in entry.aclnn]
    elif op.qualified == "aten::convolution_backward":
        mask = call["output_mask"]
        known = [tuple(t for t, on in zip(tbe, mask, strict=True) if on) for tbe in known
                 if len(tbe) == 3]  # fmt: skip
    elif op.qualified == "aten::constant_pad_nd":  # one StridedSlice for each axis
        types = tuple(t for i, t in enumerate(types) if i == 0 or t != types[i - 1])
    elif op.qualified == "aten::native_batch_norm_backward" and not call["output_mask"][0]:
        known = [tbe[:1] for tbe in known]
    elif op.qualified.startswith("aten::_fused"):
        first = ("RealDiv",) * (call["grad_scale"] is not None) + ("Neg",) * call["maximize"]
        whole = ((), ("ApplyAdamWV2",))  # nothing comes before these
        known = [tbe if tbe in whole else first + tbe for tbe in known]
    lists = op.qualified.startswith(("aten::_foreach_", "aten::_fused"))
    copies = len(call["self"]) if lists else 1
    assert types in known or any(types == tbe * copies for tbe in known), (op.ir, types, known)


def check(call: Call) -> None:
    """All that must hold of a call in a training step."""
    assert call.ran.instead_of is None, f"{call.op.ir} has no steps of its own"
    check_table(call)
    check_ends(call)
    check_formats(call)
