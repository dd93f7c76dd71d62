"""The reader on files of every kind: ours, the original's, unfinished, damaged, hostile."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pytest
from dumps import dump, put
from h5py import h5d, h5s

from dumper import dtypes
from dumper.errors import DumpError, printable
from dumper.layout import Type
from dumper.reader import open_dump


def only(path: Path):
    """The one record of a file, with its values read."""
    with open_dump(path) as opened:
        (record,) = opened.records
        values = [tensor.read() for tensor in (*record.inputs, *record.outputs)]
    return record, values


def test_records_in_execution_order(tmp_path):
    names = ["b/2", "a/10", "a/9", "c/1"]
    path = dump(tmp_path / "d.h5", {f"{name}/output/result": np.zeros(2, "f4") for name in names})
    with open_dump(path) as opened:
        assert [record.path for record in opened.records] == ["/c/1", "/b/2", "/a/9", "/a/10"]
        assert [record.seqid for record in opened.by_ir["a"]] == [9, 10]
        assert opened.records[0].ir == "c" and opened.records[0].phase is None
        assert opened.finished is None and opened.environment == {} and opened.skipped == []


def test_inputs_outputs_lists_and_arguments(tmp_path):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        for i in range(12):
            put(file, f"cat/1/input/tensors/tensors_{i}", np.full(2, i, "f4"))
        put(file, "cat/1/input/dim", np.int64(1), kind=3)
        put(file, "cat/1/output/result", np.zeros((2, 3), "f4"))
        file.create_group("cat/1/input/none_of_them")
    record, values = only(tmp_path / "d.h5")
    assert [tensor.name for tensor in record.inputs] == [f"tensors/tensors_{i}" for i in range(12)]
    assert [int(value[0]) for value in values[:12]] == list(range(12))
    assert record.inputs[0].side == "input" and record.outputs[0].shape == (2, 3)
    assert record.outputs[0].path == "/cat/1/output/result"
    assert set(record.arguments) == {"dim", "none_of_them"}
    assert record.arguments["none_of_them"].type is Type.VEC_TENSOR
    assert record.arguments["none_of_them"].value == []


TEXT = np.frombuffer
ARGUMENTS = [
    (Type.I64, np.int64(-3), -3),
    (Type.BOOL, np.int8(1), True),
    (Type.DOUBLE, np.float64(0.1), 0.1),
    (Type.VEC_I64, np.array([1, 2]), [1, 2]),
    (Type.VEC_I64, np.array([], np.int64), []),
    (Type.SCALAR, np.float64(2.5), 2.5),
    (Type.SCALAR, np.int64(7), 7),
    (Type.SCALAR, np.int8(0), False),
    (Type.SCALAR, np.array((1.0, -2.0), [("r", "<f8"), ("i", "<f8")]), 1 - 2j),
    (Type.SCALAR, np.uint64(2**64 - 1), 2**64 - 1),
    (Type.SCALAR_TYPE, np.int32(10), "float16"),
    (Type.PAIR, np.array([3, 4]), [3, 4]),
    (Type.OPT_MEM_FMT, np.int32(2), 2),
    (Type.NONE, np.int8(0), None),
    (Type.STRING, TEXT("none 你".encode(), np.uint8), "none 你"),
    (Type.STRING, "from h5py", "from h5py"),
    (Type.DEVICE, TEXT(b"npu:0", np.uint8), "npu:0"),
    (Type.LAYOUT, TEXT(b"strided", np.uint8), "strided"),
    (Type.VEC_BOOL, np.array([1, 0], np.int8), [True, False]),
    (Type.VEC_DOUBLE, np.array([0.5, np.inf]), [0.5, np.inf]),
    (
        Type.VEC_SCALAR,
        TEXT(b'[1, true, 2.5, {"complex": [1, 2]}]', np.uint8),
        [1, True, 2.5, 1 + 2j],
    ),
    (Type.GENERATOR, np.array([0, 255, 0], np.uint8), b"\x00\xff\x00"),
]


@pytest.mark.parametrize(("kind", "stored", "value"), ARGUMENTS)
def test_argument_values(tmp_path, kind, stored, value):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        data = file.create_dataset("op/1/input/a", data=stored)
        data.attrs["Type"] = np.int32(kind)
    with open_dump(tmp_path / "d.h5") as opened:
        argument = opened.records[0].arguments["a"]
        found = argument.value
    assert argument.type is kind
    assert found == value and type(found) is type(value)


def test_a_dtype_argument_with_its_name(tmp_path):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, "op/1/input/dtype", np.int32(1), kind=14, TorchDType=np.bytes_(b"bfloat16"))
        put(file, "op/1/input/odd", np.int32(77), kind=14)
    with open_dump(tmp_path / "d.h5") as opened:
        arguments = opened.records[0].arguments
        assert arguments["dtype"].value == "bfloat16"
        with pytest.raises(DumpError, match="77"):
            _ = arguments["odd"].value


@pytest.mark.parametrize("text", [b"[[1, 2]]", b'["1"]', b'{"a": 1}', b"[null]", b"1", b"["])
def test_a_list_of_numbers_holds_numbers(tmp_path, text):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, "op/1/input/a", np.frombuffer(text, np.uint8), kind=Type.VEC_SCALAR)
    with open_dump(tmp_path / "d.h5") as opened:
        with pytest.raises(DumpError, match="list of numbers"):
            _ = opened.records[0].arguments["a"].value


def test_tensor_options_of_the_original(tmp_path):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        options = {"DeviceType": np.int32(1), "DataType": np.int32(10), "RequiresGrad": np.int32(0)}
        put(file, "op/1/input/options", np.float32(0), kind=18, **options)
        put(file, "op/1/input/unknown", np.int64(5), kind=55)
    with open_dump(tmp_path / "d.h5") as opened:
        arguments = opened.records[0].arguments
        assert arguments["options"].value == {"DeviceType": 1, "DataType": 10, "RequiresGrad": 0}
        assert arguments["unknown"].type == 55 and arguments["unknown"].value == 5


ORIGINAL = [
    ("half widened", np.array([1.5, -0.0], "f4"), 10, "float16", np.array([1.5, -0.0], "f2")),
    ("half as half", np.array([1.5], "f2"), 10, "float16", np.array([1.5], "f2")),
    ("byte as signed", np.array([-1, 5], "i1"), 2, "uint8", np.array([255, 5], "u1")),
    ("bool as int8", np.array([0, 1], "i1"), 9, "bool", np.array([False, True])),
    ("bool as enum", np.array([False, True]), 9, "bool", np.array([False, True])),
    ("bool of 2", np.array([0, 2], "i1"), 9, "bool", np.array([False, True])),
    ("big-endian", np.array([1.5, 2], ">f4"), 1, "float32", np.array([1.5, 2], "f4")),
    ("double", np.array([1e300]), 11, "float64", np.array([1e300])),
    ("long", np.array([2**62 + 1]), 7, "int64", np.array([2**62 + 1])),
    ("a code that the original lacks", np.array([1.5], "f4"), 15, "float32", np.array([1.5], "f4")),
    ("a code that cannot be", np.array([3], "i4"), 1, "int32", np.array([3], "i4")),
    ("0-d", np.float32(2.5), 1, "float32", np.array(2.5, "f4")),
    ("empty", np.zeros((0, 3), "f4"), 1, "float32", np.zeros((0, 3), "f4")),
]


@pytest.mark.parametrize(
    ("stored", "code", "dtype", "values"),
    [case[1:] for case in ORIGINAL],
    ids=[c[0] for c in ORIGINAL],
)
def test_dtypes_of_the_original(tmp_path, stored, code, dtype, values):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, "op/1/output/result", stored, code=code)
    with open_dump(tmp_path / "d.h5") as opened:
        (tensor,) = opened.records[0].outputs
        found, bits = tensor.read(), tensor.bits()
    assert (tensor.dtype, tensor.data_type, tensor.shape) == (dtype, code, values.shape)
    assert found.dtype == values.dtype and found.shape == values.shape
    assert found.tobytes() == values.tobytes()
    assert bits.dtype == dtypes.BY_NAME[dtype].bits
    assert tensor.nbytes == values.nbytes


@pytest.mark.parametrize("name", sorted(dtypes.BY_NAME))
def test_our_dtypes(tmp_path, name):
    row = dtypes.BY_NAME[name]
    bits = np.arange(4 * row.bits.itemsize, dtype=np.uint8).view(row.bits)
    if name == "bool":
        bits = bits & 1
    kind = dtypes.file_type(row)
    with h5py.File(tmp_path / "d.h5", "w") as file:
        group = file.create_group("op/1/output")
        data = h5d.create(group.id, b"result", kind, h5s.create_simple(bits.shape))
        data.write(h5s.ALL, h5s.ALL, bits, mtype=kind)
        data = group["result"]
        data.attrs["Type"], data.attrs["DataType"] = np.int32(0), np.int32(row.code)
        if row.named:
            data.attrs["TorchDType"] = np.bytes_(name.encode())
    with open_dump(tmp_path / "d.h5") as opened:
        (tensor,) = opened.records[0].outputs
        assert tensor.dtype == name
        assert tensor.bits().tobytes() == bits.tobytes()
        assert tensor.read().tobytes() == dtypes.as_values(bits, name).tobytes()


def test_bfloat16_without_a_name(tmp_path):
    values = np.array([1.5, -2], ml_dtypes.bfloat16)
    kind = dtypes.file_type(dtypes.BY_NAME["bfloat16"])
    with h5py.File(tmp_path / "d.h5", "w") as file:
        group = file.create_group("op/1/output")
        data = h5d.create(group.id, b"result", kind, h5s.create_simple((2,)))
        data.write(h5s.ALL, h5s.ALL, values.view("<u2"), mtype=kind)
        group["result"].attrs["Type"] = np.int32(0)
    record, (found,) = only(tmp_path / "d.h5")
    assert record.outputs[0].dtype == "bfloat16" and record.outputs[0].data_type is None
    assert found.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("device", "stride", "transposed"),
    [
        (1, (1, 3), True),
        (0, (1, 3), True),
        (10, (1, 3), False),
        (1, (2, 1), False),
        (1, (0, 1), False),
    ],
)
def test_storage_order_of_old_producers(tmp_path, device, stride, transposed):
    """The oldest producers wrote CPU and CUDA tensors as they lay, with the live stride."""
    stored = np.arange(6, dtype="f4").reshape(3, 2)
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, "op/1/output/result", stored, device=device, stride=stride)
    _, (found,) = only(tmp_path / "d.h5")
    expected = np.arange(6, dtype="f4").reshape(2, 3).T if transposed else stored
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("paths", "load"),
    [(["a/1/output/x"], True), (["a/1/input/x", "a/1/output/x"], False), ([], False)],
)
def test_load_mode_is_no_input_group(tmp_path, paths, load):
    path = dump(tmp_path / "d.h5", {name: np.zeros(1, "f4") for name in paths})
    with open_dump(path) as opened:
        assert opened.load_mode is load


@pytest.mark.parametrize(
    ("devices", "found"), [([0, 0], 0), ([0, 10], 10), ([1, 0], 1), ([], None)]
)
def test_device_is_the_first_that_is_not_cpu(tmp_path, devices, found):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        for i, device in enumerate(devices):
            put(file, f"a/{i}/output/x", np.zeros(1, "f4"), device=device)
    with open_dump(tmp_path / "d.h5") as opened:
        assert opened.device_type == found


def test_a_hard_link_is_one_stored_value(tmp_path):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["b/2/input/self"] = put(file, "a/1/output/result", np.arange(3, dtype="f4"))
    with open_dump(tmp_path / "d.h5") as opened:
        (output,), (linked,) = opened.records[0].outputs, opened.records[1].inputs
        assert output.address == linked.address
        assert linked.path == "/b/2/input/self"
        np.testing.assert_array_equal(linked.read(), [0, 1, 2])


def comfort(
    path: Path, index: bytes, finished: int = 1, environment: str = '{"torch": "2"}'
) -> Path:
    with h5py.File(path, "w") as file:
        put(file, "add/1/output/result", np.zeros(1, "f4"))
        lines = file.create_dataset("_torch_dumper/0/index", data=np.frombuffer(index, np.uint8))
        lines.attrs["Type"] = np.int32(Type.LINES)
        omitted = file.create_dataset(
            "_torch_dumper/0/omitted",
            data=np.frombuffer(b'{"path": "/x/2/input/w", "reason": "sparse"}\n', np.uint8),
        )
        omitted.attrs["Type"] = np.int32(Type.LINES)
        file.attrs["Finished"] = np.int32(finished)
        file.attrs["Environment"] = environment
    return path


def test_what_only_comforts(tmp_path):
    index = json.dumps({"seqid": 1, "ir": "add", "phase": "backward"}).encode() + b"\n"
    with open_dump(comfort(tmp_path / "d.h5", index)) as opened:
        (record,) = opened.records
        assert record.phase == "backward"
        assert opened.finished is True
        assert opened.environment == {"torch": "2"}
        assert opened.omitted == (("/x/2/input/w", "sparse"),)


@pytest.mark.parametrize(
    "index", [b"", b"\xff\xfe", b"[1]\n{", b'{"seqid": 1}\n', b'{"seqid": [], "ir": 1}']
)
def test_a_damaged_index_costs_only_the_phases(tmp_path, index):
    path = comfort(tmp_path / "d.h5", index, finished=0, environment="no json")
    with open_dump(path) as opened:
        (record,) = opened.records
        assert record.phase is None
        assert opened.finished is False
        assert opened.environment == {}


# Files that are no dump at all: (how to make one, what the message says).


def truncated(path: Path) -> None:
    dump(path, {"a/1/output/x": np.zeros(5000, "f4")})
    os.truncate(path, 4000)


NO_DUMPS = {
    "missing": (lambda path: None, "no such file"),
    "directory": (lambda path: path.mkdir(), "directory"),
    "empty": (lambda path: path.write_bytes(b""), "empty"),
    "text": (lambda path: path.write_text("Index,NPUDump\n"), "not an HDF5 file"),
    "signature only": (lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n"), "HDF5"),
    "truncated": (truncated, "truncated"),
}


@pytest.mark.parametrize(("make", "words"), NO_DUMPS.values(), ids=list(NO_DUMPS))
def test_files_that_are_no_dump(tmp_path, make, words):
    path = tmp_path / "d.h5"
    make(path)
    with pytest.raises(DumpError, match=words) as caught:
        open_dump(path)
    assert str(path) in str(caught.value)


def test_a_damaged_root(tmp_path):
    path = dump(tmp_path / "d.h5", {"a/1/output/x": np.zeros(5, "f4")})
    data = bytearray(path.read_bytes())
    data[96:700] = b"\xff" * 604
    path.write_bytes(data)
    with pytest.raises(DumpError, match="d.h5"):
        open_dump(path)


def test_a_locked_file(tmp_path):
    path = dump(tmp_path / "d.h5", {"a/1/output/x": np.zeros(5, "f4")})
    writer = (
        "import h5py, sys; f = h5py.File(sys.argv[1], 'r+'); print('open', flush=True); input()"
    )
    environment = {**os.environ, "HDF5_USE_FILE_LOCKING": "TRUE"}
    with subprocess.Popen(
        [sys.executable, "-c", writer, path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "open\n"
        with pytest.raises(DumpError, match="locked"):
            open_dump(path)
        process.communicate("\n")
    with open_dump(path) as opened:
        assert len(opened.records) == 1


def test_a_user_block_before_the_signature(tmp_path):
    with h5py.File(tmp_path / "d.h5", "w", userblock_size=1024) as file:
        put(file, "a/1/output/x", np.arange(3, dtype="f4"))
    _, (found,) = only(tmp_path / "d.h5")
    np.testing.assert_array_equal(found, [0, 1, 2])


# Datasets whose values must not be read: (how to make /op/1/output/x, what the message says).


def external_storage(file: h5py.File) -> h5py.Dataset:
    return file.create_dataset("op/1/output/x", (4,), "u1", external=[("/etc/hostname", 0, 4)])


def virtual(file: h5py.File) -> h5py.Dataset:
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource("/etc/hostname", "x", (4,))
    return file.create_virtual_dataset("op/1/output/x", layout)


BAD_VALUES = {
    "external storage": (external_storage, "another file"),
    "virtual": (virtual, "another file"),
    "never written": (lambda f: f.create_dataset("op/1/output/x", (1 << 20,), "f4"), "claims"),
    "huge and chunked": (
        lambda f: f.create_dataset("op/1/output/x", (1 << 50,), "f4", chunks=(1024,)), "claims",
    ),
    "huge and packed": (
        lambda f: f.create_dataset("op/1/output/x", (1 << 50,), "f4", chunks=(9,), compression=1),
        "claims",
    ),
    "text": (lambda f: f.create_dataset("op/1/output/x", data=["a", "b"]), "type"),
    "references": (
        lambda f: f.create_dataset("op/1/output/x", data=[f.ref], dtype=h5py.ref_dtype), "type",
    ),
    "a compound": (
        lambda f: f.create_dataset("op/1/output/x", data=np.zeros(2, [("a", "f4"), ("b", "i4")])),
        "type",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "words"), BAD_VALUES.values(), ids=list(BAD_VALUES))
def test_values_that_must_not_be_read(tmp_path, make, words):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        make(file).attrs["Type"] = np.int32(0)
    with open_dump(tmp_path / "d.h5") as opened:
        (tensor,) = opened.records[0].outputs
        for read in (tensor.check, tensor.read) if words != "type" else (tensor.read,):
            with pytest.raises(DumpError, match=words) as caught:
                read()
    assert caught.value.where == "/op/1/output/x"


@pytest.mark.parametrize(
    "shape", [(3, 1 << 31, 0), (0, 1 << 40), (1 << 31, 0), (1 << 10, 1 << 11), (1 << 21,)]
)
def test_an_argument_of_millions_is_no_list(tmp_path, shape):
    """Not even an empty one: as lists of lists it would take gigabytes."""
    with h5py.File(tmp_path / "d.h5", "w") as file:
        chunks = None if 0 in shape else tuple(min(n, 64) for n in shape)
        data = file.create_dataset("op/1/input/sizes", shape, "i8", chunks=chunks)
        data.attrs["Type"] = np.int32(2)
        put(file, "op/1/output/x", np.zeros(1, "f4"))
    with open_dump(tmp_path / "d.h5") as opened:
        argument = opened.records[0].arguments["sizes"]
        with pytest.raises(DumpError, match=r"has shape \["):
            argument.value  # noqa: B018 - read


def test_compressed_values_are_read(tmp_path):
    values = np.zeros(1 << 16, "f4")
    with h5py.File(tmp_path / "d.h5", "w") as file:
        data = file.create_dataset("op/1/output/x", data=values, chunks=(1 << 16,), compression=9)
        data.attrs["Type"] = np.int32(0)
    _, (found,) = only(tmp_path / "d.h5")
    np.testing.assert_array_equal(found, values)


def test_a_dataset_that_has_another_shape_now(tmp_path):
    """HDF5 would write all of it, behind the memory that was meant for less."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("op/1/output/x", data=np.ones(1000, "f4"), chunks=(100,))
        data.attrs["Type"], data.attrs["DataType"] = np.int32(0), np.int32(1)
    with open_dump(tmp_path / "a.h5") as opened:
        tensor = opened.records[0].outputs[0]
        claims = replace(tensor.claims, shape=(500,), size=500)
        earlier = replace(tensor, claims=claims)
        for read in (earlier.read, lambda: earlier.read_into(np.zeros(500, "f4"), 0)):
            with pytest.raises(DumpError, match="has changed since the file was opened"):
                read()


