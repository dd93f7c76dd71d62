"""What a thread of FFTS+ has of an operator's tensors, and the operator whole again.

FFTS+ splits an operator over threads, each of which leaves a file. A file's first attribute is a
json that says how. With `threadMode` true the files differ in the thread id of their names, and
`input_tensor_slice` and `output_tensor_slice` say by thread, tensor and axis from where ("lower")
to where ("higher") it goes: two threads of a convolution read rows that overlap. With false, the
ops are called `..._lxslice0`, `..._lxslice1`, each with a shape of its own, and `inputCutList` and
`outputCutList` say by tensor and axis into how many parts it was cut. `slice_instance_num` is the
number of threads. A tensor of which no part is said stays unknown: nothing is guessed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dumper.errors import DumpError

from .content import MOST_DIMENSIONS, Dump, Tensor
from .names import DumpName
from .types import encode

_FFTS_PLUS = 4
"""Task type of a thread, in a file's name."""

_NO_THREAD = 65535

_SLICE = re.compile(r"_lxslice([0-9]{1,9})(?![0-9])")
_GRAPH = re.compile(r".*sgt_graph_[0-9]+[^0-9A-Za-z]", re.DOTALL)
_MOST = 1 << 62
"""Where a slice may end."""

_ONE_BY_ONE = "compare thread by thread with -ffts, or dump again"

Range = tuple[tuple[int, int], ...]
"""From where to where a part goes, by axis."""


@dataclass(frozen=True, slots=True)
class Split:
    """How an operator was split. threads: into how many, 0 where that is not said. automatic: its
    files differ in thread ids. ranges, cuts: of "input" and "output"; by thread and tensor, and by
    tensor and axis."""

    threads: int
    automatic: bool
    ranges: dict[str, list[list[Range]]]
    cuts: dict[str, list[list[int]]]

    def range(self, thread: int, side: str, index: int) -> Range | None:
        """Where a thread's part of a tensor is; None where nobody says."""
        by_thread = self.ranges[side] if self.automatic else []
        tensors = by_thread[thread] if thread < len(by_thread) else []
        return tensors[index] if index < len(tensors) and tensors[index] else None

    def axes(self, side: str, index: int) -> list[int] | None:
        """Along which axes a tensor was cut; None where nobody says."""
        cuts = self.cuts[side]
        if index >= len(cuts) or not cuts[index]:
            return None
        return [axis for axis, parts in enumerate(cuts[index]) if parts != 1]


def thread_of(name: DumpName) -> int | None:
    """Which thread's file has this name; None of one that is no thread's."""
    if name.task_type != _FFTS_PLUS:
        return None
    if found := _SLICE.search(name.op_name):
        return int(found[1])
    return None if name.thread_id == _NO_THREAD else name.thread_id


def whole_name(name: str) -> str:
    """The name of an operator without what tells its threads, and the graph they are in, apart."""
    return _SLICE.sub("", _GRAPH.sub("", name)) or name


def split_of(dump: Dump) -> Split | None:
    """How the operator of a file was split; None where the file says nothing of it."""
    try:
        said = json.loads(dump.attributes[0][1]) if dump.attributes else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or "threadMode" not in said:
        return None
    threads = said.get("slice_instance_num")
    return Split(
        threads if _is_number(threads, _MOST) else 0,
        said["threadMode"] is True or said["threadMode"] == 1,
        {side: _ranges(said.get(f"{side}_tensor_slice")) for side in ("input", "output")},
        {side: _cuts(said.get(f"{side}CutList")) for side in ("input", "output")},
    )


def of_thread(dump: Dump, name: DumpName) -> Dump:
    """A file with the shapes that its thread's parts have; itself where it is no part of more.

    name: of the file. In automatic mode the shapes in the file are those of the whole tensors.
    """
    thread, split = thread_of(name), split_of(dump)
    if thread is None or split is None:
        return dump
    sides = {
        side: tuple(_part(t, split.range(thread, side, i)) for i, t in enumerate(tensors))
        for side, tensors in (("input", dump.inputs), ("output", dump.outputs))
    }
    return replace(dump, inputs=sides["input"], outputs=sides["output"])


def joined(files: Sequence[Dump], threads: Sequence[int]) -> Dump:
    """The operator whose threads left these files, with the name that it has as a whole.

    threads: of each file, ascending. Values are put together when they are asked for. Raises
    DumpError where threads are missing, or have other tensors than the first one.
    """
    first, split = files[0], split_of(files[0])
    name = whole_name(first.op_name)
    if split is None and len(files) == 1:
        return replace(first, op_name=name)
    where = first.op_name or "this operator"
    if split is None:
        raise DumpError("its files do not say how it was split", where, _ONE_BY_ONE)
    if split.threads and list(threads) != list(range(split.threads)):
        what = f"{len(files)} of its {split.threads} threads left a file"
        raise DumpError(what, where, _ONE_BY_ONE)
    sides = {}
    for side in ("input", "output"):
        tensors = [getattr(file, f"{side}s") for file in files]
        if len({len(each) for each in tensors}) > 1:
            raise DumpError(f"its threads differ in how many {side}s they have", where, _ONE_BY_ONE)
        sides[f"{side}s"] = tuple(
            _whole(parts, [split.range(t, side, i) for t in threads], split.axes(side, i))
            for i, parts in enumerate(zip(*tensors, strict=True))
        )
    return replace(first, op_name=name, attributes=(), **sides)


