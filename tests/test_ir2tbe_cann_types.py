"""ir2tbe.cann.types and hifloat8: elements in a file and as numpy has them."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumper.errors import DumpError
from ir2tbe.cann import hifloat8
from ir2tbe.cann.types import BY_NAME, TYPES, DataType, decode, encode

ALL = list(TYPES.values())
NAMES = [kind.name for kind in ALL]
each_type = pytest.mark.parametrize("kind", ALL, ids=NAMES)


def bytes_of(kind: DataType, data: bytes) -> bytes:
    """Bytes that are elements of a type: of six bits, and bools, not all are."""
    if kind.name.startswith("float6"):
        return bytes(byte & 63 for byte in data)
    return bytes(byte & 1 for byte in data) if kind.name == "bool" else data


@pytest.mark.parametrize(
    "code, name, dtype, data, expected",
    [
        (1, "float32", "f4", "0000803f", [1.0]),
        (2, "float16", "f2", "ff7b007c", [65504.0, math.inf]),
        (3, "int8", "i1", "80", [-128]),
        (4, "uint8", "u1", "80", [128]),
        (5, "int16", "i2", "feff", [-2]),
        (6, "uint16", "u2", "feff", [65534]),
        (7, "int32", "i4", "ffffffff", [-1]),
        (8, "int64", "i8", "ffffffffffffff7f", [2**63 - 1]),
        (9, "uint32", "u4", "ffffffff", [2**32 - 1]),
        (10, "uint64", "u8", "ffffffffffffffff", [2**64 - 1]),
        (11, "bool", "?", "000102", [False, True, True]),
        (12, "float64", "f8", "000000000000f03f", [1.0]),
        (16, "complex64", "c8", "0000803f000000c0", [1 - 2j]),
        (17, "complex128", "c16", "000000000000f03f00000000000000c0", [1 - 2j]),
        (18, "qint8", "i1", "ff", [-1]),
        (23, "resource", "i8", "0100000000000000", [1]),
        (27, "bfloat16", ml_dtypes.bfloat16, "803f7f7f", [1.0, float(2**127 * (2 - 2**-7))]),
        (28, "int4", ml_dtypes.int4, "f7", [7, -1]),
        (29, "uint1", "u1", "c1", [1, 1, 0, 0, 0, 0, 0, 1]),
        (30, "int2", ml_dtypes.int2, "e4", [0, 1, -2, -1]),
        (31, "uint2", ml_dtypes.uint2, "e4", [0, 1, 2, 3]),
        (32, "complex32", "c8", "003c00c0", [1 - 2j]),
        (33, "hifloat8", "f4", "08886e6fef", [1.0, -1.0, 32768.0, math.inf, -math.inf]),
        (34, "float8_e5m2", ml_dtypes.float8_e5m2, "7b7cfc", [57344.0, math.inf, -math.inf]),
        (35, "float8_e4m3fn", ml_dtypes.float8_e4m3fn, "7e01", [448.0, 2.0**-9]),
        (36, "float8_e8m0", ml_dtypes.float8_e8m0fnu, "7f00", [1.0, 2.0**-127]),
        (37, "float6_e3m2", ml_dtypes.float6_e3m2fn, "1f20", [28.0, -0.0]),
        (38, "float6_e2m3", ml_dtypes.float6_e2m3fn, "1f01", [7.5, 0.125]),
        (39, "float4_e2m1", ml_dtypes.float4_e2m1fn, "17", [6.0, 0.5]),
        (40, "float4_e1m2", "u1", "17", [7, 1]),
    ],
)
def test_documented_bytes(code, name, dtype, data, expected):
    kind = TYPES[code]
    values = decode(np.frombuffer(bytes.fromhex(data), np.uint8), kind, len(expected))
    assert (kind.name, values.dtype) == (name, np.dtype(dtype))
    assert values.astype(kind.plain).tolist() == expected


@pytest.mark.parametrize("name", ["float8_e4m3fn", "hifloat8", "float8_e5m2"])
def test_nan_is_nan(name):
    """The peer reads +-480 for e4m3fn's two."""
    codes = {"float8_e4m3fn": "7fff", "hifloat8": "80", "float8_e5m2": "7f7d"}[name]
    data = np.frombuffer(bytes.fromhex(codes), np.uint8)
    assert np.isnan(decode(data, BY_NAME[name], data.size).astype("f4")).all()


@each_type
@given(data=st.binary(max_size=64))
def test_bytes_survive(kind: DataType, data: bytes) -> None:
    data = bytes_of(kind, data)
    count = len(data) * 8 // kind.bits
    data = data[: kind.nbytes(count)]
    values = decode(np.frombuffer(data, np.uint8), kind, count)
    assert values.shape == (count,)
    back = encode(values, kind)
    if kind.values.kind == "c" or kind.name == "complex32":  # casts may quiet a signalling NaN
        again = decode(np.frombuffer(back, np.uint8), kind, count)
        np.testing.assert_array_equal(again, values)
    else:
        assert back == data


