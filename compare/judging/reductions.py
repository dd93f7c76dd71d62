"""Formulas of ops that add along axes: sums, norms, softmax, normalisation, losses."""

from __future__ import annotations

import math

import numpy as np

from .operands import Operands, formula
from .tracked import Tracked, exp, log, power, rsqrt, sqrt, summed, where

Axes = int | tuple[int, ...] | None


def _axes(c: Operands, rank: int, name: str = "dim") -> Axes:
    dims = c.value(name)
    if dims is None or dims == []:
        return tuple(range(rank))
    return tuple(d % rank for d in dims) if isinstance(dims, list) else dims % max(1, rank)


@formula("sum", "nansum")
def _sum(c: Operands) -> Tracked:
    x = c["self"]
    return x.sum(_axes(c, x.v.ndim), bool(c.value("keepdim", False)))


@formula("mean")
def _mean(c: Operands) -> Tracked:
    x = c["self"]
    return x.mean(_axes(c, x.v.ndim), bool(c.value("keepdim", False)))


@formula("var", "std", "var_mean", "std_mean")
def _var(c: Operands) -> dict[str, Tracked] | Tracked:
    x = c["self"]
    axes, keep = _axes(c, x.v.ndim), bool(c.value("keepdim", False))
    correction = c.value("correction", 1)
    if "unbiased" in c.values:
        correction = 1 if c.value("unbiased") else 0
    mean = x.mean(axes, True)
    d = x - mean
    total = (d * d).sum(axes, keep)
    found = total / max(0.0, x.v.size / max(1, total.v.size) - correction)
    base = c.values["_base"]
    if base.startswith("std"):
        found = sqrt(found)
    if not base.endswith("_mean"):
        return found
    return {"result0": found, "result1": x.mean(axes, keep)}


@formula("linalg_vector_norm", "norm", "_foreach_norm")
def _norm(c: Operands) -> Tracked:
    x = c["self"]
    order = c.value("ord", c.value("p", 2))
    axes, keep = _axes(c, x.v.ndim), bool(c.value("keepdim", False))
    if x.v.dtype.kind == "c":
        x = Tracked(np.abs(x.v), np.abs(x.v))
    order = float(order)
    if math.isinf(order):
        return abs(x).max(axes, keep) if order > 0 else -((-abs(x)).max(axes, keep))
    if order == 0:
        return Tracked((x.v != 0).sum(axis=axes, keepdims=keep).astype(np.float64))
    if order == 1:
        return abs(x).sum(axes, keep)
    if order == 2:
        return sqrt((x * x).sum(axes, keep))
    return power(power(abs(x), order).sum(axes, keep), 1 / order)


@formula("amax", "amin", "max", "min")
def _extreme(c: Operands) -> Tracked:
    x, base = c["self"], c.values["_base"]
    if "other" in c:
        v = (np.maximum if base == "max" else np.minimum)(x.v, c["other"].v)
        return Tracked(v)
    axes, keep = _axes(c, x.v.ndim), bool(c.value("keepdim", False))
    return x.max(axes, keep) if "max" in base else -(-x).max(axes, keep)


@formula("cumsum")
def _cumsum(c: Operands) -> Tracked:
    x, axis = c["self"], int(c.value("dim"))
    v = np.cumsum(x.v, axis)
    sizes = np.cumsum(np.abs(x.v), axis), np.cumsum(np.square(x.v), axis)
    return Tracked(v, summed(v, *sizes, x.v.shape[axis] if x.v.ndim else 1), x.r)


def _shifted(x: Tracked, axis: int) -> tuple[Tracked, Tracked]:
    top = x.v.max(axis=axis, keepdims=True)
    shifted = x - Tracked(np.where(np.isfinite(top), top, 0.0))
    powers = exp(shifted)
    return shifted, powers


@formula("_softmax", "_safe_softmax", "softmax")
def _softmax(c: Operands) -> Tracked:
    axis = int(c.value("dim"))
    _, powers = _shifted(c["self"], axis)
    total = powers.sum(axis, True)
    found = powers / total
    if c.values["_base"] == "_safe_softmax":  # rows of -inf only are zeros
        return where(np.broadcast_to(total.v == 0, found.v.shape), 0.0, found)
    return found


