"""msaccucmp convert on CANN dump files: names and bytes of every type of file, and what is not as
it should be."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.cli import cli
from ir2tbe.cann.content import Dump, Tensor, blob_of, tensor_of
from ir2tbe.cann.file import write
from ir2tbe.cann.opdebug import pack_new, pack_old
from ir2tbe.cann.types import BY_NAME, TYPES, decode
from npu_core.formats import to_storage

STAMP = 1673383728093446
NAME = f"Conv2D.layer_conv.3.2.{STAMP}"
HALF, FLOAT = BY_NAME["float16"], BY_NAME["float32"]
IMAGE = np.arange(2 * 20 * 3 * 4, dtype="f2").reshape(2, 20, 3, 4)


def run(*arguments: object):
    return CliRunner().invoke(cli, ["convert", *map(str, arguments)])


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def made(path: Path, *inputs: Tensor, **more: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, Dump(inputs, **more))
    return path


def one(values: np.ndarray, kind=HALF, format: str = "ND", shape=()) -> Tensor:
    return tensor_of(values, kind, format, shape)


@pytest.fixture
def conv(tmp_path: Path) -> Path:
    stored = one(to_storage(IMAGE, "NC1HWC0"), HALF, "NC1HWC0", IMAGE.shape)
    return made(
        tmp_path / NAME, stored, outputs=(one(np.array(1.5, "f4"), FLOAT),),
        buffers=(blob_of(b"L1"), blob_of(b"?", 3)), workspaces=(blob_of(b"log"),),
        op_name="layer/sub.conv",
    )  # fmt: skip


BLOBS = [f"{NAME}.buffer.1.bin", f"{NAME}.l1buffer.0.bin", f"{NAME}.space.0.bin"]
RENAMED = f"Conv2D.sub_conv.3.2.{STAMP}"
NAMES = {
    "npy": [f"{NAME}.input.0.npy", f"{NAME}.output.0.npy"],
    "pt": [f"{NAME}.input.0.pt", f"{NAME}.output.0.pt"],
    "txt": [f"{NAME}.input.0.txt", f"{NAME}.output.0.txt"],
    "bin": [
        f"{NAME}.input.0.2_2_3_4_16.float16.NC1HWC0.bin", f"{NAME}.output.0.1.float32.ND.bin",
    ],
    "msnpy": [f"{RENAMED}.input.0.NC1HWC0.npy", f"{RENAMED}.output.0.ND.npy"],
}  # fmt: skip


@pytest.mark.parametrize("kind", NAMES)
def test_names(conv: Path, tmp_path: Path, kind: str) -> None:
    done = run("-d", conv, "-out", tmp_path / "out", "-v", 2, "-t", kind)
    assert done.exit_code == 0, done.output
    blobs = [name.replace(NAME, RENAMED) for name in BLOBS] if kind == "msnpy" else BLOBS
    assert below(tmp_path / "out") == sorted([*NAMES[kind], *blobs])
    assert f"5 files written to {tmp_path / 'out'}" in done.stdout
    assert {stat.S_IMODE(os.stat(p).st_mode) for p in (tmp_path / "out").iterdir()} == {0o600}
    contents = [(tmp_path / "out" / name).read_bytes() for name in blobs]
    assert contents == [b"?", b"L1", b"log"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("npy", f"{NAME}.input.0.2x20x3x4.npy"),
        ("pt", f"{NAME}.input.0.2x20x3x4.pt"),
        ("txt", f"{NAME}.input.0.2x20x3x4.txt"),
        ("bin", f"{NAME}.input.0.2_20_3_4.float16.NCHW.bin"),
        ("msnpy", f"{RENAMED}.input.0.NCHW.npy"),
    ],
)
def test_names_and_values_with_a_format(conv: Path, tmp_path: Path, kind: str, name: str) -> None:
    done = run("-d", conv, "-out", tmp_path / "out", "-t", kind, "-f", "NCHW", "-i", 0)
    assert done.exit_code == 0, done.output
    assert below(tmp_path / "out") == [name]
    path = tmp_path / "out" / name
    if kind == "bin":
        found = np.frombuffer(path.read_bytes(), "f2").reshape(IMAGE.shape)
    elif kind == "pt":
        found = torch.load(path).numpy()
    elif kind == "txt":
        found = np.loadtxt(path, dtype="f2").reshape(IMAGE.shape)
    else:
        found = np.load(path, allow_pickle=False)
    assert found.dtype == IMAGE.dtype
    np.testing.assert_array_equal(found, IMAGE)


TINY = bytes.fromhex(
    "1200000000000000"  # the message has 18 bytes
    "0a03322e30"  # 1 version "2.0"
    "220b 0802 1002 1a030a0102 2804"  # 4 input: FLOAT16, ND, shape [2], size 4
    "003c00c0"
)
NPY = b"\x93NUMPY\x01\0v\0{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }"
EXACT = {
    "npy": (".npy", NPY.ljust(127) + b"\n\0\x3c\0\xc0"),
    "msnpy": (".ND.npy", NPY.ljust(127) + b"\n\0\x3c\0\xc0"),
    "bin": (".2.float16.ND.bin", b"\0\x3c\0\xc0"),
    "txt": (".txt", b"# shape: [2]\n# dtype: float16\n1 -2\n"),
}


@pytest.mark.parametrize("kind", EXACT)
def test_exact_bytes(tmp_path: Path, kind: str) -> None:
    (tmp_path / NAME).write_bytes(TINY)
    assert run("-d", tmp_path / NAME, "-out", tmp_path / "out", "-t", kind).exit_code == 0
    suffix, data = EXACT[kind]
    assert below(tmp_path / "out") == [f"{NAME}.input.0{suffix}"]
    assert (tmp_path / "out" / f"{NAME}.input.0{suffix}").read_bytes() == data


@pytest.mark.parametrize("name", BY_NAME)
def test_every_type(tmp_path: Path, name: str) -> None:
    """npy is what np.save writes of the plain values, bin the file's own bytes."""
    kind = BY_NAME[name]
    data = np.random.default_rng(kind.code).integers(0, 256, 128, np.uint8)
    data &= 63 if name.startswith("float6") else 255
    values = decode(data, kind, 128 * 8 // max(kind.bits, 8))
    source = made(tmp_path / NAME, one(values.reshape(-1, 2), kind))
    assert run("-d", source, "-out", tmp_path / "out").exit_code == 0
    path = tmp_path / "out" / f"{NAME}.input.0.npy"
    with np.errstate(invalid="ignore"):
        plain = values.astype(kind.plain)
    plain = plain.reshape((-1, 2) if kind.by_shape else -1)
    np.save(tmp_path / "expected.npy", plain)
    assert path.read_bytes() == (tmp_path / "expected.npy").read_bytes()
    assert run("-d", source, "-out", tmp_path / "bin", "-t", "bin").exit_code == 0
    (path,) = (tmp_path / "bin").iterdir()
    joined = "_".join(map(str, plain.shape))
    assert path.name == f"{NAME}.input.0.{joined}.{name}.ND.bin"
    assert source.read_bytes().endswith(path.read_bytes())
    assert len(path.read_bytes()) == kind.nbytes(values.size)


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0", "int4", "complex64", "bool"]
)
def test_pt_has_torchs_own_dtype(tmp_path: Path, name: str) -> None:
    kind = BY_NAME[name]
    data = np.random.default_rng(1).integers(0, 2 if name == "bool" else 99, 64, np.uint8)
    values = decode(data, kind, 8).reshape(2, 4)
    source = made(tmp_path / NAME, one(values, kind))
    assert run("-d", source, "-out", tmp_path / "out", "-t", "pt").exit_code == 0
    found = torch.load(tmp_path / "out" / f"{NAME}.input.0.pt")
    theirs = {"float8_e8m0": "float8_e8m0fnu", "int4": "int8"}.get(name, name)
    assert found.dtype is getattr(torch, theirs)
    if kind.values.isbuiltin == 1:
        np.testing.assert_array_equal(found.numpy(), values)
    else:
        np.testing.assert_array_equal(found.float().numpy(), values.astype("f4"))


