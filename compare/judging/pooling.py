"""Formulas of pooling: sums, means and maxima of windows.

A window that is a product of ranges is a matrix an axis: which elements each window covers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .operands import Operands, formula
from .reductions import scattered
from .tracked import Tracked, summed


def _windows(c: Operands, x: np.ndarray) -> tuple[list[int], list[int], list[int], list[int]]:
    """Kernel, stride, padding and dilation of pooling, one number an axis."""
    rank = len(c.value("kernel_size")) if isinstance(c.value("kernel_size"), list) else x.ndim - 2

    def each(name: str, default: Any) -> list[int]:
        found = c.value(name, default)
        found = found if isinstance(found, list) else [found]
        return (found or default) if len(found) != 1 else found * rank

    kernel = each("kernel_size", None)
    return kernel, each("stride", kernel), each("padding", [0] * rank), each("dilation", [1] * rank)


def _starts(c: Operands, size: int, k: int, s: int, p: int, d: int = 1) -> int:
    """How many windows an axis has."""
    span = size + 2 * p - d * (k - 1) - 1
    if not c.value("ceil_mode"):
        return span // s + 1
    count = -(-span // s) + 1
    return count - ((count - 1) * s >= size + p)


def _pool_matrix(c: Operands, shape: tuple[int, ...]) -> list[np.ndarray]:
    """For each axis, which elements (columns) each window (row) covers, padding not counted."""
    rank = len(c.value("kernel_size"))
    kernel, stride, padding, _ = _windows(c, np.empty((1,) * (rank + 2)))
    found = []
    for size, k, s, p in zip(shape[-rank:], kernel, stride, padding, strict=True):
        starts = np.arange(*c.bounded(_starts(c, size, k, s, p))) * s - p
        at = np.arange(size)
        found.append(((at >= starts[:, None]) & (at < starts[:, None] + k)).astype(np.float64))
    return found


def _pool_divisor(c: Operands, shape: tuple[int, ...]) -> np.ndarray:
    rank = len(c.value("kernel_size"))
    kernel, stride, padding, _ = _windows(c, np.empty((1,) * (rank + 2)))
    if c.value("divisor_override"):
        return np.array(float(c.value("divisor_override")))
    total = np.ones(())
    for size, k, s, p in zip(shape[-rank:], kernel, stride, padding, strict=True):
        starts = np.arange(*c.bounded(_starts(c, size, k, s, p))) * s - p
        low, high = starts, np.minimum(starts + k, size + p)
        if not c.value("count_include_pad", True):
            low, high = np.maximum(low, 0), np.minimum(high, size)
        total = total[..., None] * (high - low)
    return total


def _along(x: np.ndarray, matrices: list[np.ndarray]) -> np.ndarray:
    for axis, matrix in enumerate(matrices, x.ndim - len(matrices)):
        x = np.moveaxis(np.moveaxis(x, axis, -1) @ matrix.T, -1, axis)
    return x


def _pooled(x: Tracked, cover: list[np.ndarray], count: int) -> Tracked:
    """Sums, or means, of what each window covers, and a rounding of each term."""
    v, size, squares = (_along(a, cover) for a in (x.v, np.abs(x.v), np.square(x.v)))
    brought = 0.0 if x.is_exact else _along(np.broadcast_to(x.w, x.v.shape), cover)
    return Tracked(v, x.r * (summed(v, size, squares, count) + size) + brought, x.r)


@formula("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(c: Operands) -> Tracked:
    x = c["self"]
    cover, count = _pool_matrix(c, x.v.shape), math.prod(c.value("kernel_size"))
    return _pooled(x, cover, count) / Tracked(_pool_divisor(c, x.v.shape))


@formula("avg_pool2d_backward", "avg_pool3d_backward")
def _avg_pool_backward(c: Operands) -> Tracked:
    shape = c.arrays["self"].shape
    g = c["grad_output"] / Tracked(_pool_divisor(c, shape))
    cover = [matrix.T for matrix in _pool_matrix(c, shape)]
    return _pooled(g, cover, math.prod(c.value("kernel_size")))


@formula("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _adaptive_avg_pool(c: Operands) -> Tracked:
    x = c["self"]
    cover, count = _adaptive(c, x.v.shape, c.value("output_size"))
    return _pooled(x, cover, count)


@formula("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def _adaptive_avg_pool_backward(c: Operands) -> Tracked:
    g, shape = c["grad_output"], c.arrays["self"].shape
    rank = 2 if "2d" in c.values["_base"] else 3
    cover, count = _adaptive(c, shape, list(g.v.shape[-rank:]))
    cover = [matrix.T for matrix in cover]
    return _pooled(g, cover, count)


def _adaptive(
    c: Operands, shape: tuple[int, ...], sizes: list[int]
) -> tuple[list[np.ndarray], int]:
    found, count = [], 1
    for size, out in zip(shape[-len(sizes) :], sizes, strict=True):
        i = np.arange(*c.bounded(out))
        low, high = i * size // out, -(-(i + 1) * size // out)
        at = np.arange(size)
        inside = (at >= low[:, None]) & (at < high[:, None])
        found.append(inside / (high - low)[:, None])
        count *= int((high - low).max(initial=1))
    return found, count


@formula("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(c: Operands) -> dict[str, Tracked]:
    x = c["self"].v
    kernel, stride, padding, dilation = _windows(c, x)
    rank = len(kernel)
    outs = [
        _starts(c, n, k, s, p, d)
        for n, k, s, p, d in zip(x.shape[-rank:], kernel, stride, padding, dilation, strict=True)
    ]
    wide = [
        (p, max(p, (o - 1) * s + d * (k - 1) + 1 - n - p))
        for n, k, s, p, d, o in zip(
            x.shape[-rank:], kernel, stride, padding, dilation, outs, strict=True
        )
    ]
    c.bounded(math.prod(kernel))
    c.bounded(*outs)
    c.bounded(
        *x.shape[:-rank], *(n + a + b for n, (a, b) in zip(x.shape[-rank:], wide, strict=True))
    )
    padded = np.pad(x, [(0, 0)] * (x.ndim - rank) + wide, constant_values=-np.inf)
    best = None
    for place in np.ndindex(*kernel):
        at = tuple(
            slice(i * d, i * d + (o - 1) * s + 1, s)
            for i, d, o, s in zip(place, dilation, outs, stride, strict=True)
        )
        part = padded[(..., *at)]
        best = part if best is None else np.maximum(best, part)
    return {"result0": Tracked(best)}


@formula("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def _max_pool_backward(c: Operands) -> Tracked:
    g, shape = c["grad_output"], c.arrays["self"].shape
    rank = 2 if "2d" in c.values["_base"] else 3
    index = c.bits("indices").astype(np.int64)
    planes, places = math.prod(shape[:-rank]), math.prod(shape[-rank:])
    flat = index.reshape(planes, -1) + np.arange(planes)[:, None] * places
    found = scattered(flat.reshape(-1), g.reshape(-1), planes * places)
    return found.reshape(*shape)
