"""Single ops as TBE operators: which of the table's sequences, and on what condition.

Each call is held against the table, the op's own result and the formats, as those of training
steps are (`test_ir2tbe_sequences.check`); what stands here besides is the condition.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ir2tbe_sequences import (
    PROFILES,
    called,
    check,
    check_ends,
    check_formats,
    profile,
    same,
)
from torch import Tensor

from ir2tbe.sequences import results_of, run
from npu_core import options, status
from npu_core.formats import Format

aten = torch.ops.aten
DEVICES = ("npu", "cpu")
HALF, FLOAT = torch.float16, torch.float32


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def drawn(*shape: int, device: str = "npu", dtype: torch.dtype = FLOAT) -> Tensor:
    return torch.randn(shape).to(device, dtype)


def ones(count: int, device: str = "npu") -> Tensor:
    return torch.rand(count).to(device) + 0.5


# Matrix products.


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


# Convolutions.

CONVOLUTIONS = {
    "2d": ((2, 4, 6, 5), (6, 4, 3, 3), False, 1, "Conv2D"),
    "1d": ((2, 4, 6), (6, 4, 3), False, 1, "Conv2D"),
    "3d": ((2, 4, 4, 4, 5), (6, 4, 3, 3, 3), False, 1, "Conv3D"),
    "groups": ((2, 6, 6, 5), (4, 3, 3, 3), False, 2, "Conv2D"),
    "depthwise": ((2, 6, 6, 5), (12, 1, 3, 3), False, 6, "Conv2D"),
    "transposed": ((2, 4, 4, 3), (4, 3, 3, 3), True, 1, "Conv2DTranspose"),
    "transposed groups": ((2, 4, 4, 3), (4, 3, 3, 3), True, 2, "Conv2DTranspose"),
    "transposed 1d": ((2, 4, 4), (4, 3, 3), True, 1, "Conv2DTranspose"),
    "transposed 3d": ((2, 4, 3, 3, 4), (4, 3, 2, 2, 2), True, 1, "Conv3DTranspose"),
}


def convolved(name: str, dtype: torch.dtype, device: str) -> tuple:
    shape, weight, transposed, groups, _ = CONVOLUTIONS[name]
    rank = len(shape) - 2
    x, w = (drawn(*s, device=device, dtype=dtype) for s in (shape, weight))
    bias = drawn(weight[1] * groups if transposed else weight[0], device=device, dtype=dtype)
    return x, w, bias, [2] * rank, [1] * rank, [1] * rank, transposed, [0] * rank, groups


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name, dtype, device):
    given = convolved(name, dtype, device)
    call = called(aten.convolution.default, *given)
    check(call)
    (step,) = call.ran.steps
    assert step.op == CONVOLUTIONS[name][-1]
    assert all(port.value.dim() in (1, 4, 5) for port in (*step.inputs, *step.outputs))
    weight = next(p for p in step.inputs if p.value.numel() == given[1].numel())
    assert weight.groups == given[-1]
    assert weight.format is (Format.FRACTAL_Z_3D if "3D" in step.op else Format.FRACTAL_Z)
    attributes = dict(step.attributes)
    assert len(attributes["strides"]) == 2 + len(attributes["pads"]) // 2
    assert attributes["strides"][-1] == 2 and attributes["pads"][-1] == 1


@pytest.mark.parametrize("mask", [[True] * 3, [False, True, True], [True, False, False]])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_backward_is_one_operator_for_each_gradient(name, mask):
    for device, dtype in (("npu", HALF), ("npu", FLOAT), ("cpu", FLOAT)):
        x, w, bias, *numbers = convolved(name, dtype, device)
        grad = torch.randn_like(aten.convolution.default(x, w, bias, *numbers))
        sizes = list(bias.shape)
        call = called(aten.convolution_backward.default, grad, x, w, sizes, *numbers, mask)
        check(call)
        assert len(call.ran.steps) == sum(mask)
        if mask[0] and CONVOLUTIONS[name][2]:
            assert call.types[0] in ("Conv2D", "Conv3D")


@pytest.mark.parametrize("name", [n for n in CONVOLUTIONS if "1d" not in n])
def test_gradients_of_a_convolution_follow_from_the_operators_inputs(name):
    given = convolved(name, torch.float64, "cpu")
    rank, weight = given[0].dim() - 2, given[1]
    grad = torch.randn_like(aten.convolution.default(*given))
    call = called(aten.convolution_backward.default, grad, *given[:2], None, *given[3:],
                  [True, True, False])  # fmt: skip
    one, two = call.ran.steps
    how = {"stride": 2, "padding": 1, "groups": given[-1]}
    if CONVOLUTIONS[name][2]:
        x, filters = (port.value for port in one.inputs)
        computed = getattr(torch.nn.functional, f"conv{rank}d")(x, filters, **how)
    else:
        size, filters, back = (port.value for port in one.inputs)
        formula = getattr(torch.nn.grad, f"conv{rank}d_input")
        computed = formula(size.tolist(), filters, back, **how)
    assert torch.allclose(computed, one.outputs[0].value)
    x, size, back = (port.value for port in two.inputs)
    formula = getattr(torch.nn.grad, f"conv{rank}d_weight")
    assert torch.allclose(formula(x, size.tolist(), back, **how), two.outputs[0].value)
    assert two.outputs[0].value.shape == weight.shape


# Normalizations.


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
    two = ("LpNormReduceV2", "LpNormUpdateV2")
    assert call.types == (two if dtype is FLOAT else ("Cast", *two, "Cast"))
    listed = called(aten._foreach_norm.Scalar, [x, x[0]], order)
    check(listed)
    assert listed.types == call.types * 2


# Losses, dropout.


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_nll_loss(reduction, weighted, device):
    x, target = drawn(4, 5, device=device), torch.tensor([0, 4, -100, 2]).to(device)
    weight = ones(5, device) if weighted else None
    given = x, target, weight, reduction, -100
    call = called(aten.nll_loss_forward.default, *given)
    check(call)
    assert call.types == ("OnesLike", "Cast", "NLLLoss")[weighted:]
    assert call.ran.steps[-1].inputs[1].value.dtype is torch.int32
    value, total = call.results
    back = called(aten.nll_loss_backward.default, torch.ones_like(value), *given, total)
    check(back)
    assert back.types == ("OnesLike", "Cast", "NLLLossGrad")[weighted:]


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize("device", DEVICES)
def test_dropout_uses_the_mask_that_was_drawn(device, dtype, p):
    x = drawn(7, 33, device=device, dtype=dtype)
    call = called(aten.native_dropout.default, x, p, True)
    check(call)
    bits = call.ran.steps[0].outputs[0].value.cpu().numpy()
    assert bits.size % 16 == 0
    mask = np.unpackbits(bits, bitorder="little")
    assert np.array_equal(mask[: x.numel()], call.results[1].cpu().numpy().ravel())
    assert not mask[x.numel() :].any()
    scale = 1 / (1 - p) if p < 1 else 0.0
    back = called(aten.native_dropout_backward.default, x, call.results[1], scale)
    check(back)
    assert back.types == (("DropOutDoMask",) if p < 1 else ("ZerosLike",))


def test_dropout_in_evaluation_keeps_all():
    call = called(aten.native_dropout.default, drawn(3, 4), 0.5, False)
    check(call)
    assert float(call.ran.steps[1].inputs[2].value) == 1.0


# Moving memory.


@pytest.mark.parametrize(
    ("view", "types"),
    [
        (lambda x: x, ()),
        (lambda x: x.mT, ("Transpose",)),
        (lambda x: x.permute(2, 0, 1), ("Transpose",)),
        (lambda x: x[:1].expand(3, 4, 5), ("BroadcastTo",)),
        (lambda x: x[:, 1:3], ("StridedSlice",)),
        (lambda x: x[:, 1:3].mT, ("AsStrided",)),
        (lambda x: x[:, :1, ::2].expand(3, 4, 3), ("AsStrided",)),
    ],
)
@pytest.mark.parametrize("device", DEVICES)
def test_clone_hangs_on_how_the_tensor_lies(view, types, device):
    x = view(drawn(3, 4, 5, device=device))
    call = called(aten.clone.default, x, memory_format=torch.contiguous_format)
    check(call)
    assert call.types == types
    if types == ("Transpose",):
        base, places = (port.value for port in call.ran.steps[0].inputs)
        assert base.is_contiguous() and torch.equal(base.permute(places.tolist()), x)


@pytest.mark.parametrize(
    ("target", "source", "types"),
    [
        (lambda x: x, lambda y: y, ()),
        (lambda x: x, lambda y: y.half(), ("Cast",)),
        (lambda x: x, lambda y: y.cpu(), ()),
        (lambda x: x, lambda y: y.mT.contiguous().mT, ("AsStrided",)),
        (lambda x: x, lambda y: y[:1].expand(3, 4), ("AsStrided",)),
        (lambda x: x, lambda y: y[:1], ("AsStrided",)),
        (lambda x: x.mT.contiguous().mT, lambda y: y, ("ViewCopy",)),
        (lambda x: x.mT.contiguous().mT, lambda y: y.half(), ("Cast", "ViewCopy")),
        (lambda x: x, lambda y: y.half().mT.contiguous().mT, ("AsStrided", "Cast")),
        (lambda x: x.mT.contiguous().mT, lambda y: y.int().mT.contiguous().mT,
         ("AsStrided", "Cast", "ViewCopy")),
    ],
)  # fmt: skip
def test_copy_runs_what_is_needed(target, source, types):
    call = called(aten.copy_.default, target(drawn(3, 4)), source(drawn(3, 4)))
    check(call)
    assert call.types == types


def test_a_copy_into_another_format_is_an_identity():
    target = torch.ops.npu.npu_format_cast(drawn(3, 4), int(Format.FRACTAL_NZ))
    call = called(aten.copy_.default, target, drawn(3, 4))
    check(call)
    assert call.types == ("Identity",)


def test_a_cast_of_the_format_is_an_operator_where_memory_moves():
    cast, tiled = torch.ops.npu.npu_format_cast.default, Format.FRACTAL_NZ
    to = called(cast, drawn(3, 4), int(tiled))
    back = called(cast, to.results[0], int(Format.ND))
    there = called(torch.ops.npu.npu_format_cast_.acl_format, drawn(3, 4), int(tiled))
    for call, formats in (
        (to, [Format.ND, tiled]),
        (back, [tiled, Format.ND]),
        (there, [Format.ND, tiled]),
    ):
        check_ends(call)
        check_formats(call)
        (step,) = call.ran.steps
        assert step.op == "TransData"
        assert [port.format for port in (*step.inputs, *step.outputs)] == formats
    assert called(cast, to.results[0], int(tiled)).types == ()
    assert called(cast, drawn(3, 4), int(Format.NCHW)).types == ()


def test_a_change_of_dtype_is_a_cast_on_the_device_only():
    x = drawn(3, 4)
    call = called(aten._to_copy.default, x, dtype=HALF)
    check(call)
    assert call.types == ("Cast",) and dict(call.ran.steps[0].attributes)["dst_type"] == "float16"
    assert called(aten._to_copy.default, x).types == ()
    assert called(aten._to_copy.default, x, dtype=HALF, device="cpu").types == ()


@pytest.mark.parametrize(
    ("pads", "types"),
    [
        ([0, 1], ("Fill", "PadV3")),
        ([1, 2, 3, 0], ("Fill", "PadV3")),
        ([-1, 2, 0, -1], ("Fill", "PadV3", "StridedSlice", "StridedSlice")),
        ([0, 0, 0, -2], ("StridedSlice",)),
        ([-1, 0, 0, -2], ("StridedSlice", "StridedSlice")),
        ([2, -3], ("Fill", "PadV3", "StridedSlice")),
    ],
)
@pytest.mark.parametrize("dtype", [FLOAT, torch.int64])
def test_padding(pads, types, dtype):
    x = (drawn(2, 4, 5) * 9).to(dtype)
    call = called(aten.constant_pad_nd.default, x, pads, 7)
    check(call)
    assert call.types == types


# Elementwise.


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


# Optimizers.


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("found", [0.0, 1.0])
def test_a_fused_optimizer_divides_by_the_scale_and_skips(found, device):
    def lists() -> list[Tensor]:
        return [torch.rand(3, 4).to(device) + 0.5, torch.rand(5).to(device) + 0.5]

    one = partial(torch.tensor, device=device)
    scaled = {"grad_scale": one(4.0), "found_inf": one(found)}
    adam = called(aten._fused_adam_.default, lists(), lists(), lists(), lists(), [],
                  [one(3.0), one(3.0)], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8,
                  amsgrad=False, maximize=True, **scaled)  # fmt: skip
    check(adam)
    sgd = called(aten._fused_sgd_.default, lists(), lists(), lists(), weight_decay=0.1,
                 momentum=0.9, lr=0.1, dampening=0.1, nesterov=False, maximize=False,
                 is_first_step=False, **scaled)  # fmt: skip
    check(sgd)
    for call in (adam, sgd):
        assert call.types[:1] == (() if found else ("RealDiv",))


def test_copies_of_lists_are_casts():
    call = called(aten._foreach_copy_.default, [drawn(3), drawn(2)], [drawn(3).half(), drawn(2)])
    assert call.types == ("Cast",) and call.ran.steps[0].outputs[0].result == 0


# What is no sequence.


def test_what_nobody_broke_down_is_one_operator_and_says_so():
    call = called(aten.nll_loss2d_forward.default, drawn(1, 3, 2, 2),
                  torch.zeros(1, 2, 2, dtype=torch.int64).npu(), None, 1, -100)  # fmt: skip
    assert call.ran.instead_of[-1:] == call.types and len(call.ran.instead_of) == 3
    call = called(aten.linalg_qr.default, drawn(3, 3))
    (step,) = call.ran.steps
    assert [port.result for port in step.outputs] == [0, 1]
    call = called(aten._thnn_fused_gru_cell.default, *(drawn(2, 9) for _ in range(2)), drawn(2, 3))
    assert call.ran.instead_of == () and call.types == ("_thnn_fused_gru_cell",)
    assert len(call.ran.steps[0].inputs) == 3


def test_what_runs_no_operator_has_no_steps():
    x = drawn(2, 3)
    for call in (
        called(aten.empty_like.default, x),
        called(aten._local_scalar_dense.default, x[0, 0]),
        called(aten._unsafe_view.default, x, [6]),
    ):
        assert call.ran.steps == () and call.ran.instead_of is None


def test_sparse_tensors_are_for_no_operator():
    call = called(aten.clone.default, torch.eye(3).to_sparse())
    assert call.ran.instead_of is not None


def test_results_are_what_is_returned_and_then_what_is_written():
    x = [drawn(2), drawn(3)]
    call = called(aten._foreach_add_.Scalar, x, 1)
    assert len(call.results) == 2 and call.results[0] is x[0]
    mean, var = drawn(4), ones(4)
    given = drawn(2, 4, 3, 3), None, None, mean, var, True, 0.1, 1e-5
    op = called(aten.native_batch_norm.default, *given).op
    returned = (drawn(1), drawn(1), drawn(1))
    found = results_of(op, list(given), returned)
    assert [id(t) for t in found] == [id(t) for t in (*returned, mean, var)]
    mask = [False, True, False]
    grads = called(aten.convolution_backward.default, drawn(1, 1, 1, 1), drawn(1, 1, 3, 3),
                   drawn(1, 1, 3, 3), [1], [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
                   mask).results  # fmt: skip
    assert [g is not None for g in grads] == mask


# It disturbs nothing, and knows the device's own formats.


def test_running_writes_no_argument_draws_nothing_and_notes_no_overflow():
    with profile("910A"):
        large = torch.full((4, 4), 6e4).npu().half()
        bias = drawn(4, dtype=HALF)
        call = called(aten.addmm.default, bias, large, large)
        values = [v.clone() if isinstance(v, Tensor) else v for v in call.values]
        generators = torch.get_rng_state(), torch.npu.get_rng_state()
        status.clear()
        status.note(status.NEGATE)
        run(call.op, call.values, call.results)
        assert status.read() == status.NEGATE
        status.clear()
        for before, after in zip(values, call.values, strict=True):
            assert before is after or torch.equal(before, after)
        assert torch.equal(generators[0], torch.get_rng_state())
        assert torch.equal(generators[1], torch.npu.get_rng_state())


def test_a_label_is_what_an_input_says_where_nobody_asks_for_another():
    x = torch.ops.npu.npu_format_cast(drawn(3, 4), int(Format.FRACTAL_NZ))
    (step,) = called(aten.relu.default, x).ran.steps
    assert [p.format for p in (*step.inputs, *step.outputs)] == [Format.FRACTAL_NZ] * 2
    (step,) = called(aten.relu.default, drawn(1, 2, 3, 4)).ran.steps
    assert step.inputs[0].format is Format.NCHW


@pytest.mark.parametrize("chip", PROFILES)
def test_a_label_stays_where_the_op_writes_in_place(chip):
    with profile(chip):
        labelled = [
            torch.ops.npu.npu_format_cast(drawn(3, 4), int(Format.FRACTAL_NZ)) for _ in "12"
        ]
        calls = [called(aten.relu_.default, labelled[0]),
                 called(aten._foreach_mul_.Scalar, [drawn(5), *labelled], 2)]  # fmt: skip
    for call in calls:
        for step in call.ran.steps:
            for port in (*step.inputs, *step.outputs):
                assert (port.format is Format.FRACTAL_NZ) == (port.value.dim() == 2)


def test_the_chips_own_formats_are_kept_where_it_has_them():
    def formats(chip: str, dtype: torch.dtype) -> list[Format]:
        with profile(chip):
            call = called(aten.convolution.default, *convolved("2d", dtype, "npu"))
        (step,) = call.ran.steps
        return [p.format for p in (*step.inputs[:2], *step.outputs)]

    assert formats("910A", HALF) == [Format.NC1HWC0, Format.FRACTAL_Z, Format.NC1HWC0]
    assert formats("910A", FLOAT) == [Format.NCHW, Format.FRACTAL_Z, Format.NCHW]
    assert formats("910B", HALF) == [Format.NCHW] * 3
    with profile("910A"):
        options.set_option({"MM_BMM_ND_ENABLE": "enable"})
        (step,) = called(aten.mm.default, drawn(2, 3), drawn(3, 4)).ran.steps
    assert step.outputs[0].format is Format.ND


def test_a_number_too_large_for_the_dtype_is_infinite():
    call = called(aten.mul.Tensor, drawn(3, device="cpu", dtype=HALF), 1e6)
    check(call)
    assert math.isinf(float(call.ran.steps[0].inputs[1].value))
