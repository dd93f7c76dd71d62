"""Every formula of the judge against PyTorch: its value in float64, and that its bound holds what
PyTorch computes in float32, float16 and bfloat16, whatever the geometry."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.judging import Numerics, class_of
from compare.judging.bounds import Call, Pair, measure, predict

aten = torch.ops.aten
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers in float64 that float32 holds exactly."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).double()


def as_call(tensors: dict[str, torch.Tensor], values: dict[str, Any], dtype: str) -> Call:
    """The call as a dump has it. dtype: of its floats."""
    arrays = {
        k: (t.float() if t.dtype is torch.bfloat16 else t).numpy() for k, t in tensors.items()
    }
    names = {
        k: dtype if t.is_floating_point() else str(t.dtype).removeprefix("torch.")
        for k, t in tensors.items()
    }
    return Call(arrays, names, values)


def cast(tensors: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Floats in another dtype."""
    return {k: t.to(dtype) if t.is_floating_point() else t for k, t in tensors.items()}


def outputs(returned: Any, name: str) -> torch.Tensor:
    """One result by the name that a dump gives it."""
    if isinstance(returned, torch.Tensor):
        return returned
    return returned[int(name.removeprefix("result"))]


def check(
    ir: str, op: Any, name: str, tensors: dict, values: dict, extra: dict | None = None
) -> None:
    """The formula's value is PyTorch's in float64, and its bound holds PyTorch's narrower ones.

    extra: arguments by name that go to PyTorch only.
    """
    known, arguments = class_of(ir), {**values, **(extra or {})}
    exact = outputs(op(**cast(tensors, torch.float64), **arguments), name)
    call = as_call(cast(tensors, torch.float64), values, "float64")
    value = np.asarray(predict(known, name, call, exact.numel()).v).reshape(exact.shape)
    rtol = 1e-7 if ir == "hardsigmoid_backward" else 1e-9  # PyTorch's 1/6 is a float32
    assert np.allclose(value, exact.numpy(), rtol=rtol, atol=1e-12, equal_nan=True)
    for dtype, narrow in DTYPES.items():
        given_ = cast(tensors, narrow)
        try:
            mine = outputs(op(**given_, **arguments), name)
        except RuntimeError as error:  # the CPU has no such kernel
            assert "not implemented" in str(error), error
            continue
        wide = outputs(op(**cast(given_, torch.float64), **arguments), name).to(mine.dtype)
        arrays = [side.float().numpy() for side in (mine, wide)]
        out = str(mine.dtype).removeprefix("torch.")
        call = as_call(given_, values, dtype)
        found = measure(known, name, Pair(*arrays, (out, out)), call, call, equal=True)
        assert found.nonfinite == 0
        assert found.left <= 1, (dtype, found)


UNARY = """abs neg exp expm1 log1p tanh sigmoid erf erfc sin cos reciprocal square relu silu mish
hardsigmoid hardswish""".split()


@pytest.mark.filterwarnings("ignore:invalid value")  # of negative numbers
@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_number(name: str) -> None:
    x = {"self": normal(40, 25)}
    check(name, getattr(aten, name).default, "result", x, {})


@pytest.mark.parametrize("name", ["log", "log2", "log10", "sqrt", "rsqrt"])
def test_a_function_of_one_positive_number(name: str) -> None:
    check(name, getattr(aten, name).default, "result", {"self": normal(40, 25).abs() + 0.01}, {})


@pytest.mark.parametrize(
    "ir, values",
    [
        ("add_Tensor", {"alpha": 0.3}),
        ("sub_Tensor", {"alpha": 2}),
        ("mul_Tensor", {}),
        ("div_Tensor", {}),
        ("maximum", {}),
        ("minimum", {}),
    ],
)
def test_a_function_of_two(ir: str, values: dict) -> None:
    name, _, overload = ir.partition("_")
    op = getattr(getattr(aten, name), overload or "default")
    check(ir, op, "result", {"self": normal(6, 1, 9), "other": normal(4, 9, seed=1)}, values)


X, Y, Z = normal(5, 37), normal(5, 37, seed=1), normal(5, 37, seed=2)
PROBABLE = torch.softmax(X, -1)

