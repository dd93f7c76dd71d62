"""Numerics profiles: what the cube unit of each chip does to the operands of matrix ops.

exact  bit-equal to the CPU.
910A   the cube takes fp16 only: fp32 operands are rounded to fp16 (default ACL_PRECISION_MODE
       allow_fp32_to_fp16), products are accumulated in fp32, the result leaves as fp32. fp16
       operands: fp32 accumulation, then one rounding to fp16. The chip saturates: in these two
       roundings infinity becomes +-65504 and NaN becomes 0.
910B   the A2 parts 910B1 to B4 (must_keep_origin_dtype): matrix products keep fp32; convolutions
       round fp32 operands to HF32, 1 + 8 + 11 bits (torch.npu.conv.allow_hf32 is on by default, and
       torch.npu.matmul.allow_hf32 off). fp16 and bf16: fp32 accumulation, one rounding, no
       saturation. Rounding to HF32 is taken to be to nearest even; the document states the width
       only.

Not emulated: the order of accumulation (the CPU's own is used) and what vector ops do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from . import options
from .signature import Signature

# Operands of the cube, by op name without overload or trailing underscore. Bias and `self` of the
# addmm family enter the fp32 accumulator and are not operands.
CUBE: dict[str, tuple[str, ...]] = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "mv": ("self", "vec"),
    "addmm": ("mat1", "mat2"),
    "_addmm_activation": ("mat1", "mat2"),
    "addbmm": ("batch1", "batch2"),
    "baddbmm": ("batch1", "batch2"),
    "addmv": ("mat", "vec"),
    "convolution": ("input", "weight"),
    "_convolution": ("input", "weight"),
    "convolution_backward": ("grad_output", "input", "weight"),
}

_HALF, _FLOAT = torch.float16, torch.float32
_MAX = torch.finfo(_HALF).max


def to_half(x: torch.Tensor) -> torch.Tensor:
    """Round to fp16 as 910A does: infinity and what rounds to it become +-65504, NaN becomes 0."""
    return x.to(_HALF).nan_to_num_(0.0, _MAX, -_MAX)


def _through_half(x: torch.Tensor) -> torch.Tensor:
    return to_half(x).to(_FLOAT)


def to_hf32(x: torch.Tensor) -> torch.Tensor:
    """Round fp32 to 11 bits of mantissa, to nearest even; the result is still of dtype fp32."""
    bits = x.view(torch.int32)
    rounded = (bits + (0x7FF + ((bits >> 12) & 1))) & ~0xFFF
    return torch.where(x.isfinite(), rounded.view(_FLOAT), x)


@dataclass(frozen=True)
class Profile:
    """What a chip does to cube operands; None leaves fp32 operands as they are."""

    matrix: Callable[[torch.Tensor], torch.Tensor] | None
    convolution: Callable[[torch.Tensor], torch.Tensor] | None
    leave: dict[torch.dtype, Callable[[torch.Tensor], torch.Tensor]]  # fp32 result to short dtype


PROFILES = {
    "exact": Profile(None, None, {}),
    "910A": Profile(_through_half, _through_half, {_HALF: to_half}),
    "910B": Profile(None, to_hf32, {d: lambda x, d=d: x.to(d) for d in (_HALF, torch.bfloat16)}),
}



def through_cube(op: torch._ops.OpOverload, run: Callable, signature: Signature) -> Callable:
    """`run` of a cube op on CPU aliases, with operands and results as the profile has them."""
    base = op._schema.name.removeprefix("aten::").removesuffix("_")
    names = [a.name for a in op._schema.arguments]
    operands = [names.index(n) for n in CUBE[base]]
    kind = "convolution" if base.endswith("convolution") else "matrix"
    if base == "convolution_backward":
        kind, run = "convolution", _bias_gradient_apart(run, names.index("output_mask"))

    def computed(*args, **kwargs):
        if not options.live.emulating:
            return run(*args, **kwargs)
        chip = PROFILES[options.profile()]
        with torch._C.DisableTorchFunction():
            dtype = args[operands[0]].dtype
            if dtype in chip.leave:
                return _accumulate_in_float(run, args, kwargs, dtype, chip.leave[dtype], signature)
            narrow = getattr(chip, kind)
            if dtype is not _FLOAT or narrow is None:
                return run(*args, **kwargs)
            narrowed = list(args)
            for i in operands:
                narrowed[i] = narrow(args[i])
            if base == "convolution_backward":
                return run(*narrowed, grad_output=args[0])
            return run(*narrowed, **kwargs)

    return computed


def _bias_gradient_apart(run: Callable, mask_at: int) -> Callable:
    """convolution_backward whose bias gradient is the sum of `grad_output` before narrowing.

    That sum is a vector reduction on the device, not a cube op.
    """

    def computed(*args, grad_output: torch.Tensor | None = None, **kwargs):
        mask = args[mask_at]
        if grad_output is None or not mask[2]:
            return run(*args, **kwargs)
        args = list(args)
        grad_input = grad_weight = None
        if mask[0] or mask[1]:
            args[mask_at] = [mask[0], mask[1], False]
            grad_input, grad_weight, _ = run(*args, **kwargs)
        axes = [d for d in range(grad_output.dim()) if d != 1]
        return grad_input, grad_weight, grad_output.sum(axes)

    return computed


def _accumulate_in_float(
    run: Callable,
    args: tuple,
    kwargs: dict,
    dtype: torch.dtype,
    leave: Callable[[torch.Tensor], torch.Tensor],
    signature: Signature,
) -> object:
    """Run a 16-bit cube op in fp32 and round what leaves it once."""

    def widen(value: object) -> object:
        short = isinstance(value, torch.Tensor) and value.dtype is dtype
        return value.to(_FLOAT) if short else value

    given = dict(enumerate(args)) | kwargs
    wide = {place: widen(value) for place, value in given.items()}
    out = run(*(wide[i] for i in range(len(args))), **{k: wide[k] for k in kwargs})
    for place in signature.written:
        target = given[place]
        if wide[place] is not target:
            if target.shape != wide[place].shape:  # an empty `out`
                target.resize_(wide[place].shape)
            target.copy_(leave(wide[place]))
    if isinstance(out, tuple):
        return tuple(o if o is None else leave(o) for o in out)
    return leave(out)
