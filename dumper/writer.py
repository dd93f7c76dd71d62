"""The dump file as it grows: datasets with their attributes, hard links, lines of text, and nothing
else.

Low-level h5py, because the high level costs twice as much per small dataset. The file is created by
the first write, so that a context in which nothing happened leaves none. A flush every 64 records
bounds what a kill can take; `journal` makes what was flushed safe. `libver` stays at HDF5 1.8's
format: `latest` loses the whole file at a kill, and the HDF5 tools in use (1.10) must read it.
"""

from __future__ import annotations

import json
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5o, h5p, h5s, h5t

from . import dtypes
from .journal import JournaledFile
from .layout import COMFORT, FORMAT_VERSION, Type

FLUSH_EVERY = 64
"""Records between two flushes."""

_SCALAR = h5s.create(h5s.SCALAR)
_INT32 = h5t.STD_I32LE
_INT64 = h5t.STD_I64LE
_CONTIGUOUS = h5p.create(h5p.DATASET_CREATE)
_CONTIGUOUS.set_fill_time(h5d.FILL_TIME_NEVER)
_PARENTS = h5p.create(h5p.LINK_CREATE)
_PARENTS.set_create_intermediate_group(True)
_LINES_CHUNK = 1 << 16
_INTS: dict[int, np.ndarray] = {}  # the few codes that attributes hold, as HDF5 takes them
_SMALL, _REMEMBERED = 64, 4096  # bytes of an argument, and arguments, that are worth remembering