POINTWISE = [
    ("addcmul", aten.addcmul.default, {"self": X, "tensor1": Y, "tensor2": Z}, {"value": 0.1}),
    ("addcdiv", aten.addcdiv.default, {"self": X, "tensor1": Y, "tensor2": Z + 9}, {"value": 0.1}),
    ("lerp_Scalar", aten.lerp.Scalar, {"self": X, "end": Y}, {"weight": 0.3}),
    ("pow_Tensor_Scalar", aten.pow.Tensor_Scalar, {"self": X.abs()}, {"exponent": 1.7}),
    ("clamp", aten.clamp.default, {"self": X}, {"min": -0.5, "max": 0.5}),
    ("clamp_min", aten.clamp_min.default, {"self": X}, {"min": -0.5}),
    ("hardtanh", aten.hardtanh.default, {"self": X}, {"min_val": 0.0, "max_val": 1.0}),
    ("leaky_relu", aten.leaky_relu.default, {"self": X}, {"negative_slope": 0.2}),
    ("elu", aten.elu.default, {"self": X}, {"alpha": 1.3}),
    ("softplus", aten.softplus.default, {"self": 9 * X}, {"beta": 2, "threshold": 10}),
    ("gelu", aten.gelu.default, {"self": 3 * X}, {"approximate": "none"}),
    ("gelu", aten.gelu.default, {"self": 3 * X}, {"approximate": "tanh"}),
    ("gelu_backward", aten.gelu_backward.default, {"grad_output": Y, "self": 3 * X},
     {"approximate": "none"}),
    ("gelu_backward", aten.gelu_backward.default, {"grad_output": Y, "self": X},
     {"approximate": "tanh"}),
    ("silu_backward", aten.silu_backward.default, {"grad_output": Y, "self": X}, {}),
    ("sigmoid_backward", aten.sigmoid_backward.default, {"grad_output": Y, "output": PROBABLE}, {}),
    ("tanh_backward", aten.tanh_backward.default, {"grad_output": Y, "output": PROBABLE}, {}),
    ("threshold_backward", aten.threshold_backward.default, {"grad_output": Y, "self": X},
     {"threshold": 0}),
    ("leaky_relu_backward", aten.leaky_relu_backward.default, {"grad_output": Y, "self": X},
     {"negative_slope": 0.1, "self_is_result": False}),
    ("hardtanh_backward", aten.hardtanh_backward.default, {"grad_output": Y, "self": X},
     {"min_val": -1, "max_val": 1}),
    ("hardsigmoid_backward", aten.hardsigmoid_backward.default,
     {"grad_output": Y, "self": 3 * X}, {}),
    ("hardswish_backward", aten.hardswish_backward.default, {"grad_output": Y, "self": 3 * X}, {}),
    ("softplus_backward", aten.softplus_backward.default, {"grad_output": Y, "self": X},
     {"beta": 2, "threshold": 20}),
    ("mse_loss_backward", aten.mse_loss_backward.default,
     {"grad_output": normal(1).reshape(()), "self": X, "target": Y}, {"reduction": 1}),
]  # fmt: skip


@pytest.mark.parametrize("ir, op, tensors, values", POINTWISE)
def test_pointwise(ir: str, op: Any, tensors: dict, values: dict) -> None:
    check(ir, op, "result", tensors, values)


W, B = normal(37), normal(37, seed=3)
MEAN, RSTD = X.mean(-1, keepdim=True), 1 / X.std(-1, keepdim=True)
IMAGE, GRAD = normal(3, 4, 5, 6), normal(3, 4, 5, 6, seed=7)
C4 = normal(4)
STATS = IMAGE.mean((0, 2, 3)), 1 / IMAGE.std((0, 2, 3))
INDEX = torch.tensor([1, 0, 4, 4, 2])

