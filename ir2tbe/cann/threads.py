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
from dataclasses import dataclass, replace
from typing import Any

from dumper.errors import DumpError

from .content import MOST_DIMENSIONS, Dump, Tensor
from .names import DumpName
from .types import TYPES

FFTS_PLUS = 4
"""Task type of a thread, in names of files."""

_NO_THREAD = 65535

_SLICE = re.compile(r"_lxslice([0-9]{1,9})(?![0-9])")
_GRAPH, _ITS_NUMBER = "sgt_graph_", re.compile(r"[0-9]+[^0-9A-Za-z](?=.)", re.DOTALL)
_MOST = 1 << 62
"""Where a slice may end."""

ONE_BY_ONE = "compare thread by thread with -ffts, or dump again"

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

    def cut(self, side: str, index: int) -> list[int] | None:
        """Into how many parts a tensor was cut along each axis; None where nobody says."""
        cuts = self.cuts[side]
        return cuts[index] if index < len(cuts) and cuts[index] else None


def thread_of(name: DumpName) -> int | None:
    """Which thread's file has this name; None of one that is no thread's."""
    if name.task_type != FFTS_PLUS:
        return None
    if found := _SLICE.search(name.op_name):
        return int(found[1])
    return None if name.thread_id == _NO_THREAD else name.thread_id


def whole_name(name: str) -> str:
    """The name of an operator without what tells its threads, and the graph they are in, apart."""
    at = name.rfind(_GRAPH)
    while at >= 0:
        if number := _ITS_NUMBER.match(name, at + len(_GRAPH)):
            name = name[number.end() :]
            break
        at = name.rfind(_GRAPH, 0, at)
    return without_slice(name)


def without_slice(name: str) -> str:
    """The name of an operator without what tells its threads apart."""
    return _SLICE.sub("", name) or name


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
        side: tuple(part_of(t, split.range(thread, side, i)) for i, t in enumerate(tensors))
        for side, tensors in (("input", dump.inputs), ("output", dump.outputs))
    }
    return replace(dump, inputs=sides["input"], outputs=sides["output"])


def part_of(tensor: Tensor, place: Range | None) -> Tensor:
    """What a thread has of a tensor; the shape before padding is the part's, or not known."""
    if place is None:
        return tensor
    shape = extent(place)
    original = () if is_more(tensor.original_shape, shape) else tensor.original_shape
    if _holds_whole(tensor, shape):
        what = f"its file holds more than the part of shape {list(shape)} that its thread has"
        return replace(tensor, fault=DumpError(what, tensor.where, ONE_BY_ONE))
    return replace(tensor, shape=shape, original_shape=original)


def _holds_whole(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a file has the bytes of the shape that it says, where a thread has less."""
    kind = TYPES.get(tensor.data_type)
    count = math.prod(tensor.shape)
    return kind is not None and count > math.prod(shape) and kind.nbytes(count) <= tensor.size


def is_more(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether one shape has more elements than another."""
    return math.prod(one) > math.prod(other)


def extent(place: Range) -> tuple[int, ...]:
    """The shape of a part."""
    return tuple(end - start for start, end in place)


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
