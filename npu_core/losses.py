"""int32 targets in nll_loss and cross_entropy, as the device takes them and the CPU does not.

Ascend's migration guide has scripts cast targets to int32, its native index type.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

OPS = {"nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward"}


def with_any_target(run: Callable, op: torch._ops.OpOverload) -> Callable:
    """`run` of one of `OPS`, with an int32 `target` made the int64 the CPU's kernel asks for."""
    place = [argument.name for argument in op._schema.arguments].index("target")

    def computed(*args, **kwargs):
        target = args[place]
        with torch._C.DisableTorchFunction():
            if target.dtype is torch.int32:
                args = (*args[:place], target.long(), *args[place + 1 :])
        return run(*args, **kwargs)

    return computed
