"""Formulas of matrix products, convolutions and attention: values, and sums of magnitudes.

A convolution is a sum over its kernel's places of a matrix product, so that nothing is larger in
memory than its input and its output.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from .numerics import rounding
from .operands import Operands, formula
from .tracked import Tracked, bilinear, exp, log, sigmoid, tanh, tracked

Product = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _matmul(c: Operands, a: str, b: str) -> Tracked:
    x, y = c[a], c[b]
    c.bounded(*x.v.shape[:-1], y.v.shape[-1] if y.v.ndim > 1 else 1)
    return c.product(np.matmul, (a, b), (x, y), x.v.shape[-1])


@formula("mm", "bmm", "matmul")
def _mm(c: Operands) -> Tracked:
    return _matmul(c, "self", "mat2" if "mat2" in c else "other")


@formula("mv")
def _mv(c: Operands) -> Tracked:
    return _matmul(c, "self", "vec")


@formula("dot", "vdot")
def _dot(c: Operands) -> Tracked:
    x = c["self"]
    if c.values["_base"] == "vdot" and x.v.dtype.kind == "c":
        x = Tracked(np.conj(x.v))
    return (x * c["other" if "other" in c else "tensor"]).sum()


@formula("addmm", "addmv", "baddbmm", "addbmm", "_addmm_activation")
def _addmm(c: Operands) -> Tracked:
    base = c.values["_base"].removesuffix("_activation")
    a, b = {"addmv": ("mat", "vec"), "baddbmm": ("batch1", "batch2"),
            "addbmm": ("batch1", "batch2")}.get(base, ("mat1", "mat2"))  # fmt: skip
    found = _matmul(c, a, b)
    if base == "addbmm":
        found = found.sum(0)
    beta, alpha = float(c.value("beta", 1)), float(c.value("alpha", 1))
    found = found * alpha
    return found + c["self"] * beta if beta else found


@formula("linear")
def _linear(c: Operands) -> Tracked:
    x, weight, bias = c["input"], c["weight"], c.optional("bias")

    def f(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a @ b.T

    found = c.product(f, ("input", "weight"), (x, weight), x.v.shape[-1])
    return found if bias is None else found + bias


class Geometry(NamedTuple):
    """Of a convolution: one number an axis, and how many groups of channels."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def places(self, kernel: tuple[int, ...], out: tuple[int, ...]) -> Iterator[tuple]:
        """Each place in the kernel with what it takes of the padded input, by output element."""
        for place in np.ndindex(*kernel):
            yield (
                place,
                tuple(
                    slice(i * d, i * d + (n - 1) * s + 1, s)
                    for i, d, n, s in zip(place, self.dilation, out, self.stride, strict=True)
                ),
            )


def geometry(values: Mapping[str, Any], rank: int) -> Geometry:
    """The geometry that a convolution was called with."""

    def each(name: str) -> tuple[int, ...]:
        found = tuple(values[name])
        return found if len(found) == rank else found * rank

    groups = values.get("groups")
    return Geometry(
        each("stride"), each("padding"), each("dilation"), 1 if groups is None else int(groups)
    )


def _bordered(size: tuple[int, ...], g: Geometry) -> tuple[int, ...]:
    return tuple(n + 2 * p for n, p in zip(size, g.padding, strict=True))


def _padded(x: np.ndarray, g: Geometry, need: tuple[int, ...]) -> np.ndarray:
    """Input with its border, at least as large as is needed."""
    wide = [
        (p, max(p, n - p - size)) for p, n, size in zip(g.padding, need, x.shape[2:], strict=True)
    ]
    return np.pad(x, [(0, 0), (0, 0), *wide])


def _need(
    g: Geometry, kernel: tuple[int, ...], out: tuple[int, ...], size: tuple[int, ...]
) -> tuple[int, ...]:
    """What `out` takes of an input of this size and its border. Raises ValueError where that is
    more than there is: a file may claim any stride."""
    found = tuple(
        (o - 1) * s + d * (k - 1) + 1
        for o, s, d, k in zip(out, g.stride, g.dilation, kernel, strict=True)
    )
    room = _bordered(size, g)
    if min((*g.stride, *g.dilation), default=1) < 1 or any(map(operator.gt, found, room)):
        raise ValueError(f"a convolution to {list(out)} does not fit {list(size)}")
    return found


