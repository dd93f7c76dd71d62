"""Data types of CANN dumps by code: how elements lie in the file, and as numpy has them.

`decode` makes numbers of bytes and `encode` the bytes again. numpy's own dtypes and ml_dtypes' are
viewed in place. What is packed takes a byte an element here. complex32 and hifloat8, which neither
has, are widened exactly. Nobody publishes how FLOAT4_E1M2 is biased, nor what strings, resources
and the like look like: those are their bits, `numeric` is False, and no number is said of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from dumper.errors import DumpError

from . import hifloat8


@dataclass(frozen=True, slots=True)
class DataType:
    """One data type.

    code: CANN's. name: as CANN says it, lower case, sizes in the name of plain floats. values:
    dtype that `decode` gives. bits: of an element in the file. numeric: the values are numbers.
    by_shape: the file's shape counts elements; else the tensor is a row of what it has of bytes.
    """

    code: int
    name: str
    values: np.dtype
    bits: int
    numeric: bool = True
    by_shape: bool = True

    def nbytes(self, count: int) -> int:
        """Bytes that `count` elements take in the file."""
        return -(-count * self.bits // 8)

    @property
    def plain(self) -> np.dtype:
        """The dtype of numpy's own that holds the values exactly, as every npy reader has it."""
        if self.values.isbuiltin == 1:
            return self.values
        return np.dtype(_WIDER.get(self.values.name, "f4"))

    @property
    def limits(self) -> tuple[float | int | None, float | int | None]:
        """Least and greatest finite value where a result that does not fit ends up, of the parts of
        complex ones; None where there is no such end, as 0 of unsigned numbers."""
        if not self.numeric or self.bits == 1 or self.values.kind == "b":
            return None, None
        if self.code == _HIFLOAT8:
            return -hifloat8.LARGEST, hifloat8.LARGEST
        if self.code == _COMPLEX32:
            return -65504.0, 65504.0
        if self.plain.kind in "iu":
            found = ml_dtypes.iinfo(self.values)
            return (int(found.min) if found.min < 0 else None), int(found.max)
        found = ml_dtypes.finfo(self.values)
        signed = float(found.min) < 0
        return (float(found.min) if signed else None), float(found.max)


_WIDER = {"int4": "i1", "int2": "i1", "uint2": "u1"}


def _type(code: int, name: str, values: object, bits: int | None = None, **more: bool) -> DataType:
    dtype = np.dtype(values)
    return DataType(code, name, dtype, bits or 8 * dtype.itemsize, **more)


_RAW = {"numeric": False, "by_shape": False}
_UINT1, _COMPLEX32, _HIFLOAT8, _BOOL = 29, 32, 33, 11

_TABLE = (
    _type(0, "undefined", "i1", numeric=False, by_shape=False),
    _type(1, "float32", "<f4"),
    _type(2, "float16", "<f2"),
    _type(3, "int8", "i1"),
    _type(4, "uint8", "u1"),
    _type(5, "int16", "<i2"),
    _type(6, "uint16", "<u2"),
    _type(7, "int32", "<i4"),
    _type(8, "int64", "<i8"),
    _type(9, "uint32", "<u4"),
    _type(10, "uint64", "<u8"),
    _type(_BOOL, "bool", "?"),
    _type(12, "float64", "<f8"),
    _type(13, "string", "u1", **_RAW),
    _type(14, "dual_sub_int8", "i1"),
    _type(15, "dual_sub_uint8", "u1"),
    _type(16, "complex64", "<c8"),
    _type(17, "complex128", "<c16"),
    _type(18, "qint8", "i1"),
    _type(19, "qint16", "<i2"),
    _type(20, "qint32", "<i4"),
    _type(21, "quint8", "u1"),
    _type(22, "quint16", "<u2"),
    _type(23, "resource", "<i8", numeric=False),
    _type(24, "string_ref", "u1", **_RAW),
    _type(25, "dual", "u1", **_RAW),
    _type(26, "variant", "u1", **_RAW),
    _type(27, "bfloat16", ml_dtypes.bfloat16),
    _type(28, "int4", ml_dtypes.int4, 4),
    _type(_UINT1, "uint1", "u1", 1),
    _type(30, "int2", ml_dtypes.int2, 2),
    _type(31, "uint2", ml_dtypes.uint2, 2),
    _type(_COMPLEX32, "complex32", "<c8", 32),
    _type(_HIFLOAT8, "hifloat8", "<f4", 8),
    _type(34, "float8_e5m2", ml_dtypes.float8_e5m2),
    _type(35, "float8_e4m3fn", ml_dtypes.float8_e4m3fn),
    _type(36, "float8_e8m0", ml_dtypes.float8_e8m0fnu),
    _type(37, "float6_e3m2", ml_dtypes.float6_e3m2fn),
    _type(38, "float6_e2m3", ml_dtypes.float6_e2m3fn),
    _type(39, "float4_e2m1", ml_dtypes.float4_e2m1fn, 4),
    _type(40, "float4_e1m2", "u1", 4, numeric=False),
)

