"""Matrix products as TBE operators: what chip, numbers and bias make of them."""

from __future__ import annotations

import math

import pytest
import torch
from tbe_calls import (
    DEVICES,
    FLOAT,
    HALF,
    aten,
    called,
    check,
    check_ends,
    drawn,
    profile,
)

from npu_core.formats import Format


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize(
    ("chip", "bias", "alpha", "beta", "types"),
    [
        ("910A", (5,), 1, 1, ("Mul", "MatMul", "Add")),
        ("910A", (3, 5), 0.5, 1, ("Mul", "MatMul", "Add")),
        ("910A", (1, 5), 2, 0.3, ("Mul", "MatMul", "AxpyV2")),
        ("910A", (3, 1), 1, 0, ("Mul", "MatMul", "AxpyV2")),
        ("910B", (5,), 1, 1, ("MatMul",)),
        ("910B", (1, 5), 0.5, 1, ("Mul", "Mul", "MatMul")),
        ("910B", (3, 5), 1, 1, ("Mul", "MatMul", "Add")),
    ],
)
def test_addmm(chip, bias, alpha, beta, types, dtype, device):
    with profile(chip):
        a, b, c = (drawn(*s, device=device, dtype=dtype) for s in ((3, 40), (40, 5), bias))
        call = called(aten.addmm.default, c, a, b, alpha=alpha, beta=beta)
        check(call)
    assert call.types == types
    matmul = call.ran.steps[types.index("MatMul")]
    assert matmul.inputs[0].value.shape == (3, 40) and matmul.inputs[1].value.shape == (40, 5)
    wanted = Format.FRACTAL_NZ if chip == "910A" else Format.ND
    assert all(port.format is wanted for port in (*matmul.inputs[:2], *matmul.outputs))


@pytest.mark.parametrize("beta", [1, 0, 0.5])
def test_batches_and_vectors(beta):
    call = called(aten.baddbmm.default, drawn(2, 3, 4), drawn(2, 3, 5), drawn(2, 5, 4), beta=beta,
                  alpha=2)  # fmt: skip
    check(call)
    assert call.types[2] == ("Mul" if beta else "ZerosLike")
    check(called(aten.addmv.default, drawn(3), drawn(3, 5), drawn(5), alpha=3))


@pytest.mark.parametrize("op", ["mm", "bmm"])
def test_a_transposed_operand_is_read_as_it_lies(op):
    func = getattr(aten, op).default
    front = (2,) if op == "bmm" else ()
    a, b = drawn(*front, 4, 3), drawn(*front, 5, 4)
    call = called(func, a.mT, b.mT)
    check(call)
    (step,) = call.ran.steps
    assert [v for _, v in step.attributes] == [True, True]
    assert torch.equal(step.inputs[0].value, a) and torch.equal(step.inputs[1].value, b)
    assert step.inputs[0].format is Format.FRACTAL_NZ


def test_nothing_of_self_is_looked_at_where_beta_is_zero():
    a, b = drawn(2, 3), drawn(3, 4)
    call = called(aten.addmm.default, torch.full((4,), math.nan), a.cpu(), b.cpu(), beta=0)
    check_ends(call)