@pytest.mark.parametrize("name", BY_NAME)
def test_every_type_as_every_kind_of_file(tmp_path: Path, name: str) -> None:
    """Each is read by what reads such files, and all say the same."""
    kind = BY_NAME[name]
    data = np.random.default_rng(kind.code).integers(0, 256, 96, np.uint8)
    data &= {"bool": 1, "float6_e3m2": 63, "float6_e2m3": 63}.get(name, 255)
    values = decode(data, kind, 96 * 8 // max(kind.bits, 8))
    source = made(tmp_path / NAME, one(values.reshape(2, -1, 3), kind))
    shape = (2, values.size // 6, 3) if kind.by_shape else (source.stat().st_size,)
    found = {}
    for type in NAMES:
        assert run("-d", source, "-out", tmp_path / type, "-t", type).exit_code == 0
        (path,) = (tmp_path / type).iterdir()
        if type == "txt":
            lines = path.read_text().splitlines()
            shape = tuple(json.loads(lines[0].removeprefix("# shape: ")))
            wide = {"c": "c16", "f": "f8", "b": "i1"}.get(kind.plain.kind, kind.plain)
            found[type] = np.loadtxt(path, dtype=wide).reshape(shape).astype(kind.plain)
            header = lines[1].removeprefix("# dtype: ")
            assert header in (kind.plain.name, kind.name, kind.values.name)
        elif type == "pt":
            tensor = torch.load(path)
            native = tensor.dtype.is_floating_point and kind.values.isbuiltin != 1
            found[type] = (tensor.float() if native else tensor).numpy()
        elif type == "bin":
            bits = np.frombuffer(path.read_bytes(), np.uint8)
            with np.errstate(invalid="ignore"):
                plain = decode(bits, kind, values.size).astype(kind.plain)
            found[type] = plain.reshape(shape if kind.by_shape else -1)
        else:
            found[type] = np.load(path, allow_pickle=False)
    for type, array in found.items():
        assert array.shape == found["npy"].shape == shape or type == "bin"
        assert array.dtype == kind.plain, type
        np.testing.assert_array_equal(array.reshape(-1), found["npy"].reshape(-1), type)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found["npy"].reshape(-1), values.astype(kind.plain))


def test_txt(tmp_path: Path) -> None:
    values = np.array([[0.1, -1.5], [np.inf, np.nan]], ml_dtypes.bfloat16)
    tensors = (
        one(values, BY_NAME["bfloat16"]),
        one(np.array([3, -8]).astype("i1"), BY_NAME["qint8"]),
    )
    source = made(tmp_path / NAME, *tensors)
    assert run("-d", source, "-out", tmp_path / "out", "-t", "txt").exit_code == 0
    texts = [(tmp_path / "out" / f"{NAME}.input.{i}.txt").read_text() for i in (0, 1)]
    header = "# shape: [2, 2]\n# dtype: bfloat16\n"
    assert texts == [f"{header}0.100097656 -1.5\ninf nan\n", "# shape: [2]\n# dtype: int8\n3 -8\n"]
    found = np.loadtxt(tmp_path / "out" / f"{NAME}.input.0.txt", dtype="f4")
    np.testing.assert_array_equal(found, values.astype("f4"))


def test_more_elements_than_are_widened_at_once(tmp_path: Path) -> None:
    """Packed, so that a piece must end at a byte."""
    count = (1 << 18) + 5
    data = np.random.default_rng(2).integers(0, 256, (count + 1) // 2, np.uint8)
    values = decode(data, BY_NAME["int4"], count)
    source = made(tmp_path / NAME, one(values, BY_NAME["int4"]))
    assert run("-d", source, "-out", tmp_path / "out").exit_code == 0
    found = np.load(tmp_path / "out" / f"{NAME}.input.0.npy")
    np.testing.assert_array_equal(found, values.astype("i1"))


REPORTS = {
    "old": pack_old({"AI Core": {"task_id": 3, "status": 32}}),
    "new": pack_new([("AIC", {"task_id": 3}, (32,))]),
}


@pytest.mark.parametrize("kind", ["npy", "bin"])
@pytest.mark.parametrize("layout", REPORTS)
def test_reports_of_overflows_become_json(tmp_path: Path, layout: str, kind: str) -> None:
    report = one(np.frombuffer(REPORTS[layout], "u1"), BY_NAME["uint8"])
    name = f"Opdebug.Node_OpDebug.9.2.{STAMP}"
    source = made(tmp_path / name, outputs=(report, report))
    assert run("-d", source, "-out", tmp_path / "out", "-t", kind).exit_code == 0
    assert below(tmp_path / "out") == [f"{name}.output.{i}.json" for i in (0, 1)]
    text = (tmp_path / "out" / f"{name}.output.0.json").read_text()
    found = json.loads(text)
    entry = found["AI Core"] if layout == "old" else found["acc_list"]["data"]
    assert (entry["task_id"], entry["status"]) == (3, 32)
    assert text.startswith('{\n    "')


# What is not as it should be


def refused(*arguments: object) -> str:
    done = run(*arguments)
    assert done.exit_code == 2 and "Traceback" not in done.output
    return done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-s", "1,2"), "-s: it takes effect only with -f"),
        (("-o", 0), "-o: it takes effect only with -f"),
        (("-i", 0), "-i: it takes effect only with -f"),
        (("-c", "."), "-c: it takes effect only with -f"),
        (("-f", "NCHW", "-i", 0, "-o", 0), "it goes not with -o"),
        (("-f", "NCHW", "-i", -1), "-1 is not in the range"),
        (("-f", "NCWH"), "'NCWH' is none of ND, NCHW, NHWC"),
        (("-f", "NCHW", "-s", "1,x"), "'1,x' is not like 1,3,224,224"),
        (("-f", "NCHW", "-s", "1,0"), "'1,0' is not like"),
        (("-f", "NCHW", "-s", "9" * 19), "is not like"),
        (("-f", "NCHW", "-s", ",".join("1" * 33)), "more than 32 sizes"),
        (("-op", "relu"), "only an HDF5 dump has records"),
        (("-t", "h5"), "'h5' is not one of"),
        (("-f", "NCHW", "-i", 1), "there is no input 1; it has 1"),
        (("-f", "NCHW", "-o", 0), "ND does not say which axis is which"),
        (("-f", "NCHW", "-i", 0, "-s", "2,33,3,4"), "but the array has shape (2, 2, 3, 4, 16)"),
        (("-f", "NC1HWC0", "-i", 0, "-s", "2,20,3,4"), "it is in NC1HWC0 already"),
        (("-f", "NCDHW", "-i", 0), "NC1HWC0 is a layout of NCHW, which cannot become NCDHW"),
    ],
)
def test_bad_use(conv: Path, tmp_path: Path, options: tuple, words: str) -> None:
    assert words in refused("-d", conv, "-out", tmp_path / "out", *options)


