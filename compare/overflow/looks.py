"""What one recorded tensor holds that overflow leaves: infinity, NaN, its dtype's largest number.

Read in pieces, each value of the file once, by its bits: without its sign a float orders as the
integer that it is stored as, so the largest of these tells whether there is anything to see. No
torch.
"""

from __future__ import annotations

import hashlib
import math
from functools import cache
from typing import NamedTuple

import numpy as np

from dumper import dtypes
from dumper.errors import DumpError
from dumper.overflow.formats import FORMATS
from dumper.overflow.ranges import sample_places
from dumper.stored import Tensor

_PIECE = 1 << 18
"""Elements that are read at a time."""

_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}


class Mark(NamedTuple):
    """Elements of one sort: how many, and where the first is in the file, -1 where there is
    none."""

    count: int = 0
    first: int = -1


class Look(NamedTuple):
    """What a tensor holds.

    low, high: the least and the greatest element, NaN where one is NaN. magnitude: the largest
    finite absolute value. nan, above, below: NaN, infinity, -infinity. full: the dtype's largest
    number, of either sign. full_below: all of these are negative. sample: some elements, in float32
    or wider; None where none was asked for. Of complex numbers each part counts.
    """

    low: float = 0.0
    high: float = 0.0
    magnitude: float = 0.0
    nan: Mark = Mark()
    above: Mark = Mark()
    below: Mark = Mark()
    full: Mark = Mark()
    full_below: bool = False
    sample: np.ndarray | None = None

    @property
    def nonfinite(self) -> int:
        """How many elements are infinite or NaN."""
        return self.nan.count + self.above.count + self.below.count


def is_float(tensor: Tensor) -> bool:
    """Whether it is of a dtype that overflows."""
    return tensor.dtype in FORMATS or tensor.dtype in _PARTS