REDUCTIONS = [
    ("sum", aten.sum.default, ("result",), {"self": X}, {}),
    ("sum_dim_IntList", aten.sum.dim_IntList, ("result",), {"self": X},
     {"dim": [0], "keepdim": True}),
    ("mean_dim", aten.mean.dim, ("result",), {"self": IMAGE}, {"dim": [2, 3], "keepdim": False}),
    ("var_correction", aten.var.correction, ("result",), {"self": X},
     {"dim": [1], "correction": 0}),
    ("linalg_vector_norm", aten.linalg_vector_norm.default, ("result",), {"self": X}, {"ord": 2}),
    ("linalg_vector_norm", aten.linalg_vector_norm.default, ("result",), {"self": X},
     {"ord": math.inf, "dim": [1]}),
    ("linalg_vector_norm", aten.linalg_vector_norm.default, ("result",), {"self": X}, {"ord": 3}),
    ("amax", aten.amax.default, ("result",), {"self": X}, {"dim": [1]}),
    ("cumsum", aten.cumsum.default, ("result",), {"self": X}, {"dim": 1}),
    ("_softmax", aten._softmax.default, ("result",), {"self": 5 * X},
     {"dim": 1, "half_to_float": False}),
    ("_log_softmax", aten._log_softmax.default, ("result",), {"self": 5 * X},
     {"dim": 0, "half_to_float": False}),
    ("logsumexp", aten.logsumexp.default, ("result",), {"self": X}, {"dim": [1], "keepdim": False}),
    ("native_layer_norm", aten.native_layer_norm.default, ("result0", "result1", "result2"),
     {"input": X, "weight": W, "bias": B}, {"normalized_shape": [37], "eps": 1e-5}),
    ("native_layer_norm_backward", aten.native_layer_norm_backward.default,
     ("result0", "result1", "result2"),
     {"grad_out": Y, "input": X, "mean": MEAN, "rstd": RSTD, "weight": W, "bias": B},
     {"normalized_shape": [37], "output_mask": [True] * 3}),
    ("native_batch_norm", aten.native_batch_norm.default, ("result0", "result1", "result2"),
     {"input": IMAGE, "weight": C4, "bias": C4},
     {"training": True, "momentum": 0.1, "eps": 1e-5}),
    ("native_batch_norm_backward", aten.native_batch_norm_backward.default,
     ("result0", "result1", "result2"),
     {"grad_out": GRAD, "input": IMAGE, "weight": C4, "save_mean": STATS[0],
      "save_invstd": STATS[1]},
     {"train": True, "eps": 1e-5, "output_mask": [True] * 3}),
    ("native_group_norm", aten.native_group_norm.default, ("result0", "result1", "result2"),
     {"input": IMAGE, "weight": C4, "bias": C4},
     {"N": 3, "C": 4, "HxW": 30, "group": 2, "eps": 1e-5}),
    ("mse_loss", aten.mse_loss.default, ("result",), {"self": X, "target": Y}, {"reduction": 1}),
    ("binary_cross_entropy_with_logits", aten.binary_cross_entropy_with_logits.default,
     ("result",), {"self": X, "target": PROBABLE}, {"reduction": 2}),
    ("embedding_dense_backward", aten.embedding_dense_backward.default, ("result",),
     {"grad_output": Y, "indices": INDEX},
     {"num_weights": 6, "padding_idx": -1, "scale_grad_by_freq": False}),
]  # fmt: skip


@pytest.mark.parametrize("ir, op, names, tensors, values", REDUCTIONS)
def test_reductions(ir: str, op: Any, names: tuple, tensors: dict, values: dict) -> None:
    missing = {
        "native_batch_norm": {"running_mean": None, "running_var": None},
        "native_batch_norm_backward": {"running_mean": None, "running_var": None},
    }
    for name in names:
        check(ir, op, name, tensors, values, missing.get(ir))


