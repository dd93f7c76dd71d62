"""convert: every tensor to npy and txt and back, names that are no paths, what is said first."""

import os
import stat

import h5py
import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from dumps import dump, put
from h5py import h5d, h5s

from compare.cli import cli
from dumper import dtypes

VALUES = {
    "float32": np.array([[1.1, -2.5e-42, np.inf], [np.nan, 3e38, -0.0]], "f4"),
    "float64": np.array([0.1, 1e300, 5e-324]),
    "float16": np.array([[0.1], [65504]], "f2"),
    "int64": np.array([2**63 - 1, -(2**63), 2**53 + 1]),
    "int8": np.array([[-128, 127]], "i1"),
    "scalar": np.float32(0.1),
    "empty": np.zeros((0, 3), "f4"),
    "cube": np.arange(24, dtype="f4").reshape(2, 3, 4),
}


def run(*arguments):
    return CliRunner().invoke(cli, ["convert", *map(str, arguments)])


@pytest.fixture
def everything(tmp_path):
    """A dump with a record for each of VALUES, named by it."""
    return dump(tmp_path / "d.h5", {f"{name}/1/output/result": v for name, v in VALUES.items()})


@pytest.mark.parametrize("name", VALUES)
def test_npy(everything, tmp_path, name):
    done = run("-d", everything, "-out", tmp_path / "out", "-op", name)
    assert done.exit_code == 0
    path = tmp_path / "out" / f"{name}.1.output.result.npy"
    found = np.load(path, allow_pickle=False)
    assert found.dtype == VALUES[name].dtype and found.shape == VALUES[name].shape
    assert found.tobytes() == VALUES[name].tobytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path / "out") == [path.name]


@pytest.mark.parametrize("name", [name for name in VALUES if name != "empty"])
def test_txt_keeps_every_digit(everything, tmp_path, name):
    assert run("-d", everything, "-out", tmp_path / "out", "-t", "txt").exit_code == 0
    path = tmp_path / "out" / f"{name}.1.output.result.txt"
    values = VALUES[name]
    found = np.loadtxt(path, dtype=values.dtype, ndmin=2)
    np.testing.assert_array_equal(found.reshape(values.shape), values)
    assert found.shape[1] == (values.shape[-1] if values.ndim else 1)
    header = path.read_text().splitlines()[:2]
    dtype = values.dtype.name
    assert header == [f"# shape: {list(values.shape)}", f"# dtype: {dtype}"]


def test_txt_of_an_empty_tensor_is_its_header(everything, tmp_path):
    run("-d", everything, "-out", tmp_path, "-t", "txt", "-op", "empty")
    text = (tmp_path / "empty.1.output.result.txt").read_text()
    assert text == "# shape: [0, 3]\n# dtype: float32\n"


OWN = {
    "bfloat16": np.array([1.5, -0.0, np.inf, 3e38], ml_dtypes.bfloat16),
    "float8_e5m2": np.array([1.5, -2.0, 57344], ml_dtypes.float8_e5m2),
    "complex64": np.array([1 + 2j, -0.1j], "c8"),
    "complex32": np.array([1 + 2j], "c8"),
    "bool": np.array([True, False]),
    "uint64": np.array([2**64 - 1], "u8"),
}


@pytest.fixture
def ours(tmp_path):
    """A dump with dtypes the original has not."""
    with h5py.File(tmp_path / "own.h5", "w") as file:
        for name, values in OWN.items():
            row = dtypes.BY_NAME[name]
            bits = values.view(row.bits) if name != "complex32" else None
            if bits is None:
                bits = np.array([(v.real, v.imag) for v in values], row.bits)
            kind = dtypes.file_type(row)
            group = file.create_group(f"{name}/1/output")
            data = h5d.create(group.id, b"result", kind, h5s.create_simple(bits.shape))
            data.write(h5s.ALL, h5s.ALL, bits, mtype=kind)
            group["result"].attrs["Type"] = np.int32(0)
            group["result"].attrs["DataType"] = np.int32(row.code)
            if row.named:
                group["result"].attrs["TorchDType"] = np.bytes_(name.encode())
    return tmp_path / "own.h5"


