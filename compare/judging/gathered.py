"""A large product judged at some of its elements: those that are furthest off, and others.

To run a product of 4096 x 4096 matrices again on the CPU takes longer than people wait. But which
elements may be wrong is cheap to say: an element's allowance is at most c * u times the norms of
its row and its column (Cauchy and Schwarz), so the elements that are furthest apart by that measure
come first, then those furthest apart at all, then some evenly spread. Each chosen element is a row
times a column: a batch of small products, judged as any other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .bounds import Call, Pair
from .classes import OpClass

LARGE = 1 << 27
"""Multiplications from which on a product is judged at some elements only."""

_GATHERED = 1 << 22
"""Elements of the rows that are taken."""

_FEWEST, _MOST = 256, 4096
"""Chosen elements."""

_BLOCK = 1 << 22

_OPERANDS = {
    "mm": ("self", "mat2", None),
    "bmm": ("self", "mat2", None),
    "addmm": ("mat1", "mat2", "self"),
    "baddbmm": ("batch1", "batch2", "self"),
    "linear": ("input", "weight", "bias"),
}
"""Names of the left and right operand, and of what is added."""


class Chosen(NamedTuple):
    """The same judgement of chosen elements. count: how many."""

    op: OpClass
    output: str
    pair: Pair
    mine: Call
    golden: Call
    count: int


def gathered(op: OpClass, pair: Pair, mine: Call, golden: Call) -> Chosen | None:
    """The op at its most suspicious elements; None where all of it can be judged.

    Raises KeyError where the file lacks an operand.
    """
    if op.base not in _OPERANDS:
        return None
    left, right, added = _OPERANDS[op.base]
    a = golden.arrays[left]
    length = a.shape[-1]
    if pair.golden.size * length < LARGE:
        return None
    count = max(_FEWEST, min(_MOST, _GATHERED // length, pair.golden.size))
    rows, columns = _norms(golden.arrays, op.base)
    at = _chosen(pair, rows, columns, count)
    place = np.unravel_index(at, pair.golden.shape)
    results = (side.reshape(-1)[at].reshape(-1, 1, 1) for side in (pair.mine, pair.golden))
    found = op._replace(base="bmm" if added is None or added not in golden.arrays else "baddbmm")
    calls = (_taken(call, op.base, found.base, place) for call in (mine, golden))
    return Chosen(found, "result", Pair(*results, pair.dtypes), *calls, len(at))


def _norms(arrays: dict[str, np.ndarray], base: str) -> tuple[np.ndarray, np.ndarray]:
    """Norms of the left operand's rows, [..., M, 1], and of the right's columns, [..., 1, N]."""
    left, right, _ = _OPERANDS[base]
    a, b = arrays[left], arrays[right]
    rows = _norm(a, -1)[..., None]
    if base == "linear":
        return rows, _norm(b, -1)
    return rows, _norm(b, -2)[..., None, :]


def _norm(x: np.ndarray, axis: int) -> np.ndarray:
    """Along the last axis or the one before it, a part of the first axis at a time."""
    flat = x if x.ndim > 2 else x[None]
    parts = []
    for matrix in flat.reshape(-1, *flat.shape[-2:]):
        step = max(1, _BLOCK // max(1, matrix.shape[-1]))
        squares = [np.square(matrix[i : i + step].astype(np.float32)) for i in _steps(matrix, step)]
        if axis == -1:
            parts.append(np.concatenate([each.sum(-1) for each in squares]))
        else:
            parts.append(sum(each.sum(0) for each in squares))
    found = np.sqrt(np.array(parts))
    return found.reshape(*x.shape[:-2], found.shape[-1])


def _steps(matrix: np.ndarray, step: int) -> range:
    return range(0, max(1, matrix.shape[0]), step)


def _chosen(pair: Pair, rows: np.ndarray, columns: np.ndarray, count: int) -> np.ndarray:
    """Flat numbers of the elements to judge, ascending."""
    with np.errstate(all="ignore"):
        a, b = (side.astype(np.float32) for side in (pair.mine, pair.golden))
        apart = np.abs(a - b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        apart[same] = 0.0
        odd = ~np.isfinite(apart)
        apart[odd] = np.inf
        score = apart / (rows * columns + np.float32(1e-30))
        score[odd] = np.inf
    size = apart.size
    worst = _greatest(score.reshape(-1), count // 2)
    furthest = _greatest(apart.reshape(-1), count // 4)
    spread = np.linspace(0, size - 1, count // 4).astype(np.int64)
    return np.unique(np.concatenate([worst, furthest, spread]))


def _greatest(values: np.ndarray, count: int) -> np.ndarray:
    count = min(count, values.size)
    return np.argpartition(values, values.size - count)[values.size - count :]


def _taken(call: Call, base: str, as_base: str, place: tuple[np.ndarray, ...]) -> Call:
    """The call on a row and a column for each chosen element."""
    left, right, added = _OPERANDS[base]
    *batch, i, j = place
    a, b = call.arrays[left], call.arrays[right]
    if base == "linear":  # the rows of any number of axes, and the weight's rows
        rows, columns = a[(*batch, i)], b[j]
    elif base in ("bmm", "baddbmm"):
        rows, columns = a[batch[0], i], b[batch[0], :, j]
    else:
        rows, columns = a[i], b[:, j].T
    names = ("batch1", "batch2") if as_base == "baddbmm" else ("self", "mat2")
    arrays = {names[0]: rows[:, None, :], names[1]: columns[:, :, None]}
    dtypes = {names[0]: call.dtypes[left], names[1]: call.dtypes[right]}
    if as_base == "baddbmm":
        bias = np.broadcast_to(call.arrays[added], _shape(a, b, base))
        arrays["self"], dtypes["self"] = bias[place].reshape(-1, 1, 1), call.dtypes[added]
    values = {name: call.values[name] for name in ("beta", "alpha") if name in call.values}
    return Call(arrays, dtypes, values, call.numerics)


def _shape(a: np.ndarray, b: np.ndarray, base: str) -> tuple[int, ...]:
    return (*a.shape[:-1], b.shape[0] if base == "linear" else b.shape[-1])


def work_of(op: OpClass, pair: Pair, call: Call) -> float:
    """About how many multiplications judging all of an op takes; 0 of what takes few."""
    size = pair.golden.size
    arrays = call.arrays
    if op.base in _OPERANDS:
        return size * arrays[_OPERANDS[op.base][0]].shape[-1]
    if "weight" in arrays and arrays["weight"].ndim > 2:
        largest = max(size, *(array.size for array in arrays.values()))
        return largest * math.prod(arrays["weight"].shape[1:])
    if "query" in arrays and "key" in arrays:
        query, key = arrays["query"], arrays["key"]
        return 4 * query.size * key.shape[-2]
    return 0.0
