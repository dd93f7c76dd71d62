"""Cuts along axes: elementwise ops, lists of tensors, rows, channels, planes.

Here the op itself runs on what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..ops import Op
from .cuts import Cut, Cutter, Uncut, aligned, base_of, registering

CUTS: dict[str, Cutter] = {}
cuts = registering(CUTS)

_ELEMENTWISE = frozenset(
    "copy _to_copy fill zero to _copy_from "
    "hardswish hardswish_backward hardsigmoid_backward hardshrink_backward hardtanh_backward "
    "leaky_relu_backward elu_backward softplus_backward softshrink_backward _prelu_kernel "
    "_prelu_kernel_backward mish_backward log_sigmoid_backward _add_relu floor_divide".split()
)
"""Elementwise ops that torch does not tag as such, or not in all of their overloads."""

_LISTS = ("_foreach_", "_fused_adam", "_fused_sgd", "_fused_adagrad", "_amp_foreach_")
_OF_MEMBERS = ("_foreach_norm", "_foreach_max", "_foreach_powsum", "_foreach_mm")


def is_elementwise(op: Op) -> bool:
    """Whether each element of the result is computed from one element of each input."""
    base = base_of(op)
    if base in _ELEMENTWISE or torch.Tag.pointwise in op.func.tags:
        return True
    return is_list(op) and not base.startswith(_OF_MEMBERS)


def is_list(op: Op) -> bool:
    """Whether the op does the same to each member of its lists."""
    return base_of(op).startswith(_LISTS)


def elementwise(cut: Cut) -> None:
    """One element of each input."""
    for name in cut.tensors():
        cut.broadcast(name, cut.index, cut.shape)
    cut.index = (0,) * len(cut.index)


def lists(cut: Cut) -> None:
    """One member of each list, and where the op is elementwise one element of it."""
    number = cut.number
    if number is None:
        raise Uncut
    lengths = {
        len(value)
        for argument, value in zip(cut.op.arguments, cut.values, strict=True)
        if "List[Tensor]" in argument.type and value
    }
    if len(lengths) != 1:
        raise Uncut
    length = lengths.pop()
    whole = base_of(cut.op).startswith(_OF_MEMBERS)
    for argument, value in zip(cut.op.arguments, cut.values, strict=True):
        if argument.written and argument.kwarg_only:
            cut[argument.name] = [value[number]]
        elif isinstance(value, (list, tuple)) and value:
            if len(value) != length:
                raise Uncut
            if "Tensor" not in argument.type:
                cut[argument.name] = [value[number]]
                continue
            axes = {} if whole or not value[number].dim() else aligned(
                value[number], cut.index, cut.shape
            )  # fmt: skip
            cut.keep(argument.name, number, axes)
        elif isinstance(value, torch.Tensor) and argument.name == "scalars":
            cut.take(argument.name, {0: number})
    cut.number = 0
    if base_of(cut.op).startswith(
        "_amp_foreach_"
    ):  # wants its scale in float32, and takes no other
        cut.only("self", "inv_scale")
        cut.formula = lambda of: of["self"] * of["inv_scale"].reshape(())
    if not whole:
        cut.index = (0,) * len(cut.index)


def _axes_of(dim: Any, rank: int) -> set[int]:
    """The axes that a `dim` argument names. Raises Uncut where it is all of them."""
    if isinstance(dim, int):
        dim = [dim]
    if not rank or not dim or not all(isinstance(axis, int) for axis in dim):
        raise Uncut
    return {axis % rank for axis in dim}


@cuts(
    "sum", "nansum", "mean", "amax", "amin", "prod", "var", "std", "var_mean", "std_mean",
    "logsumexp", "norm", "linalg_vector_norm", "max", "min", "argmax", "argmin", "any", "all",
    "median", "nanmedian", "mode", "kthvalue", "aminmax", "count_nonzero",
)  # fmt: skip
def _reduction(cut: Cut) -> None:
    name = cut.tensors()[0]
    rank = cut[name].dim()
    reduced = _axes_of(cut.get("dim"), rank)
    kept = [axis for axis in range(rank) if axis not in reduced]
    if len(cut.index) == rank:  # keepdim
        places = [(axis, cut.index[axis]) for axis in kept]
    elif len(cut.index) == len(kept):
        places = list(zip(kept, cut.index, strict=True))
    else:
        raise Uncut
    cut.take(name, dict(places))
    cut.index = (0,) * len(cut.index)


@cuts(
    "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "softmax", "_softmax", "log_softmax",
    "_log_softmax", "_safe_softmax", "_softmax_backward_data", "_log_softmax_backward_data",
    "sort", "topk", "glu", "glu_backward",
)  # fmt: skip
def _row(cut: Cut) -> None:
    """All inputs alike: a row along `dim`, which stays whole."""
    rank = len(cut.index)
    along = cut.axis(rank)
    others = [axis for axis in range(rank) if axis != along]
    for name in cut.tensors():
        if cut[name].dim() != rank or any(
            cut[name].shape[axis] != cut.shape[axis] for axis in others
        ):
            raise Uncut
        cut.take(name, {axis: cut.index[axis] for axis in others})
    cut.index = tuple(place if axis == along else 0 for axis, place in enumerate(cut.index))


@cuts(
    "native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward"
)
def _layer_norm(cut: Cut) -> None:
    rank = cut["input"].dim()
    lead = rank - len(cut["normalized_shape"])
    backward = "grad_out" in cut
    if backward and cut.position > 0:  # a weight's gradient: its column of all rows
        index = cut.index
        for name in ("grad_out", "input"):
            cut.take(name, {lead + axis: place for axis, place in enumerate(index)})
        for name in ("weight", "bias"):
            if cut.get(name) is not None:
                cut.take(name, dict(enumerate(index)))
        cut["normalized_shape"] = [1] * len(index)
        cut.index = (0,) * len(index)
        return
    rows = dict(enumerate(cut.index[:lead]))
    for name in ("grad_out", "input", "mean", "rstd"):
        if cut.get(name) is not None:
            cut.take(name, rows)
    cut.index = (0,) * lead + cut.index[lead:]


@cuts("native_group_norm")
def _group_norm(cut: Cut) -> None:
    cut.take("input", {0: cut.index[0]})
    cut["N"] = 1
    cut.index = (0, *cut.index[1:])


@cuts(
    "native_batch_norm", "native_batch_norm_backward", "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training",
    "batch_norm_backward", "_batch_norm_with_update", "_batch_norm_with_update_functional",
    "_batch_norm_no_update", "cudnn_batch_norm", "cudnn_batch_norm_backward",
)  # fmt: skip
def _batch_norm(cut: Cut) -> None:
    """One channel: axis 1 of what has all axes, axis 0 of the rest."""
    rank, channels = cut["input"].dim(), cut["input"].shape[1]
    axis = 1 if len(cut.index) == rank else 0
    channel = cut.index[axis]
    for name in cut.tensors():
        tensor = cut[name]
        if tensor.dim() == rank:
            cut.take(name, {1: channel})
        elif tuple(tensor.shape) == (channels,):
            cut.take(name, {0: channel})
    cut.index = tuple(0 if i == axis else place for i, place in enumerate(cut.index))


_PLANES = {
    1: "upsample_nearest1d upsample_linear1d _upsample_nearest_exact1d reflection_pad1d "
       "replication_pad1d",
    2: "max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d adaptive_max_pool2d "
       "upsample_nearest2d upsample_bilinear2d upsample_bicubic2d _upsample_nearest_exact2d "
       "_upsample_bilinear2d_aa _upsample_bicubic2d_aa reflection_pad2d replication_pad2d",
    3: "max_pool3d_with_indices avg_pool3d _adaptive_avg_pool3d adaptive_max_pool3d "
       "upsample_nearest3d upsample_trilinear3d _upsample_nearest_exact3d reflection_pad3d "
       "replication_pad3d",
}  # fmt: skip


def _plane(cut: Cut) -> None:
    """One sample's channel, whole."""
    if len(cut.index) != _PLANE_RANKS[base_of(cut.op)]:
        raise Uncut
    for name in cut.tensors():
        if cut[name].dim() != len(cut.index):
            raise Uncut
        cut.take(name, {0: cut.index[0], 1: cut.index[1]})
    if "input_size" in cut:
        size: Sequence[int] = cut["input_size"]
        cut["input_size"] = [1, 1, *size[2:]]
    cut.index = (0, 0, *cut.index[2:])


_PLANE_RANKS = {
    base + backward: spatial + 2
    for spatial, bases in _PLANES.items()
    for base in bases.split()
    for backward in ("", "_backward")
}
cuts(*_PLANE_RANKS)(_plane)


@cuts("embedding_dense_backward")
def _embedding_gradient(cut: Cut) -> None:
    """One column of all the gradients that are added up."""
    grad = cut["grad_output"]
    cut.take("grad_output", {grad.dim() - 1: cut.index[1]})
    cut.index = (cut.index[0], 0)
