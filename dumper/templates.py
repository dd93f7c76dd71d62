"""Datasets that new ones are copied from: attributes cost once for a kind of value, not once a
value.

Creating an attribute is HDF5's dearest call here, five of them cost more than all the rest of a
small dataset. H5Ocopy takes a whole object header in one call, attributes and all, from any file.
So there is a file in memory with one dataset for each combination of type, shape and attributes
that was met. It never has a name on disk. A small value is written to its template first and
travels in the copy; a large one is not, its template has no storage and the copy gets its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import ClassVar

import numpy as np
from h5py import h5a, h5d, h5f, h5p, h5s, h5t

from .dtypes import DType
from .layout import Type, contiguous_stride

LIBVER = ("v108", "v110")

Attributes = Iterable[tuple[bytes, int | str | tuple[int, ...]]]

_INT32, _INT64 = h5t.STD_I32LE, h5t.STD_I64LE
_SCALAR = h5s.create(h5s.SCALAR)
_CONTIGUOUS = h5p.create(h5p.DATASET_CREATE)
_CONTIGUOUS.set_fill_time(h5d.FILL_TIME_NEVER)
_CONTIGUOUS.set_obj_track_times(False)
_MANY = 8 << 20  # bytes of templates; then all are forgotten: shapes may change for ever
_HEADER = 1024  # bytes of a template besides its value, about
_numbers = itertools.count()  # two core files of one name would be one file to HDF5
_INTS: dict[int, np.ndarray] = {}  # the few codes that attributes hold, as HDF5 takes them


class TensorAttributes:
    """What a tensor was besides its values.

    live_stride: None when it was contiguous. live_offset: in its storage, in elements.
    uninitialised: some of it was never written.
    """

    __slots__ = ("device_type", "format_type", "live_stride", "live_offset", "uninitialised")

    def __init__(
        self,
        device_type: int,
        format_type: int,
        live_stride: tuple[int, ...] | None,
        live_offset: int = 0,
        uninitialised: bool = False,
    ) -> None:
        self.device_type = device_type
        self.format_type = format_type
        self.live_stride = live_stride
        self.live_offset = live_offset
        self.uninitialised = uninitialised

    def key(self) -> tuple:
        """All of it, to look up what was made for equal ones."""
        return (
            self.device_type,
            self.format_type,
            self.live_stride,
            self.live_offset,
            self.uninitialised,
        )

    def pairs(self, dtype: DType, shape: tuple[int, ...]) -> Attributes:
        """The attributes of a dataset that holds such a tensor."""
        yield b"Type", Type.TENSOR
        yield b"DataType", dtype.code
        yield b"DeviceType", self.device_type
        yield b"FormatType", self.format_type
        yield b"Stride", contiguous_stride(shape)
        if dtype.named:
            yield b"TorchDType", dtype.name
        if self.live_stride is not None:
            yield b"LiveStride", tuple(self.live_stride)
        if self.live_offset:
            yield b"LiveOffset", (self.live_offset,)
        if self.uninitialised:
            yield b"Uninitialised", 1


class Template:
    """A dataset to copy. first: selects its first element."""

    __slots__ = ("file", "name", "dataset", "first")

    def __init__(self, file: h5f.FileID, name: bytes, dataset: h5d.DatasetID) -> None:
        self.file, self.name, self.dataset = file, name, dataset
        shape = dataset.shape
        self.first = dataset.get_space()
        if shape and 0 not in shape:
            self.first.select_hyperslab((0,) * len(shape), (1,) * len(shape))


class Templates:
    """Templates by key, for one writer at a time."""

    _idle: ClassVar[list[Templates]] = []

    def __init__(self) -> None:
        self._clear()

    @classmethod
    def take(cls) -> Templates:
        """Those of a writer that is done, or new ones: a file a step need not make them again."""
        return cls._idle.pop() if cls._idle else cls()

    def give_back(self) -> None:
        """The writer is done."""
        self._idle.append(self)

    def get(
        self,
        key: Hashable,
        kind: h5t.TypeID,
        shape: tuple[int, ...],
        nbytes: int,
        attributes: Callable[[], Attributes],
    ) -> Template:
        """The template for a key, made of the rest when it is new.

        nbytes: of the value that travels in the copy, 0 if it does not.
        """
        found = self._by_key.get(key)
        if found is None:
            if self._bytes > _MANY:
                self._clear()
            self._bytes += nbytes + _HEADER
            name = b"%d" % len(self._by_key)
            space = h5s.create_simple(shape) if shape else _SCALAR
            dataset = h5d.create(self._file, name, kind, space, _CONTIGUOUS)
            put_attributes(dataset, attributes())
            found = self._by_key[key] = Template(self._file, name, dataset)
        return found

    def _clear(self) -> None:
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_fapl_core(1 << 16, False)
        bounds = {"v108": h5f.LIBVER_V18, "v110": h5f.LIBVER_V110}
        access.set_libver_bounds(*(bounds[name] for name in LIBVER))
        access.set_fclose_degree(h5f.CLOSE_STRONG)
        name = b"torch-dumper-templates-%d" % next(_numbers)
        self._file = h5f.create(name, h5f.ACC_TRUNC, h5p.create(h5p.FILE_CREATE), access)
        self._by_key: dict[Hashable, Template] = {}
        self._bytes = 0


def put_attributes(dataset: h5d.DatasetID, attributes: Attributes) -> None:
    """Write attributes: a number as int32, text as it is, a tuple as int64s."""
    for name, value in attributes:
        if isinstance(value, tuple):
            array = np.array(value, np.int64)
            attribute = h5a.create(dataset, name, _INT64, h5s.create_simple(array.shape))
            if value:
                attribute.write(array, _INT64)
        elif isinstance(value, str):
            array = np.array(value.encode(), dtype=f"S{len(value)}")
            h5a.create(dataset, name, h5t.py_create(array.dtype), _SCALAR).write(array)
        else:
            array = _INTS.get(value)
            if array is None:
                array = _INTS[value] = np.array(value, np.int32)
            h5a.create(dataset, name, _INT32, _SCALAR).write(array, _INT32)