def _grouped(x: np.ndarray, groups: int) -> np.ndarray:
    """(N, groups, C / groups, places)"""
    return np.ascontiguousarray(x).reshape(x.shape[0], groups, x.shape[1] // groups, -1)


def convolve(x: np.ndarray, w: np.ndarray, g: Geometry, out: tuple[int, ...]) -> np.ndarray:
    """x (N, C, ...) with w (O, C / groups, kernel): (N, O, *out)."""
    kernel = w.shape[2:]
    padded = _padded(x, g, _need(g, kernel, out, x.shape[2:]))
    weights = w.reshape(g.groups, -1, *w.shape[1:])
    total = np.zeros((x.shape[0], g.groups, weights.shape[1], math.prod(out)), x.dtype)
    for place, at in g.places(kernel, out):
        total += weights[(..., *place)] @ _grouped(
            padded[(slice(None), slice(None), *at)], g.groups
        )
    return total.reshape(x.shape[0], w.shape[0], *out)


def spread(y: np.ndarray, w: np.ndarray, g: Geometry, size: tuple[int, ...]) -> np.ndarray:
    """The transpose of `convolve` in x: y (N, O, ...) to (N, C, *size)."""
    kernel, out = w.shape[2:], y.shape[2:]
    need = _need(g, kernel, out, size)
    weights = w.reshape(g.groups, -1, *w.shape[1:])
    shape = tuple(max(n, s + 2 * p) for n, s, p in zip(need, size, g.padding, strict=True))
    channels = w.shape[1] * g.groups
    total = np.zeros((y.shape[0], channels, *shape), y.dtype)
    grouped = _grouped(y, g.groups)
    for place, at in g.places(kernel, out):
        part = np.swapaxes(weights[(..., *place)], -1, -2) @ grouped
        total[(slice(None), slice(None), *at)] += part.reshape(y.shape[0], channels, *out)
    inner = tuple(slice(p, p + s) for p, s in zip(g.padding, size, strict=True))
    return total[(slice(None), slice(None), *inner)]


def correlate(x: np.ndarray, y: np.ndarray, g: Geometry, kernel: tuple[int, ...]) -> np.ndarray:
    """The gradient of `convolve` in w: x (N, C, ...), y (N, O, ...) to (O, C / groups, kernel)."""
    out = y.shape[2:]
    padded = _padded(x, g, _need(g, kernel, out, x.shape[2:]))
    grouped = _grouped(y, g.groups)
    per_group = x.shape[1] // g.groups
    total = np.zeros((y.shape[1], per_group, *kernel), x.dtype)
    for place, at in g.places(kernel, out):
        part = _grouped(padded[(slice(None), slice(None), *at)], g.groups)
        found = np.matmul(grouped, np.swapaxes(part, -1, -2)).sum(0)
        total[(slice(None), slice(None), *place)] = found.reshape(y.shape[1], per_group)
    return total


def _transposed_out(c: Operands, g: Geometry, x: np.ndarray, w: np.ndarray) -> tuple[int, ...]:
    extra = c.value("output_padding", [0] * (x.ndim - 2))
    return tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, s, p, d, k, e in zip(
            x.shape[2:], g.stride, g.padding, g.dilation, w.shape[2:], extra, strict=True
        )
    )


def out_of(g: Geometry, x: np.ndarray, w: np.ndarray) -> tuple[int, ...]:
    """The size of a convolution's result."""
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, s, p, d, k in zip(
            x.shape[2:], g.stride, g.padding, g.dilation, w.shape[2:], strict=True
        )
    )


@formula("convolution", "_convolution", "convolution_overrideable", "cudnn_convolution")
def _convolution(c: Operands) -> Tracked:
    x, w = c["input" if "input" in c else "self"], c["weight"]
    g = geometry(c.values, x.v.ndim - 2)
    if x.v.ndim == w.v.ndim - 1:
        x = x.reshape(1, *x.v.shape)
    taps = math.prod(w.v.shape[2:])
    names = ("input" if "input" in c else "self", "weight")
    if c.value("transposed"):
        size = _transposed_out(c, g, x.v, w.v)
        c.bounded(x.v.shape[0], w.v.shape[1] * g.groups, *_bordered(size, g))
        count = taps * w.v.shape[0] // g.groups
        found = c.product(
            lambda a, b: spread(a, b, g, size), names, (x, w), count, "convolution", taps
        )
    else:
        out, count = out_of(g, x.v, w.v), taps * w.v.shape[1]
        c.bounded(*x.v.shape[:2], *_bordered(x.v.shape[2:], g))
        c.bounded(x.v.shape[0], w.v.shape[0], *out)
        found = c.product(
            lambda a, b: convolve(a, b, g, out), names, (x, w), count, "convolution", taps
        )
    bias = c.optional("bias")
    if bias is None:
        return found
    if found.r > 1:  # the product is stored before the bias is added, or the bias before it
        found = Tracked(found.v, found.w + found.r * np.abs(found.v), found.r)
    return found + bias.reshape(1, -1, *[1] * (x.v.ndim - 2))


@formula("convolution_backward", "convolution_backward_overrideable")
def _convolution_backward(c: Operands) -> dict[str, Tracked]:
    d, x, w = c["grad_output"], c["input"], c["weight"]
    g = geometry(c.values, x.v.ndim - 2)
    kernel = w.v.shape[2:]
    taps, mask, found = math.prod(kernel), c.value("output_mask", [True] * 3), {}
    wide = (d if c.value("transposed") else x).v
    c.bounded(*wide.shape[:2], *_bordered(wide.shape[2:], g))

    def product(f: Product, a: Tracked, b: Tracked, count: int, stores: int) -> Tracked:
        return c.product(f, ("grad_output", "weight"), (a, b), count, "convolution", stores)

    size = x.v.shape[2:]
    if c.value("transposed"):
        places = x.v.shape[0] * math.prod(size)
        into = (lambda a, b: convolve(a, b, g, size)), taps * w.v.shape[1]
        weigh = (lambda a, b: correlate(b, a, g, kernel)), places
    else:
        places = d.v.shape[0] * math.prod(d.v.shape[2:])
        into = (lambda a, b: spread(a, b, g, size)), taps * w.v.shape[0] // g.groups
        weigh = (lambda a, b: correlate(a, b, g, kernel)), places
    if mask[0]:
        found["result0"] = product(into[0], d, w, into[1], taps)
    if mask[1]:
        found["result1"] = product(weigh[0], x, d, weigh[1], x.v.shape[0])
    if len(mask) > 2 and mask[2]:
        found["result2"] = d.sum(tuple(a for a in range(d.v.ndim) if a != 1), stored=True)
    return found


