"""The dump file as it grows: datasets with their attributes, hard links, lines of text, and nothing
else.

Low-level h5py, and of that as few calls as can be. What costs in HDF5 is not the data but a
dataset's five attributes, so a dataset is a copy (H5Ocopy, one call) of a template that has them
already; templates lie in a small file in memory (`templates`). Small values travel inside the copy.
Large ones go straight to the place that HDF5 gave them.

The file is created by the first write, so that a context in which nothing happened leaves none. A
flush every 64 records or half second bounds what a kill can take; `journal` makes what was flushed
safe. `libver` stays at HDF5 1.8's format: `latest` loses the whole file at a kill, and the HDF5
tools in use (1.10) must read it.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5f, h5g, h5o, h5p, h5s, h5t

from . import dtypes
from .journal import JournaledFile
from .layout import COMFORT, FORMAT_VERSION, Type
from .room import Room, free_bytes
from .templates import (
    LIBVER,
    Attributes,
    Template,
    Templates,
    TensorAttributes,
    put_attributes,
)

FLUSH_EVERY = 64
"""Records between two flushes."""

FLUSH_SECONDS = 0.5
"""Or this much time, whichever is first."""

MEMORY = 1 << 30
"""Default bound in bytes on the copy of a value."""

_LARGE = 1 << 16  # bytes; less is written by HDF5 itself
_PARENTS = h5p.create(h5p.LINK_CREATE)
_PARENTS.set_create_intermediate_group(True)
_ONE = h5s.create_simple((1,))
_NO_TEXT = h5s.create_simple((0,), (h5s.UNLIMITED,))
_CHUNKED = h5p.create(h5p.DATASET_CREATE)
_CHUNKED.set_chunk((1 << 14,))  # a flush writes the last chunk again
_CHUNKED.set_obj_track_times(False)
_SMALL, _REMEMBERED = 64, 4096  # bytes of an argument, and arguments, that are worth remembering
_IRS = 256  # groups of IRs that are kept open
_OVERHEAD = 1024  # bytes that HDF5 needs for a dataset, its links and groups, about


class Writer:
    """Writes one dump file.

    path: replaced if it exists. environment: what the reader needs to know of the run, as JSON
    values. memory: bytes of a value that may be copied at once; who stores more brings it in
    `parts`. free: tells the free bytes of the disk. Errors of the file system come as OSError,
    those of HDF5 as h5py raises them.

    Attributes: `memory`, `records` done, `bytes` of tensor values stored.
    """

    wants_values = True  # what only counts sizes (estimate.py) does not

    def __init__(
        self,
        path: str,
        environment: dict[str, Any],
        memory: int = MEMORY,
        free: Callable[[str], int] = free_bytes,
    ) -> None:
        self.path = path
        self.memory = memory
        self.records = 0
        self.bytes = 0
        self._file = None
        self._full = False
        self._raw = JournaledFile(path)
        try:
            self._begin(environment, Room(path, free))
        except BaseException:
            # HDF5 must not keep the file: at exit it would call into a Python that is gone.
            self.abandon()
            raise

    def _begin(self, environment: dict[str, Any], room: Room) -> None:
        self._room = room
        self._environment = None
        self._templates = Templates.take()
        self._types: dict[str | np.dtype, h5t.TypeID] = {
            name: dtypes.file_type(dtype) for name, dtype in dtypes.BY_NAME.items()
        }
        self._irs: dict[str, h5g.GroupID] = {}
        self._new: list[str] = []  # what was made since the last record was whole
        self._pending: dict[str, list[str]] = {}
        self._texts: dict[str, h5d.DatasetID] = {}
        self._index_digest = hashlib.sha256()
        self._arguments: dict[tuple, str] = {}  # where a small argument is stored already
        self._file = h5py.File(self._raw, "w", libver=LIBVER)
        self._root = self._file.id
        root = self._file.attrs
        root["FormatVersion"] = np.int32(FORMAT_VERSION)
        self.environment(environment)
        root["Finished"] = np.int32(0)
        self.flush()

    @property
    def failed(self) -> bool:
        """Whether the file takes nothing more: a write did not reach it, or the disk is full."""
        return self._raw.failed or self._full

    def environment(self, environment: dict[str, Any]) -> None:
        """Store what the reader needs to know of the run, in place of what was stored before."""
        text = json.dumps(environment, sort_keys=True)
        if text != self._environment:
            self._file.attrs["Environment"] = self._environment = text

    def tensor(
        self, path: str, bits: np.ndarray, dtype: dtypes.DType, attributes: TensorAttributes
    ) -> None:
        """Store one tensor. bits: C-contiguous array of `dtype.bits`, any shape.

        They may be memory of the model, which may be written as soon as this returns.
        """
        key = (dtype.name, bits.shape, *attributes.key())
        described = partial(attributes.pairs, dtype, bits.shape)
        self._dataset(path, key, self._types[dtype.name], bits, described)
        self.bytes += bits.nbytes

    def parts(
        self,
        path: str,
        shape: tuple[int, ...],
        parts: Iterable[np.ndarray],
        dtype: dtypes.DType,
        attributes: TensorAttributes,
    ) -> None:
        """Store one tensor, whose elements come in order in several arrays.

        Each may be overwritten when the next one is asked for.
        """
        size = math.prod(shape) * dtype.bits.itemsize
        self._take(size + _OVERHEAD)
        kind = self._types[dtype.name]
        described = partial(attributes.pairs, dtype, shape)
        template = self._templates.get(
            (dtype.name, shape, *attributes.key(), None), kind, shape, 0, described
        )
        ir, below = self._copy(path, template)
        start = at = self._place(ir, below, template, kind, np.zeros(1, dtype.bits))
        try:
            for part in parts:
                flat = part.reshape(-1).view(np.uint8)
                self._raw.write_large(at, flat)
                at += len(flat)
            if at - start != size:
                raise ValueError(f"{at - start} bytes came for a tensor of {size}")
        except BaseException:
            ir.unlink(below)  # whoever lists it as left out must not leave half of it in
            raise
        self.bytes += size

    def argument(
        self, path: str, kind: Type, value: np.ndarray, dtype_name: str | None = None
    ) -> None:
        """Store what is no tensor: its `Type` is its only attribute, but for a dtype's name.

        An equal one stored earlier is linked: most arguments are the same few (alpha=1).
        """
        small = value.nbytes <= _SMALL
        if small:
            same = (kind, value.dtype, value.shape, value.tobytes(), dtype_name)
            earlier = self._arguments.get(same)
            if earlier is not None:
                self.same(path, earlier)
                return

        def described() -> Attributes:
            yield b"Type", kind
            if dtype_name is not None:
                yield b"TorchDType", dtype_name

        key = (value.dtype, value.shape, kind, dtype_name)
        stored_as = self._types.get(value.dtype)
        if stored_as is None:
            stored_as = self._types[value.dtype] = h5t.py_create(value.dtype)
        self._dataset(path, key, stored_as, value, described)
        if small and len(self._arguments) < _REMEMBERED:
            self._arguments[same] = path

    def group(self, path: str) -> None:
        """Make an empty group: a list argument of length zero, or an op without inputs."""
        ir, below = self._split(path)
        if below not in ir:
            h5g.create(ir, below, lcpl=_PARENTS)
            self._new.append(path)

    def same(self, path: str, earlier: str) -> None:
        """Let `path` be the value stored at `earlier`: a hard link, attributes included."""
        ir, below = self._split(path)
        ir.links.create_hard(below, *self._split(earlier), lcpl=_PARENTS)
        self._new.append(path)

    def line(self, name: str, line: str) -> None:
        """Append one JSON line to the comfort text `name`; the next flush brings it to the file."""
        self._pending.setdefault(name, []).append(line)

    def record_done(self) -> None:
        """One record is whole; flushes at every 64th, and when the last flush was long ago."""
        self.records += 1
        self._new.clear()
        self._take(_OVERHEAD)
        late = time.monotonic() - self._flushed > FLUSH_SECONDS
        if late or self.records - self._flushed_records >= FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        """Commit what was written: from here on a kill cannot take it."""
        for name, lines in self._pending.items():
            if lines:
                self._append(name, ("\n".join(lines) + "\n").encode())
                lines.clear()
        h5f.flush(self._root)
        self._flushed, self._flushed_records = time.monotonic(), self.records

    def close(self) -> None:
        """Flush, mark the file finished, close it."""
        self.flush()
        self._file.attrs["IndexDigest"] = f"sha256:{self._index_digest.hexdigest()}"
        self._file.attrs.modify("Finished", np.int32(1))
        self._close_file()
        self._raw.flush()
        self._raw.close()

    def abandon(self) -> None:
        """Close after a failure: the file stays as the last flush that succeeded left it.

        Where only the disk's last bytes were refused, that flush is made now.
        """
        try:
            if self._full and not self._raw.failed:
                self._flush_whole_records()
        finally:
            self._raw.discard()
            if self._file is not None:
                self._close_file()
            self._raw.close()

    def _flush_whole_records(self) -> None:
        root = self._root
        for path in reversed(self._new):
            if path.encode() in root:
                root.unlink(path.encode())
            parent = path.rpartition("/")[0]
            while parent and parent.encode() in root and not len(h5g.open(root, parent.encode())):
                root.unlink(parent.encode())
                parent = parent.rpartition("/")[0]
        self.flush()

    def _close_file(self) -> None:
        self._irs.clear()
        self._texts.clear()
        self._file.close()
        self._templates.give_back()

    def _append(self, name: str, text: bytes) -> None:
        lines = self._texts.get(name)
        if lines is None:
            lines = h5d.create(self._root, None, h5t.STD_U8LE, _NO_TEXT, _CHUNKED)
            put_attributes(lines, [(b"Type", Type.LINES)])
            h5o.link(lines, self._root, f"{COMFORT}/0/{name}".encode(), lcpl=_PARENTS)
            self._texts[name] = lines
        start, count = lines.shape[0], len(text)
        lines.set_extent((start + count,))
        space = lines.get_space()
        space.select_hyperslab((start,), (count,))
        lines.write(h5s.create_simple((count,)), space, np.frombuffer(text, np.uint8))
        if name == "index":
            self._index_digest.update(text)

    def _dataset(
        self,
        path: str,
        key: tuple,
        kind: h5t.TypeID,
        values: np.ndarray,
        attributes: Callable[[], Attributes],
    ) -> None:
        """Store values, which have the layout of `kind`. key: all that `attributes` depend on."""
        size = values.nbytes
        self._take(size + _OVERHEAD)
        large = size > _LARGE
        template = self._templates.get(key, kind, values.shape, 0 if large else size, attributes)
        if size and not large:
            template.dataset.write(h5s.ALL, h5s.ALL, values, mtype=kind)
        ir, below = self._copy(path, template)
        if large:
            flat = values.reshape(-1)
            at = self._place(ir, below, template, kind, flat[:1])
            self._raw.write_large(at, flat.view(np.uint8))

    def _copy(self, path: str, template: Template) -> tuple[h5g.GroupID, bytes]:
        ir, below = self._split(path)
        h5o.copy(template.file, template.name, ir, below, lcpl=_PARENTS)
        self._new.append(path)
        return ir, below

    def _place(
        self, ir: h5g.GroupID, below: bytes, template: Template, kind: h5t.TypeID, first: np.ndarray
    ) -> int:
        """Where in the file a dataset's values belong: HDF5 decides at the first one's write."""
        dataset = h5d.open(ir, below)
        dataset.write(_ONE, template.first, first, mtype=kind)
        return dataset.get_offset()

    def _split(self, path: str) -> tuple[h5g.GroupID, bytes]:
        """The open group of a path's IR, and the path below it."""
        _, ir, below = path.split("/", 2)
        group = self._irs.get(ir)
        if group is None:
            if len(self._irs) >= _IRS:
                self._irs.clear()
            group = self._irs[ir] = self._top(ir)
        return group, below.encode()

    def _top(self, name: str) -> h5g.GroupID:
        if name.encode() in self._root:
            return h5g.open(self._root, name.encode())
        return h5g.create(self._root, name.encode())

    def _take(self, count: int) -> None:
        try:
            self._room.take(count)
        except OSError:
            self._full = True
            raise