def test_hdf5_has_no_formats(tmp_path: Path) -> None:
    (tmp_path / "d.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(99))
    assert "'bin' is not" in refused("-d", tmp_path / "d.h5", "-t", "bin")
    assert "only tensors in a CANN dump" in refused("-d", tmp_path / "d.h5", "-f", "NCHW")


def test_nothing_to_convert(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no CANN dump file here" in refused("-d", tmp_path / "empty", "-out", tmp_path / "out")
    missing = f"{tmp_path / 'no'},{tmp_path / 'none'}"
    assert refused("-d", missing, "-out", tmp_path / "out").count("cannot be read") == 2


def test_a_bad_tensor_costs_no_other(tmp_path: Path) -> None:
    good = one(np.ones(2, "f2"))
    source = made(
        tmp_path / NAME, good, replace(good, data_type=99), replace(good, shape=(9,)), good
    )
    error = refused("-d", source, "-out", tmp_path / "out")
    assert "code 99" in error and "takes 18 bytes" in error
    assert below(tmp_path / "out") == [f"{NAME}.input.{i}.npy" for i in (0, 3)]


def test_what_is_in_the_way_stays(conv: Path, tmp_path: Path) -> None:
    """A link that has a part's name is not followed; nothing half is left."""
    (tmp_path / "out").mkdir()
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "out" / f"{NAME}.input.0.npy").symlink_to(tmp_path / "victim")
    assert "symbolic link" in refused("-d", conv, "-out", tmp_path / "out")
    assert (tmp_path / "victim").read_text() == "mine"
    assert below(tmp_path / "out") == sorted([*NAMES["npy"], *BLOBS])


def test_a_link_below_out_leads_nowhere_else(tmp_path: Path) -> None:
    made(tmp_path / "dump" / "sub" / NAME, one(np.ones(2, "f2")))
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "sub").symlink_to(tmp_path / "elsewhere")
    assert "out of the output folder" in refused("-d", tmp_path / "dump", "-out", tmp_path / "out")
    assert below(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("op_name", ["..", "a/..", "../../x", "/", "a\0b", "=cmd", "é" * 300])
def test_no_name_in_a_file_is_a_path(tmp_path: Path, op_name: str) -> None:
    source = made(tmp_path / "in" / NAME, one(np.ones(2, "f2")), op_name=op_name)
    done = run("-d", source, "-out", tmp_path / "out", "-t", "msnpy")
    assert done.exit_code == 0
    assert [p for p in below(tmp_path) if not p.startswith(("in/", "out/"))] == []
    written = [p for p in below(tmp_path / "out") if p != "mapping.csv"]
    assert len(written) == 1 and written[0].endswith(".npy") and "/" not in written[0]


def test_two_dumps_whose_parts_have_one_name(tmp_path: Path) -> None:
    for i in range(2):
        made(tmp_path / "dump" / f"Add.a{i}.3.2.{STAMP}", one(np.ones(2, "f2")), op_name="same/add")
    error = refused("-d", tmp_path / "dump", "-out", tmp_path / "out", "-t", "msnpy")
    assert "two dumps have parts of this name" in error


# The user's own conversions

CUSTOM = """
import numpy as np
def convert(shape_from, shape_to, array{more}):
    print("running")
    return array.reshape(shape_from).sum(axis=0) + {value}
"""


@pytest.fixture
def scripts(tmp_path: Path):
    folder = tmp_path / "scripts" / "format_convert"
    folder.mkdir(parents=True)

    def add(name: str, text: str) -> Path:
        (folder / name).write_text(text)
        return folder.parent

    return add


@pytest.mark.parametrize(("more", "value"), [("", "1"), (", groups", "groups")])
def test_a_conversion_of_ones_own(tmp_path: Path, scripts, more: str, value: str) -> None:
    tensor = replace(one(np.ones((2, 3), "f2")), sub_format=7)
    source = made(tmp_path / NAME, tensor)
    folder = scripts("convert_ND_to_NC1HWC0_C04.py", CUSTOM.format(more=more, value=value))
    scripts("notes.txt", "x")
    done = run("-d", source, "-out", tmp_path / "out", "-f", "NC1HWC0_C04", "-c", folder)
    assert done.exit_code == 0, done.output
    assert "running" in done.stderr and "running" not in done.stdout
    found = np.load(tmp_path / "out" / f"{NAME}.input.0.3.npy")
    assert found.tolist() == [2 + (7 if more else 1)] * 3


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("convert_ND_to_NCHW.py", "def convert(a, b, c): 1 / 0", "failed (ZeroDivisionError"),
        ("convert_ND_to_NCHW.py", "def convert(a, b, c): pass", "returned NoneType"),
        ("convert_ND_to_NCHW.py", "def convert(a, b): pass", "no convert with three arguments"),
        ("convert_ND_to_NCHW.py", "def convert(", "line 1"),
        ("convert_ND_to_NCHW.py", "raise SystemExit(0)", "cannot be loaded (SystemExit"),
        ("convert_ND_to_XX.py", "", "names no conversion"),
        ("convert_ND_to_NHWC.py", "", "there is no conversion to NCHW here"),
    ],
)
def test_a_bad_conversion(tmp_path: Path, scripts, name: str, text: str, words: str) -> None:
    source = made(tmp_path / NAME, one(np.ones((2, 3), "f2")))
    folder = scripts(name, text)
    error = refused("-d", source, "-out", tmp_path / "out", "-f", "NCHW", "-c", folder)
    assert words in error


