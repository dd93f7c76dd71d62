"""Formulas of ops that move elements and compute nothing: what of a difference they hand on."""

from __future__ import annotations

import numpy as np

from .operands import Missing, Operands, formula
from .tracked import Tracked, where


@formula(
    "clone", "detach", "_to_copy", "_unsafe_view", "view", "reshape", "contiguous", "alias",
    "lift_fresh", "_reshape_alias", "expand_copy", "_values",
)  # fmt: skip
def _same(c: Operands) -> Tracked:
    for name in ("self", "self/values"):
        if name in c:
            x = c[name]
            break
    else:
        raise Missing("self")
    sizes = c.value("size")
    return x.reshape(*sizes) if isinstance(sizes, list) and "expand" not in c.values["_base"] else x


@formula("copy")
def _copy(c: Operands) -> Tracked:
    shape = c.arrays["self"].shape if "self" in c else c.arrays["src"].shape
    return c["src"].moved(lambda x: np.broadcast_to(x, shape))


@formula("fill")
def _fill(c: Operands) -> Tracked:
    shape = c.arrays["self"].shape if "self" in c else ()
    return c["value"].moved(lambda x: np.broadcast_to(x, shape))


@formula("cat")
def _cat(c: Operands) -> Tracked:
    parts = [p for p in c.list("tensors") if p.v.shape != (0,)]
    return Tracked(np.concatenate([p.v for p in parts], int(c.value("dim", 0))))


@formula("stack")
def _stack(c: Operands) -> Tracked:
    return Tracked(np.stack([p.v for p in c.list("tensors")], int(c.value("dim", 0))))


@formula("where")
def _where(c: Operands) -> Tracked:
    return where(c.bits("condition") != 0, c["self"], c["other"])


@formula("masked_fill")
def _masked_fill(c: Operands) -> Tracked:
    return where(c.bits("mask") != 0, c["value"], c["self"])


@formula("gather")
def _gather(c: Operands) -> Tracked:
    x, index, axis = c["self"].v, c.bits("index").astype(np.int64), int(c.value("dim"))
    if not x.ndim:
        return Tracked(x)
    kept = [slice(None) if a == axis % x.ndim else slice(n) for a, n in enumerate(index.shape)]
    return Tracked(np.take_along_axis(x[tuple(kept)], index, axis))


@formula("index_select")
def _index_select(c: Operands) -> Tracked:
    index = c.bits("index").astype(np.int64).reshape(-1)
    return Tracked(np.take(c["self"].v, index, int(c.value("dim"))))


@formula("embedding")
def _embedding(c: Operands) -> Tracked:
    return Tracked(c["weight"].v[c.bits("indices").astype(np.int64)])


@formula("select_backward")
def _select_backward(c: Operands) -> Tracked:
    v = np.zeros(c.bounded(*c.value("input_sizes")))
    at: list[int | slice] = [slice(None)] * v.ndim
    at[int(c.value("dim"))] = int(c.value("index"))
    v[tuple(at)] = c["grad_output"].v
    return Tracked(v)


@formula("slice_backward")
def _slice_backward(c: Operands) -> Tracked:
    v = np.zeros(c.bounded(*c.value("input_sizes")))
    at = [slice(None)] * v.ndim
    axis, end = int(c.value("dim")), int(c.value("end"))
    at[axis] = slice(int(c.value("start")), min(end, v.shape[axis]), int(c.value("step", 1)))
    v[tuple(at)] = c["grad_output"].v
    return Tracked(v)


@formula("tril", "triu")
def _triangle(c: Operands) -> Tracked:
    cut = np.tril if c.values["_base"] == "tril" else np.triu
    return Tracked(cut(c["self"].v, int(c.value("diagonal", 0))))


@formula("flip")
def _flip(c: Operands) -> Tracked:
    return Tracked(np.flip(c["self"].v, c.value("dims")))


@formula("roll")
def _roll(c: Operands) -> Tracked:
    return Tracked(np.roll(c["self"].v, c.value("shifts"), c.value("dims") or None))


@formula("repeat")
def _repeat(c: Operands) -> Tracked:
    x, times = c["self"].v, c.value("repeats")
    c.bounded(*times, *x.shape)
    return Tracked(np.tile(x, times))


@formula("constant_pad_nd")
def _constant_pad(c: Operands) -> Tracked:
    x, pads = c["self"].v, c.value("pad")
    pairs = [(0, 0)] * (x.ndim - len(pads) // 2)
    pairs += [(pads[i], pads[i + 1]) for i in range(len(pads) - 2, -1, -2)]
    c.bounded(*(n + max(0, a) + max(0, b) for n, (a, b) in zip(x.shape, pairs, strict=True)))
    wide = np.pad(x, [(max(0, a), max(0, b)) for a, b in pairs],
                  constant_values=float(c.value("value", 0)))  # fmt: skip
    cut = tuple(slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(pairs, wide.shape))  # noqa: B905
    return Tracked(wide[cut])


@formula("split", "unsafe_split", "split_with_sizes", "unsafe_split_with_sizes")
def _split(c: Operands) -> dict[str, Tracked]:
    x, axis = c["self"].v, int(c.value("dim", 0))
    sizes = c.value("split_sizes", c.value("split_size"))
    step = [sizes] * -(-x.shape[axis] // max(1, sizes)) if isinstance(sizes, int) else sizes
    parts = np.split(x, np.cumsum(step)[:-1], axis)
    return {f"result/result_{i}": Tracked(part) for i, part in enumerate(parts)}
