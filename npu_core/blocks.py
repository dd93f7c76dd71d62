"""Sums in the order of the cube: blocks of 16, one after the other, in fp32.

The cube multiplies 16 x 16 x 16. What it sums over (K) comes in blocks of 16; each block is summed
and then added to the accumulator, which holds the bias before the first. The blocks are

matrix product      16 of K
convolution         16 input channels at one kernel position, in the order of FRACTAL_Z: channels
                    outside, kernel positions inside
gradient of input   16 output channels at one kernel position, from the last position to the first:
                    it is the convolution of the gradient with the turned kernel
gradient of weight  16 output positions of one image

A transposed convolution is the third, and has the second as its gradient of input. Inferred: the
orders of both gradients, that the bias comes first, that fp32 operands of 910B come in blocks of 16
too, and the order inside a block, which is the CPU's.

The product of a block is made apart and then added: the CPU's products that accumulate (`addmm_`)
add single terms to the accumulator for some shapes. Sums are worked on a cacheful at a time.

All tensors are fp32, dense and on the CPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from . import workers

BLOCK = 16
_TILE = 2**18  # numbers of a sum worked on at once: 1 MiB
_SMALL = 2**22  # multiplications that one thread does sooner than several
_split = torch.unsafe_split  # unlike split, no Python; nothing here is recorded by autograd


def product(a: Tensor, b: Tensor, start: Tensor | None = None) -> Tensor:
    """a @ b of (M, K), (K, N) or of (B, M, K), (B, K, N); `start` broadcasts to the result."""
    multiply = torch.mm if a.dim() == 2 else torch.bmm
    firsts, seconds = _split(a, BLOCK, -1), _split(b, BLOCK, -2)
    acc = a.new_empty(*a.shape[:-1], b.shape[-1])
    if start is not None:
        start = start.expand_as(acc)

    def add(i: int) -> None:
        part = acc[i : i + rows]
        spare = torch.empty_like(part) if len(firsts) > 1 else part
        for k, (x, y) in enumerate(zip(firsts, seconds, strict=True)):
            y = y if y.dim() == 2 else y[i : i + rows]
            multiply(x[i : i + rows], y, out=spare if k else part)
            if k:
                part.add_(spare)
            elif start is not None:
                part.add_(start[i : i + rows])

    rows = _rows(len(acc), acc[0].numel() if len(acc) else 0, a.shape[-1])
    workers.each(add, range(0, len(acc), rows))
    return acc


def _rows(count: int, size: int, depth: int) -> int:
    """How many of `count` rows of `size` numbers, each a sum of `depth`, are worked on at once."""
    rows = max(1, _TILE // max(1, size))
    if count * size * depth < _SMALL:
        return max(1, min(count, rows))
    return max(1, min(rows, -(-count // torch.get_num_threads())))


class Geometry(NamedTuple):
    """How a kernel moves over an image; a sequence has one number for each spatial dimension."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    def window(self, padded: Tensor, offset: Sequence[int], size: Sequence[int]) -> Tensor:
        """What the kernel position `offset` meets in (..., *padded image): a view (..., *size)."""
        steps = zip(offset, size, self.stride, self.dilation, strict=True)
        return padded[(..., *(slice(o * d, o * d + (n - 1) * s + 1, s) for o, n, s, d in steps))]


def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, size: Sequence[int]
) -> Tensor:
    """Convolution of x (N, C, *image) with weight (O, C / groups, *kernel): (N, O, *size)."""
    x = _grouped(_pad(x, geometry.padding), geometry.groups)
    kernel, positions = _by_position(weight, geometry.groups)
    out = x.new_empty(x.shape[2], len(weight), *size)
    places = _grouped(out, geometry.groups)
    images = _rows(x.shape[2], len(weight) * math.prod(size), weight[0].numel())

    def add(i: int) -> None:
        part, place = x[:, :, i : i + images], places[:, :, i : i + images]
        acc = x.new_zeros(*place.shape[:2], math.prod(place.shape[2:]))
        if bias is not None:
            acc.add_(bias.view(*place.shape[:2], 1))
        spare = torch.empty_like(acc)
        for k in range(0, x.shape[1], BLOCK):
            channels = part[:, k : k + BLOCK]
            for at in positions:
                columns = geometry.window(channels, at, size).flatten(2)
                torch.bmm(kernel[at][:, :, k : k + BLOCK], columns, out=spare)
                acc.add_(spare)
        place.copy_(acc.view(place.shape))

    workers.each(add, range(0, x.shape[2], images))
    return out