@pytest.mark.parametrize("kind", ["softmax", "log_softmax"])
def test_backwards_of_softmax(kind: str) -> None:
    y = getattr(torch, kind)(3 * X, -1)
    op = getattr(aten, f"_{kind}_backward_data").default
    exact = op(Y, y, -1, torch.float64)
    call = as_call({"grad_output": Y, "output": y}, {"dim": -1}, "float64")
    found = predict(class_of(f"_{kind}_backward_data"), "result", call, exact.numel())
    assert np.allclose(found.v, exact.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("target", [[3, 0, 4], [-100, -100, 2]])
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_nll_loss_and_its_backward(target: list[int], reduction: int) -> None:
    x, target_ = torch.log_softmax(normal(3, 5), -1), torch.tensor(target)
    weight = normal(5, seed=4).abs()
    values = {"reduction": reduction, "ignore_index": -100}
    tensors = {"self": x, "target": target_, "weight": weight}
    loss, total = aten.nll_loss_forward(**tensors, **values)
    call = as_call(tensors, values, "float64")
    known = class_of("nll_loss_forward")
    assert np.allclose(predict(known, "output", call, loss.numel()).v, loss.numpy())
    grad = normal(*loss.shape)
    tensors |= {"grad_output": grad, "total_weight": total}
    back = aten.nll_loss_backward(**tensors, **values)
    found = predict(
        class_of("nll_loss_backward"), "result", as_call(tensors, values, "float64"), 15
    )
    assert np.allclose(found.v, back.numpy())


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("counted", [False, True])
def test_pooling(ceil: bool, counted: bool) -> None:
    x = normal(2, 3, 9, 8)
    shape = {"kernel_size": [3, 2], "stride": [2, 2], "padding": [1, 1], "ceil_mode": ceil}
    check("avg_pool2d", aten.avg_pool2d.default, "result", {"self": x},
          {**shape, "count_include_pad": counted})  # fmt: skip
    shape["dilation"] = [1, 2]
    check("max_pool2d_with_indices", aten.max_pool2d_with_indices.default, "result0",
          {"self": x}, shape)  # fmt: skip


@pytest.mark.parametrize("counted", [False, True])
def test_backwards_of_pooling(counted: bool) -> None:
    x = normal(2, 3, 9, 8)
    shape = {"kernel_size": [3, 2], "stride": [2, 2], "padding": [1, 1], "ceil_mode": True}
    out = torch.nn.functional.avg_pool2d(x, [3, 2], 2, 1, True, counted)
    extra = {"count_include_pad": counted, "divisor_override": None}
    check("avg_pool2d_backward", aten.avg_pool2d_backward.default, "result",
          {"grad_output": normal(*out.shape), "self": x}, {**shape, **extra})  # fmt: skip
    shape["dilation"] = [1, 1]
    out, index = aten.max_pool2d_with_indices(x, **shape)
    grad = {"grad_output": normal(*out.shape), "self": x, "indices": index}
    op = aten.max_pool2d_with_indices_backward.default
    check("max_pool2d_with_indices_backward", op, "result", grad, shape)


def products(k: int) -> list[tuple[str, Any, dict]]:
    """Matrix products with a sum over k."""
    a, b, v = normal(6, k), normal(k, 5, seed=1), normal(k, seed=2)
    batch = normal(3, 6, k), normal(3, k, 5, seed=1)
    return [
        ("mm", aten.mm.default, {"self": a, "mat2": b}),
        ("mv", aten.mv.default, {"self": a, "vec": v}),
        ("dot", aten.dot.default, {"self": v, "tensor": normal(k, seed=4)}),
        ("bmm", aten.bmm.default, {"self": batch[0], "mat2": batch[1]}),
        ("addmm", aten.addmm.default, {"self": normal(5), "mat1": a, "mat2": b}),
        ("baddbmm", aten.baddbmm.default,
         {"self": normal(6, 5), "batch1": batch[0], "batch2": batch[1]}),
    ]  # fmt: skip


@pytest.mark.parametrize("k", [1, 7, 300])
@pytest.mark.parametrize("number", range(6))
def test_matrix_products(k: int, number: int) -> None:
    ir, op, tensors = products(k)[number]
    values = {"beta": 0.5, "alpha": 2} if "add" in ir else {}
    check(ir, op, "result", tensors, values)


@settings(max_examples=25)
@given(
    st.integers(1, 2), st.sampled_from([1, 2, 3]), st.booleans(), st.integers(1, 3),
    st.integers(0, 2), st.integers(1, 2), st.integers(1, 3), st.booleans(),
)  # fmt: skip
def test_convolutions_and_their_backward(
    rank: int, groups: int, transposed: bool, stride: int, padding: int, dilation: int, kernel: int,
    bias: bool,
) -> None:  # fmt: skip
    channels, out = 2 * groups, 3 * groups
    x = normal(2, channels, *(7, 6)[:rank])
    shape = (channels, 3) if transposed else (out, 2)
    w = normal(*shape, *(kernel, 2)[:rank], seed=1)
    values = {
        "stride": [stride] * rank, "padding": [padding] * rank, "dilation": [dilation] * rank,
        "transposed": transposed, "output_padding": [0] * rank, "groups": groups,
    }  # fmt: skip
    tensors = {"input": x, "weight": w} | ({"bias": normal(out)} if bias else {})
    extra = {} if bias else {"bias": None}
    try:
        y = aten.convolution(**tensors, **extra, **values)
    except RuntimeError:  # a kernel larger than the input, or nothing is left
        return
    check("convolution", aten.convolution.default, "result", tensors, values, extra)
    back = {"grad_output": normal(*y.shape, seed=2), "input": x, "weight": w}
    values |= {"bias_sizes": [out], "output_mask": [True] * 3}
    for name in ("result0", "result1", "result2"):
        check("convolution_backward", aten.convolution_backward.default, name, back, values)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_and_its_backward(causal: bool) -> None:
    q, k, v = (normal(2, 3, 9, 8, seed=i) for i in range(3))
    flash = aten._scaled_dot_product_flash_attention_for_cpu
    out, lse = flash(q, k, v, 0.0, causal)
    tensors = {"query": q, "key": k, "value": v}
    values = {"dropout_p": 0.0, "is_causal": causal}
    ir = "_scaled_dot_product_flash_attention_for_cpu"
    call = as_call(tensors, values, "float64")
    assert np.allclose(predict(class_of(ir), "output", call, out.numel()).v, out.numpy())
    assert np.allclose(predict(class_of(ir), "logsumexp", call, out.numel()).v, lse.numpy())
    grad = normal(*out.shape, seed=5)
    tensors |= {"grad_out": grad, "out": out, "logsumexp": lse}
    back = aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, q, k, v, out, lse, 0.0, causal
    )
    for name, expected in zip(("grad_query", "grad_key", "grad_value"), back, strict=True):
        call = as_call(tensors, values, "float64")
        found = predict(class_of(f"{ir}_backward"), name, call, out.numel())
        assert np.allclose(found.v, expected.numpy())


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("name", ["_fused_adam_", "_fused_adamw_"])
def test_fused_optimizers(name: str, weight_decay: float) -> None:
    before = {
        "self": X.clone(), "grads": Y, "exp_avgs": Z.clone(), "exp_avg_sqs": Z.abs(),
        "state_steps": torch.tensor(3.0),
    }  # fmt: skip
    call_values = {
        "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": weight_decay, "eps": 1e-8,
        "amsgrad": False, "maximize": False,
    }  # fmt: skip
    call = as_call({f"{k}/{k}_0": v.clone() for k, v in before.items()}, call_values, "float64")
    lists = [[before[k]] for k in ("self", "grads", "exp_avgs", "exp_avg_sqs")]
    getattr(aten, name)(*lists, [], [before["state_steps"]], **call_values)
    for key in ("self", "exp_avgs", "exp_avg_sqs"):
        found = predict(class_of(name), f"{key}/{key}_0", call, X.numel())
        assert np.allclose(found.v, before[key].numpy(), rtol=1e-12)


