"""`torch_npu.npu_fusion_attention`: flash attention for training, as its document defines it.

    attention_out = dropout(softmax(mask(scale * (query @ key^T + pse))), keep_prob) @ value

Composed of torch's ops and differentiable. 16-bit inputs are multiplied as such with fp32 results;
softmax runs in fp32 and its result is rounded to the input's dtype before the second product, which
is rounded once (inferred: the cube takes 16-bit operands and keeps fp32 sums).

Source: op-plugin docs, torch_npu.npu_fusion_attention; aclnnFlashAttentionScore for the shapes of
the softmax results.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from .. import random
from .custom_ops import widen

_EVERYTHING = 2147483647
_REPEATED = 8  # softmax_max and softmax_sum hold each value so often

# Each layout as dimensions of B, N, S, D: how to get there and back. H is N * D.
_LAYOUTS = ("BNSD", "BSND", "BSH", "SBH")


def npu_fusion_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    head_num: int,
    input_layout: str,
    pse: torch.Tensor | None = None,
    padding_mask: torch.Tensor | None = None,
    atten_mask: torch.Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = _EVERYTHING,
    next_tockens: int = _EVERYTHING,
    inner_precise: int = 0,
    prefix: list[int] | None = None,
    actual_seq_qlen: list[int] | None = None,
    actual_seq_kvlen: list[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int, int, int]:
    """Attention of `query` over `key` and `value`; key and value may have fewer heads.

    input_layout: BNSD, BSND, BSH or SBH, of the three and of the result.
    pse: added to the scores, broadcast to [B, N, Sq, Skv].
    atten_mask: True (or 1) leaves a score out. sparse_mode 0 and 1 take it as given; 2 (causal from
    the upper left), 3 (from the lower right) and 4 (a band of pre_tockens and next_tockens from the
    lower right) only need it to be there. Without it nothing is masked. A row with no score left
    gives 0 (inferred).
    Returns the result; softmax max and sum, fp32 [B, N, Sq, 8]; an empty reserved tensor; seed,
    offset and length of the dropout mask: 0 without dropout.
    Raises ValueError for what it takes but the document does not allow, RuntimeError for what is
    not emulated: TND, prefix, sparse_mode above 4, padding_mask (reserved).
    """
    _check(input_layout, keep_prob, sparse_mode, padding_mask, prefix)
    q, k, v = _split_heads(query, key, value, head_num, input_layout)
    k, v = (t.repeat_interleave(q.size(1) // k.size(1), 1) for t in (k, v))
    scores = widen(q) @ widen(k).transpose(-1, -2)
    if pse is not None:
        scores = scores + widen(pse)
    scores = scores * scale
    hidden = _hidden(scores, atten_mask, sparse_mode, pre_tockens, next_tockens)
    if hidden is not None:
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    top = scores.amax(-1, keepdim=True).detach()
    raised = torch.exp(scores - top)
    if hidden is not None:
        raised = raised.masked_fill(hidden, 0.0)
    total = raised.sum(-1, keepdim=True)
    weights = raised / total.masked_fill(total == 0, 1.0)
    seed = offset = length = 0
    if keep_prob < 1:
        seed, length = random.generator.initial_seed(), weights.numel()
        weights = functional.dropout(weights, 1 - keep_prob)
    result = widen(weights.to(query.dtype)) @ widen(v)
    return (
        _from_bnsd(result.to(query.dtype), input_layout),
        _repeat(top),
        _repeat(total.detach()),
        torch.empty(0, device=query.device),
        seed,
        offset,
        length,
    )


def _check(
    layout: str,
    keep_prob: float,
    sparse_mode: int,
    padding_mask: torch.Tensor | None,
    prefix: list[int] | None,
) -> None:
    if layout == "TND" or sparse_mode > 4 or prefix is not None or padding_mask is not None:
        raise RuntimeError(
            "npu_fusion_attention: TND layout, prefix, sparse_mode above 4 and padding_mask are "
            "not emulated; use layout BNSD, BSND, BSH or SBH with atten_mask"
        )
    if layout not in _LAYOUTS:
        raise ValueError(f"input_layout={layout!r}: choose one of {', '.join(_LAYOUTS)}")
    if not 0 < keep_prob <= 1:
        raise ValueError(f"keep_prob={keep_prob}: it must be above 0 and at most 1")
    if sparse_mode < 0:
        raise ValueError(f"sparse_mode={sparse_mode}: choose 0 to 4")


def _split_heads(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int, layout: str
) -> list[torch.Tensor]:
    """The three as BNSD. Raises ValueError for shapes and dtypes that do not fit each other."""
    given = (query, key, value)
    dtypes, shapes = [t.dtype for t in given], [tuple(t.shape) for t in given]
    if len(set(dtypes)) > 1 or not query.is_floating_point():
        raise ValueError(f"query, key and value need one floating dtype, got {dtypes}")
    if any(len(shape) != len(layout) or 0 in shape for shape in shapes):
        raise ValueError(f"layout {layout} needs {len(layout)} axes, none empty; got {shapes}")
    if "N" in layout:
        axis = layout.index("N")
        few = key.size(axis)
        fits = (query.size(axis), value.size(axis)) == (heads, few)
        fits = fits and query.size(-1) == key.size(-1)
    else:
        depth = query.size(2) // max(heads, 1)
        few = max(key.size(2) // max(depth, 1), 1)
        fits = (heads * depth, few * depth) == (query.size(2), key.size(2))
    if not fits or heads % few:
        raise ValueError(f"head_num={heads} in {layout} does not fit query, key, value {shapes}")
    return [_to_bnsd(t, n, layout) for t, n in zip(given, (heads, few, few), strict=True)]


def _to_bnsd(tensor: torch.Tensor, heads: int, layout: str) -> torch.Tensor:
    if layout == "BNSD":
        return tensor
    if layout == "SBH":
        tensor = tensor.transpose(0, 1)
    if layout in ("BSH", "SBH"):
        tensor = tensor.unflatten(2, (heads, -1))
    return tensor.transpose(1, 2)


def _from_bnsd(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "BNSD":
        return tensor
    tensor = tensor.transpose(1, 2)
    if layout in ("BSH", "SBH"):
        tensor = tensor.flatten(2)
    return (tensor.transpose(0, 1) if layout == "SBH" else tensor).contiguous()


def _hidden(
    scores: torch.Tensor, mask: torch.Tensor | None, sparse_mode: int, before: int, after: int
) -> torch.Tensor | None:
    """Which scores are left out: bool, broadcast to the scores; None for none."""
    if mask is None or sparse_mode < 2:
        return None if mask is None else mask.bool()
    rows, columns = scores.shape[-2:]
    row = torch.arange(rows, device=scores.device).unsqueeze(1)
    distance = torch.arange(columns, device=scores.device) - row
    if sparse_mode == 2:
        return distance > 0
    distance = distance - (columns - rows)
    if sparse_mode == 3:
        return distance > 0
    return (distance > after) | (distance < -before)


def _repeat(column: torch.Tensor) -> torch.Tensor:
    return column.expand(*column.shape[:-1], _REPEATED).contiguous()
