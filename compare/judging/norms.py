"""A cheap limit for products on equal inputs: norms in place of sums of magnitudes.

|a| * |b| bounds sum|a||b| from above. Of numbers of a normal distribution the sum is 0.64 of that,
also 0.45 where half of both are cut to zero. What is apart by less than the rounding of half of it
is rounding, and no product has to be computed to see it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .products import convolve, geometry, out_of, spread

SHARE = 0.5

Arrays = Mapping[str, np.ndarray]


def sizes(base: str, output: str, arrays: Arrays, values: Mapping[str, Any]) -> np.ndarray | None:
    """SHARE of the norms' product for each element of the output, as an array that broadcasts to
    it; None where this is not known. Raises KeyError or ValueError for operands that do not fit."""
    pair = _MATRICES.get(base)
    if pair is not None and output in ("result", "out"):
        a, b = (arrays[name] for name in pair)
        left = np.sqrt(_squares(a).sum(-1, keepdims=True))
        if b.ndim == 1:
            return SHARE * left[..., 0] * math.sqrt(float(_squares(b).sum()))
        if base == "linear":
            return SHARE * left * np.sqrt(_squares(b).sum(-1))
        return SHARE * left * np.sqrt(_squares(b).sum(-2, keepdims=True))
    if base == "convolution" and output == "result" and not values.get("transposed"):
        return SHARE * _convolved(arrays["input"], arrays["weight"], values)
    if base == "convolution_backward" and not values.get("transposed"):
        return _backward(output, arrays, values)
    return None


_MATRICES = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "mv": ("self", "vec"),
    "addmm": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "linear": ("input", "weight"),
}


def _squares(x: np.ndarray) -> np.ndarray:
    return np.square(x.astype(np.float32))


def _by_group(x: np.ndarray, groups: int) -> np.ndarray:
    """Sums of squares over the channels of a group: (N, groups, ...)."""
    return _squares(x).reshape(x.shape[0], groups, -1, *x.shape[2:]).sum(2)


def _convolved(x: np.ndarray, w: np.ndarray, values: Mapping[str, Any]) -> np.ndarray:
    g = geometry(values, x.ndim - 2)
    kernel = w.shape[2:]
    out = out_of(g, x, w)
    ones = np.ones((g.groups, 1, *kernel), np.float32)
    patches = convolve(_by_group(x, g.groups), ones, g, out)
    weights = _squares(w).reshape(w.shape[0], -1).sum(1)
    patches = np.repeat(patches, w.shape[0] // g.groups, axis=1)
    return np.sqrt(patches * weights.reshape(1, -1, *[1] * len(out)))


def _backward(output: str, arrays: Arrays, values: Mapping[str, Any]) -> np.ndarray | None:
    d, x, w = (arrays[name] for name in ("grad_output", "input", "weight"))
    g = geometry(values, x.ndim - 2)
    rank = x.ndim - 2
    if output == "result0":
        ones = np.ones((g.groups, 1, *w.shape[2:]), np.float32)
        places = spread(_by_group(d, g.groups), ones, g, x.shape[2:])
        weights = _squares(w).reshape(g.groups, -1, w.shape[1], math.prod(w.shape[2:])).sum((1, 3))
        places = np.repeat(places, w.shape[1], axis=1)
        return SHARE * np.sqrt(places * weights.reshape(1, -1, *[1] * rank))
    if output == "result1":
        axes = (0, *range(2, x.ndim))
        left, right = (np.sqrt(_squares(side).sum(axes)) for side in (d, x))
        right = np.repeat(right.reshape(g.groups, -1), w.shape[0] // g.groups, axis=0)
        return SHARE * (left[:, None] * right).reshape(*right.shape, *[1] * rank)
    return None
