"""Dtypes between torch, numpy and HDF5, by name: one table, bits always survive.

Every tensor is stored as the bits it has. Where old readers know a dtype, its `DataType` code and
HDF5 type are what they expect (bool is int8, complex a compound of r and i). bfloat16 has no numpy
type, so its HDF5 type is a custom 2-byte float that every reader turns into float32 exactly; it
bears float32's code. What old readers cannot know bears a code of 100 + its c10 number, which makes
them refuse the row instead of comparing bit patterns. Wherever the code alone does not say the
dtype, the attribute `TorchDType` does.

No torch here: torch's dtype `torch.bfloat16` is `"bfloat16"`.
"""

from __future__ import annotations

from dataclasses import dataclass

import h5py
import numpy as np


@dataclass(frozen=True)
class DType:
    """How one dtype is stored.

    name: torch's name. code: the `DataType` attribute. bits: numpy dtype of the stored elements.
    named: the file needs a `TorchDType` attribute to tell this dtype.
    """

    name: str
    code: int
    bits: np.dtype
    named: bool = False


def _own(name: str, c10_number: int, bits: object) -> DType:
    return DType(name, 100 + c10_number, np.dtype(bits), named=True)


_TABLE = (
    DType("float32", 1, np.dtype("<f4")),
    DType("uint8", 2, np.dtype("u1")),
    DType("int8", 3, np.dtype("i1")),
    DType("int16", 5, np.dtype("<i2")),
    DType("int32", 6, np.dtype("<i4")),
    DType("int64", 7, np.dtype("<i8")),
    DType("bool", 9, np.dtype("i1")),
    DType("float16", 10, np.dtype("<f2")),
    DType("float64", 11, np.dtype("<f8")),
    DType("bfloat16", 1, np.dtype("<u2"), named=True),
    _own("complex32", 8, [("r", "<f2"), ("i", "<f2")]),
    _own("complex64", 9, [("r", "<f4"), ("i", "<f4")]),
    _own("complex128", 10, [("r", "<f8"), ("i", "<f8")]),
    _own("uint16", 27, "<u2"),
    _own("uint32", 28, "<u4"),
    _own("uint64", 29, "<u8"),
    _own("float8_e5m2", 23, "u1"),
    _own("float8_e4m3fn", 24, "u1"),
    _own("float8_e5m2fnuz", 25, "u1"),
    _own("float8_e4m3fnuz", 26, "u1"),
    _own("float8_e8m0fnu", 44, "u1"),
)

BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in _TABLE}
BY_CODE: dict[int, DType] = {dtype.code: dtype for dtype in _TABLE if not dtype.named}

_ML_DTYPES = {
    "bfloat16",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e5m2fnuz",
    "float8_e4m3fnuz",
    "float8_e8m0fnu",
}
_PLAIN = {"complex64": "<c8", "complex128": "<c16", "bool": "?"}


def _bfloat16_type() -> h5py.h5t.TypeID:
    # Fields first, size last: HDF5 refuses fields that would lie outside a type already shrunk.
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_ebias(127)
    return kind


def file_type(dtype: DType) -> h5py.h5t.TypeID:
    """The HDF5 type that `dtype` has in a file."""
    if dtype.name == "bfloat16":
        return _bfloat16_type()
    return h5py.h5t.py_create(dtype.bits)


def as_values(bits: np.ndarray, name: str) -> np.ndarray:
    """View stored bits as the numbers they are, without copying.

    bits: array of the table's `bits` dtype. name: a dtype of the table. The small floats come back
    as ml_dtypes' types, which is imported only then; complex32 comes back widened to complex64, the
    only dtype that numpy cannot view.
    """
    if name in _ML_DTYPES:
        import ml_dtypes

        return bits.view(getattr(ml_dtypes, name))
    if name == "complex32":
        wide = np.empty(bits.shape, np.complex64)
        wide.real, wide.imag = bits["r"], bits["i"]
        return wide
    return bits.view(_PLAIN[name]) if name in _PLAIN else bits
