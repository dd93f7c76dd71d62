"""A run of elements of an array, as the boxes that HDF5 can select.

HDF5 selects boxes of an array's index space, whoever streams a large tensor asks for elements from
one number to another in C order. A run is at most two boxes an axis: what is left of a row, whole
rows, and the beginning of one, at each level.
"""

from __future__ import annotations

import math
from collections.abc import Iterator


def boxes(
    shape: tuple[int, ...], start: int, count: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(first index, extent) of boxes that hold elements start to start + count, in C order.

    shape: of at least one axis, none of them empty where count is not 0.
    """
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    while count:
        axis = next(k for k, step in enumerate(steps) if start % step == 0 and count >= step)
        at = [start // step % size for step, size in zip(steps, shape, strict=True)]
        long = min(count // steps[axis], shape[axis] - at[axis])
        yield tuple(at), (1,) * axis + (long, *shape[axis + 1 :])
        start, count = start + long * steps[axis], count - long * steps[axis]
