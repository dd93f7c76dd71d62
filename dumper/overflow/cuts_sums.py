"""Cuts of sums of products: matrix products, convolutions and their gradients, attention.

A matrix product runs on its row and its column. A convolution is written out as the sum it is, over
the places where kernel and input meet: that needs no border, and one rule serves forward, backward
and transposed. Attention is written out since its kernels are each device's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from .cuts import Cut, Cutter, Uncut, registering

CUTS: dict[str, Cutter] = {}
cuts = registering(CUTS)


@cuts("mm", "bmm", "matmul", "mv", "addmm", "addmv", "addr", "baddbmm", "_addmm_activation")
def _product(cut: Cut) -> None:
    """A row, a column, and what is added there."""
    factors = [name for name in cut.tensors() if name not in ("self", "input")]
    if len(factors) == 1:
        factors.insert(0, "self")
    else:
        cut.broadcast("self", cut.index, cut.shape)
    left, right = factors
    ranks = cut[left].dim(), cut[right].dim()
    index = cut.index
    if ranks == (1, 1) and len(index) == 2:  # addr: an outer product
        cut.take(left, {0: index[0]})
        cut.take(right, {0: index[1]})
    elif ranks in ((2, 2), (3, 3)):
        batch = dict(enumerate(index[:-2]))
        cut.take(left, {**batch, len(index) - 2: index[-2]})
        cut.take(right, {**batch, len(index) - 1: index[-1]})
    elif ranks == (2, 1):
        cut.take(left, {0: index[0]})
    else:
        raise Uncut
    cut.index = (0,) * len(index)


@cuts("addbmm")
def _sum_of_products(cut: Cut) -> None:
    cut.broadcast("self", cut.index, cut.shape)
    cut.take("batch1", {1: cut.index[0]})
    cut.take("batch2", {2: cut.index[1]})
    cut.index = (0, 0)


@cuts("linear")
def _linear(cut: Cut) -> None:
    index, rank = cut.index, cut["input"].dim()
    if cut["weight"].dim() != 2:
        raise Uncut
    cut.take("input", dict(enumerate(index[: rank - 1])))
    cut.take("weight", {0: index[-1]})
    if cut.get("bias") is not None:
        cut.take("bias", {0: index[-1]})
    cut.index = (0,) * len(index)


@cuts("_scaled_mm")
def _scaled_product(cut: Cut) -> None:
    """Of 8-bit floats. A scale is one number, or one for each row and one for each column."""
    row, column = cut.index
    shape = cut.shape
    if cut.get("scale_result") is not None:
        raise Uncut
    for name, fits in (("scale_a", (shape[0], 1)), ("scale_b", (1, shape[1]))):
        if cut[name].numel() == 1:
            continue
        if tuple(cut[name].shape) != fits:
            raise Uncut  # by blocks
        cut.broadcast(name, cut.index, shape)
    cut.take("self", {0: row})
    cut.take("mat2", {1: column})
    if cut.get("bias") is not None:
        cut.take("bias", {0: column})

    def formula(of: Mapping[str, torch.Tensor]) -> torch.Tensor:
        product = (of["self"] @ of["mat2"]).sum() * of["scale_a"].sum() * of["scale_b"].sum()
        return product if of["bias"] is None else product + of["bias"].sum()

    cut.formula = formula


class _Geometry:
    """Of a convolution: one number an axis."""

    def __init__(self, cut: Cut) -> None:
        self.rank = cut["weight"].dim() - 2
        self.stride = self._each(cut["stride"])
        self.padding = self._each(cut["padding"])
        self.dilation = self._each(cut["dilation"])
        self.groups = cut.get("groups", 1)
        self.transposed = bool(cut.get("transposed", False))

    def _each(self, numbers: object) -> tuple[int, ...]:
        if not isinstance(numbers, (list, tuple)) or not numbers:
            raise Uncut  # padding="same"
        return tuple(numbers) if len(numbers) == self.rank else tuple(numbers) * self.rank


@cuts("convolution", "_convolution", "convolution_overrideable", "conv1d", "conv2d", "conv3d")
def _convolution(cut: Cut) -> None:
    geometry, index = _Geometry(cut), cut.index
    if len(index) != cut["weight"].dim():
        raise Uncut  # no batch
    (_spread if geometry.transposed else _gather)(cut, "input", geometry)
    product = cut.formula
    if cut.get("bias") is not None:
        cut.take("bias", {0: index[1]})
        cut.formula = lambda of: product(of) + of["bias"].sum()


@cuts("convolution_backward", "convolution_backward_overrideable")
def _convolution_backward(cut: Cut) -> None:
    geometry = _Geometry(cut)
    if cut.position == 0:
        (_gather if geometry.transposed else _spread)(cut, "grad_output", geometry)
    elif cut.position == 1:
        _weigh(cut, geometry)
    else:
        cut.only("grad_output")
        cut.take("grad_output", {1: cut.index[0]})
        cut.formula = lambda of: of["grad_output"].sum()


def _gather(cut: Cut, source: str, geometry: _Geometry) -> None:
    """What lies under the kernel: the source's patch times one filter."""
    sample, channel, *place = cut.index
    weight = cut["weight"]
    deep = weight.shape[1]
    group = channel // (weight.shape[0] // geometry.groups)
    of_source: dict[int, int | slice] = {0: sample, 1: slice(group * deep, (group + 1) * deep)}
    of_weight: dict[int, int | slice] = {0: channel}
    for axis, at in enumerate(place):
        start, step = at * geometry.stride[axis] - geometry.padding[axis], geometry.dilation[axis]
        pairs = [
            (start + k * step, k)
            for k in range(weight.shape[axis + 2])
            if 0 <= start + k * step < cut[source].shape[axis + 2]
        ]
        of_source[axis + 2] = _slice([i for i, _ in pairs])
        of_weight[axis + 2] = _slice([k for _, k in pairs])
    cut.only(source, "weight", "bias")
    cut.take(source, of_source)
    cut.take("weight", of_weight)
    cut.formula = lambda of: (of[source] * of["weight"]).sum()