@pytest.mark.parametrize("kind", ["npy", "txt"])
@pytest.mark.parametrize("name", OWN)
def test_our_dtypes(ours, tmp_path, name, kind):
    done = run("-d", ours, "-out", tmp_path / "out", "-t", kind, "-op", name)
    path = tmp_path / "out" / f"{name}.1.output.result.{kind}"
    widened = name in ("bfloat16", "float8_e5m2")
    expected = OWN[name].astype("f4") if widened else OWN[name]
    load = np.load if kind == "npy" else lambda p: np.loadtxt(p, dtype=expected.dtype, ndmin=1)
    if kind == "txt" and name == "bool":
        load = lambda p: np.loadtxt(p, dtype=int).astype(bool)  # noqa: E731
    found = load(path)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert done.stdout.count("widened to float32") == widened


@pytest.mark.parametrize("kind", ["npy", "txt"])
def test_the_size_is_said_first_and_is_enough(everything, tmp_path, kind):
    done = run("-d", everything, "-out", tmp_path / "out", "-t", kind, "-v", "2")
    words = done.stdout.splitlines()[0].split()
    said = int(words[words.index("bytes") - 1])
    assert done.stdout.startswith(f"{len(VALUES)} tensors, ")
    written = sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    assert written <= said <= 4 * written
    if kind == "npy":
        assert said == written


def test_no_room(everything, tmp_path, monkeypatch):
    usage = type("usage", (), {"free": 100})
    monkeypatch.setattr("compare.whole.shutil.disk_usage", lambda _: usage)
    done = run("-d", everything, "-out", tmp_path / "out")
    assert done.exit_code == 2
    assert "100 are free" in done.stderr
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("cat", 4), ("/cat/", 4), ("cat/1", 3), ("/cat/1/", 3), ("cat/2", 1),
        ("a.b", 1), ("a_x002e_b/3", 1),
    ],
)  # fmt: skip
def test_op_and_list_names(tmp_path, name, files):
    tensors = {f"cat/1/input/tensors/tensors_{i}": np.zeros(1, "f4") for i in range(2)}
    tensors["cat/1/output/result"] = tensors["cat/2/output/result"] = np.zeros(1, "f4")
    tensors["a_x002e_b/3/output/result"] = np.zeros(1, "f4")
    path = dump(tmp_path / "d.h5", tensors)
    assert run("-d", path, "-out", tmp_path / "out", "-op", name).exit_code == 0
    found = sorted(os.listdir(tmp_path / "out"))
    assert len(found) == files
    if files == 3:
        assert found == [
            "cat.1.input.tensors.0.npy", "cat.1.input.tensors.1.npy", "cat.1.output.result.npy",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "hint"), [("kat", "the nearest are cat"), ("cat/9", "1"), ("zzzz", "names are like")]
)
def test_an_op_that_is_not_there(tmp_path, name, hint):
    path = dump(tmp_path / "d.h5", {"cat/1/output/result": np.zeros(1, "f4")})
    done = run("-d", path, "-out", tmp_path / "out", "-op", name)
    assert done.exit_code == 2
    assert f"no record {name}" in done.stderr and hint in done.stderr


@pytest.mark.parametrize("name", ["..", "../up", "a\nb", "x" * 400, "=1+1", "名字", "a:b", "C:\\x"])
def test_names_are_no_paths(tmp_path, name):
    out = tmp_path / "deep" / "out"
    parts = name.replace("/", "_")
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, f"{parts}/1/output/{parts}", np.arange(3, dtype="f4"))
    assert run("-d", tmp_path / "d.h5", "-out", out).exit_code == 0
    (found,) = os.listdir(out)
    assert len(found) < 255 and all(c.isascii() and (c.isalnum() or c in "._") for c in found)
    assert not found.startswith(".")
    assert os.listdir(tmp_path / "deep") == ["out"]
    assert np.load(out / found).tolist() == [0, 1, 2]


def test_names_that_look_alike_after_escaping(tmp_path):
    tensors = {"a.b/1/output/x": np.zeros(1, "f4"), "a_x002e_b/1/output/x": np.ones(1, "f4")}
    path = dump(tmp_path / "d.h5", tensors)
    run("-d", path, "-out", tmp_path / "out")
    found = [np.load(tmp_path / "out" / name)[0] for name in os.listdir(tmp_path / "out")]
    assert sorted(found) == [0, 1]


def test_a_second_time_replaces_the_files(everything, tmp_path):
    for _ in range(2):
        assert run("-d", everything, "-out", tmp_path / "out", "-op", "cube").exit_code == 0
    assert np.load(tmp_path / "out" / "cube.1.output.result.npy").shape == (2, 3, 4)


