"""One dataset of a dump: what it says it is, and its values once that is checked with the file."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
from h5py import h5d, h5g, h5s, h5t

from . import dtypes, errors, layout
from .boxes import boxes
from .claims import Claims, TensorClaims
from .errors import DumpError
from .facts import is_bfloat16
from .patience import patience
from .window import Window

_MAX_RATIO = 1032
"""Best compression of deflate; a chunked, filtered dataset cannot hold more than this many times
its size."""

DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError)
"""What h5py raises when HDF5 meets damage; which one depends on the call and on h5py's version."""

_RUN_AGAIN = "run the dump again; the other records can still be read"

_TEXTS = (
    layout.Type.STRING,
    layout.Type.DEVICE,
    layout.Type.LAYOUT,
    layout.Type.OBJECT,
    layout.Type.LINES,
)

_NAMED_ONLY = frozenset(
    "qint8 quint8 qint32 quint4x2 quint2x4 float4_e2m1fn_x2 bits1x8 bits2x4 bits4x2 bits8 bits16 "
    "uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int2 int3 int4 int5 int6 int7".split()
)
"""Dtypes that an argument may be, though no tensor of them is stored."""


_IN_BYTES = frozenset((*_TEXTS, layout.Type.GENERATOR, layout.Type.VEC_SCALAR, layout.Type.PARTS))
"""Kinds of arguments that are stored as bytes."""

_MOST_NUMBERS = 1 << 20
"""Of an argument; each is a Python object of its own."""


@dataclass(frozen=True, slots=True)
class Source:
    """The open file that datasets are read from, and its size in bytes, which bounds what they
    claim. window: the same file without HDF5, where that can be."""

    root: h5g.GroupID
    size: int
    window: Window | None


def _claimed(name: str) -> property:
    return property(attrgetter(f"claims.{name}"))


