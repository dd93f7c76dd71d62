"""One dataset of a dump: what it says it is, and its values once that is checked against the file.

A dataset has two types, the one HDF5 stores and the one its attributes name. They differ by design
(bool is int8, the original fork's half is float32, its uint8 is signed), and by damage or malice.
The named one is believed where the stored one can hold it; otherwise the stored one is what the
tensor is.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

import numpy as np
from h5py import h5d, h5g, h5s, h5t

from . import dtypes, errors, layout
from .errors import DumpError
from .facts import Facts, Headers, is_bfloat16

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

_BY_DESIGN = {("float16", "float32"), ("uint8", "int8"), ("bool", "uint8"), ("bool", "bool")}
"""(named, stored) that differ by design; the original widens half and stores bytes signed."""


@dataclass(frozen=True, slots=True)
class Source:
    """The open file that datasets are read from, and its size in bytes, which bounds what they
    claim. headers: the same file without HDF5, where that can be."""

    root: h5g.GroupID
    size: int
    headers: Headers | None


@dataclass(frozen=True, slots=True)
class _Stored:
    """A dataset by its path: it is opened for each read, because HDF5 keeps kilobytes for an open
    one."""

    path: str
    side: str
    name: str
    shape: tuple[int, ...]
    address: int
    stored: np.dtype | None
    _source: Source = field(repr=False, compare=False)
    _data: tuple[int, int] | None = field(repr=False, compare=False)

    def raw(self) -> np.ndarray:
        """Read the stored elements as they are; bfloat16 as uint16.

        Raises DumpError when the dataset claims more than the file holds, lies outside the file, or
        cannot be decoded.
        """
        dataset = self.check()
        try:
            if dataset is None:
                return self._read_plain(self._data[0])
            kind = dataset.get_type()
            if not is_bfloat16(kind):
                kind = h5t.py_create(self.stored)
            array = np.empty(self.shape, self.stored)
            if array.size:
                dataset.read(h5s.ALL, h5s.ALL, array, kind)
            return array
        except (*DAMAGE, MemoryError) as error:
            raise self._error(f"this dataset cannot be read ({first_line(error)})") from None

    def check(self) -> h5d.DatasetID | None:
        """Check the claims against the file, without reading values.

        Returns the open dataset, None where its bytes can be read without HDF5. Raises DumpError as
        `raw` does.
        """
        if self.stored is None:
            raise self._error("this dataset has a type that no dump has")
        if self._data and self._source.headers:
            at, held = self._data
            self._check_size(self.stored.itemsize, max(0, min(held, self._source.size - at)))
            return None
        try:
            dataset = h5d.open(self._source.root, self.path.encode("utf-8", "surrogateescape"))
            self._check_storage(dataset)
        except DAMAGE as error:
            raise self._error(f"this dataset cannot be read ({first_line(error)})") from None
        return dataset

    def _read_plain(self, at: int) -> np.ndarray:
        array = np.empty(self.shape, self.stored)
        if self._source.headers.read_into(array, at) < array.nbytes:
            raise self._error("the file has become shorter since it was opened")
        return array

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
        held = min(dataset.get_storage_size(), self._source.size)
        self._check_size(dataset.get_type().get_size(), held, ratio)

    def _check_size(self, itemsize: int, held: int, ratio: int = 1) -> None:
        claimed = math.prod(self.shape) * itemsize
        if claimed > held * ratio:
            raise self._error(
                f"this dataset claims {claimed} bytes and the file holds {held} of it"
            )

    def _error(self, what: str) -> DumpError:
        return DumpError(what, self.path, _RUN_AGAIN)


@dataclass(frozen=True, slots=True)
class Tensor(_Stored):
    """A tensor of a record: its claims, and its values on demand.

    name: path below the side, `self` or `tensors/tensors_0`. dtype: torch's name, or the stored
    type's. data_type, device_type, format_type, stride, live_stride: the attributes, None where
    absent (live_stride: the tensor was contiguous). live_offset: where it began in its storage, in
    elements. uninitialised: some of it no op had written. address: of the object header; equal
    addresses are one stored value. nbytes: of the elements in their dtype.
    """

    dtype: str
    data_type: int | None
    device_type: int | None
    format_type: int | None
    stride: tuple[int, ...] | None
    live_stride: tuple[int, ...] | None
    live_offset: int
    uninitialised: bool

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor in its own dtype."""
        kind = dtypes.BY_NAME.get(self.dtype)
        itemsize = kind.bits.itemsize if kind else self.stored.itemsize if self.stored else 0
        return self.size * itemsize

    def bits(self) -> np.ndarray:
        """Read the stored bits, in the `bits` dtype that dtypes.py's table gives `dtype`.

        Raises DumpError as `raw` does, and for a type that is not in the table.
        """
        kind = dtypes.BY_NAME.get(self.dtype)
        if kind is None:
            raise self._error("this dataset has a type that no dump has")
        raw = self._ordered(self.raw())
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
        """Undo the storage order that the oldest producers wrote for tensors on CPU and CUDA.

        Their `Stride` is the live one and the data lies as it did in memory. Only strides that
        visit every element once can mean that: a zero stride (expand) was materialised when
        written.
        """
        if (
            self.stride is None
            or self.device_type not in (0, 1)
            or not _is_dense(self.shape, self.stride)
        ):
            return raw
        steps = [step * raw.itemsize for step in self.stride]
        view = np.lib.stride_tricks.as_strided(raw.reshape(-1), self.shape, steps)
        return np.ascontiguousarray(view).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Argument(_Stored):
    """A non-tensor input: `type` is its `Type` code, `value` the Python value, read on demand."""

    type: layout.Type | int
    attributes: dict[str, int] = field(repr=False)
    dtype: str | None = None

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