IN_THE_WAY = {
    "a link": (lambda path: path.symlink_to("../precious"), "symbolic link, and is not replaced"),
    "a dangling link": (lambda path: path.symlink_to("../new"), "symbolic link"),
    "a pipe": (os.mkfifo, "no file"),
    "a directory": (os.mkdir, "no file"),
}


@pytest.mark.parametrize(("make", "words"), IN_THE_WAY.values(), ids=list(IN_THE_WAY))
def test_what_is_in_the_way_stays_and_the_others_go_on(everything, tmp_path, make, words):
    (tmp_path / "out").mkdir()
    (tmp_path / "precious").write_text("precious")
    path = tmp_path / "out" / "cube.1.output.result.npy"
    make(path)
    kind = stat.S_IFMT(path.lstat().st_mode)
    done = run("-d", everything, "-out", tmp_path / "out")
    assert done.exit_code == 2 and words in done.stderr and path.name in done.stderr
    assert (tmp_path / "precious").read_text() == "precious"
    assert stat.S_IFMT(path.lstat().st_mode) == kind and not (tmp_path / "new").exists()
    assert len(os.listdir(tmp_path / "out")) == len(VALUES)
    assert f"{len(VALUES) - 1} files written" in done.stdout


def test_a_file_of_another_mode_or_with_other_names_is_replaced(everything, tmp_path):
    """The old content stays under its other name: the file is a new one."""
    path = tmp_path / "cube.1.output.result.npy"
    path.write_text("old")
    path.chmod(0o666)
    (tmp_path / "other").hardlink_to(path)
    assert run("-d", everything, "-out", tmp_path, "-op", "cube").exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (tmp_path / "other").read_text() == "old"


@pytest.mark.parametrize("kind", ["npy", "txt"])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_file_that_exists_is_a_whole_one(everything, tmp_path, monkeypatch, kind, stop):
    """Whatever ends the writing of a file, the earlier one stays and no part is left."""
    out = tmp_path / "out"
    run("-d", everything, "-out", out, "-t", kind, "-op", "cube")
    (before,) = [path.read_bytes() for path in out.iterdir()]

    def half(file, *_, **__):
        file.write(b"half")
        raise stop

    monkeypatch.setattr(np, {"npy": "save", "txt": "savetxt"}[kind], half)
    done = run("-d", everything, "-out", out, "-t", kind, "-op", "cube")
    assert done.exit_code == 2 and "Traceback" not in done.stderr
    assert [path.read_bytes() for path in out.iterdir()] == [before]


@pytest.mark.parametrize("name", ["", "/", "//"])
def test_an_empty_name(everything, tmp_path, name):
    done = run("-d", everything, "-out", tmp_path / "out", "-op", name)
    assert done.exit_code == 2 and "-op" in done.stderr and "empty" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [{}, {"chunks": (1024,), "compression": "gzip"}], ids=str)
@pytest.mark.parametrize("size", [5, 2**45])
@pytest.mark.parametrize("kind", ["npy", "txt"])
def test_a_damaged_tensor_costs_itself(tmp_path, size, options, kind):
    """A size that the file does not hold takes no part in the estimate either."""
    if options and size == 5:
        options = {"chunks": (5,)}
    with h5py.File(tmp_path / "d.h5", "w") as file:
        data = file.create_dataset("a/1/output/x", (size,), "f4", **options)
        data.attrs["Type"] = np.int32(0)
        put(file, "b/2/output/x", np.zeros(2, "f4"))
    done = run("-d", tmp_path / "d.h5", "-out", tmp_path / "out", "-t", kind)
    assert done.exit_code == 2
    assert f"claims {4 * size} bytes" in done.stderr and "/a/1/output/x" in done.stderr
    assert done.stdout.startswith("1 tensors, ")
    assert os.listdir(tmp_path / "out") == [f"b.2.output.x.{kind}"]
    assert "1 files written" in done.stdout


def test_a_dataset_that_holds_nothing_costs_itself(tmp_path):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        data = file.create_dataset("a/1/output/x", data=h5py.Empty("f4"))
        data.attrs["Type"] = np.int32(0)
        put(file, "b/2/output/x", np.zeros(2, "f4"))
    done = run("-d", tmp_path / "d.h5", "-out", tmp_path / "out")
    assert "/a/1/output/x: a dataset without a dataspace" in done.stderr
    assert os.listdir(tmp_path / "out") == ["b.2.output.x.npy"]