def _spread(cut: Cut, source: str, geometry: _Geometry) -> None:
    """The transpose of it: all places of the source whose kernel reaches the element."""
    sample, channel, *place = cut.index
    weight = cut["weight"]
    wide, deep = weight.shape[:2]
    group, inner = channel // deep, channel % deep
    wide //= geometry.groups
    channels = slice(group * wide, (group + 1) * wide)
    of_source: dict[int, int | slice] = {0: sample, 1: channels}
    of_weight: dict[int, int | slice] = {0: channels, 1: inner}
    for axis, at in enumerate(place):
        stride, pairs = geometry.stride[axis], []
        for k in reversed(range(weight.shape[axis + 2])):
            i, rest = divmod(at + geometry.padding[axis] - k * geometry.dilation[axis], stride)
            if not rest and 0 <= i < cut[source].shape[axis + 2]:
                pairs.append((i, k))
        of_source[axis + 2] = _slice([i for i, _ in pairs])
        of_weight[axis + 2] = _slice(sorted(k for _, k in pairs))
    cut.only(source, "weight", "bias")
    cut.take(source, of_source)
    cut.take("weight", of_weight)
    axes = [axis + 2 for axis in range(len(place))]
    cut.formula = lambda of: (of[source] * of["weight"].transpose(0, 1).flip(axes)).sum()


def _weigh(cut: Cut, geometry: _Geometry) -> None:
    """The gradient of one weight: all places where it was used."""
    row, column, *place = cut.index
    small, large = ("input", "grad_output") if geometry.transposed else ("grad_output", "input")
    group = row // (cut["weight"].shape[0] // geometry.groups)
    of_small: dict[int, int | slice] = {1: row}
    of_large: dict[int, int | slice] = {1: group * cut["weight"].shape[1] + column}
    for axis, k in enumerate(place):
        start = k * geometry.dilation[axis] - geometry.padding[axis]
        pairs = [
            (i, start + i * geometry.stride[axis])
            for i in range(cut[small].shape[axis + 2])
            if 0 <= start + i * geometry.stride[axis] < cut[large].shape[axis + 2]
        ]
        of_small[axis + 2] = _slice([i for i, _ in pairs])
        of_large[axis + 2] = _slice([i for _, i in pairs])
    cut.only(small, large)
    cut.take(small, of_small)
    cut.take(large, of_large)
    cut.formula = lambda of: (of[small] * of[large]).sum()


def _slice(numbers: list[int]) -> slice:
    """Numbers that rise by equal steps, as a slice."""
    if not numbers:
        return slice(0, 0)
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    return slice(numbers[0], numbers[-1] + 1, step)


@cuts(
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)  # fmt: skip
def _attention(cut: Cut) -> None:
    """One query against all keys, or where it is causal those up to its own place."""
    if cut.position != 0 or len(cut.index) != 4:
        raise Uncut
    sample, head, row, column = cut.index
    query, key, value = (cut[name] for name in ("query", "key", "value"))
    heads, length = query.shape[1], key.shape[2]
    if heads % key.shape[1] or key.shape[1] != value.shape[1]:
        raise Uncut
    own = head // (heads // key.shape[1])
    mask = next((name for name in ("attn_mask", "attn_bias") if cut.get(name) is not None), "")
    scores = (query.shape[0], heads, query.shape[2], length)
    scale = cut.get("scale")
    scale = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    causal = cut["is_causal"]
    cut.only("query", "key", "value", mask)
    cut.take("query", {0: sample, 1: head, 2: row})
    cut.take("key", {0: sample, 1: own})
    cut.take("value", {0: sample, 1: own, 3: column})
    if mask:
        at = {
            axis: part
            for axis, part in enumerate(_of_mask(cut[mask], (sample, head, row), scores))
            if part is not None
        }
        cut.take(mask, at)

    def formula(of: Mapping[str, torch.Tensor]) -> torch.Tensor:
        products = (of["query"] @ of["key"].transpose(-1, -2) * scale).reshape(-1)
        if causal:
            products[row + 1 :] = -math.inf
        if mask and of[mask].dtype is torch.bool:
            products = products.masked_fill(of[mask].reshape(-1).logical_not(), -math.inf)
        elif mask:
            products = products + of[mask].reshape(-1)
        # A row that is masked throughout attends to nothing: 0, where a plain softmax has NaN.
        return torch._safe_softmax(products, 0) @ of["value"].reshape(-1)

    cut.formula = formula


def _of_mask(
    mask: torch.Tensor, index: tuple[int, int, int], scores: tuple[int, ...]
) -> list[int | None]:
    """The index of a mask's row, by axis, in what is broadcast to all scores."""
    behind = 4 - mask.dim()
    if behind < 0 or any(n not in (1, scores[behind + i]) for i, n in enumerate(mask.shape)):
        raise Uncut
    wanted = [*index, None][behind:]
    return [
        0 if n == 1 and at is not None else at for n, at in zip(mask.shape, wanted, strict=True)
    ]
