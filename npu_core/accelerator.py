"""Kernels that PyTorch asks of accelerators and never of the CPU, so that there is none to borrow.

Like the cells of rnn.py they are written in CPU ops, for CPU tensors. And one composite op that
PyTorch gets wrong off the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from . import cube, random, rnn, signature

_aten = torch.ops.aten
_CPU_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def fused_dropout(
    x: Tensor, keep: float, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """_fused_dropout: `x` with each element kept with probability `keep`, and the uint8 mask.

    What is kept is scaled by 1 / keep (CUDA's Dropout.cu).
    """
    mask = torch.empty_like(x, dtype=torch.uint8)
    mask.bernoulli_(keep, generator=generator or random.generator)
    return masked_scale(x, mask, 1 / keep), mask


def masked_scale(x: Tensor, mask: Tensor, scale: float) -> Tensor:
    """_masked_scale: x * mask * scale, the backward of `fused_dropout`."""
    return x * mask * scale


def _product(name: str) -> Callable:
    """A matrix product of 16-bit operands with an fp32 result: `torch.mm(out_dtype=)`."""
    op = getattr(_aten, name).default
    run = partial(op._handle.redispatch_boxed, _CPU_KEY)
    product, short = (cube.through_cube(op, run, signature.read(op), n) for n in (True, False))

    def computed(*args, **kwargs):
        *tensors, dtype = args
        if dtype not in (tensors[0].dtype, torch.float32):
            raise RuntimeError(
                f"{name}: out_dtype is {dtype}; choose torch.float32 or that of the operands"
            )
        multiply = product if tensors[-1].dtype is torch.float32 else short
        return multiply(*(t.to(dtype) for t in tensors), **kwargs)

    return computed


def histogram(x: Tensor, *args: float, **kwargs: float) -> Tensor:
    """histc: of integers too, with counts of their dtype, as aclnnHistc has it.

    Mixture-of-experts models count so what each expert gets; the CPU has it of floats only.
    """
    integers = not (x.is_floating_point() or x.is_complex() or x.dtype is torch.bool)
    return torch.histc(x.double() if integers else x, *args, **kwargs).to(x.dtype)


# By `name.overload`.
OPS: dict[str, Callable] = {
    "_fused_dropout.default": fused_dropout,
    "_masked_scale.default": masked_scale,
    "histc.default": histogram,
    **{f"{name}.default": cell for name, cell in rnn.CELLS.items()},
    **{f"{name}.dtype": _product(name) for name in ("mm", "bmm", "addmm", "baddbmm")},
}


def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, *options
) -> Tensor:
    """ctc_loss with lengths in tensors, which are on the CPU.

    Under a dispatch mode PyTorch divides the loss by them where they are; lists it moves itself.
    """
    lengths = input_lengths.tolist(), target_lengths.tolist()
    return _aten.ctc_loss.IntList(log_probs, targets, *lengths, *options)


def libraries() -> list[torch.library.Library]:
    """Take over the composite op, as long as the returned objects live."""
    made = []
    for key in ("PrivateUse1", "AutogradPrivateUse1"):
        library = torch.library.Library("aten", "IMPL", key)
        library.impl("ctc_loss.Tensor", _ctc_loss)
        made.append(library)
    return made
