"""Along which axis an op's output can be computed in parts, and what of its inputs each part needs.

So a large op is judged in bounded memory, and of a very large product only some rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np


class Cut(NamedTuple):
    """axis: of the output. inputs: the axis of each input that goes with it; an input that is not
    named is needed whole, as is one that has another size there. many: products of which some parts
    may stand for all."""

    axis: int
    inputs: Mapping[str, int]
    many: bool = False


def _rows(*names: str) -> Cut:
    return Cut(0, dict.fromkeys(names, 0))


_ATTENTION = _rows("query", "key", "value", "out", "grad_out", "logsumexp", "attn_mask")
_NORM = Cut(1, {"input": 1, "grad_out": 1, **dict.fromkeys(
    ("weight", "bias", "running_mean", "running_var", "save_mean", "save_invstd"), 0)})  # fmt: skip
_CUTS: dict[tuple[str, str], Cut] = {
    ("mm", "result"): Cut(0, {"self": 0}, True),
    ("addmm", "result"): Cut(0, {"mat1": 0, "self": 0}, True),
    ("linear", "result"): Cut(0, {"input": 0}, True),
    ("bmm", "result"): Cut(0, {"self": 0, "mat2": 0}, True),
    ("baddbmm", "result"): Cut(0, {"self": 0, "batch1": 0, "batch2": 0}, True),
    ("convolution", "result"): Cut(0, {"input": 0}, True),
    ("convolution_backward", "result0"): Cut(0, {"grad_output": 0, "input": 0}, True),
    ("convolution_backward", "result1"): Cut(0, {"grad_output": 1, "weight": 0}, True),
    ("_scaled_dot_product_flash_attention_for_cpu", "output"): _ATTENTION,
    ("_scaled_dot_product_flash_attention", "output"): _ATTENTION,
    ("native_layer_norm", "result0"): _rows("input"),
    ("native_layer_norm_backward", "result0"): _rows("input", "grad_out", "mean", "rstd"),
    ("native_batch_norm", "result0"): _NORM,
    ("native_batch_norm_backward", "result0"): _NORM,
    **{
        (f"{name}{half}", "result"): _rows("self", "grad_output", "output")
        for name in ("_softmax", "_log_softmax", "_safe_softmax")
        for half in ("", "_backward_data")
    },
}


def cut_of(base: str, output: str, values: Mapping, shape: tuple[int, ...]) -> Cut | None:
    """How an output of this shape is cut; None where it cannot be."""
    found = _CUTS.get((base, output))
    if found is None or len(shape) <= found.axis:
        return None
    if base.startswith(("_softmax", "_log_softmax", "_safe_softmax")):
        dim = values.get("dim")
        if not isinstance(dim, int) or dim % len(shape) == 0:
            return None
    if "layer_norm" in base and len(values.get("normalized_shape") or shape) >= len(shape):
        return None
    if "convolution" in base and output == "result1" and (
        values.get("groups") != 1 or values.get("transposed")
    ):  # fmt: skip
        return None
    return found


def sliced(
    cut: Cut, arrays: Mapping[str, np.ndarray], size: int, at: slice
) -> dict[str, np.ndarray]:
    """What a part needs. size: of the output along the cut's axis."""
    found = dict(arrays)
    for name, axis in cut.inputs.items():
        array = arrays.get(name)
        if array is not None and array.ndim > axis and array.shape[axis] == size:
            found[name] = array[(slice(None),) * axis + (at,)]
    return found


def slices(size: int, step: int) -> Iterator[slice]:
    """A line of `size` in parts of `step`."""
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


def some(size: int, step: int, wanted: int, suspicion: Callable[[], np.ndarray]) -> list[slice]:
    """Parts enough for `wanted` along the axis: half those of the most suspicious places, half
    spread evenly. suspicion: a number for each place."""
    parts = list(slices(size, step))
    keep = max(2, -(-wanted // step))
    if keep >= len(parts):
        return parts
    most = suspicion()
    worst = sorted(range(len(parts)), key=lambda i: -float(most[parts[i]].max(initial=0)))
    even = [round(i * (len(parts) - 1) / max(1, keep // 2 - 1)) for i in range(keep // 2)]
    return [parts[i] for i in sorted({*worst[: keep - keep // 2], *even})]
