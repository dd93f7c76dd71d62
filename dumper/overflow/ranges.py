"""How far the values of one op's result reach, and what a narrower format would make of them.

Watching a step takes two things of a result: its least and greatest value, over all elements, and a
sample of elements. Everything said of head-room and underflow is computed from these, when asked.
In the file a range is a JSON line of the text `ranges`, with counts in place of the sample. No
torch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .formats import FORMATS, Lost, Share, fits, headroom, lost
from .jsonvalues import is_count, number_of, worded

TEXT = "ranges"
"""Name of the text in the file."""

COUNTED = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Formats of which the file has counts."""

GRADIENT = "grad"
"""IR of a range that is of a parameter's gradient at the end of backward; `name` is which."""

SAMPLE = 1024
"""Elements of a result that are looked at, at most."""

GRADIENT_SAMPLE = 65536
"""The same of a parameter's gradient: loss scales are chosen by one element of a thousand."""


@functools.lru_cache(maxsize=4096)
def sample_places(size: int, count: int) -> int:
    """The stride of a sample: of a tensor taken as one row, element 0 and every stride-th after it.

    The sample has at most `count` elements. The stride has no factor in common with `size`, so none
    with the length of any axis: it meets the columns of a matrix one after the other and not some
    of them only, however a channel or a row repeats. That makes a sample smaller than `count`, by
    how much depends on the factors of `size` (2/5 of it where they are 2 and 3). Raises ValueError
    where count is less than 1.
    """
    if count < 1:
        raise ValueError(f"a sample of {count} elements")
    stride = max(1, -(-size // count))
    while math.gcd(stride, size) > 1:
        stride += 1
    return stride


@dataclass(slots=True)
class Range:
    """The values of one result of one op call, or of one parameter's gradient.

    ir, seqid, phase, step: the call. output: name of the result. dtype: of it, torch's name. low,
    high: the least and the greatest of all elements, NaN where one is NaN. size: how many elements.
    api, module, source: where the call is from. name: of the parameter, where it is a gradient.
    sample: some of the elements (`sample_places` says which), in float32, or in float64 where the
    dtype is; None in a range that was read from a file, which has `counted` instead: by format.
    vanished: of `zeros_looked` elements that are 0, those whose exact value is not: underflow that
    has happened.
    """

    ir: str
    seqid: int
    phase: str
    output: str
    dtype: str
    low: float
    high: float
    size: int
    api: str | None = None
    module: str | None = None
    source: str | None = None
    name: str | None = None
    step: int = 0
    vanished: int = 0
    zeros_looked: int = 0
    sample: np.ndarray | None = field(default=None, repr=False, compare=False)
    counted: Mapping[str, Lost] = field(default_factory=dict, repr=False)

    @property
    def magnitude(self) -> float:
        """The largest absolute value of all elements; NaN where one is NaN."""
        if math.isnan(self.low) or math.isnan(self.high):
            return math.nan
        return max(abs(self.low), abs(self.high))

    @property
    def headroom(self) -> float:
        """Bits left before the result's own dtype overflows; NaN where that is no float format."""
        fmt = FORMATS.get(self.dtype)
        return math.nan if fmt is None else headroom(self.magnitude, fmt)

    @property
    def sampled(self) -> int:
        """How many elements the counts are of."""
        if self.sample is not None:
            return self.sample.size
        return next((found.looked for found in self.counted.values()), 0)

    @property
    def zeros(self) -> int:
        """How many of the sampled elements are 0."""
        found = self.lost(COUNTED[0])
        return 0 if found is None else found.looked - found.nonzero - found.not_finite

    @property
    def vanished_share(self) -> float:
        """Share of the elements that are not 0, or should not be, which have become 0 already.

        From the zeros that were looked at; 0 where none was.
        """
        found = self.lost(COUNTED[0])
        if found is None or not self.vanished:
            return 0.0
        vanished = self.zeros * self.vanished / self.zeros_looked
        return vanished / (found.nonzero + vanished) if vanished else 0.0

    def headroom_in(self, name: str) -> float:
        """Bits left before a format of `FORMATS` would overflow. Raises KeyError for no format."""
        return headroom(self.magnitude, FORMATS[name])

    def fits(self, name: str) -> bool:
        """Whether all elements fit a format of `FORMATS`. Raises KeyError for no format."""
        return fits(self.magnitude, FORMATS[name])

    def lost(self, name: str) -> Lost | None:
        """What a format of `FORMATS` would make of the sample. Raises KeyError for no format.

        None where there is neither a sample nor, in a range from a file, a count of the format.
        """
        fmt = FORMATS[name]
        return self.counted.get(name) if self.sample is None else lost(self.sample, fmt)

    def share(self, name: str) -> Share | None:
        """Shares of the sample's non-zero values that become 0, subnormal, or do not fit.

        None, and raises, as `lost` does.
        """
        found = self.lost(name)
        return None if found is None else found.share


_TEXTS = ("api", "module", "source", "name")
_NEEDED_TEXTS = ("ir", "phase", "output", "dtype")
_COUNTS = ("seqid", "size", "step", "vanished", "zeros_looked")


def facts_of(found: Range) -> dict[str, Any]:
    """A range as JSON values, without what is not known. Infinity and NaN are words."""
    facts: dict[str, Any] = {name: getattr(found, name) for name in _NEEDED_TEXTS}
    for name in _TEXTS:
        if (text := getattr(found, name)) is not None:
            facts[name] = text
    facts.update((name, number) for name in _COUNTS if (number := getattr(found, name)))
    facts["low"], facts["high"] = float(found.low), float(found.high)
    losses = {name: one for name in COUNTED if (one := found.lost(name)) is not None}
    if first := next(iter(losses.values()), None):
        facts["sample"] = [first.looked, first.nonzero, first.not_finite]
        facts["lost"] = {
            name: [one.zero, one.subnormal, one.overflow] for name, one in losses.items()
        }
    return worded(facts)


def ranges_of(lines: Iterable[Any]) -> list[Range]:
    """The ranges that lines of the text are, in order. A line that is not as expected is left
    out."""
    found = (_range(line) for line in lines if isinstance(line, Mapping))
    return [each for each in found if each is not None]


def _range(facts: Mapping[str, Any]) -> Range | None:
    known: dict[str, Any] = {}
    for name in (*_NEEDED_TEXTS, *_TEXTS):
        if isinstance(facts.get(name), str):
            known[name] = facts[name]
    for name in _COUNTS:
        if not is_count(number := facts.get(name, 0)):
            return None
        known[name] = number
    known["low"], known["high"] = number_of(facts.get("low")), number_of(facts.get("high"))
    if any(known.get(name) is None for name in (*_NEEDED_TEXTS, "low", "high")):
        return None
    if known["vanished"] > known["zeros_looked"]:
        return None
    if "sample" in facts or "lost" in facts:
        counted = _counted(facts.get("sample"), facts.get("lost"), known["size"])
        if counted is None:
            return None
        known["counted"] = counted
    return Range(**known)


def _counted(sample: Any, losses: Any, size: int) -> dict[str, Lost] | None:
    """The counts by format; None where they cannot be counts of one sample."""
    if not (_are_counts(sample) and isinstance(losses, Mapping)):
        return None
    looked, nonzero, not_finite = sample
    if looked > size or nonzero + not_finite > looked:
        return None
    found = {}
    for name in COUNTED:
        if not _are_counts(counts := losses.get(name)) or sum(counts) > nonzero:
            return None
        found[name] = Lost(nonzero, *counts, not_finite=not_finite, looked=looked)
    return found


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(is_count, value))