@formula("_log_softmax", "log_softmax")
def _log_softmax(c: Operands) -> Tracked:
    axis = int(c.value("dim"))
    shifted, powers = _shifted(c["self"], axis)
    return shifted - log(powers.sum(axis, True))


@formula("logsumexp")
def _logsumexp(c: Operands) -> Tracked:
    x = c["self"]
    axes, keep = _axes(c, x.v.ndim), bool(c.value("keepdim", False))
    top = x.v.max(axis=axes, keepdims=True)
    total = log(exp(x - Tracked(top)).sum(axes, True)) + Tracked(top)
    return total if keep else total.moved(lambda a: np.squeeze(a, axes))


@formula("_softmax_backward_data")
def _softmax_backward(c: Operands) -> Tracked:
    g, y, axis = c["grad_output"], c["output"], int(c.value("dim"))
    gy = g * y
    return gy - y * gy.sum(axis, True)


@formula("_log_softmax_backward_data")
def _log_softmax_backward(c: Operands) -> Tracked:
    g, y, axis = c["grad_output"], c["output"], int(c.value("dim"))
    return g - exp(y) * g.sum(axis, True)


def _normalised(x: Tracked, axes: Axes, eps: float) -> tuple[Tracked, Tracked, Tracked]:
    """(x - mean) / std, and the mean and 1 / std."""
    if not np.size(x.v):
        raise ValueError("there is nothing to normalise")
    mean = x.mean(axes, True)
    # The mean of squares less the mean's square is as legal as the mean of squared distances.
    d = x - mean
    variance = (d * d).mean(axes, True)
    squares = (x.v * x.v).mean(axis=axes, keepdims=True)
    variance = Tracked(variance.v, variance.w + squares, variance.r)
    rstd = rsqrt(variance + eps)
    return d * rstd, mean, rstd


def _affine(x: Tracked, weight: Tracked | None, bias: Tracked | None) -> Tracked:
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


@formula("native_layer_norm", "layer_norm")
def _layer_norm(c: Operands) -> dict[str, Tracked]:
    x = c["input"]
    axes = tuple(range(x.v.ndim - len(c.value("normalized_shape")), x.v.ndim))
    y, mean, rstd = _normalised(x, axes, float(c.value("eps", 1e-5)))
    y = _affine(y, c.optional("weight"), c.optional("bias"))
    return {"result0": y, "result1": mean, "result2": rstd, "result": y}


def _moment_backward(
    g: Tracked, xhat: Tracked, rstd: Tracked, axes: Axes
) -> Tracked:  # of what is normalised by its own mean and deviation
    return (g - g.mean(axes, True) - xhat * (g * xhat).mean(axes, True)) * rstd


@formula("native_layer_norm_backward")
def _layer_norm_backward(c: Operands) -> dict[str, Tracked]:
    g, x, weight = c["grad_out"], c["input"], c.optional("weight")
    inner = len(c.value("normalized_shape"))
    outer, axes = tuple(range(x.v.ndim - inner)), tuple(range(x.v.ndim - inner, x.v.ndim))
    xhat = (x - c["mean"]) * c["rstd"]
    gw = g if weight is None else g * weight
    return {
        "result0": _moment_backward(gw, xhat, c["rstd"], axes),
        "result1": (g * xhat).sum(outer, stored=True),
        "result2": g.sum(outer, stored=True),
    }


def _channels(x: Tracked, rank: int) -> Tracked:
    return x.reshape(1, -1, *[1] * (rank - 2))


