"""The cube unit: matrix products and convolutions as each chip computes them.

Operands are fp16, or bf16 on 910B. fp32 operands are narrowed as the switches say
(`options.cube_mode`): rounded to fp16 (a Cast), rounded to HF32 (1 + 8 + 11 bits), or kept.
Products are summed in fp32 in blocks of 16 (blocks.py). The result leaves as fp32, or with one
rounding as fp16 or bf16. `self` of the addmm family and the bias enter the fp32 accumulator and are
not narrowed.

In saturation mode infinity and NaN become the largest number and 0 in both roundings and in the
result, and the status register gets its bits: CAST where a finite number overflows in a rounding or
a NaN is narrowed, CUBE where the accumulator overflows.

Inferred: HF32 is rounded to nearest even (only its width is documented); `alpha` scales after the
last block, in the vector unit; an infinite operand, or a result that is infinite only because of
one, saturates without a bit; the bias gradient of a convolution is a vector reduction, in fp32 with
one rounding, and raises VECTOR; infinities made by rounding to HF32 count as operands.

Left alone: float64, integers and complex. Profile `exact`: everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from . import blocks, options, status
from .signature import Signature

# Operands of the cube, by op name without overload or trailing underscore.
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
_BIAS_GRADIENT = 2  # its place among the results of convolution_backward

_HALF, _FLOAT = torch.float16, torch.float32
_SHORT = {_HALF, torch.bfloat16, _FLOAT}
_CPU_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_sum = partial(torch.ops.aten.sum.default._handle.redispatch_boxed, _CPU_KEY)
_aminmax = partial(torch.ops.aten.aminmax.default._handle.redispatch_boxed, _CPU_KEY)
_convolve = partial(torch.ops.aten.convolution.default._handle.redispatch_boxed, _CPU_KEY)

Sums = Callable[..., Sequence[Tensor | None]]  # an op on fp32 tensors: its accumulators


def all_finite(tensor: Tensor) -> bool:
    """Whether a float tensor on the CPU holds neither infinity nor NaN."""
    if math.isfinite(_sum(tensor).item()):
        return True
    low, high = _aminmax(tensor)  # both NaN if any element is
    return math.isfinite(low.item()) and math.isfinite(high.item())


def to_half(x: Tensor) -> Tensor:
    """Round fp32 to fp16; the result is still of dtype fp32. In saturation mode it is finite."""
    half = x.to(_HALF).to(_FLOAT)
    if options.live.saturating and not all_finite(half):
        if (half.isfinite() | x.isinf()).logical_not_().any():
            status.note(status.CAST)
        largest = torch.finfo(_HALF).max
        half.nan_to_num_(0.0, largest, -largest)
    return half


def to_hf32(x: Tensor) -> Tensor:
    """Round fp32 to 11 bits of mantissa, to nearest even; the result is still of dtype fp32."""
    bits = x.view(torch.int32)
    odd = (bits >> 12).bitwise_and_(1)
    rounded = odd.add_(0x7FF).add_(bits).bitwise_and_(~0xFFF).view(_FLOAT)
    return rounded if all_finite(x) else torch.where(x.isnan(), x, rounded)


_NARROW = {"keep": lambda x: x, "half": to_half, "hf32": to_hf32}


def through_cube(
    op: torch._ops.OpOverload, run: Callable, signature: Signature, narrows: bool = True
) -> Callable:
    """A cube op on CPU tensors as the profile has it; `run` is the CPU's own.

    narrows: False for fp32 operands that hold 16-bit numbers, which the cube takes as they are.
    What the CPU refuses, and a convolution of nothing, is left to `run`: the errors are the CPU's.
    """
    base = op._schema.name.removeprefix("aten::").removesuffix("_")
    names = [a.name for a in op._schema.arguments]
    if "out_dtype" in names:  # the CPU has none of these
        return run
    operands = [names.index(n) for n in CUBE[base]]
    kind = "convolution" if "convolution" in base else "matrix"
    backward = base == "convolution_backward"
    match = _channels_match if kind == "convolution" else _match
    sums, outs = _SUMS[base], signature.outs

    def computed(*args, **kwargs):
        if not options.live.emulating:
            return run(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            dtype = args[operands[0]].dtype
            places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
            tensors = [args[i] for i in places] + [kwargs[name] for name in outs]
            alike = all(t.dtype is dtype for t in tensors)
            some = kind == "matrix" or all(args[i].numel() for i in operands)
            if not (dtype in _SHORT and alike and some and match(*args[operands[-2] :])):
                return run(*args, **kwargs)
            given = list(args)
            if dtype is _FLOAT and narrows:
                narrow = _NARROW[options.cube_mode(kind)]
                for i in operands:
                    given[i] = narrow(args[i])
            else:
                for i in places:
                    given[i] = args[i].to(_FLOAT)
            if backward:
                given.append(args[0].to(_FLOAT))  # of which the bias gradient is the sum
            numbers = {k: v for k, v in kwargs.items() if k not in outs}
            results = _leave(partial(sums, **numbers), given, dtype)
            for place, result in zip(signature.written, results, strict=False):
                if result is not None:
                    target = args[place] if type(place) is int else kwargs[place]
                    _write(target, result, place in outs)
        return tuple(results) if backward else results[0]

    return computed


def _leave(sums: Sums, given: list, dtype: torch.dtype) -> list[Tensor | None]:
    """What leaves the accumulators of an op: rounded once to `dtype`, saturated, and noted."""
    accumulators = sums(*given)
    results = [None if acc is None else acc.to(dtype) for acc in accumulators]
    if not options.live.saturating:
        return results
    for i, (acc, result) in enumerate(zip(accumulators, results, strict=True)):
        if result is None or all_finite(result):
            continue
        vector, finite = i == _BIAS_GRADIENT, acc.isfinite()
        if (finite & result.isinf()).any():
            status.note(status.VECTOR if vector else status.CAST)
        if not finite.all() and _overflowed(sums, given, i, finite):
            status.note(status.VECTOR if vector else status.CUBE)
        result.nan_to_num_()
    return results


def _overflowed(sums: Sums, given: list, i: int, finite: Tensor) -> bool:
    """Whether sum `i` itself overflowed: it still does with every infinite operand made 1."""
    sound = [_without_infinity(value) for value in given]
    if all(a is b for a, b in zip(given, sound, strict=True)):
        return True
    return not bool((finite | sums(*sound)[i].isfinite()).all())


def _without_infinity(value: object) -> object:
    if not isinstance(value, Tensor):
        return value
    infinite = value.isinf()
    return value.masked_fill(infinite, 1.0) if infinite.any() else value


def _write(target: Tensor, result: Tensor, resizable: bool) -> None:
    if resizable and target.shape != result.shape:
        target.resize_(result.shape)
    target.copy_(result)


def _match(a: Tensor, b: Tensor) -> bool:
    """Whether two operands can be multiplied: matrix and vector, two matrices, or two batches."""
    rank = b.dim()
    if a.dim() != max(rank, 2) or a.shape[-1] != b.shape[max(rank - 2, 0)]:
        return False
    return rank < 3 or a.shape[0] == b.shape[0]


def _channels_match(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    *others: object,
) -> bool:
    """Whether weight is for as many channels as x has."""
    channels = weight.shape[0] if transposed else weight.shape[1] * groups
    return x.dim() == weight.dim() and x.shape[1] == channels


def _product(a: Tensor, b: Tensor, start: Tensor | None = None) -> Tensor:
    if b.dim() > 1:
        return blocks.product(a, b, start)
    column = None if start is None else start.expand(len(a)).unsqueeze(1)
    return blocks.product(a, b.unsqueeze(1), column).squeeze(1)


def _scaled(
    start: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1, batches: bool = False
) -> list[Tensor]:
    """beta * start + alpha * (a @ b); with `batches`, the sum of the products over a batch."""
    first = None if beta == 0 else start if beta == 1 else start * beta
    if alpha == 1 and not batches:
        return [_product(a, b, first)]
    acc = _product(a, b)
    acc = (acc.sum(0) if batches else acc).mul_(alpha)
    return [acc if first is None else acc.add_(first)]


def _activated(*args: Tensor, use_gelu: bool = False, **scale: float) -> list[Tensor]:
    [acc] = _scaled(*args, **scale)
    return [torch.nn.functional.gelu(acc) if use_gelu else acc.relu_()]


def _convolved(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    *backends: bool,
) -> list[Tensor]:
    # The CPU's checks and its size of the result, on no images.
    none = _convolve(
        x[:0], weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )
    geometry = _geometry(x, stride, padding, dilation, groups)
    function = blocks.transposed_convolution if transposed else blocks.convolution
    return [function(x, weight, bias, geometry, none.shape[2:])]


def _gradients(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    mask: list[bool],
    whole: Tensor,
) -> list[Tensor | None]:
    """Gradients of x, weight and bias where `mask` asks for them; whole: `grad` not narrowed."""
    none = _convolve(
        x[:0], weight, None, stride, padding, dilation, transposed, output_padding, groups
    )
    if grad.shape != (len(x), *none.shape[1:]):
        raise RuntimeError(
            f"aten::convolution_backward: grad_output has shape {list(grad.shape)}, but the "
            f"convolution has {[len(x), *none.shape[1:]]}"
        )
    geometry = _geometry(x, stride, padding, dilation, groups)
    adjoint = blocks.convolution if transposed else blocks.transposed_convolution
    small, large = (x, grad) if transposed else (grad, x)
    return [
        adjoint(grad, weight, None, geometry, x.shape[2:]) if mask[0] else None,
        blocks.weight_gradient(large, small, weight, geometry) if mask[1] else None,
        whole.sum([d for d in range(whole.dim()) if d != 1]) if mask[2] else None,
    ]


def _geometry(x: Tensor, *numbers: list[int] | int) -> blocks.Geometry:
    """One number for each spatial dimension, as ATen takes one number for all."""
    *moves, groups = numbers
    rank = x.dim() - 2
    return blocks.Geometry(*(m * rank if len(m) == 1 else m for m in map(list, moves)), groups)


_SUMS: dict[str, Sums] = {
    **dict.fromkeys(("mm", "bmm", "mv"), lambda a, b: [_product(a, b)]),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _scaled),
    "addbmm": partial(_scaled, batches=True),
    "_addmm_activation": _activated,
    "convolution": _convolved,
    "_convolution": _convolved,
    "convolution_backward": _gradients,
}
