"""The numbers of many small pairs at once, before their rows are made.

What one call of the compiled loops costs is most of what measuring a small tensor does. So the
pairs of many units go into one call, and their rows find the numbers where those of a value that
was met before are. Whatever is not as plain as that is left to `row_of`, which also says why.
"""

from __future__ import annotations

from collections.abc import Iterable

from dumper.errors import DumpError
from dumper.stored import Tensor

from . import direct, rooms
from .common import Pair
from .comparing import Known, Measured, key_of, remember
from .metrics import finished, worst_at, worst_index


def measure_ahead(pairs: Iterable[Pair], known: Known) -> None:
    """Measure what can be, and remember it."""
    options = known.options
    if options.custom:
        return
    asked: dict[direct.Loop, dict[tuple, tuple[tuple[int, ...], direct.Pair]]] = {}
    for found in pairs:
        mine, golden = found.mine, found.golden
        if type(mine) is not Tensor or type(golden) is not Tensor:
            continue
        if mine.address in known.unwritten[0] or golden.address in known.unwritten[1]:
            continue
        key = key_of(mine, golden)
        if key in known.measured:
            continue
        planned = _plan(mine, golden, options.first)
        if planned is not None:
            loop, pair = planned
            asked.setdefault(loop, {})[key] = mine.claims.shape, pair
    for loop, wanted in asked.items():
        keys = list(wanted)
        for start in range(0, len(keys), direct.MANY):
            some = keys[start : start + direct.MANY]
            pairs = [wanted[key][1] for key in some]
            found = direct.measure(loop, pairs, options.divergence)
            for key, pair, each in zip(some, pairs, found, strict=True):
                if each is not None:
                    _remember(key, wanted[key][0], pair[-1], each, known)


def _plan(mine: Tensor, golden: Tensor, first: int) -> tuple[direct.Loop, direct.Pair] | None:
    """What measures two tensors, and where they lie; None where there is more to it."""
    ours, theirs = mine.claims, golden.claims
    if ours.shape != theirs.shape or ours.needs_order or theirs.needs_order:
        return None
    size = min(ours.size, first or ours.size)
    try:
        planned = direct.plan(mine, golden, size)
    except DumpError:
        return None
    if planned is None or size * planned[0].itemsize > rooms.KEPT:
        return None
    return planned


def _remember(
    key: tuple, shape: tuple[int, ...], size: int, found: direct.Found, known: Known
) -> None:
    index = worst_index(found.sums, size)
    if index is None:
        return
    worst = None if index < 0 else worst_at(index, shape, *found.worst)
    metrics = finished(found.sums, size, known.options.divergence, True, worst)
    remember(known, key, Measured(metrics))