@dataclass(slots=True)
class _Stored:
    """A dataset by its path: it is opened for each read, because HDF5 keeps kilobytes for an open
    one. A dump has so many that their size in memory counts, and the time to make one: nobody
    changes it, but it is not frozen, which takes five times as long.

    record: path of the group that the side is in. claims: what the dataset says, shared with all
    that say the same. at: where its elements begin in the file.
    """

    record: str
    side: str
    name: str
    claims: Claims
    address: int
    at: int | None = field(repr=False)
    source: Source = field(repr=False, compare=False)

    shape = _claimed("shape")
    stored = _claimed("stored")

    @property
    def path(self) -> str:
        """The dataset's path in the file."""
        return f"{self.record}/{self.side}/{self.name}"

    def raw(self) -> np.ndarray:
        """Read the stored elements as they are; bfloat16 as uint16.

        Raises DumpError when the dataset claims more than the file holds, lies outside the file, or
        cannot be decoded.
        """
        dataset = self.check()
        try:
            # HDF5 leaves what a chunk that is not there should fill as it is, where nothing says
            # with what to fill it: damage, then, must not show what lay in memory.
            array = (np.empty if dataset is None else np.zeros)(self.shape, self.stored)
            if dataset is None:
                self._read_plain(array, 0)
            elif array.size:
                dataset.read(h5s.ALL, h5s.ALL, array, self._kind_in_memory(dataset))
            return array
        except (*DAMAGE, MemoryError) as error:
            raise self._error(f"this dataset cannot be read ({first_line(error)})") from None

    @property
    def is_plain(self) -> bool:
        """Whether a part can be read for no more than its bytes: they lie in one piece, as they are
        in memory. Otherwise each part costs an opened dataset and the chunks that it touches."""
        return self.claims.held is not None and self.source.window is not None

    def place(self) -> tuple[int, int] | None:
        """Descriptor of the file, and where in it the elements of a plain dataset lie; None of one
        that is not. Raises DumpError where its claims do not hold."""
        source = self.source
        if self.claims.held is None or source.window is None:
            return None
        self.check()
        return source.window.number, self.at

    def read_into(self, out: np.ndarray, start: int) -> None:
        """Fill `out` with the stored elements from number `start` on, in C order.

        out: one axis, contiguous, of dtype `stored`. Elements are as `raw` gives them; what their
        dtype makes of them is `Tensor.bits_of`'s to say, and where they lie in another order than
        the tensor's (`Tensor.needs_order`) only the whole can be put right. Raises DumpError as
        `raw` does, also when the file has become shorter; ValueError for an `out` that is not so or
        elements that there are not.
        """
        dataset = self.check()
        if out.dtype != self.stored or out.ndim != 1 or not out.flags.carray:
            raise ValueError(f"one axis of {self.stored} is needed, contiguous and writeable")
        if start < 0 or start + out.size > self.claims.size:
            raise ValueError(f"no elements {start} to {start + out.size} in shape {self.shape}")
        if not out.size:
            return
        try:
            if dataset is None:
                self._read_plain(out, start * out.itemsize)
            else:
                out.fill(0)
                self._read_boxes(dataset, out, start)
        except (*DAMAGE, MemoryError) as error:
            raise self._error(f"this dataset cannot be read ({first_line(error)})") from None

    def _read_boxes(self, dataset: h5d.DatasetID, out: np.ndarray, start: int) -> None:
        kind, done = self._kind_in_memory(dataset), 0
        if not self.shape:
            dataset.read(h5s.ALL, h5s.ALL, out.reshape(()), kind)
            return
        space = dataset.get_space()
        for first, extent in boxes(self.shape, start, out.size):
            count = math.prod(extent)
            space.select_hyperslab(first, extent)
            piece = out[done : done + count]
            dataset.read(h5s.create_simple((count,)), space, piece, kind)
            done += count

    def _kind_in_memory(self, dataset: h5d.DatasetID) -> h5t.TypeID:
        kind = dataset.get_type()
        return kind if is_bfloat16(kind) else h5t.py_create(self.stored)

    def check(self) -> h5d.DatasetID | None:
        """Check the claims against the file, without reading values.

        Returns the open dataset, None where its bytes can be read without HDF5. Raises DumpError as
        `raw` does.
        """
        claims, source = self.claims, self.source
        if claims.stored is None:
            raise self._error("this dataset has a type that no dump has")
        if claims.held is not None and source.window is not None:
            held = min(claims.held, source.size - self.at)
            self._check_size(claims.stored.itemsize, max(0, held))
            return None
        try:
            with patience:
                dataset = h5d.open(self.source.root, self.path.encode("utf-8", "surrogateescape"))
                self._check_storage(dataset)
                shape = dataset.shape
        except DAMAGE as error:
            raise self._error(f"this dataset cannot be read ({first_line(error)})") from None
        if shape != claims.shape:  # HDF5 would write as much as there is now
            raise self._error("this dataset has changed since the file was opened")
        return dataset

    def _read_plain(self, array: np.ndarray, skip: int) -> None:
        """Fill a contiguous array from the bytes that begin `skip` bytes into the dataset."""
        if self.source.window.read_into(array, self.at + skip) < array.nbytes:
            raise self._error("the file has become shorter since it was opened")

    def _check_storage(self, dataset: h5d.DatasetID) -> None:
        """Believe the shape only where the file has the bytes (a hostile shape costs terabytes)."""
        plan = dataset.get_create_plist()
        if plan.get_layout() == h5d.VIRTUAL or (
            plan.get_layout() == h5d.CONTIGUOUS and plan.get_external_count()
        ):
            raise self._error(
                "this dataset takes its values from another file, which is not followed"
            )
        ratio = _MAX_RATIO if plan.get_layout() == h5d.CHUNKED and plan.get_nfilters() else 1
        held = min(dataset.get_storage_size(), self.source.size)
        self._check_size(dataset.get_type().get_size(), held, ratio)

    def _check_size(self, itemsize: int, held: int, ratio: int = 1) -> None:
        claimed = self.claims.size * itemsize
        if claimed > held * ratio:
            raise self._error(
                f"this dataset claims {claimed} bytes and the file holds {held} of it"
            )

    def _error(self, what: str) -> DumpError:
        return DumpError(what, self.path, _RUN_AGAIN)


@dataclass(slots=True)
class Tensor(_Stored):
    """A tensor of a record: its claims, and its values on demand.

    name: path below the side, `self` or `tensors/tensors_0`. dtype: torch's name, or the stored
    type's. data_type, device_type, format_type, stride, live_stride: the attributes, None where
    absent (live_stride: the tensor was contiguous). live_offset: where it began in its storage, in
    elements. uninitialised: some of it no op had written. address: of the object header; equal
    addresses are one stored value. nbytes: of the elements in their dtype.

    needs_order: elements lie in another order than the tensor's, so that parts make no sense: the
    oldest producers wrote tensors on CPU and CUDA as they lay in memory, and their `Stride` is the
    live one. Only strides that visit every element once can mean that: a zero stride (expand) was
    materialised when written.
    """

    nbytes = _claimed("nbytes")
    needs_order = _claimed("needs_order")
    dtype = _claimed("dtype")
    data_type = _claimed("data_type")
    device_type = _claimed("device_type")
    format_type = _claimed("format_type")
    stride = _claimed("stride")
    live_stride = _claimed("live_stride")
    live_offset = _claimed("live_offset")
    uninitialised = _claimed("uninitialised")

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.claims.size

    def bits(self) -> np.ndarray:
        """Read the stored bits, in the `bits` dtype that dtypes.py's table gives `dtype`.

        Raises DumpError as `raw` does, and for a type that is not in the table.
        """
        if self.dtype not in dtypes.BY_NAME:
            raise self._error("this dataset has a type that no dump has")
        return self.bits_of(self._ordered(self.raw()))

    def bits_of(self, raw: np.ndarray) -> np.ndarray:
        """Turn stored elements, of the whole or of a part, into `bits`; without a copy where that
        can be. `dtypes.as_values` turns these into values. The dtype must be in the table."""
        kind = dtypes.BY_NAME[self.dtype]
        if raw.dtype == kind.bits:
            return raw
        if self.dtype == "float16":  # the original fork widens half to float32
            return raw.astype(kind.bits)
        if raw.dtype.itemsize == kind.bits.itemsize:  # signed uint8, bool enum, complex compound
            return raw.view(kind.bits)
        return raw.astype(kind.bits)

    def read(self) -> np.ndarray:
        """Read the true values in the tensor's shape; the small floats as ml_dtypes, complex32
        widened.

        Raises DumpError as `bits` does.
        """
        bits = self.bits()
        if self.dtype == "bool":
            return bits != 0
        return dtypes.as_values(bits, self.dtype)

    def _ordered(self, raw: np.ndarray) -> np.ndarray:
        if not self.needs_order:
            return raw
        steps = [step * raw.itemsize for step in self.stride]
        view = np.lib.stride_tricks.as_strided(raw.reshape(-1), self.shape, steps)
        return np.ascontiguousarray(view).reshape(self.shape)


