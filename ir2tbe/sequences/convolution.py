"""Convolutions: one operator forward, one for each gradient that is asked for backward.

The chip has images with two or three axes; those with one get a second, of size 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .registry import builds
from .steps import Call

_backward = torch.ops.aten.convolution_backward.default


@builds("convolution")
def convolution(call: Call) -> bool:
    """The whole op is one operator, which takes the bias too."""
    x, weight, bias, result = call["input"], call["weight"], call["bias"], call.result()
    inputs = [_four(x), _four(weight), bias]
    if call["transposed"]:
        inputs.insert(0, call.sizes(_four(result).shape))
    op = _named("Conv2DTranspose" if call["transposed"] else "Conv2D", x)
    call.step(op, inputs, [_four(result)], {0: 0}, _attributes(call), groups=call["groups"])
    return True


@builds("convolution_backward")
def convolution_backward(call: Call) -> bool:
    """Input, weight, bias: "one op per set bit of output_mask, in the order input, weight, bias".

    The gradient of a transposed convolution's input is a convolution.
    """
    grad, x, weight = (call[name] for name in ("grad_output", "input", "weight"))
    four, attributes, groups = _four(grad), _attributes(call), call["groups"]
    for i, wanted in enumerate(call["output_mask"]):
        if not wanted:
            continue
        value = _gradient(call, i)
        if i == 0 and call["transposed"]:
            op, inputs = _named("Conv2D", x), [four, _four(weight)]
        elif i == 0:
            op = _named("Conv2DBackpropInput", x)
            inputs = [call.sizes(_four(x).shape), _four(weight), four]
        elif i == 1:
            op = _named("Conv2DBackpropFilter", x)
            large, small = (four, _four(x)) if call["transposed"] else (_four(x), four)
            inputs = [large, call.sizes(_four(weight).shape), small]
        else:
            axes = [axis for axis in range(four.dim()) if axis != 1]
            call.compute("ReduceSum", [four, call.sizes(axes)], value, 2,
                         attributes={"keep_dims": False})  # fmt: skip
            continue
        call.step(op, inputs, [_four(value)], {0: i}, attributes, groups=groups)
    return True


def _gradient(call: Call, which: int) -> Tensor:
    """One of the gradients, computed alone."""
    given = {**call.given, "output_mask": [i == which for i in range(3)]}
    return _backward(*(given[a.name] for a in call.op.arguments if not a.kwarg_only))[which]


def _named(op: str, x: Tensor) -> str:
    return op.replace("2D", "3D") if x.dim() == 5 else op


def _four(value: Tensor) -> Tensor:
    """As the chip takes it: "conv1d is unsqueezed to 4-D"."""
    return value.unsqueeze(2) if value.dim() == 3 else value


def _attributes(call: Call) -> dict[str, Any]:
    """Strides and pads as the vendor has them, of all axes of the image."""
    rank = max(call["input"].dim() - 2, 2)

    def of_image(name: str, first: int) -> list[int]:
        numbers = list(call[name])
        numbers = numbers * rank if len(numbers) == 1 and call["input"].dim() > 3 else numbers
        return [first] * (rank - len(numbers)) + numbers

    return {
        "strides": [1, 1, *of_image("stride", 1)],
        "pads": [p for p in of_image("padding", 0) for _ in range(2)],
        "dilations": [1, 1, *of_image("dilation", 1)],
        "groups": call["groups"],
        "data_format": "NCDHW" if rank == 3 else "NCHW",
    }
