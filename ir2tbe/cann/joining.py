"""An operator that FFTS+ split over threads, put together from the files that they have left.

Where threads overlap they must agree, and every element must be somebody's: else the tensor has no
values, and says why. Its shape before padding is put together too, where the files have each part's
own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from dumper.errors import DumpError

from .content import Dump, Tensor
from .formats import format_name
from .threads import ONE_BY_ONE, Range, extent, part_of, split_of, whole_name
from .types import encode

_SHOWN = 20
"""Characters of a name, or numbers, that messages have."""


def joined(files: Iterable[Dump], threads: Sequence[int | None]) -> Dump:
    """The operator whose threads left these files, with the name that it has as a whole.

    threads: of each file, ascending; (None,) of one that is the whole. Values are put together when
    they are asked for. Raises DumpError where threads are missing, or have other tensors than the
    first one.
    """
    files = iter(files)
    first = next(files)
    split, name = split_of(first), whole_name(first.op_name)
    parts = [first, *(replace(file, attributes=()) for file in files)]
    if tuple(threads) == (None,) or split is None and len(parts) == 1:
        return replace(first, op_name=name)
    where = first.op_name[:_SHOWN] or "this operator"
    if split is None:
        raise DumpError("its files do not say how it was split", where, ONE_BY_ONE)
    if split.threads and (len(threads), threads[0], threads[-1]) != (
        split.threads, 0, split.threads - 1
    ):  # fmt: skip
        counted = ", ".join(map(str, threads[:_SHOWN])) + ", ..." * (len(threads) > _SHOWN)
        what = f"of its {split.threads} threads these left a file: {counted}"
        raise DumpError(what, where, ONE_BY_ONE)
    sides = {}
    for side in ("input", "output"):
        tensors = [getattr(part, f"{side}s") for part in parts]
        if len({len(each) for each in tensors}) > 1:
            raise DumpError(f"its threads differ in how many {side}s they have", where, ONE_BY_ONE)
        sides[f"{side}s"] = tuple(
            _whole(found, [split.range(t, side, i) for t in threads], split.cut(side, i))
            for i, found in enumerate(zip(*tensors, strict=True))
        )
    return replace(first, op_name=name, attributes=(), **sides)


def _whole(parts: Sequence[Tensor], places: list[Range | None], cut: list[int] | None) -> Tensor:
    """A tensor of which each thread has a part, or all of it."""
    first = parts[0]
    if len(parts) == 1 and places == [None]:
        return first
    try:
        _check_alike(parts)
        found = list(places) if None not in places else _along(parts, cut)
        if len(set(map(len, found))) > 1:
            raise DumpError("its threads differ in axes", first.where, ONE_BY_ONE)
        shape = tuple(max(ends) for ends in zip(*map(_ends, found), strict=True))
        size = first.kind.nbytes(math.prod(shape))
        original = _original_of(parts, found, shape)
    except DumpError as error:
        return replace(first, fault=error)

    def read() -> np.ndarray:
        return np.frombuffer(encode(_put_together(parts, found, shape), first.kind), np.uint8)

    return replace(first, shape=shape, original_shape=original, size=size, read=read)


def _check_alike(parts: Sequence[Tensor]) -> None:
    first = parts[0]
    if len({(part.data_type, part.format) for part in parts}) > 1:
        raise DumpError("its threads differ in type or format", first.where, ONE_BY_ONE)
    if not first.kind.by_shape:
        raise DumpError(f"{first.kind.name} is not put together", first.where, ONE_BY_ONE)


def _ends(place: Range) -> list[int]:
    return [end for _, end in place]


def _along(parts: Sequence[Tensor], cut: list[int] | None) -> list[Range]:
    """Where parts with shapes of their own are, or the whole that each is. Raises DumpError."""
    first = parts[0]
    axes = None if cut is None else [axis for axis, count in enumerate(cut) if count != 1]
    if axes == []:
        return [tuple((0, n) for n in part.dims) for part in parts]
    if axes is None or len(axes) > 1 or axes[0] >= len(first.shape) or cut[axes[0]] != len(parts):
        what = f"which part of it each of {len(parts)} threads has is not said"
        raise DumpError(what, first.where, ONE_BY_ONE)
    (axis,), at, places = axes, 0, []
    for shape in (part.dims for part in parts):
        ranges = [(0, n) for n in shape]
        ranges[axis : axis + 1] = [(at, at + n) for n in shape[axis : axis + 1]]
        at += sum(shape[axis : axis + 1])
        places.append(tuple(ranges))
    return places


def _original_of(
    parts: Sequence[Tensor], places: Sequence[Range], shape: tuple[int, ...]
) -> tuple[int, ...]:
    """The shape of the whole before padding: what the files say, unless that is each part's own;
    then those along the axis that was cut. () where that is not known."""
    originals = [part.original_shape for part in parts]
    extents = [extent(place) for place in places]
    first = originals[0]
    cut = [axis for axis, n in enumerate(shape) if any(each[axis] != n for each in extents)]
    if not cut:
        return first if len(set(originals)) == 1 else ()
    found = _plain_axis(format_name(parts[0].format), len(shape), cut[0])
    if len(cut) > 1 or found is None or len(set(map(len, originals))) > 1:
        return ()
    axis, tile = found
    if axis >= len(first) or len({o[:axis] + o[axis + 1 :] for o in originals}) > 1:
        return ()
    tiles = [1 if tile is None else each[tile] for each in extents]
    sizes = [each[cut[0]] * n for each, n in zip(extents, tiles, strict=True)]
    if any(o[axis] > size for o, size in zip(originals, sizes, strict=True)):
        return first if len(set(originals)) == 1 else ()
    ends = [
        place[cut[0]][0] * n + o[axis] for place, n, o in zip(places, tiles, originals, strict=True)
    ]
    return (*first[:axis], max(ends), *first[axis + 1 :])


def _plain_axis(form: str, rank: int, axis: int) -> tuple[int, int | None] | None:
    """Which axis of the plain format an axis of a stored one is part of, and which axis has the
    rest of it; None where several are."""
    if form == "FRACTAL_NZ":
        last = {rank - 4: (rank - 3, rank - 1), rank - 3: (rank - 4, rank - 2)}
        return last.get(axis, (axis, None) if axis < rank - 4 else None)
    if form in _PLAIN_AXES:
        return _PLAIN_AXES[form].get(axis)
    return axis, None


_PLAIN_AXES: dict[str, dict[int, tuple[int, int | None]]] = {
    "NC1HWC0": {0: (0, None), 1: (1, 4), 2: (2, None), 3: (3, None)},
    "NDC1HWC0": {0: (0, None), 1: (2, None), 2: (1, 5), 3: (3, None), 4: (4, None)},
    "FRACTAL_Z": {1: (0, 2)},
    "FRACTAL_Z_3D": {1: (0, 2)},
}


def _put_together(
    parts: Sequence[Tensor], places: Sequence[Range], shape: tuple[int, ...]
) -> np.ndarray:
    """The values of the whole. Raises DumpError where no thread has some of them, or two that have
    the same differ."""
    first = parts[0]
    held = sum(part.size for part in parts) * 8 // first.kind.bits
    if math.prod(shape) > held:  # before memory is taken for what a file claims
        raise DumpError("no thread has some of its elements", first.where, ONE_BY_ONE)
    values = np.zeros(shape, first.kind.values)
    there = np.zeros(shape, bool)
    for part, place in zip(parts, places, strict=True):
        window = tuple(slice(*each) for each in place)
        found, known = part_of(part, place).values(), there[window]
        if known.any() and not (_same(found, values[window]) | ~known).all():
            what = "two of its threads have other values for the same elements"
            raise DumpError(what, first.where, ONE_BY_ONE)
        values[window] = found
        there[window] = True
    if not there.all():
        raise DumpError("no thread has some of its elements", first.where, ONE_BY_ONE)
    return values


def _same(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Where two arrays have the same bits."""
    bits = [np.ascontiguousarray(each).view(np.uint8) for each in (one, other)]
    if one.ndim == 0:
        return np.array((bits[0] == bits[1]).all())
    return (bits[0] == bits[1]).reshape(*one.shape, one.itemsize).all(-1)