@dataclass(slots=True)
class Argument(_Stored):
    """A non-tensor input: `type` is its `Type` code, `value` the Python value, read on demand."""

    type = _claimed("type")
    attributes = _claimed("attributes")
    dtype = _claimed("dtype")

    @property
    def value(self) -> object:
        """The argument as Python has it.

        int, float, bool, complex, str, a list of them or None; bytes for a generator's state; a
        dtype's name for SCALAR_TYPE; the attributes for TENSOR_OPTS. Raises DumpError as
        `Tensor.raw` does.
        """
        kind = self.type
        if kind == layout.Type.NONE:
            return None
        if kind == layout.Type.TENSOR_OPTS:
            return self.attributes
        if kind == layout.Type.VEC_TENSOR:
            return []
        # An empty one too: of shape (3, 2000000000, 0) Python makes a list of lists.
        if math.prod(filter(None, self.shape)) > _MOST_NUMBERS and kind not in _IN_BYTES:
            raise self._error(f"this argument has shape {list(self.shape)}, which none has")
        raw = self.raw()
        if kind in _TEXTS:
            return _as_text(raw)
        if kind == layout.Type.GENERATOR:
            return raw.tobytes()
        if kind == layout.Type.VEC_SCALAR:
            return self._scalars(_as_text(raw))
        if kind == layout.Type.PARTS:
            return self._facts(_as_text(raw))
        if raw.dtype.names == ("r", "i"):
            raw = raw["r"] + 1j * raw["i"]
        if kind in (layout.Type.BOOL, layout.Type.VEC_BOOL) or _is_bool_scalar(kind, raw):
            raw = raw != 0
        value = raw.tolist()
        if kind == layout.Type.SCALAR_TYPE:
            return self._dtype_name(value)
        return value

    def _dtype_name(self, code: object) -> str:
        if self.dtype in dtypes.BY_NAME or (code == -1 and self.dtype in _NAMED_ONLY):
            return self.dtype
        known = dtypes.BY_CODE.get(code) if isinstance(code, int) else None
        if known is None:
            raise self._error(f"this dtype code is unknown: {code}")
        return known.name

    def _facts(self, text: str) -> dict:
        try:
            facts = json.loads(text)
        except (ValueError, RecursionError):
            facts = None
        if not isinstance(facts, dict):
            raise self._error("this description of a tensor's parts is no JSON object")
        return facts

    def _scalars(self, text: str) -> list:
        try:
            values = json.loads(text)
            values = [complex(*v["complex"]) if isinstance(v, dict) else v for v in values]
            if not all(isinstance(value, int | float | complex) for value in values):
                raise ValueError
            return values
        except (ValueError, TypeError, KeyError, RecursionError):
            raise self._error("this list of numbers is no JSON list") from None


def as_claimed(
    claims: Claims, record: str, side: str, name: str, address: int, at: int | None, source: Source
) -> Tensor | Argument:
    """The tensor or the argument that a dataset of these claims is."""
    kind = Tensor if type(claims) is TensorClaims else Argument
    return kind(record, side, name, claims, address, at, source)


def _is_bool_scalar(kind: int, raw: np.ndarray) -> bool:
    return kind in (layout.Type.SCALAR, layout.Type.OPT_SCALAR) and raw.dtype.itemsize == 1


def _as_text(raw: np.ndarray) -> str:
    if raw.dtype.kind == "O":
        raw = raw.reshape(-1)
        value = raw[0] if raw.size else b""
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return raw.tobytes().rstrip(b"\0").decode("utf-8", "replace")


def first_line(error: BaseException) -> str:
    """What HDF5 says, without the quotes that a KeyError puts around it."""
    return errors.first_line(error).strip("'\" ") or type(error).__name__