def test_what_was_never_written_is_zero(tmp_path):
    """HDF5 leaves the memory as it is where the file says that nothing fills a missing chunk."""
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((100,))
    plan.set_deflate(1)
    plan.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        side = file.create_group("op/1/output")
        space = h5py.h5s.create_simple((1000,))
        data = h5py.Dataset(h5py.h5d.create(side.id, b"x", h5py.h5t.IEEE_F32LE, space, plan))
        data.attrs["Type"], data.attrs["DataType"] = np.int32(0), np.int32(1)
        data[150:160] = 1
    room = np.full(1000, 7, "f4")
    with open_dump(tmp_path / "a.h5") as opened:
        tensor = opened.records[0].outputs[0]
        tensor.read_into(room, 0)
        assert room.sum() == tensor.read().sum() == 10


@pytest.mark.parametrize("name", ["a.b", "..", "a\nb", "=1+1", "\x1b[31m", "名字", "a b:c"])
def test_odd_names_are_data(tmp_path, name):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, f"{name}/1/output/x", np.arange(2, dtype="f4"))
    record, (found,) = only(tmp_path / "d.h5")
    assert record.ir == name
    assert found.tolist() == [0, 1]


def test_printable_is_inert():
    assert printable("a\x1b[31m\n你 \u202e") == "a\\x1b[31m\\n你 \\u202e"
    assert printable(b"\xff".decode("utf-8", "surrogateescape")) == "\\udcff"


def test_reading_needs_no_torch(golden):
    code = (
        "import sys; from dumper.reader import open_dump; "
        "print(len(open_dump(sys.argv[1]).records), 'torch' in sys.modules)"
    )
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code, golden / "load" / "npu.h5"],
        capture_output=True, text=True, cwd=root,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("5 False\n", "")