def _scores(c: Operands) -> tuple[Tracked, Tracked, Tracked, Tracked, float]:
    """Query, key, value and scaled scores with the mask."""
    q, k, v = (c[name] for name in ("query", "key", "value"))
    scale = float(c.value("scale", 1 / math.sqrt(q.v.shape[-1])))
    repeat = q.v.shape[-3] // k.v.shape[-3] if q.v.ndim > 2 else 1
    if repeat > 1:
        k, v = (x.moved(lambda a: np.repeat(a, repeat, -3)) for x in (k, v))
    scores = bilinear(lambda a, b: a @ np.swapaxes(b, -1, -2), q, k, q.v.shape[-1]) * scale
    for name in ("attn_mask", "attn_bias"):
        if name in c:
            bias = c.bits(name)
            scores = scores + (np.where(bias, 0.0, -np.inf) if bias.dtype == bool else c[name])
    if c.value("is_causal"):
        seen = np.tril(np.ones(scores.v.shape[-2:], bool))
        scores = Tracked(np.where(seen, scores.v, -np.inf), np.where(seen, scores.w, 0.0))
    return q, k, v, scores, scale


def _stored(c: Operands, x: Tracked, like: str) -> Tracked:
    """What a fused op keeps in the dtype of a 16-bit operand between two products."""
    unit = rounding(c.dtypes[like]) / rounding("float32")
    return Tracked(x.v, x.w + unit * np.abs(x.v), x.r) if unit > 1 else x


@formula(
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
)  # fmt: skip
def _attention(c: Operands) -> dict[str, Tracked]:
    _, _, v, scores, _ = _scores(c)
    top = scores.v.max(-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    powers = _stored(c, exp(scores - top), "query")
    total = powers.sum(-1, True)
    out = bilinear(np.matmul, powers / total, v, v.v.shape[-2])
    lse = (log(total) + top).moved(lambda a: a[..., 0])
    return {"output": out, "logsumexp": lse, "log_sumexp": lse}


@formula(
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward",
)
def _attention_backward(c: Operands) -> dict[str, Tracked]:
    q, k, v, scores, scale = _scores(c)
    g = c["grad_out" if "grad_out" in c else "grad_out_"]
    p = exp(scores - c["logsumexp"].moved(lambda a: a[..., None]))

    def transposed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.swapaxes(a, -1, -2) @ b

    rows, width = q.v.shape[-2], q.v.shape[-1]
    grad_value = bilinear(transposed, _stored(c, p, "query"), g, rows)
    grad_p = bilinear(lambda a, b: a @ np.swapaxes(b, -1, -2), g, v, width)
    inner = (g * c["out"]).sum(-1, True)
    ds = _stored(c, p * (grad_p - inner) * scale, "query")
    return {
        "grad_query": bilinear(np.matmul, ds, k, k.v.shape[-2]),
        "grad_key": bilinear(transposed, ds, q, rows),
        "grad_value": grad_value,
    }


@formula("mkldnn_rnn_layer")
def _rnn_layer(c: Operands) -> dict[str, Tracked]:
    """One LSTM layer, weights as PyTorch has them: input, hidden, and their biases."""
    if c.value("mode") != 2:
        raise NotImplementedError("only the LSTM's formula is known")
    x, h, s = c["input"], c["hx_"], c["cx_"]
    w_in, w_hidden = c["weight0"], c["weight1"]
    gates_in = bilinear(lambda a, b: a @ b.T, x, w_in, x.v.shape[-1])
    bias = c["weight2"] + c["weight3"] if c.value("has_biases") else tracked(0.0)
    n, steps = h.v.shape[-1], x.v.shape[0]
    order = range(steps - 1, -1, -1) if c.value("reverse") else range(steps)
    outs: list[Tracked | None] = [None] * steps
    for t in order:
        gates = gates_in[t] + bilinear(lambda a, b: a @ b.T, h, w_hidden, n) + bias
        i, f, g, o = (gates[..., j * n : (j + 1) * n] for j in range(4))
        s = sigmoid(f) * s + sigmoid(i) * tanh(g)
        h = _stored(c, sigmoid(o) * tanh(s), "input")
        outs[t] = h
    v, w = np.stack([o.v for o in outs]), np.stack([o.w for o in outs])
    return {"result0": Tracked(v, w), "result1": h, "result2": s}