class Looks:
    """Looks at tensors, each value of the file once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], Look | None] = {}
        self.unreadable: list[DumpError] = []

    def at(self, tensor: Tensor) -> Look | None:
        """What a tensor of floats holds; None, and an entry in `unreadable`, if it cannot be
        read."""
        key = (tensor.address, tensor.dtype)
        if key not in self._known:
            self._look(key, tensor, 0)
        return self._known[key]

    def sampled(self, tensor: Tensor, count: int) -> Look | None:
        """The same with a sample of at most `count` elements, which is not kept here."""
        key = (tensor.address, tensor.dtype)
        return self._look(key, tensor, count)

    def _look(self, key: tuple[int, str], tensor: Tensor, count: int) -> Look | None:
        try:
            found = look_at(tensor, count)
        except DumpError as error:
            if key not in self._known:
                self.unreadable.append(error)
            found = None
        self._known[key] = None if found is None else found._replace(sample=None)
        return found


def look_at(tensor: Tensor, count: int = 0) -> Look:
    """Read a tensor of floats in pieces. count: elements of a sample. Raises DumpError where it
    cannot be read."""
    tensor.check()  # before it is cut into as many pieces as it claims to have
    kind = _kind(_PARTS.get(tensor.dtype, tensor.dtype))
    per = 2 if tensor.dtype in _PARTS else 1
    stride = sample_places(tensor.size, count) if count and per == 1 else 0
    low, high, top, below = math.inf, -math.inf, 0, True
    marks = dict.fromkeys(("nan", "above", "below", "full"), Mark())
    samples = []
    room = np.empty(min(_PIECE, tensor.size), tensor.stored)
    for start in range(0, tensor.size, _PIECE):
        piece = room[: tensor.size - start]
        tensor.read_into(piece, start)
        codes = tensor.bits_of(piece).view(kind.codes)
        if stride:
            samples.append(kind.values(codes[-start % stride :: stride]))
        extent = kind.extent(codes)
        low, high = min(low, extent.low), max(high, extent.high)
        if extent.top < kind.full:
            top = max(top, extent.top)
            continue
        sizes, negative = kind.sizes(codes), kind.negative(codes)
        top = max(top, int(sizes[sizes <= kind.full].max(initial=0)))
        full, infinite = sizes == kind.full, sizes == kind.infinite
        below &= bool(negative[full].all())
        sorts = {
            "nan": sizes > kind.infinite,
            "above": infinite & ~negative,
            "below": infinite & negative,
            "full": full,
        }
        for name, where in sorts.items():
            if found := int(np.count_nonzero(where)):
                before = marks[name]
                first = before.first if before.count else (start * per + int(where.argmax())) // per
                marks[name] = Mark(before.count + found, first)
    if marks["nan"].count:
        low = high = math.nan
    sample = np.concatenate(samples) if samples else None
    has_full = below and marks["full"].count > 0
    return Look(low, high, kind.value(top), **marks, full_below=has_full, sample=sample)


def digest(tensor: Tensor) -> bytes:
    """What a value is known by in a file without numbers of values. Raises DumpError."""
    found = hashlib.blake2b(repr((tensor.dtype, tensor.size)).encode(), digest_size=16)
    room = np.empty(min(_PIECE, tensor.size), tensor.stored)
    for start in range(0, tensor.size, _PIECE):
        piece = room[: tensor.size - start]
        tensor.read_into(piece, start)
        found.update(piece.view(np.uint8))
    return found.digest()


def index_of(tensor: Tensor, place: int) -> tuple[int, ...]:
    """The index of the element at a place in the file."""
    if not tensor.needs_order:
        return tuple(map(int, np.unravel_index(place, tensor.shape)))
    found = [0] * len(tensor.shape)
    for axis in sorted(range(len(found)), key=lambda axis: -tensor.stride[axis]):
        if tensor.shape[axis] > 1:
            found[axis], place = divmod(place, tensor.stride[axis])
    return tuple(found)


class _Extent(NamedTuple):
    """Of a piece. low, high: between which its elements lie, NaN aside. top: the largest size."""

    low: float
    high: float
    top: int


class _Kind:
    """How the codes of a real float dtype are told apart: their sizes are those without a sign."""

    def __init__(self, name: str) -> None:
        self._name, self._bits = name, dtypes.BY_NAME[name].bits
        self.codes = np.dtype(f"u{self._bits.itemsize}")
        self._signed = np.dtype(f"i{self._bits.itemsize}")
        self._sign = 1 << (8 * self._bits.itemsize - 1)
        self._table: np.ndarray | None = None
        if self._bits.itemsize == 1:
            self._table = self._of_codes()
            self.full = 256
        else:
            kind = self.values(np.zeros(0, self.codes)).dtype
            top = np.array([FORMATS[name].largest]).astype(kind)
            self.full = int(top.view(self.codes)[0])
        self.infinite = self.full + 1

    def _of_codes(self) -> np.ndarray:
        """Sizes by code, for dtypes of 256 numbers: 256 the largest, 257 infinity, 258 NaN."""
        every = np.arange(256, dtype=np.uint8)
        values = np.abs(self.values(every).astype(np.float64))
        sizes = (every & (self._sign - 1)).astype(np.uint16)
        sizes[values == FORMATS[self._name].largest] = 256
        sizes[np.isinf(values)] = 257
        sizes[np.isnan(values)] = 258
        return sizes

    def values(self, codes: np.ndarray) -> np.ndarray:
        """The numbers that codes are."""
        return dtypes.as_values(codes.view(self._bits), self._name)

    def extent(self, codes: np.ndarray) -> _Extent:
        """Between which numbers some codes lie, by two looks at each.

        As unsigned numbers the codes with a sign are above all others, the farthest from 0 last; as
        signed ones they are below.
        """
        if self._table is not None:
            present = np.flatnonzero(np.bincount(codes, minlength=256)).astype(np.uint8)
            values = self.values(present).astype(np.float64)
            values = values[~np.isnan(values)]
            top = int(self._table[present].max())
            return _Extent(values.min(initial=np.inf), values.max(initial=-np.inf), top)
        last, first = int(codes.max()), int(codes.view(self._signed).max())
        if last < self._sign:  # no sign
            ends, sizes = (int(codes.min()), first), (first,)
        elif first < 0:  # nothing but signs
            ends, sizes = (last, int(codes.min())), (last - self._sign,)
        else:
            ends, sizes = (last, first), (last - self._sign, first)
        low, high = (float(self.values(np.array([end], self.codes))[0]) for end in ends)
        low = -math.inf if math.isnan(low) else low
        high = math.inf if math.isnan(high) else high
        return _Extent(low, high, max(sizes))

    def sizes(self, codes: np.ndarray) -> np.ndarray:
        """The codes without their signs; of the smallest dtypes what the table says."""
        return codes & (self._sign - 1) if self._table is None else self._table[codes]

    def negative(self, codes: np.ndarray) -> np.ndarray:
        """Whether each has the sign."""
        return (codes & self._sign) != 0

    def value(self, size: int) -> float:
        """The number that a finite size is."""
        if size == self.full:
            return FORMATS[self._name].largest
        return float(self.values(np.array([size]).astype(self.codes))[0])


@cache
def _kind(name: str) -> _Kind:
    return _Kind(name)
