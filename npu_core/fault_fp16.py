"""The fault `fp16_accumulation`: a cube unit whose accumulator is fp16.

The op runs once for each block of 16 along K, on an operand that is zero elsewhere; what these runs
return is added up in fp16. So one way serves products, convolutions and sums, in every profile.
Infinity outside of the block gives NaN (inf * 0): operands are taken to be finite.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from .fault_call import WEIGHT, Call, base

_BLOCK = 16  # numbers along K that the cube unit adds up in one step


def fits(op: str) -> bool:
    """Whether an aten `name.overload` is one sum along K, or convolution_backward."""
    name = base(op)
    if name == "_addmm_activation" or op == "convolution_backward.out":
        return False  # the activation is not linear; `out` would be written three times
    return name in WEIGHT or name == "sum"


def fp16_accumulation(call: Call) -> Any:
    """Added up in fp16 along K, by blocks of 16.

    Coarse: within a block the products are added as the kernel does, the total is rounded to fp16
    after each block; a convolution's block is 16 input channels of one tap (for the gradient of its
    input, 16 output channels of all taps). As many runs of the op as there are blocks.
    """
    if call.base == "sum":
        return _in_half(call, "self", *_reduced_blocks(call))
    if call.base == "convolution_backward":
        return _backward_in_half(call)
    name = WEIGHT[call.base]
    weight = call[name]
    if name == "weight":
        return _in_half(call, name, *_channel_blocks(call, weight))
    axis = weight.dim() - 1 if call.base in ("mv", "addmv") else weight.dim() - 2
    return _in_half(call, name, *_blocks(weight, [axis]))


def _in_half(call: Call, operand: str, block: torch.Tensor, blocks: int) -> Any:
    """The op's one result, of which the parts that come from each block are added up in fp16.

    block: which block each number of `operand` belongs to, of a shape that broadcasts to it.
    """
    whole, total = call[operand], None
    if not whole.is_floating_point():
        raise call.error(f"fp16_accumulation: {operand} is {whole.dtype}, not floating-point")
    if blocks == 0:
        return call.run()
    for i in range(blocks):
        part = call.run(
            **{operand: torch.where(block == i, whole, 0)}, **(_without_bias(call) if i else {})
        )
        # Only the accumulator is fp16: what is added to it is not rounded before.
        total = part.half() if total is None else (total.float() + part.float()).half()
    return call.replace(part, part, total.to(part.dtype))


def _without_bias(call: Call) -> dict:
    if "beta" in call:
        return {"beta": 0}
    return {"bias": None} if "bias" in call else {}


def _backward_in_half(call: Call) -> tuple:
    """convolution_backward: K is channels for the input's gradient, else samples and places."""
    gradient = call["grad_output"]
    axes = [axis for axis in range(gradient.dim()) if axis != 1]
    channels = torch.arange(gradient.shape[1], device=gradient.device).view(
        1, -1, *[1] * (gradient.dim() - 2)
    )
    per_group = gradient.shape[1] // call["groups"]
    by_channel = channels % per_group // _BLOCK, -(-per_group // _BLOCK)
    found = []
    for i, asked in enumerate(call["output_mask"]):
        mask = [asked and i == j for j in range(3)]
        only = replace(call, kernel=lambda args, kwargs, i=i: call.kernel(args, kwargs)[i],
                       args=(*call.args[:-1], mask))  # fmt: skip
        blocks = by_channel if i == 0 else _blocks(gradient, axes)
        found.append(_in_half(only, "grad_output", *blocks) if asked else None)
    return tuple(found)


def _blocks(operand: torch.Tensor, axes: list[int]) -> tuple[torch.Tensor, int]:
    """Blocks of 16 along `axes`, taken together row by row."""
    shape = [size if axis in axes else 1 for axis, size in enumerate(operand.shape)]
    count = math.prod(shape)
    places = torch.arange(count, device=operand.device).view(shape)
    return places // _BLOCK, -(-count // _BLOCK)


def _reduced_blocks(call: Call) -> tuple[torch.Tensor, int]:
    rank = call["self"].dim()
    dims = (call["dim"] if "dim" in call else None) or range(rank)
    return _blocks(call["self"], [d % max(rank, 1) for d in dims])


def _channel_blocks(call: Call, weight: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Blocks of a convolution's weight: 16 input channels of a group, at one tap."""
    taps = math.prod(weight.shape[2:])
    axis = 0 if call["transposed"] else 1
    per_group = weight.shape[0] // call["groups"] if call["transposed"] else weight.shape[1]
    channel = torch.arange(weight.shape[axis], device=weight.device) % per_group // _BLOCK
    shape = [1] * weight.dim()
    shape[axis] = -1
    tap = torch.arange(taps, device=weight.device).view(1, 1, *weight.shape[2:])
    return channel.view(shape) * taps + tap, -(-per_group // _BLOCK) * taps
