"""Formulas of ops that compute each element from the elements at its place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .operands import Operands, formula
from .tracked import (
    FUNCTION,
    Tracked,
    cos,
    erf,
    exp,
    expm1,
    log,
    log1p,
    maximum,
    minimum,
    power,
    rsqrt,
    sigmoid,
    sin,
    sqrt,
    tanh,
    where,
)  # fmt: skip

_SQRT_HALF = math.sqrt(0.5)
_PHI = 1 / math.sqrt(2 * math.pi)
_GELU = math.sqrt(2 / math.pi)


def _plain(name: str, function: Any) -> None:
    formula(name)(lambda c: function(c["self"]))


for _name, _function in {
    "abs": abs, "neg": lambda x: -x, "exp": exp, "expm1": expm1, "log": log, "log1p": log1p,
    "log2": lambda x: log(x) / math.log(2), "log10": lambda x: log(x) / math.log(10),
    "tanh": tanh, "sigmoid": sigmoid, "erf": erf, "sqrt": sqrt, "rsqrt": rsqrt, "sin": sin,
    "cos": cos, "reciprocal": lambda x: 1.0 / x, "square": lambda x: x * x,
    "relu": lambda x: maximum(x, 0.0), "silu": lambda x: x * sigmoid(x),
    "erfc": lambda x: 1.0 - erf(x), "mish": lambda x: x * tanh(_softplus(x)),
    "hardsigmoid": lambda x: minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0,
    "hardswish": lambda x: x * minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0,
    "log_sigmoid_forward": lambda x: -_softplus(-x),
}.items():  # fmt: skip
    _plain(_name, _function)


@formula("add")
def _add(c: Operands) -> Tracked:
    return c["self"] + c["other"] * float(c.value("alpha", 1))


@formula("sub")
def _sub(c: Operands) -> Tracked:
    return c["self"] - c["other"] * float(c.value("alpha", 1))


@formula("rsub")
def _rsub(c: Operands) -> Tracked:
    return c["other"] - c["self"] * float(c.value("alpha", 1))


@formula("mul")
def _mul(c: Operands) -> Tracked:
    return c["self"] * c["other"]


@formula("div")
def _div(c: Operands) -> Tracked:
    quotient = c["self"] / c["other"]
    mode = c.value("rounding_mode")
    if mode is None:
        return quotient
    rounded = (np.trunc if mode == "trunc" else np.floor)(quotient.v)
    near = np.abs(quotient.v - np.rint(quotient.v)) <= quotient.w * 2.0**-23
    return Tracked(rounded, np.where(near, 2.0**24, 0.0))  # one whole, in units of 2**-24


@formula("pow")
def _pow(c: Operands) -> Tracked:
    if "exponent" in c:
        a, b = c["self"], c["exponent"]
        v = np.power(a.v, b.v)
        return Tracked(v, FUNCTION * np.abs(v) * a.r * (1 + np.abs(b.v * np.log(np.abs(a.v)))), a.r)
    return power(c["self"], float(c.value("exponent")))


@formula("addcmul")
def _addcmul(c: Operands) -> Tracked:
    return c["self"] + c["tensor1"] * c["tensor2"] * float(c.value("value", 1))


@formula("addcdiv")
def _addcdiv(c: Operands) -> Tracked:
    return c["self"] + c["tensor1"] / c["tensor2"] * float(c.value("value", 1))


@formula("lerp")
def _lerp(c: Operands) -> Tracked:
    start, end, weight = c["self"], c["end"], c["weight"]
    return start + weight * (end - start)


@formula("clamp", "hardtanh", "clamp_min", "clamp_max", "clip")
def _clamp(c: Operands) -> Tracked:
    x = c["self"]
    base = c.values["_base"]
    for names, bound, other in ((("min", "min_val"), maximum, "clamp_max"),
                                (("max", "max_val"), minimum, "clamp_min")):  # fmt: skip
        for name in names:
            if base != other and (name in c or c.value(name) is not None):
                x = bound(x, c[name])
    return x


@formula("threshold")
def _threshold(c: Operands) -> Tracked:
    x = c["self"]
    return where(x.v <= float(c.value("threshold")), float(c.value("value")), x)


formula("maximum", "fmax")(lambda c: maximum(c["self"], c["other"]))
formula("minimum", "fmin")(lambda c: minimum(c["self"], c["other"]))


@formula("leaky_relu")
def _leaky_relu(c: Operands) -> Tracked:
    x = c["self"]
    return where(x.v > 0, x, x * float(c.value("negative_slope", 0.01)))


@formula("elu")
def _elu(c: Operands) -> Tracked:
    x, alpha = c["self"], float(c.value("alpha", 1))
    scale, inner = float(c.value("scale", 1)), float(c.value("input_scale", 1))
    return where(x.v > 0, x * scale, expm1(x * inner) * (alpha * scale))


def _softplus(x: Tracked, beta: float = 1.0, threshold: float = 20.0) -> Tracked:
    scaled = x * beta
    soft = log1p(exp(minimum(scaled, threshold))) / beta
    return where(scaled.v > threshold, x, soft)


@formula("softplus")
def _softplus_op(c: Operands) -> Tracked:
    return _softplus(c["self"], float(c.value("beta", 1)), float(c.value("threshold", 20)))


@formula("softplus_backward")
def _softplus_backward(c: Operands) -> Tracked:
    g, x, beta = c["grad_output"], c["self"], float(c.value("beta", 1))
    return where(x.v * beta > float(c.value("threshold", 20)), g, g * sigmoid(x * beta))


def _is_tanh(c: Operands) -> bool:
    return c.value("approximate", "none") == "tanh"


@formula("gelu")
def _gelu(c: Operands) -> Tracked:
    x = c["self"]
    if _is_tanh(c):
        inner = (x + x * x * x * 0.044715) * _GELU
        return x * 0.5 * (1.0 + tanh(inner))
    return x * 0.5 * (1.0 + erf(x * _SQRT_HALF))


@formula("gelu_backward")
def _gelu_backward(c: Operands) -> Tracked:
    g, x = c["grad_output"], c["self"]
    if _is_tanh(c):
        t = tanh((x + x * x * x * 0.044715) * _GELU)
        slope = (1.0 - t * t) * (1.0 + x * x * (3 * 0.044715)) * _GELU
        return g * ((1.0 + t) * 0.5 + x * slope * 0.5)
    density = exp(x * x * -0.5) * _PHI
    return g * ((1.0 + erf(x * _SQRT_HALF)) * 0.5 + x * density)


@formula("silu_backward")
def _silu_backward(c: Operands) -> Tracked:
    g, x = c["grad_output"], c["self"]
    s = sigmoid(x)
    return g * s * (1.0 + x * (1.0 - s))


@formula("sigmoid_backward")
def _sigmoid_backward(c: Operands) -> Tracked:
    g, y = c["grad_output"], c["output"]
    return g * (1.0 - y) * y


@formula("tanh_backward")
def _tanh_backward(c: Operands) -> Tracked:
    g, y = c["grad_output"], c["output"]
    return g * (1.0 - y * y)


@formula("threshold_backward")
def _threshold_backward(c: Operands) -> Tracked:
    return where(c["self"].v <= float(c.value("threshold", 0)), 0.0, c["grad_output"])


@formula("leaky_relu_backward")
def _leaky_relu_backward(c: Operands) -> Tracked:
    g = c["grad_output"]
    return where(c["self"].v > 0, g, g * float(c.value("negative_slope", 0.01)))


@formula("hardtanh_backward")
def _hardtanh_backward(c: Operands) -> Tracked:
    x = c["self"].v
    outside = (x <= float(c.value("min_val", -1))) | (x >= float(c.value("max_val", 1)))
    return where(outside, 0.0, c["grad_output"])


@formula("hardsigmoid_backward")
def _hardsigmoid_backward(c: Operands) -> Tracked:
    x, g = c["self"].v, c["grad_output"]
    return where((x > -3) & (x < 3), g * (1 / 6), 0.0)


@formula("hardswish_backward")
def _hardswish_backward(c: Operands) -> Tracked:
    x, g = c["self"], c["grad_output"]
    inside = g * (x / 3.0 + 0.5)
    return where(x.v <= -3, 0.0, where(x.v >= 3, g, inside))


@formula("elu_backward")
def _elu_backward(c: Operands) -> Tracked:
    g, y = c["grad_output"], c["self_or_result"]
    alpha, scale = float(c.value("alpha", 1)), float(c.value("scale", 1))
    inner = float(c.value("input_scale", 1))
    if c.value("is_result"):
        return where(y.v <= 0, g * inner * (y + alpha * scale), g * scale)
    return where(y.v <= 0, g * (inner * alpha * scale) * exp(y * inner), g * scale)


@formula("native_dropout_backward")
def _native_dropout_backward(c: Operands) -> Tracked:
    return c["grad_output"] * Tracked(c.bits("mask").astype(np.float64)) * float(c.value("scale"))


@formula("log_sigmoid_backward")
def _log_sigmoid_backward(c: Operands) -> Tracked:
    return c["grad_output"] * (1.0 - sigmoid(c["self"]))


@formula("mse_loss_backward")
def _mse_loss_backward(c: Operands) -> Tracked:
    d = (c["self"] - c["target"]) * c["grad_output"] * 2.0
    return d / float(d.v.size) if c.value("reduction", 1) == 1 else d


@formula("_fused_adamw", "_fused_adam")
def _fused_adam(c: Operands) -> dict[str, Tracked]:
    """One tensor's step, as `_foreach` ops are one tensor's."""
    p, m, v, g = (c[name] for name in ("self", "exp_avgs", "exp_avg_sqs", "grads"))
    lr, b1, b2, eps, decay = (
        float(c.value(n)) for n in ("lr", "beta1", "beta2", "eps", "weight_decay")
    )
    step = float(c.bits("state_steps").reshape(-1)[0])
    if c.value("maximize"):
        g = -g
    if c.values["_base"] == "_fused_adamw":
        p = p * (1.0 - lr * decay)
    elif decay:
        g = g + p * decay
    m = m + (g - m) * (1.0 - b1)
    v = v * b2 + g * g * (1.0 - b2)
    top = maximum(c["max_exp_avg_sqs"], v) if c.value("amsgrad") else v
    denominator = sqrt(top) / math.sqrt(1 - b2**step) + eps
    p = p - m / denominator * (lr / (1 - b1**step))
    return {"self": p, "exp_avgs": m, "exp_avg_sqs": v, "max_exp_avg_sqs": top, "grads": c["grads"]}


@formula("_thnn_fused_lstm_cell")
def _lstm_cell(c: Operands) -> dict[str, Tracked]:
    gates = c["input_gates"] + c["hidden_gates"]
    for name in ("input_bias", "hidden_bias"):
        if name in c:
            gates = gates + c[name]
    n = gates.v.shape[-1] // 4
    i, f, g, o = (gates[..., k * n : (k + 1) * n] for k in range(4))
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    cy = f * c["cx"] + i * g
    return {"result0": o * tanh(cy), "result1": cy, "result2": _joined([i, f, g, o])}


@formula("_thnn_fused_lstm_cell_backward_impl")
def _lstm_cell_backward(c: Operands) -> dict[str, Tracked]:
    n = c["cx"].v.shape[-1]
    i, f, g, o = (c["workspace"][..., k * n : (k + 1) * n] for k in range(4))
    t = tanh(c["cy"])
    gh = c.optional("grad_hy") or Tracked(0.0)
    gc = c.optional("grad_cy") or Tracked(0.0)
    d = gh * o * (1.0 - t * t) + gc
    gates = _joined([
        d * g * (1.0 - i) * i, d * c["cx"] * (1.0 - f) * f,
        d * i * (1.0 - g * g), gh * t * (1.0 - o) * o,
    ])  # fmt: skip
    return {"result0": gates, "result1": d * f, "result2": gates.sum(0)}


@formula("_thnn_fused_gru_cell")
def _gru_cell(c: Operands) -> dict[str, Tracked]:
    a, b = c["input_gates"], c["hidden_gates"]
    if "input_bias" in c:
        a = a + c["input_bias"]
    n = a.v.shape[-1] // 3
    bias = c.optional("hidden_bias")
    b_n = b[..., 2 * n :]
    if bias is not None:
        b, b_n = b + bias, b_n + bias[..., 2 * n :]
    r, z = (sigmoid(a[..., s] + b[..., s]) for s in (slice(n), slice(n, 2 * n)))
    new = tanh(a[..., 2 * n :] + r * b_n)
    hx = c["hx"]
    return {"result0": (hx - new) * z + new, "result1": _joined([r, z, new, hx, b_n])}


@formula("_thnn_fused_gru_cell_backward")
def _gru_cell_backward(c: Operands) -> dict[str, Tracked]:
    g, space = c["grad_hy"], c["workspace"]
    n = g.v.shape[-1]
    r, z, new, hx, b_n = (space[..., k * n : (k + 1) * n] for k in range(5))
    d_z = g * (hx - new) * (1.0 - z) * z
    through = g * z
    d_n = (g - through) * (1.0 - new * new)
    d_r = d_n * b_n * (1.0 - r) * r
    into, hidden = _joined([d_r, d_z, d_n]), _joined([d_r, d_z, d_n * r])
    return {
        "result0": into, "result1": hidden, "result2": through,
        "result3": into.sum(0), "result4": hidden.sum(0),
    }  # fmt: skip


def _joined(parts: list[Tracked]) -> Tracked:
    v = np.concatenate([p.v for p in parts], -1)
    w = np.concatenate([np.broadcast_to(p.w, p.v.shape) for p in parts], -1)
    return Tracked(v, w, max(p.r for p in parts))
