"""Normalizations: batch norm is two operators over sums, layer norm is one; norms are two.

The chip's operators hand on variances where PyTorch's ops have the reciprocal of the deviation
(`save_invstd`, `rstd`). What goes in and out is what the operator has, the variance, so that output
is no result of the op. Sums and statistics are fp32, of fp16 images too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .registry import builds
from .steps import Call, cast_to

_FLOAT = torch.float32


@builds("native_batch_norm")
def batch_norm(call: Call) -> bool:
    """Training: sums, then everything made of them. Else one operator.

    Results: y, mean, 1 / deviation, running mean, running variance.
    """
    x, eps = _image(call["input"]), call["eps"]
    scale, offset = _channels(call, "weight", 1), _channels(call, "bias", 0)
    mean, variance = _channels(call, "running_mean", 0), _channels(call, "running_var", 1)
    if not call["training"]:  # "training=False"
        y = call.result().reshape(x.shape)
        call.step("BNInfer", [x, scale, offset, mean, variance], [y], {0: 0}, {"epsilon": eps})
        return True
    if not x.numel():
        return False
    momentum, wide = call["momentum"], x.to(_wide(x))
    axes, count = _axes(x), x.numel() // x.shape[1]
    total, squares = wide.sum(axes), wide.square().sum(axes)
    call.step(_named("BNTrainingReduce", x), [x], [total, squares], attributes={"epsilon": eps})
    batch_mean = total / count
    batch_variance = (squares / count - batch_mean.square()).clamp(min=0)
    normal = (wide - _along(batch_mean, x)) * _along((batch_variance + eps).rsqrt(), x)
    y = (normal * _along(scale, x) + _along(offset, x)).to(x.dtype)
    unbiased = batch_variance * (count / max(count - 1, 1))
    running = [
        (old * (1 - momentum) + new * momentum).to(old.dtype)
        for old, new in ((mean, batch_mean), (variance, unbiased))
    ]
    call.step(
        _named("BNTrainingUpdate", x),
        [x, total, squares, scale, offset, mean, variance],
        [y, *running, batch_mean, batch_variance],
        {0: 0, 1: 3, 2: 4, 3: 1},
        {"epsilon": eps, "factor": momentum},
    )
    return True


@builds("native_batch_norm_backward")
def batch_norm_backward(call: Call) -> bool:
    """The channels' gradients, and of them the image's where it is asked for."""
    grad, x, eps = _image(call["grad_out"]), _image(call["input"]), call["eps"]
    train, mask = call["train"], call["output_mask"]
    if not x.numel() or not train and call["running_mean"] is None:
        return False
    scale = _channels(call, "weight", 1)
    if train:
        mean, inverse = call["save_mean"], call["save_invstd"]
        variance = inverse.square().reciprocal() - eps
    else:
        mean, variance = call["running_mean"], call["running_var"]
        inverse = (variance + eps).rsqrt()
    wide, axes, count = grad.to(_wide(x)), _axes(x), x.numel() // x.shape[1]
    normal = (x.to(wide.dtype) - _along(mean, x)) * _along(inverse, x)
    diff_scale, diff_offset = (wide * normal).sum(axes), wide.sum(axes)
    call.step(
        _named("BNTrainingUpdateGrad", x) if train else "BNTrainingUpdateGrad",
        [grad, x, mean, variance],
        [diff_scale, diff_offset],
        {0: 1, 1: 2},
        {"epsilon": eps},
    )
    if not mask[0]:
        return True
    factor = _along(scale * inverse, x)
    if not train:  # "training=False"
        y = (wide * factor).to(x.dtype)
        call.step("BNInferGrad", [grad, scale, variance], [y], {0: 0}, {"epsilon": eps})
        return True
    shared = (_along(diff_offset, x) + normal * _along(diff_scale, x)) / count
    call.step(
        _named("BNTrainingReduceGrad", x),
        [grad, x, diff_scale, diff_offset, scale, mean, variance],
        [((wide - shared) * factor).to(x.dtype)],
        {0: 0},
        {"epsilon": eps},
    )
    return True


@builds("native_layer_norm")
def layer_norm(call: Call) -> bool:
    """One operator. "missing weight/bias are materialised with ones/zeros first"."""
    x, first = call["input"], call["input"].dim() - len(call["normalized_shape"])
    axes = list(range(first, x.dim()))
    variance = x.to(_wide(x)).var(axes, correction=0, keepdim=True)
    call.step(
        "LayerNorm",
        [x, *_affine(call)],
        [call.result(0), call.result(1), variance],
        {0: 0, 1: 1},
        {"begin_norm_axis": first, "begin_params_axis": first, "epsilon": call["eps"]},
    )
    return True


@builds("native_layer_norm_backward")
def layer_norm_backward(call: Call) -> bool:
    """One operator. Its variance has epsilon in it: that is not among the arguments."""
    variance = call["rstd"].square().reciprocal()
    gamma = _affine(call)[0]
    call.whole("LayerNormGrad", [call["grad_out"], call["input"], variance, call["mean"], gamma])
    return True


@builds("linalg_vector_norm")
def vector_norm(call: Call) -> bool:
    """The sum of powers, and its root."""
    x, axes, order = call["self"], call["dim"], call["ord"]
    axes = [d % max(x.dim(), 1) for d in axes or range(x.dim())]
    two_steps_of_norm(call, x, order, axes, call["keepdim"], 0)
    return True


def two_steps_of_norm(
    call: Call, x: Tensor, order: float, axes: list[int], keepdim: bool, end: int
) -> None:
    """LpNormReduceV2 and LpNormUpdateV2 of one tensor; `end` is which result that is.

    They are of fp32 numbers: "another dtype than fp32" is cast before and after. Of infinite order
    the first finds the largest (smallest) magnitude, of order 0 it counts; the second then changes
    nothing.
    """
    dtype, order = call.result(end).dtype, float(order)
    wide = x.to(torch.promote_types(_wide(x), dtype))
    size, numbers = wide.abs(), {"p": _finite(order), "epsilon": 0.0}
    attributes = {**numbers, "axes": axes, "keepdim": keepdim}
    if math.isinf(order):
        reduced = (size.amax if order > 0 else size.amin)(axes, keepdim)
    elif order == 0:
        reduced = (size != 0).to(wide.dtype).sum(axes, keepdim)
    else:
        reduced = (size.square() if order == 2 else size.pow(order)).sum(axes, keepdim)
    if wide is not x:
        call.compute("Cast", [x], wide, attributes=cast_to(wide.dtype))
    call.compute("LpNormReduceV2", [wide], reduced, attributes=attributes)
    if math.isinf(order) or order in (0, 1):
        root = reduced.clone()
    else:
        root = reduced.sqrt() if order == 2 else reduced.pow(1 / order)
    last = root.dtype is dtype
    call.compute("LpNormUpdateV2", [reduced], root, end if last else None, attributes=numbers)
    call.cast(root, dtype, end)


def _finite(order: float) -> float:
    """The order as the operators are told it: op-plugin has the limits of int32 for infinite
    ones."""
    return min(max(order, -(2.0**31)), 2.0**31 - 1)


def _named(op: str, x: Tensor) -> str:
    """The name for images with three axes ("5-D")."""
    return op.replace("BN", "BN3D", 1) if x.dim() == 5 else op


def _image(x: Tensor) -> Tensor:
    """As the chip takes it: "2-D/3-D input is reshaped to 4-D first"."""
    return x[:, :, None, None] if x.dim() == 2 else x.unsqueeze(3) if x.dim() == 3 else x


def _axes(x: Tensor) -> list[int]:
    return [axis for axis in range(x.dim()) if axis != 1]


def _along(vector: Tensor, x: Tensor) -> Tensor:
    """A vector over channels, to be broadcast over an image."""
    return vector.reshape(1, -1, *[1] * (x.dim() - 2))


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, _FLOAT)


def _channels(call: Call, name: str, missing: float) -> Tensor:
    """An argument over channels; a vector of `missing` where it is absent, as on the chip."""
    value = call[name]
    if value is not None:
        return value
    x = call["input"]
    return torch.full((x.shape[1],), missing, dtype=_wide(x), device=x.device)


def _affine(call: Call) -> list[Tensor]:
    given = [call.given.get(name) for name in ("weight", "bias")]
    x, shape = call["input"], list(call["normalized_shape"])
    return [
        torch.full(shape, missing, dtype=x.dtype, device=x.device) if value is None else value
        for value, missing in zip(given, (1.0, 0.0), strict=True)
    ]
