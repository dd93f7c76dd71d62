"""Normalizations and norms as TBE operators, and what these hand on."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tbe_calls import (
    DEVICES,
    FLOAT,
    HALF,
    aten,
    called,
    check,
    check_ends,
    check_formats,
    drawn,
    ones,
)

from npu_core.formats import Format


def normalized(shape: tuple[int, ...], dtype: torch.dtype, device: str, training: bool) -> tuple:
    c = shape[1]
    x = drawn(*shape, device=device, dtype=dtype) * 2 + 1
    vectors = (ones(c, device), drawn(c, device=device), drawn(c, device=device), ones(c, device))
    return x, *vectors, training, 0.1, 1e-5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(3, 4, 5, 6), (8, 4), (3, 4, 5), (2, 4, 3, 3, 3)])
def test_batch_norm(shape, training, dtype, device):
    given = normalized(shape, dtype, device, training)
    call = called(aten.native_batch_norm.default, *given)
    check_formats(call)
    prefix = "BN3D" if len(shape) == 5 else "BN"
    if not training:
        assert call.types == ("BNInfer",)
        return
    check(call)
    assert call.types == (f"{prefix}TrainingReduce", f"{prefix}TrainingUpdate")
    variance = call.ran.steps[1].outputs[4].value.cpu().double()
    inverse = call.results[2].cpu().double()
    assert torch.allclose((variance + 1e-5).rsqrt(), inverse, rtol=1e-3, atol=0)
    image = call.ran.steps[0].inputs[0]
    assert image.format is (Format.NDC1HWC0 if len(shape) == 5 else Format.NC1HWC0)


def test_batch_norm_without_weights_and_statistics_takes_ones_and_zeros():
    call = called(aten.native_batch_norm.default, drawn(3, 4, 5, 6), *[None] * 4, True, 0.1, 1e-5)
    assert call.results[3:] == [None, None]
    update = call.ran.steps[1]
    assert [p.result for p in update.outputs] == [0, None, None, 1, None]
    scale, offset = (port.value for port in update.inputs[3:5])
    assert bool((scale == 1).all()) and bool((offset == 0).all())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize("shape", [(3, 4, 5, 6), (3, 4, 5), (2, 4, 3, 3, 3)])
def test_batch_norm_backward(shape, dtype, training):
    x, *vectors, _, _, eps = given = normalized(shape, dtype, "npu", training)
    _, mean, inverse = aten.native_batch_norm.default(*given)
    grad = drawn(*shape, dtype=dtype)
    weight, _, running_mean, running_var = vectors
    spread = x.float().var([d for d in range(x.dim()) if d != 1], correction=0)
    for mask in ([True, True, True], [False, True, True]):
        call = called(aten.native_batch_norm_backward.default, grad, x, weight, running_mean,
                      running_var, mean, inverse, training, eps, mask)  # fmt: skip
        check_formats(call)
        check_ends(call)
        last = "TrainingReduceGrad" if training else "InferGrad"
        prefix = "BN3D" if len(shape) == 5 and training else "BN"
        known = (f"{prefix}TrainingUpdateGrad", f"{prefix}{last}")
        assert call.types == known[: 1 + mask[0]]
        variance = call.ran.steps[0].inputs[3].value
        assert torch.allclose(variance, spread if training else running_var, rtol=1e-4)


def test_layer_norm_hands_on_the_variance():
    x = drawn(3, 5, 8)
    call = called(aten.native_layer_norm.default, x, [8], None, None, 1e-5)
    check(call)
    (step,) = call.ran.steps
    variance = step.outputs[2].value
    assert torch.allclose(variance.cpu(), x.cpu().var(-1, correction=0, keepdim=True))
    gamma, beta = (port.value for port in step.inputs[1:])
    assert bool((gamma == 1).all()) and bool((beta == 0).all())
    _, mean, rstd = call.results
    back = called(aten.native_layer_norm_backward.default, drawn(3, 5, 8), x, [8], mean, rstd, None,
                  None, [True, False, False])  # fmt: skip
    check_ends(back)
    (step,) = back.ran.steps
    assert torch.allclose(step.inputs[2].value, variance + 1e-5, rtol=1e-4)


@settings(max_examples=40)
@given(
    st.sampled_from([2, 1, 0, 3, 0.5, math.inf, -math.inf]),
    st.sampled_from([None, [0], [1], [0, -1]]),
    st.booleans(),
    st.sampled_from([FLOAT, HALF]),
)
def test_vector_norm_is_a_sum_and_its_root(order, axes, keepdim, dtype):
    x = drawn(3, 7, dtype=dtype)
    call = called(aten.linalg_vector_norm.default, x, order, axes, keepdim)
    check(call)
    check(called(aten.linalg_vector_norm.default, x[0, 0], order, [-1], keepdim))
    two = ("LpNormReduceV2", "LpNormUpdateV2")
    assert call.types == (two if dtype is FLOAT else ("Cast", *two, "Cast"))
    listed = called(aten._foreach_norm.Scalar, [x, x[0]], order)
    check(listed)
    assert listed.types == call.types * 2