@formula("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "miopen_batch_norm")
def _batch_norm(c: Operands) -> dict[str, Tracked]:
    x = c["input"]
    rank = x.v.ndim
    axes = tuple(a for a in range(rank) if a != 1)
    weight, bias = (c.optional(n) for n in ("weight", "bias"))
    weight, bias = (None if p is None else _channels(p, rank) for p in (weight, bias))
    eps = float(c.value("eps", c.value("epsilon", 1e-5)))
    if not c.value("training", True):
        xhat = (x - _channels(c["running_mean"], rank)) * rsqrt(
            _channels(c["running_var"], rank) + eps
        )
        return {"result0": _affine(xhat, weight, bias)}
    xhat, mean, rstd = _normalised(x, axes, eps)
    found = {
        "result0": _affine(xhat, weight, bias),
        "result1": mean.reshape(-1),
        "result2": rstd.reshape(-1),
    }
    count, rate = x.v.size / max(1, x.v.shape[1]), float(c.value("momentum", 0.1))
    d = x - mean
    variance = (d * d).sum(axes) / max(1.0, count - 1)
    for name, new in (("running_mean", mean.reshape(-1)), ("running_var", variance)):
        if name in c:
            found[name] = c[name] * (1.0 - rate) + new * rate
    return found


@formula("native_batch_norm_backward", "cudnn_batch_norm_backward", "miopen_batch_norm_backward")
def _batch_norm_backward(c: Operands) -> dict[str, Tracked]:
    g = c["grad_out"] if "grad_out" in c else c["grad_output"]
    x = c["input"]
    rank = x.v.ndim
    axes = tuple(a for a in range(rank) if a != 1)
    training = bool(c.value("train", c.value("training", True)))
    if training:
        mean = c["save_mean"]
        rstd = c["save_invstd"] if "save_invstd" in c else c["save_var"]
    else:
        mean = c["running_mean"]
        rstd = rsqrt(c["running_var"] + float(c.value("eps", 1e-5)))
    mean, rstd = _channels(mean, rank), _channels(rstd, rank)
    xhat = (x - mean) * rstd
    weight = c.optional("weight")
    scale = rstd if weight is None else rstd * _channels(weight, rank)
    if training:
        # gradient of the input in the moments' form, with the weight outside of the sums
        into = (g - g.mean(axes, True) - xhat * (g * xhat).mean(axes, True)) * scale
    else:
        into = g * scale
    return {
        "result0": into,
        "result1": (g * xhat).sum(axes, stored=True),
        "result2": g.sum(axes, stored=True),
    }


@formula("native_group_norm")
def _group_norm(c: Operands) -> dict[str, Tracked]:
    x = c["input"] if "input" in c else c["self"]
    shape, n, groups = x.v.shape, int(c.value("N")), int(c.value("group"))
    y, mean, rstd = _normalised(x.reshape(n, groups, -1), 2, float(c.value("eps", 1e-5)))
    weight, bias = (c.optional(name) for name in ("weight", "bias"))
    weight, bias = (None if p is None else _channels(p, len(shape)) for p in (weight, bias))
    return {
        "result0": _affine(y.reshape(*shape), weight, bias),
        "result1": mean.reshape(n, groups),
        "result2": rstd.reshape(n, groups),
    }


@formula("native_group_norm_backward")
def _group_norm_backward(c: Operands) -> dict[str, Tracked]:
    g, x = c["grad_out"], c["input"]
    shape, n, groups = x.v.shape, int(c.value("N")), int(c.value("group"))
    mean, rstd = c["mean"].reshape(n, groups, 1), c["rstd"].reshape(n, groups, 1)
    xhat = (x.reshape(n, groups, -1) - mean) * rstd
    weight = c.optional("weight")
    gw = g if weight is None else g * _channels(weight, len(shape))
    into = _moment_backward(gw.reshape(n, groups, -1), xhat, rstd, 2).reshape(*shape)
    axes = tuple(a for a in range(len(shape)) if a != 1)
    full = xhat.reshape(*shape)
    return {
        "result0": into,
        "result1": (g * full).sum(axes, stored=True),
        "result2": g.sum(axes, stored=True),
    }


def _reduced(c: Operands, loss: Tracked) -> Tracked:
    kind = c.value("reduction", 1)
    return loss if kind == 0 else loss.mean() if kind == 1 else loss.sum()


@formula("mse_loss")
def _mse_loss(c: Operands) -> Tracked:
    d = c["self"] - c["target"]
    return _reduced(c, d * d)


@formula("binary_cross_entropy_with_logits")
def _bce_with_logits(c: Operands) -> Tracked:
    x, target = c["self"], c["target"]
    positive = c.optional("pos_weight")
    soft = log(1.0 + exp(-abs(x)))
    if positive is None:
        loss = (1.0 - target) * x + soft + Tracked(np.maximum(-x.v, 0))
    else:
        factor = 1.0 + (positive - 1.0) * target
        loss = (1.0 - target) * x + factor * (soft + Tracked(np.maximum(-x.v, 0)))
    weight = c.optional("weight")
    return _reduced(c, loss if weight is None else loss * weight)


def _picked(c: Operands) -> tuple[Tracked, np.ndarray, np.ndarray, np.ndarray]:
    """Log probabilities of the targets, which are counted, the weights, the targets' places."""
    x, target = c["self"], c.bits("target").astype(np.int64)
    if x.v.ndim == 1:
        x, target = x.reshape(1, -1), target.reshape(1)
    ignored = target == int(c.value("ignore_index", -100))
    safe = np.where(ignored, 0, target)
    at = np.expand_dims(safe, 1)
    chosen = Tracked(np.take_along_axis(x.v, at, 1).squeeze(1))
    weight = np.ones(x.v.shape[1])
    if "weight" in c:
        weight = c["weight"].v
    return chosen, np.where(ignored, 0.0, weight[safe]), at, ignored


@formula("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(c: Operands) -> dict[str, Tracked]:
    chosen, weights, _, _ = _picked(c)
    terms, kind = -(chosen * Tracked(weights)), c.value("reduction", 1)
    total = Tracked(weights).sum()
    if kind == 0:
        return {"output": terms, "total_weight": Tracked(np.zeros(()))}
    loss = terms.sum() / total if kind == 1 else terms.sum()
    return {"output": loss, "total_weight": total}


@formula("nll_loss_backward", "nll_loss2d_backward")
def _nll_loss_backward(c: Operands) -> Tracked:
    x = c["self"]
    _, weights, at, ignored = _picked(c)
    g = c["grad_output"]
    if c.value("reduction", 1) == 1:
        g = g / c["total_weight"]
    # what is ignored is 0, also where nothing is counted and 0 / 0 would be NaN
    filled = where(ignored, 0.0, -(g * Tracked(weights)))
    v, w = np.zeros(x.v.shape), np.zeros(x.v.shape)
    shape = v.shape if x.v.ndim > 1 else (1, *v.shape)
    v, w = v.reshape(shape), w.reshape(shape)
    np.put_along_axis(v, at, np.expand_dims(np.broadcast_to(filled.v, at.squeeze(1).shape), 1), 1)
    np.put_along_axis(w, at, np.expand_dims(np.broadcast_to(filled.w, at.squeeze(1).shape), 1), 1)
    return Tracked(v.reshape(x.v.shape), w.reshape(x.v.shape))


def scattered(index: np.ndarray, rows: Tracked, size: int) -> Tracked:
    """Rows added up by the number that each goes to."""
    shape = (size, *rows.v.shape[1:])
    total, sizes, squares = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    np.add.at(total, index, rows.v)
    np.add.at(sizes, index, np.abs(rows.v))
    np.add.at(squares, index, np.square(rows.v))
    count = int(np.bincount(index, minlength=1).max()) if index.size else 0
    # rows are added where they go, in that tensor's dtype
    return Tracked(total, rows.r * summed(total, sizes, squares, count), rows.r)


@formula("embedding_dense_backward")
def _embedding_backward(c: Operands) -> Tracked:
    g, index = c["grad_output"], c.bits("indices").astype(np.int64).reshape(-1)
    rows, size = g.reshape(index.size, -1), int(c.value("num_weights"))
    if c.value("scale_grad_by_freq"):
        counts = np.bincount(index, minlength=size)[index]
        rows = rows / Tracked(counts[:, None].astype(np.float64))
    kept = index != int(c.value("padding_idx", -1))
    c.bounded(size, rows.v.shape[1])
    return scattered(index[kept], rows[kept], size)


@formula("index_add", "scatter_add")
def _added(c: Operands) -> Tracked:
    x, index, axis = c["self"], c.bits("index").astype(np.int64), int(c.value("dim"))
    if c.values["_base"] == "index_add":
        rows = (c["source"] * float(c.value("alpha", 1))).moved(lambda a: np.moveaxis(a, axis, 0))
        added = scattered(index.reshape(-1), rows, x.v.shape[axis])
        return x + added.moved(lambda a: np.moveaxis(a, 0, axis))
    source = c["src"][tuple(slice(n) for n in index.shape)]
    places = list(np.indices(index.shape))
    places[axis] = index
    total, sizes, squares = np.zeros(x.v.shape), np.zeros(x.v.shape), np.zeros(x.v.shape)
    np.add.at(total, tuple(places), source.v)
    np.add.at(sizes, tuple(places), np.abs(source.v))
    np.add.at(squares, tuple(places), np.square(source.v))
    return x + Tracked(total, x.r * summed(total, sizes, squares, index.shape[axis]), x.r)
