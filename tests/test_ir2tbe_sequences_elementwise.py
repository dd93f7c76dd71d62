"""Elementwise ops as TBE operators: numbers and dtypes choose, and inputs are in order."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from tbe_calls import (
    DEVICES,
    FLOAT,
    HALF,
    PROFILES,
    aten,
    called,
    check,
    drawn,
    ones,
    profile,
    same,
)
from torch import Tensor


@pytest.mark.parametrize("dtype", [FLOAT, HALF, torch.int32])
@pytest.mark.parametrize(("low", "high"), [(-1, 1), (None, 1), (-1, None)])
def test_clamp_has_the_limit_of_the_dtype_for_a_bound_that_is_absent(low, high, dtype):
    x = (drawn(3, 4) * 3).to(dtype)
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    calls = [called(aten.clamp.default, x, low, high)]
    if high is None:
        calls += [
            called(aten.clamp_min_.default, x, low),
            called(aten._foreach_clamp_min_.Scalar, [x], low),
        ]
    for call in calls:
        check(call)
        (step,) = call.ran.steps
        ends = [port.value.item() for port in step.inputs[1:]]
        assert ends == [limits.min if low is None else low, limits.max if high is None else high]


def test_clamp_broadcasts_bounds_that_are_tensors():
    call = called(aten.clamp.Tensor, drawn(3, 4), -ones(4), ones(1))
    check(call)
    assert call.types == ("BroadcastTo", "BroadcastTo", "ClipByValueV2")
    assert called(aten.clamp.Tensor, drawn(3, 4), -ones(4)).ran.instead_of is not None


@pytest.mark.parametrize(
    ("call", "types"),
    [
        (lambda x, y: called(aten.add.Tensor, x, y.half()), ("Cast", "Add")),
        (lambda x, y: called(aten.mul.Tensor, x.half(), y), ("Cast", "Mul")),
        (lambda x, y: called(aten.mul.Tensor, x.half(), y[0]), ("Cast", "Mul")),
        (lambda x, y: called(aten.mul.Tensor, x, 2), ("Mul",)),
        (lambda x, y: called(aten.div_.Tensor, x, y.half()), ("Cast", "RealDiv")),
        (lambda x, y: called(aten.add_.Tensor, x.half(), y), ("Cast", "Add", "Cast")),
        (lambda x, y: called(aten.mul_.Tensor, x.half(), y), ("Cast", "Mul", "Cast")),
        (lambda x, y: called(aten.sub_.Tensor, x.half(), y[0]), ("Cast", "Sub")),
    ],
)
def test_operands_are_of_one_dtype(call, types):
    call = call(drawn(3, 4), ones(4))
    check(call)
    assert call.types == types
    for step in call.ran.steps:
        if step.op != "Cast":
            assert len({port.value.dtype for port in (*step.inputs, *step.outputs)}) == 1


@pytest.mark.parametrize(
    ("exponent", "types"),
    [(2, ("Square",)), (0, ("Fill",)), (1, ()), (3, ("Pow",)), (0.5, ("Pow",))],
)
def test_power(exponent, types):
    call = called(aten.pow.Tensor_Scalar, ones(5), exponent)
    check(call)
    assert call.types == types


@pytest.mark.parametrize(
    ("call", "types"),
    [
        (lambda x, y: called(aten.add.Tensor, x, y), ("Add",)),
        (lambda x, y: called(aten.add.Tensor, x, y, alpha=3), ("AxpyV2",)),
        (lambda x, y: called(aten.add_.Scalar, x, 2), ("Add",)),
        (lambda x, y: called(aten.add.Scalar, x, 2, 3), ("Add",)),
        (lambda x, y: called(aten.sub.Scalar, x, 2, 3), ("Sub",)),
        (lambda x, y: called(aten.sub.Tensor, x, y), ("Sub",)),
        (lambda x, y: called(aten.sub.Tensor, x, y, alpha=2), ("Mul", "Sub")),
        (lambda x, y: called(aten.rsub.Scalar, x, 2), ("Sub",)),
        (lambda x, y: called(aten.rsub.Scalar, x, 2, 4), ("Mul", "Sub")),
        (
            lambda x, y: called(aten.div.Tensor_mode, x, y, rounding_mode="trunc"),
            ("RealDiv", "Trunc"),
        ),
        (lambda x, y: called(aten.div.Tensor_mode, x, y, rounding_mode="floor"), ("FloorDiv",)),
    ],
)
def test_numbers_that_choose_another_operator(call, types):
    call = call(drawn(3, 4), ones(4))
    check(call)
    assert call.types == types


@pytest.mark.parametrize("chip", PROFILES)
@pytest.mark.parametrize("device", DEVICES)
def test_safe_softmax_of_a_row_of_minus_infinity(device, chip):
    with profile(chip):
        x = torch.randn(3, 4)
        x[1], x[2, 0] = -math.inf, -math.inf
        call = called(aten._safe_softmax.default, x.to(device), -1)
        check(call)
    assert bool((call.results[0].cpu()[1] == 0).all())


FORMULAS = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "RealDiv": torch.div,
    "AxpyV2": lambda x, y, alpha: torch.add(x, y, alpha=alpha.item()),
    "Addcmul": lambda x, a, b, value: torch.addcmul(x, a, b, value=value.item()),
    "Addcdiv": lambda x, a, b, value: torch.addcdiv(x, a, b, value=value.item()),
    "Lerp": lambda x, y, weight: torch.lerp(x, y, weight.item()),
    "Maximum": torch.maximum,
    "Sqrt": torch.sqrt,
    "Neg": torch.neg,
    "Select": torch.where,
    "GreaterEqual": torch.ge,
    "MaskedFill": lambda x, mask, value: x.masked_fill(mask, value),
    "ReduceSum": lambda x, axes: x.sum(axes.tolist()),
    "ReduceMean": lambda x, axes: x.mean(axes.tolist()),
    "GatherV2": lambda weight, indices: weight[indices],
    "GatherElements": lambda x, index: x.gather(1, index),
    "ConcatD": lambda *tensors: torch.cat(tensors),
    "Pack": lambda *tensors: torch.stack(tensors),
    "TanhGrad": lambda y, dy: dy * (1 - y * y),
    "SoftmaxGrad": lambda y, dy: (dy - (y * dy).sum(1, True)) * y,
}
"""What operators compute of their inputs in order."""

X, Y, Z = (torch.rand(3, 4, generator=torch.Generator().manual_seed(i)) + 0.5 for i in range(3))
INDEX = torch.tensor([[0, 3], [1, 1], [2, 0]])


@pytest.mark.parametrize(
    "make",
    [
        partial(aten.add.Tensor, X, Y), partial(aten.add.Tensor, X, 2.5),
        partial(aten.add.Scalar, X, 2, 3), partial(aten.sub.Scalar, X, 2, 0.5),
        partial(aten.add.Tensor, X, Y, alpha=-0.1), partial(aten.sub.Scalar, X, 3),
        partial(aten.rsub.Scalar, X, 3), partial(aten.rsub.Tensor, X, Y, alpha=2),
        partial(aten.mul.Scalar, X, 0.1), partial(aten.mul_.Tensor, X, 1 / 3),
        partial(aten.div.Tensor, X, Y), partial(aten.div.Scalar, X, 7),
        partial(aten.addcmul_.default, X, Y, Z, value=0.3),
        partial(aten.addcdiv_.default, X, Y, Z, value=-0.1), partial(aten.addcdiv.default, X, Y, Z),
        partial(aten.lerp_.Scalar, X, Y, 0.25), partial(aten.maximum.default, X, Y),
        partial(aten.maximum.out, X, Y, out=torch.zeros(3, 4)), partial(aten.sqrt.default, X),
        partial(aten.where.self, X > 1, Y, Z), partial(aten.ge.Scalar, X, 1),
        partial(aten.masked_fill_.Scalar, X, X > 1, 0.5), partial(aten.sum.dim_IntList, X, [1]),
        partial(aten.mean.dim, X, [0, 1]), partial(aten.embedding.default, X, INDEX % 3),
        partial(aten.gather.default, X, 1, INDEX), partial(aten.cat.default, [X, Y, Z]),
        partial(aten.stack.default, [X, Y]), partial(aten.tanh_backward.default, X, Y),
        partial(aten._softmax_backward_data.default, X, Y, 1, FLOAT),
        partial(aten._foreach_add_.List, [X, Y], [Y, Z], alpha=-0.1),
        partial(aten._foreach_add_.Scalar, [X, Y], 1), partial(aten._foreach_sub.List, [X], [Y]),
        partial(aten._foreach_mul_.ScalarList, [X, Y], [2, 0.1]),
        partial(aten._foreach_mul_.Tensor, [X, Y], torch.tensor(0.3)),
        partial(aten._foreach_div_.ScalarList, [X, Y], [2, 0.1]),
        partial(aten._foreach_lerp_.Scalar, [X], [Y], 0.25),
        partial(aten._foreach_sqrt.default, [X]),
        partial(aten._foreach_addcmul_.Scalar, [X, Y], [Y, Z], [Z, X], 0.3),
        partial(aten._foreach_addcdiv_.ScalarList, [X, Y], [Y, Z], [Z, X], [0.3, 0.1]),
        partial(aten._foreach_maximum_.List, [X, Y], [Z, Z]),
        partial(aten._foreach_neg.default, [X]),
    ],
    ids=lambda make: str(make.func),
)  # fmt: skip
@pytest.mark.parametrize("device", DEVICES)
def test_inputs_are_in_the_operators_order(make, device):
    def moved(value):
        if isinstance(value, list):
            return [moved(each) for each in value]
        return value.clone().to(device) if isinstance(value, Tensor) else value

    keywords = {name: moved(value) for name, value in make.keywords.items()}
    call = called(make.func, *map(moved, make.args), **keywords)
    check(call)
    assert call.ran.steps
    for step in call.ran.steps:
        computed = FORMULAS[step.op](*(port.value.cpu() for port in step.inputs))
        (port,) = step.outputs
        exact = step.op not in ("TanhGrad", "SoftmaxGrad", "ReduceSum", "ReduceMean")
        # Those have sums of four terms, or a few roundings more, of numbers of at most eight.
        bound = None if exact else torch.tensor(16 * 8 * torch.finfo(FLOAT).eps)
        assert same(port.of(call.results).reshape(computed.shape), computed, bound), step.op