class Writer:
    """Writes one dump file.

    path: replaced if it exists. environment: what the reader needs to know of the run, as JSON
    values. Errors of the file system come as OSError, those of HDF5 as h5py raises them.
    """

    wants_values = True  # what only counts sizes (estimate.py) does not

    def __init__(self, path: str, environment: dict[str, Any], memory: int = 1 << 30) -> None:
        self.path = path
        self.records = 0
        self.bytes = 0  # of tensor values stored so far
        self._raw = JournaledFile(path)
        try:
            self._begin(environment)
        except BaseException:
            # HDF5 must not keep the file: at exit it would call into a Python that is gone.
            self.abandon()
            raise

    def _begin(self, environment: dict[str, Any]) -> None:
        self._file = self._environment = None
        self._file = h5py.File(self._raw, "w", libver=("v108", "v110"))
        self._root = self._file.id
        self._types = {name: dtypes.file_type(dtype) for name, dtype in dtypes.BY_NAME.items()}
        self._pending: dict[str, list[str]] = {}
        self._arguments: dict[tuple, str] = {}  # where a small argument is stored already
        root = self._file.attrs
        root["FormatVersion"] = np.int32(FORMAT_VERSION)
        self.environment(environment)
        root["Finished"] = np.int32(0)
        self.flush()

    @property
    def failed(self) -> bool:
        """Whether a write did not reach the file; then nothing more can."""
        return self._raw.failed

    def environment(self, environment: dict[str, Any]) -> None:
        """Store what the reader needs to know of the run, in place of what was stored before."""
        text = json.dumps(environment, sort_keys=True)
        if text != self._environment:
            self._file.attrs["Environment"] = self._environment = text

    def tensor(
        self, path: str, bits: np.ndarray, dtype: dtypes.DType, attributes: TensorAttributes
    ) -> None:
        """Store one tensor. bits: C-contiguous array of `dtype.bits`, any shape."""
        dataset = self._dataset(self._types[dtype.name], bits)
        _int(dataset, b"Type", Type.TENSOR)
        _int(dataset, b"DataType", dtype.code)
        _int(dataset, b"DeviceType", attributes.device_type)
        _int(dataset, b"FormatType", attributes.format_type)
        _ints(dataset, b"Stride", _contiguous_stride(bits.shape))
        if dtype.named:
            _text(dataset, b"TorchDType", dtype.name)
        if attributes.live_stride is not None:
            _ints(dataset, b"LiveStride", attributes.live_stride)
        if attributes.live_offset:
            _ints(dataset, b"LiveOffset", (attributes.live_offset,))
        if attributes.uninitialised:
            _int(dataset, b"Uninitialised", 1)
        self.bytes += bits.nbytes
        self._link(dataset, path)

    def argument(
        self, path: str, kind: Type, value: np.ndarray, dtype_name: str | None = None
    ) -> None:
        """Store what is no tensor: its `Type` is its only attribute, but for a dtype's name.

        An equal one stored earlier is linked: most arguments are the same few (alpha=1).
        """
        key = (kind, value.dtype.str, value.shape, value.tobytes(), dtype_name)
        earlier = self._arguments.get(key) if value.nbytes <= _SMALL else None
        if earlier is not None:
            self.same(path, earlier)
            return
        dataset = self._dataset(h5t.py_create(value.dtype), value)
        _int(dataset, b"Type", kind)
        if dtype_name is not None:
            _text(dataset, b"TorchDType", dtype_name)
        self._link(dataset, path)
        if len(self._arguments) < _REMEMBERED and value.nbytes <= _SMALL:
            self._arguments[key] = path

    def group(self, path: str) -> None:
        """Make an empty group: a list argument of length zero, or an op without inputs."""
        self._file.require_group(path)

    def same(self, path: str, earlier: str) -> None:
        """Let `path` be the value stored at `earlier`: a hard link, attributes included."""
        self._root.links.create_hard(path.encode(), self._root, earlier.encode(), lcpl=_PARENTS)

    def line(self, name: str, line: str) -> None:
        """Append one JSON line to the comfort text `name`; the next flush brings it to the file."""
        self._pending.setdefault(name, []).append(line)

    def record_done(self) -> None:
        """One record is whole; every 64th flushes."""
        self.records += 1
        if self.records % FLUSH_EVERY == 0:
            self.flush()

    def flush(self) -> None:
        """Commit what was written: from here on a kill cannot take it."""
        for name, lines in self._pending.items():
            if lines:
                self._append(name, ("\n".join(lines) + "\n").encode())
                lines.clear()
        self._file.flush()

    def close(self) -> None:
        """Flush, mark the file finished, close it."""
        self.flush()
        self._file.attrs.modify("Finished", np.int32(1))
        self._file.close()
        self._raw.flush()
        self._raw.close()

    def abandon(self) -> None:
        """Close after a failure: the file stays as the last successful flush left it."""
        self._raw.discard()
        if self._file is not None:
            self._file.close()
        self._raw.close()

    def _append(self, name: str, text: bytes) -> None:
        path = f"/{COMFORT}/0/{name}"
        if path not in self._file:
            made = self._file.create_dataset(
                path, (0,), np.uint8, maxshape=(None,), chunks=(_LINES_CHUNK,), track_times=False
            )
            _int(made.id, b"Type", Type.LINES)
        lines = self._file[path]
        start = lines.shape[0]
        lines.resize((start + len(text),))
        lines[start:] = np.frombuffer(text, np.uint8)

    def _dataset(self, kind: h5t.TypeID, values: np.ndarray) -> h5d.DatasetID:
        """Write values, which have the layout of `kind`, to a dataset that no name leads to yet."""
        shape = values.shape
        space = h5s.create_simple(shape) if shape else _SCALAR
        dataset = h5d.create(self._root, None, kind, space, _CONTIGUOUS)
        if values.size:
            dataset.write(h5s.ALL, h5s.ALL, values, mtype=kind)
        return dataset

    def _link(self, dataset: h5d.DatasetID, path: str) -> None:
        h5o.link(dataset, self._root, path.encode(), lcpl=_PARENTS)


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


def _int(dataset: h5d.DatasetID, name: bytes, value: int) -> None:
    array = _INTS.get(value)
    if array is None:
        array = _INTS[value] = np.array(value, np.int32)
    h5a.create(dataset, name, _INT32, _SCALAR).write(array)


def _ints(dataset: h5d.DatasetID, name: bytes, values: tuple[int, ...]) -> None:
    array = np.array(values, np.int64)
    attribute = h5a.create(dataset, name, _INT64, h5s.create_simple(array.shape))
    if values:
        attribute.write(array)


def _text(dataset: h5d.DatasetID, name: bytes, value: str) -> None:
    array = np.array(value.encode(), dtype=f"S{len(value)}")
    h5a.create(dataset, name, h5t.py_create(array.dtype), _SCALAR).write(array)


def _contiguous_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return tuple(reversed(stride))