def _part(tensor: Tensor, place: Range | None) -> Tensor:
    if place is None or (shape := _extent(place)) == tensor.shape:
        return tensor
    return replace(tensor, shape=shape, original_shape=())  # which was that of the whole


def _extent(place: Range) -> tuple[int, ...]:
    return tuple(end - start for start, end in place)


def _whole(parts: Sequence[Tensor], places: list[Range | None], axes: list[int] | None) -> Tensor:
    """A tensor of which each thread has a part. What cannot be put together is the first part,
    whose values say why when they are asked for."""
    first = parts[0]
    try:
        found = _places(parts, places, axes)
        if found is None:
            return first
        shape = tuple(max(ends) for ends in zip(*map(_ends, found), strict=True))
        size = first.kind.nbytes(math.prod(shape))
    except DumpError as error:
        return replace(first, fault=error)

    def read() -> np.ndarray:
        values = _put_together(parts, found, shape)
        return np.frombuffer(encode(values, first.kind), np.uint8)

    return replace(first, shape=shape, size=size, read=read)


def _places(
    parts: Sequence[Tensor], places: list[Range | None], axes: list[int] | None
) -> list[Range] | None:
    """Where each part is; None where each is the whole. Raises DumpError."""
    if len({(part.data_type, part.format) for part in parts}) > 1:
        raise DumpError("its threads differ in type or format", parts[0].where, _ONE_BY_ONE)
    if None in places:
        places = _along(parts, axes)
    if places is not None and len(set(map(len, places))) > 1:
        raise DumpError("its threads differ in axes", parts[0].where, _ONE_BY_ONE)
    return places


def _ends(place: Range) -> list[int]:
    return [end for _, end in place]


def _along(parts: Sequence[Tensor], axes: list[int] | None) -> list[Range] | None:
    """Where parts with shapes of their own are; None where each is the whole. Raises DumpError."""
    if len(parts) == 1 or axes == []:
        return None
    if axes is None or len(axes) > 1 or axes[0] >= len(parts[0].shape):
        what = f"which part of it each of {len(parts)} threads has is not said"
        raise DumpError(what, parts[0].where, _ONE_BY_ONE)
    (axis,), at, places = axes, 0, []
    for shape in (part.dims for part in parts):
        ranges = [(0, n) for n in shape]
        ranges[axis : axis + 1] = [(at, at + n) for n in shape[axis : axis + 1]]
        at += sum(shape[axis : axis + 1])
        places.append(tuple(ranges))
    return places


def _put_together(
    parts: Sequence[Tensor], places: Sequence[Range], shape: tuple[int, ...]
) -> np.ndarray:
    """The values of the whole. Raises DumpError where no thread has some of them."""
    if all(place == places[0] and _extent(place) == shape for place in places):
        return _part(parts[0], places[0]).values()  # each thread has all of it, as of a weight
    held = sum(part.size for part in parts) * 8 // parts[0].kind.bits
    if math.prod(shape) > held:  # before memory is taken for what a file claims
        raise DumpError("no thread has some of its elements", parts[0].where, _ONE_BY_ONE)
    values = np.zeros(shape, parts[0].kind.values)
    there = np.zeros(shape, bool)
    for part, place in zip(parts, places, strict=True):
        window = tuple(slice(*each) for each in place)
        values[window] = _part(part, place).values()
        there[window] = True
    if not there.all():
        raise DumpError("no thread has some of its elements", parts[0].where, _ONE_BY_ONE)
    return values


def _ranges(said: Any) -> list[list[Range]]:
    """`[thread][tensor][axis] {"lower", "higher"}`; whatever has another form says nothing."""
    return [
        [_range(axes) for axes in thread] if isinstance(thread, list) else []
        for thread in (said if isinstance(said, list) else [])
    ]


def _range(axes: Any) -> Range:
    if not isinstance(axes, list) or len(axes) > MOST_DIMENSIONS:
        return ()
    found = []
    for axis in axes:
        ends = (axis.get("lower"), axis.get("higher")) if isinstance(axis, dict) else ()
        if not (ends and all(_is_number(end, _MOST) for end in ends) and ends[0] <= ends[1]):
            return ()
        found.append(ends)
    return tuple(found)


def _cuts(said: Any) -> list[list[int]]:
    """`[tensor][axis]`, numbers of parts."""
    return [
        axes if isinstance(axes, list) and all(_is_number(n, _MOST) for n in axes) else []
        for axes in (said if isinstance(said, list) else [])
    ]


def _is_number(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most