@each_type
@given(data=st.binary(min_size=16, max_size=64))
def test_what_every_npy_reader_has_holds_the_values(kind: DataType, data: bytes) -> None:
    data = np.frombuffer(bytes_of(kind, data), np.uint8)
    values = decode(data, kind, data.size * 8 // kind.bits)
    with np.errstate(invalid="ignore"):  # signalling NaN
        plain, wide = values.astype(kind.plain), values.astype("c16" if kind.bits > 31 else "f8")
    assert plain.dtype.isbuiltin == 1
    np.testing.assert_array_equal(plain, wide)
    np.testing.assert_array_equal(np.signbit(plain.real), np.signbit(wide.real))


@each_type
def test_parts_of_a_byte(kind: DataType) -> None:
    """Elements that do not fill their last byte, and none at all."""
    data = np.zeros(64, np.uint8)
    for count in (0, 1, 3):
        values = decode(data, kind, count)
        assert values.shape == (count,)
        assert encode(values, kind) == bytes(kind.nbytes(count))


@pytest.mark.parametrize(
    "name, good, bad",
    [
        ("uint1", np.array([1], "u1"), np.array([2], "u1")),
        ("float4_e1m2", np.array([15], "u1"), np.array([16], "u1")),
        ("hifloat8", np.array([0.875], "f4"), np.array([0.876], "f4")),
        ("hifloat8", np.array([32768], "f4"), np.array([40000], "f4")),
        ("complex32", np.array([65504 + 1j], "c8"), np.array([65520 + 1j], "c8")),
        ("float16", np.array([1], "f2"), np.array([1], "f4")),
    ],
)
def test_nothing_is_rounded_or_cut(name, good, bad):
    kind = BY_NAME[name]
    assert decode(np.frombuffer(encode(good, kind), np.uint8), kind, 1) == good
    with pytest.raises(DumpError):
        encode(bad, kind)


def test_a_byte_of_more_than_six_bits_is_no_float6() -> None:
    kind = BY_NAME["float6_e2m3"]
    assert decode(np.array([63], np.uint8), kind, 1).astype("f4") == -7.5
    with pytest.raises(DumpError, match="6 bits"):
        decode(np.array([64], np.uint8), kind, 1)


@pytest.mark.parametrize(
    "name, ends",
    [
        ("float16", (-65504.0, 65504.0)),
        ("bfloat16", (-(2.0**127) * (2 - 2**-7), 2.0**127 * (2 - 2**-7))),
        ("float8_e4m3fn", (-448.0, 448.0)),
        ("float8_e5m2", (-57344.0, 57344.0)),
        ("hifloat8", (-32768.0, 32768.0)),
        ("complex32", (-65504.0, 65504.0)),
        ("int4", (-8, 7)),
        ("uint8", (None, 255)),
        ("bool", (None, None)),
        ("string", (None, None)),
        ("undefined", (None, None)),
        ("resource", (None, None)),
    ],
)
def test_where_a_dtype_ends(name, ends):
    assert BY_NAME[name].limits == ends


def by_hand(code: int) -> float:
    """HiFloat8 read from the digits of its code, as the paper's table has it."""
    sign, rest = (-1 if code & 128 else 1), f"{code & 127:07b}"
    if rest == "1101111":
        return sign * math.inf
    for prefix, bits in (("11", 4), ("10", 3), ("01", 2), ("001", 1), ("0001", 0)):
        if rest.startswith(prefix):
            field = rest[len(prefix) : len(prefix) + bits]
            exponent = 0
            if bits:
                exponent = int("1" + field[1:], 2) * (-1 if field[0] == "1" else 1)
            mantissa = rest[len(prefix) + bits :]
            return sign * 2.0**exponent * (1 + int(mantissa, 2) / 2 ** len(mantissa))
    fraction = int(rest, 2)
    if not fraction:
        return math.nan if sign < 0 else 0.0
    return sign * 2.0 ** (fraction - 23)


def test_every_hifloat8() -> None:
    codes = np.arange(256, dtype=np.uint8)
    values = hifloat8.decode(codes)
    np.testing.assert_array_equal(values, np.array([by_hand(c) for c in range(256)], "f4"))
    np.testing.assert_array_equal(hifloat8.encode(values), codes)
    assert len({*values[~np.isnan(values)].tolist()}) == 255, "no value has two codes"
    assert np.abs(values[np.isfinite(values) & (values != 0)]).min() == 2.0**-22