def describe(
    facts: Facts, path: str, side: str, name: str, address: int, source: Source
) -> Tensor | Argument:
    """Say what a dataset is from its claims, without reading its values.

    Raises DumpError when it bears no `Type`, and for a null dataspace, which has no shape.
    """
    numbers, strides = facts.numbers, facts.strides
    code = numbers.get(b"Type")
    if facts.shape is None:
        raise DumpError("a dataset without a dataspace, which holds nothing", path, _RUN_AGAIN)
    if b"Type" in facts.odd:
        raise DumpError(f"the attribute Type {facts.odd[b'Type']}", path, _RUN_AGAIN)
    if code is None:
        raise DumpError(
            "no attribute Type", path, "the original leaves such a stub for dtypes it lacks"
        )
    common = (path, side, name, facts.shape, address, facts.stored, source, facts.data)
    if code != layout.Type.TENSOR:
        kind = layout.Type(code) if code in layout.Type._value2member_map_ else code
        attributes = {key.decode(): number for key, number in numbers.items() if key != b"Type"}
        return Argument(*common, kind, attributes, facts.torch_dtype)
    data_type = numbers.get(b"DataType")
    return Tensor(
        *common,
        _dtype(facts.torch_dtype, data_type, facts.stored_name, facts.stored),
        data_type,
        numbers.get(b"DeviceType"),
        numbers.get(b"FormatType"),
        strides.get(b"Stride"),
        strides.get(b"LiveStride"),
        *strides.get(b"LiveOffset", (0,))[:1],
        bool(numbers.get(b"Uninitialised")),
    )


def empty_list(path: str, side: str, name: str, address: int, source: Source) -> Argument:
    """A tensor list without members: an empty group in the file."""
    return Argument(path, side, name, (0,), address, None, source, None, layout.Type.VEC_TENSOR, {})


def _dtype(
    named: str | None, code: int | None, stored_name: str | None, stored: np.dtype | None
) -> str:
    """The dtype that the attributes name, if the stored type can hold it, else the stored
    type's."""
    own, old = dtypes.BY_NAME.get(named or ""), dtypes.BY_CODE.get(code)
    if own and stored == own.bits:
        return own.name
    if old and stored is not None and stored_name != "bfloat16":
        if stored == old.bits or (old.name, stored_name) in _BY_DESIGN:
            return old.name
    return stored_name or "unknown"


def _is_dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    if len(shape) != len(stride) or 0 in shape:
        return False
    expected = 1
    for step, size in sorted(
        (step, size) for step, size in zip(stride, shape, strict=True) if size > 1
    ):
        if step != expected:
            return False
        expected *= size
    return True


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
