"""Cuts of ops that only move elements: where one came from. And of views, by their memory."""

from __future__ import annotations

import torch

from ..tensors import storage_of
from .cuts import Cut, Cutter, Place, Uncut, registering
from .looks import index_at

CUTS: dict[str, Cutter] = {}
cuts = registering(CUTS)


@cuts("embedding")
def _embedding(cut: Cut) -> None:
    *places, column = cut.index
    indices = cut.take("indices", dict(enumerate(places)))
    _moved(cut, "weight", {0: int(indices), 1: column})


@cuts("index_select")
def _index_select(cut: Cut) -> None:
    axis = cut.axis(cut["self"].dim())
    number = cut.take("index", {0: cut.index[axis]} if cut["index"].dim() else {})
    _moved(cut, "self", {**dict(enumerate(cut.index)), axis: int(number)})


@cuts("gather")
def _gather(cut: Cut) -> None:
    axis = cut.axis(cut["self"].dim())
    if cut["index"].dim() != cut["self"].dim():
        raise Uncut
    number = cut.take("index", dict(enumerate(cut.index)))
    _moved(cut, "self", {**dict(enumerate(cut.index)), axis: int(number)})


@cuts("take")
def _take(cut: Cut) -> None:
    number = int(cut.take("index", dict(enumerate(cut.index))))
    source = cut["self"]
    _moved(cut, "self", dict(enumerate(index_at(source.shape, number % source.numel()))))


@cuts("index", "_unsafe_index")
def _index(cut: Cut) -> None:
    """Integer indices; a mask's order is known only when all of it has been read."""
    source, indices = cut["self"], [*cut["indices"]]
    indices += [None] * (source.dim() - len(indices))
    given = [axis for axis, index in enumerate(indices) if index is not None]
    if any(indices[axis].dtype not in (torch.int64, torch.int32) for axis in given):
        raise Uncut
    shape = torch.broadcast_shapes(*(indices[axis].shape for axis in given))
    together = given == list(range(given[0], given[-1] + 1)) if given else True
    start = given[0] if together and given else 0  # apart, their axes come first
    own = cut.index[start : start + len(shape)]
    rest = iter(cut.index[:start] + cut.index[start + len(shape) :])
    found: dict[int, int | slice] = {}
    for axis, index in enumerate(indices):
        if index is None:
            found[axis] = next(rest)
        else:
            behind = len(shape) - index.dim()
            at = tuple(0 if n == 1 else own[behind + i] for i, n in enumerate(index.shape))
            found[axis] = int(index[at])
    cut["indices"] = None
    _moved(cut, "self", found)


@cuts("cat", "concat", "concatenate")
def _cat(cut: Cut) -> None:
    rank = len(cut.index)
    axis = cut.axis(rank)
    at = cut.index[axis]
    for number, tensor in enumerate(cut["tensors"]):
        if tensor.dim() != rank:  # an empty one of shape (0,) is passed over
            continue
        if at < tensor.shape[axis]:
            cut.keep("tensors", number, {**dict(enumerate(cut.index)), axis: at})
            cut.formula = lambda of: of["tensors"]
            return
        at -= tensor.shape[axis]
    raise Uncut


@cuts("stack")
def _stack(cut: Cut) -> None:
    axis = cut.axis(len(cut.index))
    rest = cut.index[:axis] + cut.index[axis + 1 :]
    cut.keep("tensors", cut.index[axis], dict(enumerate(rest)))
    cut.formula = lambda of: of["tensors"]


def _moved(cut: Cut, name: str, at: dict[int, int | slice]) -> None:
    """The element is one of the source. A negative index counts from the end."""
    source = cut[name]
    found = {axis: part + source.shape[axis] if part < 0 else part for axis, part in at.items()}
    cut.take(name, found)
    cut.formula = lambda of: of[name]


def seen_in(source: torch.Tensor, view: torch.Tensor, index: tuple[int, ...]) -> Place | None:
    """Which element of a tensor an element of its view is; None where memory does not tell."""
    ours, theirs = storage_of(source), storage_of(view)
    if ours is None or theirs is None or ours.data_ptr() != theirs.data_ptr():
        return None
    if source.dtype is not view.dtype or not source.numel():
        return None
    at = view.storage_offset() - source.storage_offset()
    at += sum(i * step for i, step in zip(index, view.stride(), strict=True))
    place = [0] * source.dim()
    for axis in sorted(range(source.dim()), key=lambda axis: -source.stride(axis)):
        step = source.stride(axis)
        if step and at >= 0:
            place[axis] = min(at // step, source.shape[axis] - 1)
            at -= place[axis] * step
    return None if at else tuple(place)
