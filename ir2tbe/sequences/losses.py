"""Losses and dropout: what the chip wants prepared before the one operator that computes them."""

from __future__ import annotations

import torch
from torch import Tensor

from .registry import builds
from .steps import Call

_REDUCTIONS = ("none", "mean", "sum")
_MASK_BITS = 128  # a mask is whole blocks of so many elements


@builds("nll_loss_forward")
def nll_loss(call: Call) -> bool:
    """Weights of ones where there are none, targets as int32, and the loss."""
    x = call["self"]
    weight, target = _prepared(call, x)
    call.whole("NLLLoss", [x, target, weight], _attributes(call))
    return True


@builds("nll_loss_backward")
def nll_loss_backward(call: Call) -> bool:
    """The same preparation, and the gradient."""
    x = call["self"]
    weight, target = _prepared(call, x)
    inputs = [x, call["grad_output"], target, weight, call["total_weight"]]
    call.whole("NLLLossGrad", inputs, _attributes(call))
    return True


def _prepared(call: Call, x: Tensor) -> tuple[Tensor, Tensor]:
    """The table: "weight materialised with ones when absent; int64 target cast to int32 first"."""
    weight, target = call["weight"], call["target"]
    if weight is None:
        ones = torch.ones(x.shape[-1], dtype=x.dtype, device=x.device)
        weight = call.compute("OnesLike", [], ones)  # of memory that nothing wrote
    return weight, call.cast(target, torch.int32)


def _attributes(call: Call) -> dict[str, object]:
    return {
        "reduction": _REDUCTIONS[call["reduction"]],
        "ignore_index": call["ignore_index"],
    }


@builds("native_dropout")
def dropout(call: Call) -> bool:
    """A mask of bits is drawn, then used. Results: y, and the mask with an element for each.

    Nothing is drawn again: the mask is known. Its seeds are not, and are left out.
    """
    x, drops, mask = call["input"], call["p"], call.result(1)
    keep = 1.0 - drops if call["train"] is not False else 1.0
    bits = _packed(mask)
    call.step("StatelessDropOutGenMask", [call.sizes(x.shape), call.tensor(keep, [x])], [bits])
    scaled = mask.to(x.dtype) / keep if keep else torch.zeros_like(x)
    call.compute("DropOutDoMask", [x, bits, keep], x * scaled, 0, dtype=x.dtype)
    return True


@builds("native_dropout_backward")
def dropout_backward(call: Call) -> bool:
    """One operator. What dropped all has a gradient of zeros."""
    grad, scale = call["grad_output"], call["scale"]
    if scale == 0:  # "(p == 1)"
        call.whole("ZerosLike", [grad])
    else:
        inputs = [grad, _packed(call["mask"]), 1 / scale]
        call.whole("DropOutDoMask", inputs, dtype=grad.dtype)
    return True


def _packed(mask: Tensor) -> Tensor:
    """A mask as the chip has it: a bit for each element, the first in the lowest place."""
    blocks = -(-mask.numel() // _MASK_BITS)
    padded = torch.zeros(blocks * _MASK_BITS, dtype=torch.uint8, device=mask.device)
    padded[: mask.numel()] = mask.reshape(-1) != 0
    places = torch.tensor([1 << i for i in range(8)], dtype=torch.uint8, device=mask.device)
    return (padded.reshape(-1, 8) * places).sum(1, dtype=torch.uint8)