TYPES: dict[int, DataType] = {kind.code: kind for kind in _TABLE}
"""By code."""

BY_NAME: dict[str, DataType] = {kind.name: kind for kind in _TABLE}
"""By name."""

_SIGNED_PARTS = (28, 30)
_SIX_BITS = (37, 38)


def decode(data: np.ndarray, kind: DataType, count: int) -> np.ndarray:
    """The first `count` elements of a tensor, one-dimensional.

    data: uint8, at least `kind.nbytes(count)` of them, viewed where that is possible. Raises
    DumpError for bytes that are no element.
    """
    data = data[: kind.nbytes(count)]
    if kind.code == _UINT1:
        return np.unpackbits(data)[:count]
    if kind.bits < 8:
        return _apart(data, kind)[:count]
    if kind.code == _BOOL:
        return data != 0
    if kind.code == _HIFLOAT8:
        return hifloat8.decode(data)
    if kind.code in _SIX_BITS and (data > 63).any():
        what = f"{kind.name} takes 6 bits of a byte, and some bytes here have more"
        raise DumpError(what, kind.name, "dump again; how CANN packs these is not published")
    if kind.code == _COMPLEX32:
        halves = np.require(data.view("<f2"), requirements="A")
        with np.errstate(
            invalid="ignore"
        ):  # said of a signalling NaN, which is one before and after
            return halves.astype("<f4").view("<c8")
    return np.require(data.view(kind.values), requirements="A")


def encode(values: np.ndarray, kind: DataType) -> bytes:
    """The bytes that `decode` makes these values of.

    values: dtype `kind.values`, any shape. Raises DumpError for another dtype, and for what a
    packed or widened type cannot hold: nothing is rounded here.
    """
    if values.dtype != kind.values:
        what = f"{kind.name} is written from {kind.values}, and these are {values.dtype}"
        raise DumpError(what, kind.name, "cast them first")
    flat = np.ascontiguousarray(values).reshape(-1)
    if kind.code == _HIFLOAT8:
        return hifloat8.encode(flat).tobytes()
    if kind.code == _COMPLEX32:
        parts = flat.view("<f4")
        with np.errstate(over="ignore", invalid="ignore"):
            halves = parts.astype("<f2")
        if not ((halves.astype("<f4") == parts) | np.isnan(parts)).all():
            raise DumpError("these values do not fit complex32", kind.name, "round them first")
        return halves.tobytes()
    if kind.bits == 8 * flat.dtype.itemsize:
        return flat.tobytes()
    codes = _codes(flat, kind)
    if (codes >> kind.bits).any():
        what = f"{kind.name} takes {kind.bits} bits, and some of these values have more"
        raise DumpError(what, kind.name, "cast them first")
    if kind.code == _UINT1:
        return np.packbits(codes).tobytes()
    return _together(codes, kind.bits)


def _codes(flat: np.ndarray, kind: DataType) -> np.ndarray:
    """The bits of packed elements, a byte each."""
    if kind.code in _SIGNED_PARTS:
        return flat.astype(np.int8).view(np.uint8) & ((1 << kind.bits) - 1)
    return flat.astype(np.uint8) if kind.plain.kind == "u" else flat.view(np.uint8)


def _apart(data: np.ndarray, kind: DataType) -> np.ndarray:
    """Elements of less than a byte, the one in the lowest bits first."""
    each = 8 // kind.bits
    codes = np.empty((data.size, each), np.uint8)
    for i in range(each):
        codes[:, i] = (data >> (i * kind.bits)) & ((1 << kind.bits) - 1)
    codes = codes.reshape(-1)
    if kind.code in _SIGNED_PARTS:
        sign = 1 << (kind.bits - 1)
        return ((codes ^ sign).view(np.int8) - np.int8(sign)).astype(kind.values)
    return codes.astype(kind.values) if kind.plain.kind == "u" else codes.view(kind.values)


def _together(codes: np.ndarray, bits: int) -> bytes:
    each = 8 // bits
    padded = np.zeros(-(-codes.size // each) * each, np.uint8)
    padded[: codes.size] = codes
    packed = np.zeros(padded.size // each, np.uint8)
    for i in range(each):
        packed |= padded[i::each] << np.uint8(i * bits)
    return packed.tobytes()
