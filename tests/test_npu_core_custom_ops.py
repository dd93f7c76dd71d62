"""The `torch_npu.npu_*` functions against their documented formulas."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from formulas import close, random, softmax

import npu_core
from npu_core.ascend import torch_npu

pytestmark = pytest.mark.usefixtures("exact")


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


# Functions: ours, the formula on the inputs as numpy float64, and the inputs.


def rms_norm(x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * gamma


def rotate_half(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    half = x.shape[-1] // 2
    return cos * x + sin * np.concatenate((-x[..., half:], x[..., :half]), -1)


def rotate_pairs(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    turned = np.empty_like(x)
    turned[..., ::2], turned[..., 1::2] = -x[..., 1::2], x[..., ::2]
    return cos * x + sin * turned


def swiglu(x: np.ndarray) -> np.ndarray:
    a, b = np.split(x, 2, 1)
    return a * sigmoid(a) * b


FUNCTIONS: dict[str, tuple[Callable, Callable, list[tuple[int, ...]]]] = {
    "npu_linear": (torch_npu.npu_linear, lambda x, w, b: x @ w.T + b, [(3, 4), (5, 4), (5,)]),
    "npu_linear without bias": (torch_npu.npu_linear, lambda x, w: x @ w.T, [(3, 4), (5, 4)]),
    "npu_bmmV2": (torch_npu.npu_bmmV2, np.matmul, [(2, 3, 4), (2, 4, 5)]),
    "npu_bmmV2 summed": (
        lambda a, b: torch_npu.npu_bmmV2(a, b, [3, 5]),
        lambda a, b: np.matmul(a, b).sum(0),
        [(2, 3, 4), (2, 4, 5)],
    ),
    "npu_transpose": (
        lambda x: torch_npu.npu_transpose(x, (2, 0, 1)),
        lambda x: x.transpose(2, 0, 1),
        [(2, 3, 5)],
    ),
    "npu_confusion_transpose first": (
        lambda x: torch_npu.npu_confusion_transpose(x, (0, 2, 1, 3), (2, 4, 18), True),
        lambda x: x.transpose(0, 2, 1, 3).reshape(2, 4, 18),
        [(2, 3, 4, 6)],
    ),
    "npu_confusion_transpose last": (
        lambda x: torch_npu.npu_confusion_transpose(x, (0, 2, 1), (2, 12, 6), False),
        lambda x: x.reshape(2, 12, 6).transpose(0, 2, 1),
        [(2, 3, 4, 6)],
    ),
    "fast_gelu": (torch_npu.fast_gelu, lambda x: x * sigmoid(1.702 * x), [(4, 3)]),
    "npu_rms_norm": (
        lambda x, gamma: torch_npu.npu_rms_norm(x, gamma, epsilon=1e-3)[0],
        rms_norm,
        [(2, 3, 8), (8,)],
    ),
    "npu_rotary_mul": (torch_npu.npu_rotary_mul, rotate_half, [(2, 3, 4, 6)] + [(1, 1, 4, 6)] * 2),
    "npu_rotary_mul interleave": (
        lambda *args: torch_npu.npu_rotary_mul(*args, rotary_mode="interleave"),
        rotate_pairs,
        [(2, 3, 4, 6)] + [(1, 1, 4, 6)] * 2,
    ),
    "npu_swiglu": (lambda x: torch_npu.npu_swiglu(x, 1), swiglu, [(2, 6, 3)]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_its_formula_and_differentiable(name: str) -> None:
    ours, formula, shapes = FUNCTIONS[name]
    inputs = [random(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]
    result = ours(*inputs)
    assert result.is_npu
    assert result.is_contiguous()
    assert close(result, formula(*(x.detach().cpu().numpy() for x in inputs)))
    assert torch.autograd.gradcheck(ours, inputs)


@pytest.mark.parametrize("name", ["fast_gelu", "npu_rms_norm", "npu_swiglu"])
def test_half_inputs_are_rounded_once(name: str) -> None:
    ours, formula, shapes = FUNCTIONS[name]
    inputs = [random(*shape, seed=i).half() for i, shape in enumerate(shapes)]
    wide = formula(*(x.cpu().double().numpy() for x in inputs))
    result = ours(*inputs)
    assert result.dtype is torch.half
    # One rounding to 11 bits, and fp32's own error, which moves a value across a tie at most.
    assert close(result, wide, 2**-11 * (1 + 2**-8))


def test_the_documented_example_of_fast_gelu() -> None:
    result = torch_npu.fast_gelu(torch.tensor([0.5991, 0.4094]).npu())
    assert torch.allclose(result.cpu(), torch.tensor([0.4403, 0.2733]), atol=5e-5, rtol=0)


def test_rms_norm_returns_the_reciprocal_of_the_rms_in_fp32() -> None:
    x = random(2, 3, 8).half()
    rstd = torch_npu.npu_rms_norm(x, torch.ones(8, dtype=torch.half, device="npu"))[1]
    wide = x.cpu().double().numpy()
    assert rstd.dtype is torch.float32
    assert close(rstd, 1 / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6), 1e-6)


def test_scaled_masked_softmax() -> None:
    x, mask = random(2, 3, 4, 5), random(2, 1, 4, 5, seed=1) > 0.5
    result = torch_npu.npu_scaled_masked_softmax(x, mask, 0.5)
    masked = np.where(mask.cpu().numpy(), -10000.0, 0.5 * x.cpu().numpy())
    assert close(result, softmax(masked))
    with pytest.raises(RuntimeError, match="fixed_triu_mask"):
        torch_npu.npu_scaled_masked_softmax(x, mask, 0.5, True)


def test_dtype_and_format_casts() -> None:
    x = random(2, 3, 4, 5)
    assert torch_npu.npu_dtype_cast(x, torch.half).dtype is torch.half
    y = torch_npu.npu_format_cast(x.half(), 29)
    assert torch_npu.get_npu_format(y) == 29
    torch_npu.npu_format_cast_(y, 0)
    assert torch_npu.get_npu_format(y) == 0


def test_the_float_status_calls() -> None:
    with npu_core.use("910A"):
        status = torch_npu.npu_alloc_float_status(torch.ones(1).npu())
        torch_npu.npu_clear_float_status(status)
        torch.full((4,), 60000.0, dtype=torch.half, device="npu") * 2
        assert torch_npu.npu_get_float_status(status)[0].item() != 0
        torch_npu.npu_clear_float_status(status)
        assert torch_npu.npu_get_float_status(status)[0].item() == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: torch_npu.npu_swiglu(random(2, 3)), ValueError, "size 3 is odd"),
        (lambda: torch_npu.npu_rotary_mul(*[random(1, 1, 2, 4)] * 3, rotary_mode="third"),
         ValueError, "half or interleave"),
        (lambda: torch_npu.npu_rotary_mul(*[random(1, 1, 2, 5)] * 3), ValueError, "5 is odd"),
        (lambda: torch_npu.npu_lstm, AttributeError, r"torch_npu\.npu_lstm is not emulated"),
    ],
    ids=["swiglu", "rotary", "odd rotary", "unknown"],
)  # fmt: skip
def test_what_cannot_be_done_is_said(call: Callable, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("nesterov", [False, True])
def test_apply_adam(nesterov: bool) -> None:
    var, m, v, grad = (random(5, seed=i) for i in range(4))
    v.abs_()
    w, n, s, g = (t.cpu().numpy().copy() for t in (var, m, v, grad))
    n, s = 0.9 * n + 0.1 * g, 0.99 * s + 0.01 * g**2
    rate = 0.1 * math.sqrt(1 - 0.99**3) / (1 - 0.9**3)
    w = w - rate * (0.9 * n + 0.1 * g if nesterov else n) / (np.sqrt(s) + 1e-8)
    out = torch_npu.npu_apply_adam(
        0.9**3, 0.99**3, 0.1, 0.9, 0.99, 1e-8, grad, False, nesterov, out=(var, m, v)
    )
    assert all(a is b for a, b in zip(out, (var, m, v), strict=True))
    assert all(close(t, a) for t, a in zip(out, (w, n, s), strict=True))