def transposed_convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, size: Sequence[int]
) -> Tensor:
    """The adjoint of `convolution`: x (N, O, *image), weight (O, C / groups, *kernel).

    Returns (N, C, *size). Channels are innermost while it adds: windows of small images have short
    rows.
    """
    groups, image, channels = geometry.groups, x.shape[2:], weight.shape[1]
    kernel, positions = _by_position(weight, groups)
    x = _grouped(x, groups).movedim(1, -1)
    out = x.new_empty(x.shape[1], channels * groups, *size)
    places = _grouped(out, groups)
    padded = [n + 2 * p for n, p in zip(size, geometry.padding, strict=True)]
    inner = [slice(p, p + n) for p, n in zip(geometry.padding, size, strict=True)]
    depth = x.shape[-1] * math.prod(weight.shape[2:])
    images = _rows(x.shape[1], channels * groups * math.prod(padded), depth)

    def add(i: int) -> None:
        part, place = x[:, i : i + images], places[:, :, i : i + images]
        acc = x.new_zeros(groups, part.shape[1], *padded, channels)
        if bias is not None:
            acc.add_(bias.view(groups, *[1] * (len(padded) + 1), channels))
        acc = acc.movedim(-1, 1)
        rows = part.flatten(1, -2)
        spare = x.new_empty(*part.shape[:-1], channels)
        flat, added = spare.flatten(1, -2), spare.movedim(-1, 1)
        for k in range(0, x.shape[-1], BLOCK):
            block = rows[:, :, k : k + BLOCK].contiguous()
            for at in reversed(positions):
                torch.bmm(block, kernel[at][:, k : k + BLOCK], out=flat)
                geometry.window(acc, at, image).add_(added)
        place.copy_(acc[(..., *inner)])

    workers.each(add, range(0, x.shape[1], images))
    return out


def weight_gradient(x: Tensor, grad: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Gradient of the weight of `convolution` from x (N, C, *image) and grad (N, O, *size)."""
    size, groups, channels = grad.shape[2:], geometry.groups, weight.shape[1]
    x, grad = _grouped(_pad(x, geometry.padding), groups), _grouped(grad, groups).flatten(3)
    out = torch.empty_like(weight, memory_format=torch.contiguous_format)
    sums, positions = _by_position(out, groups)
    depth = grad.shape[2] * grad.shape[3]
    together = _rows(len(positions), sums[positions[0]].numel(), depth)  # kernel positions

    def add(i: int) -> None:
        chosen = positions[i : i + together]
        acc = x.new_zeros(*grad.shape[:2], len(chosen) * channels)
        spare = torch.empty_like(acc)
        images = max(1, _TILE // (groups * acc.shape[2] * grad.shape[3]))
        for part, rows in zip(x.split(images, 2), grad.split(images, 2), strict=True):
            windows = torch.stack([geometry.window(part, at, size) for at in chosen], 1)
            columns = windows.view(groups, acc.shape[2], *rows.shape[2:]).transpose(1, 3)
            for one, other in zip(rows.unbind(2), columns.unbind(2), strict=True):
                pairs = zip(_split(one, BLOCK, 2), _split(other, BLOCK, 1), strict=True)
                for a, b in pairs:
                    torch.bmm(a, b, out=spare)
                    acc.add_(spare)
        for at, there in zip(chosen, acc.split(channels, 2), strict=True):
            sums[at].copy_(there)

    workers.each(add, range(0, len(positions), together))
    return out


def _pad(x: Tensor, padding: Sequence[int]) -> Tensor:
    if not any(padding):
        return x
    return torch.constant_pad_nd(x, [p for p in reversed(padding) for _ in range(2)])


def _grouped(x: Tensor, groups: int) -> Tensor:
    """(N, C, *image) as a view (groups, C / groups, N, *image)."""
    return x.unflatten(1, (groups, -1)).movedim(0, 2)


def _by_position(weight: Tensor, groups: int) -> tuple[Tensor, list[tuple[int, ...]]]:
    """(O, C / groups, *kernel) as a view (*kernel, groups, O / groups, C / groups).

    Also returns the kernel's positions in order.
    """
    positions = list(itertools.product(*map(range, weight.shape[2:])))
    return weight.unflatten(0, (groups, -1)).movedim((0, 1, 2), (-3, -2, -1)), positions
