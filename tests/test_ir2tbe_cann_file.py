"""ir2tbe.cann.file, content and message: one dump file, byte by byte, and files that lie."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import descriptor_pb2

from dumper.errors import DumpError
from ir2tbe.cann.content import Dump, Origin, Tensor, blob_of, tensor_of
from ir2tbe.cann.file import read, write
from ir2tbe.cann.formats import CODES
from ir2tbe.cann.message import DumpData
from ir2tbe.cann.types import BY_NAME


def raw(tmp_path: Path, message: bytes, data: bytes = b"", length: int | None = None) -> Path:
    path = tmp_path / "Add.a.1.2.1673383728093446"
    path.write_bytes(struct.pack("<Q", len(message) if length is None else length) + message + data)
    return path


def message_of(**fields: object) -> bytes:
    return DumpData(**fields).SerializeToString()


def test_exact_bytes(tmp_path: Path) -> None:
    int8, half = BY_NAME["int8"], BY_NAME["float16"]
    out = tensor_of(np.array([3], "i1"), int8, "FRACTAL_NZ", (300,), Origin("conv", 1, 2, 3))
    dump = Dump(
        inputs=(tensor_of(np.array([[1, -2]], "f2"), half, "NCHW"),),
        outputs=(replace(out, sub_format=2, address=16, offset=1, dim_ranges=((0, 7),)),),
        buffers=(blob_of(b"L1"),),
        workspaces=(blob_of(b"log", 5),),
        op_name="a/b",
        dump_time=9,
        attributes=(("k", "v"),),
    )
    write(tmp_path / "file", dump)
    message = bytes.fromhex(
        "0a03322e30"  # 1 version "2.0"
        "1009"  # 2 dump_time 9
        "1a29"  # 3 output, 41 bytes
        "0803 101d 1a030a0101"  # INT8, FRACTAL_NZ (29), shape [1]
        "220c 0a04636f6e76 1001 1802 2003"  # original_op conv, 1, FLOAT16, NC1HWC0
        "3001 3a040a02ac02 4002 4810"  # size 1, original_shape [300], sub_format 2, address 16
        "5202 1007 5801"  # dim_range 0 (left out) to 7, offset 1
        "220a"  # 4 input, 10 bytes
        "0802 1a040a020102 2804"  # FLOAT16, NCHW (0, left out), shape [1, 2], size 4
        "2a02 1802"  # 5 buffer, L1 (0, left out), size 2
        "3203 612f62"  # 6 op_name "a/b"
        "3a06 0a016b 120176"  # 7 attr k, v
        "4204 0805 1803"  # 8 space, type 5, size 3
    )
    data = bytes.fromhex("003c00c003") + b"L1" + b"log"  # input, output, buffer, space
    assert (tmp_path / "file").read_bytes() == struct.pack("<Q", len(message)) + message + data
    assert stat.S_IMODE(os.stat(tmp_path / "file").st_mode) == 0o600


def test_read_back(tmp_path: Path) -> None:
    message = message_of(
        version="2.0", dump_time=9, op_name="a/b", attr=[{"name": "k", "value": "v"}],
        input=[{"data_type": 1, "format": 3, "shape": {"dim": [2, 1]}, "size": 9,
                "original_shape": {"dim": [2]}, "sub_format": 2, "address": 7, "offset": 3}],
        output=[{"data_type": 7, "size": 4, "original_op": {"name": "x", "output_index": 1}}],
        buffer=[{"buffer_type": 0, "size": 2}], space=[{"type": 1, "size": 1}],
    )  # fmt: skip
    data = np.array([1, 2], "<f4").tobytes() + b"\0" + struct.pack("<i", -5) + b"bbs" + b"more"
    dump = read(raw(tmp_path, message, data))
    (mine,), (out,) = dump.inputs, dump.outputs
    assert (dump.op_name, dump.version, dump.dump_time) == ("a/b", "2.0", 9)
    assert (dump.attributes, dump.trailing) == ((("k", "v"),), 4)
    assert (mine.format, mine.original_shape, mine.sub_format) == (CODES["NC1HWC0"], (2,), 2)
    assert (mine.address, mine.offset, mine.size) == (7, 3, 9)
    np.testing.assert_array_equal(mine.values(), np.array([[1], [2]], "f4"))
    assert out.origin == Origin("x", 1)
    assert out.values().shape == () and out.values() == -5
    assert [b.read().tobytes() for b in (*dump.buffers, *dump.workspaces)] == [b"bb", b"s"]


def test_fields_are_those_of_the_original() -> None:
    """Numbers, names and wire types of section 5.2 of the specification."""
    file = descriptor_pb2.FileDescriptorProto()
    DumpData.DESCRIPTOR.file.CopyToProto(file)
    numbers = {m.name: [(f.number, f.name) for f in m.field] for m in file.message_type}
    assert DumpData.DESCRIPTOR.full_name == "toolkit.dumpdata.DumpData"
    assert numbers["DumpData"] == [
        (1, "version"), (2, "dump_time"), (3, "output"), (4, "input"), (5, "buffer"),
        (6, "op_name"), (7, "attr"), (8, "space"),
    ]  # fmt: skip
    assert numbers["OpOutput"] == [
        (1, "data_type"), (2, "format"), (3, "shape"), (4, "original_op"), (5, "data"),
        (6, "size"), (7, "original_shape"), (8, "sub_format"), (9, "address"), (10, "dim_range"),
        (11, "offset"),
    ]  # fmt: skip
    assert numbers["OpInput"] == [
        (1, "data_type"), (2, "format"), (3, "shape"), (4, "data"), (5, "size"),
        (6, "original_shape"), (7, "sub_format"), (8, "address"), (9, "offset"),
    ]  # fmt: skip
    assert numbers["OriginalOp"] == [
        (1, "name"), (2, "output_index"), (3, "data_type"), (4, "format"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"op_name": "\udcff"},
        {"dump_time": -1},
        {"dump_time": 2**64},
        {"op_name": "x" * (9 << 20)},
        {"workspaces": (blob_of(b""),) * 65537},
        {"workspaces": (blob_of(b"x", 2**31),)},
    ],
)
def test_what_no_reader_takes_is_not_written(tmp_path: Path, changes: dict) -> None:
    with pytest.raises(DumpError) as caught:
        write(tmp_path / "file", replace(Dump(op_name="x"), **changes))
    assert caught.value.todo and os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "error", [DumpError("gone", "there", "-"), OSError(28, "full"), KeyError()]
)
def test_half_a_file_is_not_left(tmp_path: Path, error: Exception) -> None:
    """Bytes of a part may come from another file, which has become shorter."""

    def fail() -> np.ndarray:
        raise error

    good = tensor_of(np.ones(4, "i1"), BY_NAME["int8"])
    with pytest.raises(DumpError if isinstance(error, OSError) else type(error)):
        write(tmp_path / "file", Dump((good, replace(good, read=fail))))
    assert os.listdir(tmp_path) == []


def one(tmp_path: Path, data: bytes = b"", **fields: object) -> Tensor:
    return read(raw(tmp_path, message_of(input=[{"size": len(data), **fields}]), data)).inputs[0]


@pytest.mark.parametrize(
    "data_type, dims, data, shape",
    [
        (1, [], b"\0" * 4, ()),
        (1, [], b"\0" * 12, (3,)),
        (1, [], b"", (0,)),
        (1, [2, 0, 3], b"", (2, 0, 3)),
        (17, [2**58, 0], b"", (2**58, 0)),
        (1, [1, 2], b"\0" * 32, (1, 2)),
        (0, [7, 7], b"\0" * 5, (5,)),
        (13, [1], b"text", (4,)),
        (28, [3], b"\0\0", (3,)),
        (1, [1] * 32, b"\0" * 4, (1,) * 32),
    ],
)
def test_shapes(tmp_path: Path, data_type, dims, data, shape) -> None:
    tensor = one(tmp_path, data, data_type=data_type, shape={"dim": dims})
    assert tensor.dims == shape
    assert tensor.values().shape == shape


@pytest.mark.parametrize(
    "data_type, dims, said",
    [
        (41, [4], "code 41"),
        (-1, [4], "code -1"),
        (1, [5], r"\[5\] takes 20 bytes of float32 and there are 16"),
        (28, [33], "takes 17 bytes of int4 and there are 16"),
        (1, [2**58], "takes .* bytes of float32"),
        (1, [2**64 - 1], "is of no tensor"),
        (1, [2**63, 0], "is of no tensor"),
        (1, [2**40, 2**40, 0], "is of no tensor"),
        (1, [1] * 33, "33 dimensions"),
        (1, [2**32, 2**25], "takes .* bytes"),
    ],
)
def test_an_odd_tensor_costs_no_other(tmp_path: Path, data_type, dims, said) -> None:
    odd = {"data_type": data_type, "shape": {"dim": dims}, "size": 16}
    good = {"data_type": 3, "shape": {"dim": [2]}, "size": 2}
    dump = read(raw(tmp_path, message_of(input=[odd, good]), b"\0" * 16 + b"\1\2"))
    with pytest.raises(DumpError, match=said) as caught:
        dump.inputs[0].values()
    assert "input 0 of" in caught.value.where
    assert dump.inputs[1].values().tolist() == [1, 2]


def huge(count: int) -> bytes:
    return b"\x22\x00" * count


@pytest.mark.parametrize(
    "message, data, length, said",
    [
        (b"", b"", 0, "more than 8 bytes, this has 8"),
        (b"", b"x", 0, "header is empty"),
        (message_of(op_name="x"), b"", 4, "claim a header of 4 bytes and 3 follow"),
        (message_of(op_name="x"), b"", 2**64 - 1, "claim a header"),
        (b"\x32\x01\xff", b"", None, "no DumpData"),
        (b"\x32\x7fx", b"", None, "no DumpData"),
        (b"\x0b" * 2000, b"", None, "no DumpData"),
        (b"\x1a" + b"\xff" * 9 + b"\x7f", b"", None, "no DumpData"),
        (message_of(input=[{"size": 3}]), b"ab", None, "input 0 claims 3 bytes and 2 are left"),
        (message_of(output=[{"size": 1}, {"size": 2**64 - 1}]), b"ab", None, "output 1 claims"),
        (message_of(buffer=[{"size": 9}]), b"ab", None, "buffer 0 claims 9"),
        (message_of(space=[{"size": 9}]), b"ab", None, "space 0 claims 9"),
        (message_of(input=[{"data": b"ab", "size": 2}]), b"ab", None, "input 0 lies inside"),
        (huge(70_000), b"", None, "lists 70000 tensors"),
        (huge(5 << 20), b"", None, "10485760 bytes, and none has more"),
    ],
    ids=range(15),
)
def test_a_file_that_lies_is_refused(tmp_path: Path, message, data, length, said) -> None:
    path = raw(tmp_path, message, data, length)
    with pytest.raises(DumpError, match=said) as caught:
        read(path)
    assert str(path) in str(caught.value) and caught.value.todo


def test_the_nearest_valid_file_is_read(tmp_path: Path) -> None:
    """As the ones above, but true."""
    message = message_of(op_name="x", input=[{"size": 2}], output=[{"size": 0}])
    assert read(raw(tmp_path, message, b"ab")).inputs[0].read().tobytes() == b"ab"
    assert len(read(raw(tmp_path, huge(60_000))).inputs) == 60_000


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "whole", Dump((tensor_of(np.arange(4, dtype="i4"), BY_NAME["int32"]),)))
    whole = (tmp_path / "whole").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "part").write_bytes(whole[:length])
        with pytest.raises(DumpError):
            read(tmp_path / "part")


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "none", tmp_path / "a\0b"):
        with pytest.raises(DumpError):
            read(path)


def test_a_file_that_shrinks(tmp_path: Path) -> None:
    path = raw(tmp_path, message_of(input=[{"data_type": 3, "size": 4}]), b"abcd")
    dump = read(path)
    os.truncate(path, os.stat(path).st_size - 1)
    with pytest.raises(DumpError, match="shorter"):
        dump.inputs[0].values()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for name in ("there", "link"):
        with pytest.raises(DumpError, match="cannot be written"):
            write(tmp_path / name, Dump(op_name="x"))
    assert (tmp_path / "there").read_text() == "mine" and not (tmp_path / "target").exists()


def test_values_are_of_any_address(tmp_path: Path) -> None:
    """The header's length decides where data begins; numbers come aligned all the same."""
    for length in range(1, 9):
        values = np.arange(5, dtype="f8")
        path = tmp_path / str(length)
        write(path, Dump((tensor_of(values, BY_NAME["float64"]),), op_name="x" * length))
        found = read(path).inputs[0].values()
        assert found.flags.aligned
        np.testing.assert_array_equal(found, values)


def test_it_imports_no_torch() -> None:
    code = (
        "import sys, ir2tbe.cann.file, ir2tbe.cann.overflow\n"
        "assert 'torch' not in sys.modules and 'h5py' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