# Inverses, and the peer


@settings(max_examples=60)
@given(st.data())
def test_bin_is_what_was_dumped(tmp_path_factory: pytest.TempPathFactory, data) -> None:
    kind = data.draw(st.sampled_from([k for k in TYPES.values() if k.by_shape]))
    few = kind.bits < 8  # a file does not tell one of these alone from a row of what a byte holds
    shape = tuple(data.draw(st.lists(st.integers(0, 4), min_size=few, max_size=4)))
    count = int(np.prod(shape, dtype=int))
    raw = data.draw(st.binary(min_size=kind.nbytes(count), max_size=kind.nbytes(count)))
    bits = np.frombuffer(raw, np.uint8) & (63 if kind.name.startswith("float6") else 255)
    folder = tmp_path_factory.mktemp("bin")
    tensor = one(decode(bits, kind, count).reshape(shape), kind)
    assert (
        run("-d", made(folder / NAME, tensor), "-out", folder / "out", "-t", "bin").exit_code == 0
    )
    (path,) = (folder / "out").iterdir()
    assert path.name == f"{NAME}.input.0.{'_'.join(map(str, shape)) or 1}.{kind.name}.ND.bin"
    assert path.read_bytes() == tensor.read().tobytes()


def test_the_peer_reads_our_npy(conv: Path, tmp_path: Path, peer: list[str]) -> None:
    """file_compare, which needs no CANN, of a tensor of ours with itself."""
    assert run("-d", conv, "-out", tmp_path / "out", "-f", "NCHW", "-i", 0).exit_code == 0
    path = tmp_path / "out" / f"{NAME}.input.0.2x20x3x4.npy"
    done = subprocess.run(
        [*peer, "file_compare", "-m", path, "-g", path, "-out", tmp_path / "theirs"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (result,) = (tmp_path / "theirs").glob("file_result_*.txt")
    assert "CosineSimilarity: 1.000000" in result.read_text()