def test_lists_are_judged_tensor_by_tensor() -> None:
    xs, ys = [normal(3), normal(4)], [normal(3, seed=5), normal(4, seed=5)]
    tensors = {
        f"{name}/{name}_{i}": x for name, side in (("self", xs), ("other", ys)) for i, x in
        enumerate(side)
    }  # fmt: skip
    op = class_of("_foreach_add__List")
    call = as_call(tensors, {"alpha": 2}, "float64")
    found = predict(op, "self/self_1", call, 4)
    assert np.allclose(found.v, (xs[1] + 2 * ys[1]).numpy())
    call = as_call(tensors, {"scalars": [3.0, 5.0]}, "float64")._replace(
        arrays={k: v.numpy() for k, v in tensors.items() if "self" in k}
    )
    found = predict(class_of("_foreach_mul_ScalarList"), "result/result_1", call, 4)
    assert np.allclose(found.v, (5 * xs[1]).numpy())


@pytest.mark.parametrize("mode", ["float16", "hf32", "tf32"])
def test_narrowed_operands_are_predicted(mode: str) -> None:
    a, b = normal(4, 50), normal(50, 3)
    call = as_call({"self": a, "mat2": b}, {}, "float32")._replace(numerics=Numerics(matrix=mode))
    found = predict(class_of("mm"), "result", call, 12)
    kept = {"float16": 10, "hf32": 11, "tf32": 10}[mode]
    rounded = [torch.ldexp(torch.round(torch.ldexp(m, torch.tensor(kept + 1))), e - kept - 1)
               for m, e in map(torch.frexp, (a, b))]  # fmt: skip
    assert np.allclose(found.v, (rounded[0] @ rounded[1]).numpy(), rtol=1e-12)
