"""The `torch_npu.npu_*` functions that models call, as their documents define them.

Each is composed of torch's own ops on npu, so it is differentiable, goes through the profile's
numerics, and shows in a dump as those ops and not as one fused one. Where a document gives a
formula and no rounding, 16-bit inputs are computed in fp32 and rounded once (inferred).

Sources: Ascend Extension for PyTorch, API reference of the custom operators (op-plugin docs).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

_MASKED = -10000.0


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """fp32 for a 16-bit tensor, itself otherwise."""
    return tensor.float() if tensor.element_size() == 2 else tensor


def npu_dtype_cast(input: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor in another dtype."""
    return input.to(dtype)


def npu_linear(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """input [M, K] times the transpose of weight [N, K], plus bias [N]."""
    return functional.linear(input, weight, bias)


def npu_bmmV2(  # noqa: N802 (the original's name)
    self: torch.Tensor, mat2: torch.Tensor, output_sizes: Sequence[int] = ()
) -> torch.Tensor:
    """Matrix product with broadcasting; summed to `output_sizes` where given.

    output_sizes serves the backward of a broadcast product (the sum is inferred from that use).
    """
    result = torch.matmul(self, mat2)
    return result.sum_to_size(*output_sizes) if len(output_sizes) else result


def npu_transpose(
    self: torch.Tensor, perm: Sequence[int], require_contiguous: bool = True
) -> torch.Tensor:
    """The tensor with its dimensions permuted, contiguous.

    require_contiguous tells the chip what the input is like; it changes no value.
    """
    return self.permute(*perm).contiguous()


def npu_confusion_transpose(
    self: torch.Tensor, perm: Sequence[int], shape: Sequence[int], transpose_first: bool
) -> torch.Tensor:
    """Permute then reshape to `shape` (transpose_first), or reshape then permute."""
    if transpose_first:
        return self.permute(*perm).reshape(*shape)
    return self.reshape(*shape).permute(*perm).contiguous()


def npu_scaled_masked_softmax(
    x: torch.Tensor, mask: torch.Tensor, scale: float = 1.0, fixed_triu_mask: bool = False
) -> torch.Tensor:
    """Softmax over the last dimension of `x * scale`, masked where `mask` (bool) is True.

    Masked elements become -10000 before the softmax. fixed_triu_mask=True is reserved by the
    document: RuntimeError.
    """
    if fixed_triu_mask:
        raise RuntimeError("npu_scaled_masked_softmax: fixed_triu_mask=True is not supported")
    masked = (widen(x) * scale).masked_fill(mask, _MASKED)
    return torch.softmax(masked, dim=-1).to(x.dtype)


def fast_gelu(self: torch.Tensor) -> torch.Tensor:
    """x * sigmoid(1.702 x)."""
    wide = widen(self)
    return (wide * torch.sigmoid(1.702 * wide)).to(self.dtype)


def npu_rms_norm(
    self: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-06
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMS normalisation over the last dimensions, those of gamma.

    Returns y = x * rstd * gamma of x's dtype, and rstd = 1 / sqrt(mean(x^2) + epsilon), fp32
    for 16-bit x, with the normalised dimensions kept as 1.
    """
    wide = widen(self)
    over = tuple(range(-gamma.dim(), 0))
    rstd = torch.rsqrt(wide.pow(2).mean(over, keepdim=True) + epsilon)
    return (wide * rstd * widen(gamma)).to(self.dtype), rstd


def npu_rotary_mul(
    input: torch.Tensor, r1: torch.Tensor, r2: torch.Tensor, rotary_mode: str = "half"
) -> torch.Tensor:
    """Rotary position embedding of a 4-D tensor: r1 * x + r2 * rotate(x).

    rotate: `half` turns (a, b) halves of the last dimension into (-b, a); `interleave` does so to
    pairs of neighbours. r1 is cos, r2 is sin. Raises ValueError for another mode, and for an odd
    last dimension.
    """
    if input.size(-1) % 2:
        raise ValueError(f"npu_rotary_mul turns pairs, but the last size {input.size(-1)} is odd")
    if rotary_mode == "half":
        first, second = input.chunk(2, -1)
        rotated = torch.cat((-second, first), -1)
    elif rotary_mode == "interleave":
        rotated = torch.stack((-input[..., 1::2], input[..., ::2]), -1).flatten(-2)
    else:
        raise ValueError(f"rotary_mode={rotary_mode!r}: choose half or interleave")
    return r1 * input + r2 * rotated


def npu_swiglu(input: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """silu(a) * b of the two halves a, b along `dim`. Raises ValueError for an odd size."""
    if input.size(dim) % 2:
        raise ValueError(f"npu_swiglu halves dimension {dim}, whose size {input.size(dim)} is odd")
    a, b = widen(input).chunk(2, dim)
    return (functional.silu(a) * b).to(input.dtype)


def npu_apply_adam(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: torch.Tensor,
    use_locking: bool | None = None,
    use_nesterov: bool | None = None,
    *,
    out: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One Adam step, written to and returned in `out` = (var, m, v).

    beta1_power, beta2_power: the betas to the power of the step number, from 1. The formula is that
    of ApplyAdam, with epsilon added to sqrt(v) before bias correction. use_locking has no effect.
    """
    var, m, v = out
    with torch.no_grad():
        m.add_((grad - m) * (1 - beta1))
        v.add_((grad * grad - v) * (1 - beta2))
        step = m * beta1 + grad * (1 - beta1) if use_nesterov else m
        rate = lr * (1 - beta2_power) ** 0.5 / (1 - beta1_power)
        var.sub_(rate * step / (v.sqrt() + epsilon))
    return out
