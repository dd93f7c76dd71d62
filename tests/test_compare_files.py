"""file_compare: every format read right, tensors paired by name, and directories of npy files."""

import numpy as np
import pytest
import safetensors.torch
import torch
from click.testing import CliRunner
from dumps import dump
from hypothesis import given, settings
from hypothesis import strategies as st
from plainfiles import entry, run, safetensor, save, written

from compare.cli import cli
from compare.filepairs import natural
from compare.files import tensors_in
from dumper.dtypes import BY_NAME
from dumper.tensors import TORCH_DTYPES

NUMPY = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
         "float16", "float32", "float64", "complex64", "complex128"]  # fmt: skip
SAFETENSORS = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn",
}  # fmt: skip
FIRST = (
    "CosineSimilarity MaxAbsoluteError AccumulatedRelativeError RelativeEuclideanDistance "
    "MeanAbsoluteError RootMeanSquareError MaxRelativeError MeanRelativeError "
    "KullbackLeiblerDivergence StandardDeviation"
).split()


@st.composite
def bits(draw, name):
    """Any bits of a dtype, of any shape; of bool 0 and 1."""
    shape = draw(st.lists(st.integers(0, 4), max_size=4).map(tuple))
    kind = np.dtype("?") if name == "bool" else BY_NAME[name].bits
    count = int(np.prod(shape)) * kind.itemsize
    raw = np.frombuffer(draw(st.binary(min_size=count, max_size=count)), "u1")
    return (raw & 1).view(kind).reshape(shape) if name == "bool" else raw.view(kind).reshape(shape)


def same(tensor, name, stored):
    """The tensor says this dtype and shape, and its values have these bits."""
    values = tensor.read()
    assert (tensor.dtype, tensor.shape, values.shape) == (name, stored.shape, stored.shape)
    assert np.ascontiguousarray(values).tobytes() == stored.tobytes()


@pytest.mark.parametrize("name", NUMPY)
@settings(max_examples=15)
@given(data=st.data())
def test_npy_round_trip(tmp_path_factory, name, data):
    stored = data.draw(bits(name))
    values = stored.view(name)
    if data.draw(st.booleans()):
        values = values.copy("F")
    if data.draw(st.booleans()):
        values = values.astype(values.dtype.newbyteorder(">"))
    path = tmp_path_factory.getbasetemp() / "round.npy"
    np.save(path, values)
    same(tensors_in(path)["tensor"], name, stored)


@pytest.mark.parametrize(("called", "name"), SAFETENSORS.items())
@settings(max_examples=15)
@given(data=st.data())
def test_safetensors_round_trip(tmp_path_factory, called, name, data):
    """Two tensors, the second at whatever address the first leaves."""
    first, second = data.draw(st.binary(max_size=5)), data.draw(bits(name))
    end = len(first) + second.nbytes
    path = safetensor(
        tmp_path_factory.getbasetemp() / "round.safetensors",
        {"__metadata__": {"format": "pt"}, "a": entry("U8", (len(first),), (0, len(first))),
         "w": entry(called, second.shape, (len(first), end))},
        first + second.tobytes(),
    )  # fmt: skip
    found = tensors_in(path)
    assert list(found) == ["a", "w"] and found["a"].read().tobytes() == first
    same(found["w"], name, second)


@pytest.mark.parametrize("name", sorted(TORCH_DTYPES.keys() - {"complex32"}))
@settings(max_examples=8)
@given(data=st.data())
def test_pt_round_trip(tmp_path_factory, name, data):
    stored = data.draw(bits(name))
    flat = torch.frombuffer(bytearray(stored.tobytes() or b"\0"), dtype=torch.uint8)
    tensor = flat[: stored.nbytes].view(TORCH_DTYPES[name]).reshape(stored.shape)
    path = tmp_path_factory.getbasetemp() / "round.pt"
    torch.save({"model": [tensor, {"w": tensor.t() if tensor.ndim == 2 else tensor}]}, path)
    found = tensors_in(path)
    assert list(found) == ["model/0", "model/1/w"]
    same(found["model/0"], name, stored)
    same(found["model/1/w"], name, np.ascontiguousarray(stored.T) if stored.ndim == 2 else stored)


def test_the_formats_agree_with_each_other(tmp_path):
    """One state by torch's and by safetensors' own writer: every row is equal, bit by bit."""
    torch.manual_seed(0)
    state = {name: (torch.randn(3, 5) * 8).to(TORCH_DTYPES[name]) for name in SAFETENSORS.values()}
    torch.save(state, tmp_path / "a.pt")
    safetensors.torch.save_file(state, tmp_path / "a.safetensors")
    old = {name: state[name] for name in ("float32", "float64", "bfloat16", "int64", "bool")}
    torch.save(old, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    torch.save(old, tmp_path / "new.pth")
    pairs = [("a.pt", "a.safetensors", state), ("old.pt", "new.pth", old)]
    for mine, other, state in pairs:
        done = run(tmp_path / mine, tmp_path / other, tmp_path)
        assert done.exit_code == 0, done.output
        rows = written(done)
        assert {(row["NPUDumpPath"], row["DataType"]) for row in rows} == {(n, n) for n in state}
        assert {row["ExactMatch"] for row in rows} == {"1.000000"}


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "i8", "f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (2, 0)])
def test_text_of_convert_has_every_bit(tmp_path, dtype, shape):
    values = np.frombuffer(np.random.default_rng(3).bytes(8 * 24), "u1")
    if dtype == "?":
        values = values & 1
    values = values.view(dtype)[: int(np.prod(shape))].reshape(shape)
    if values.dtype.kind == "f":
        values = np.nan_to_num(values)
    path = dump(
        tmp_path / "d.h5", {"op/1/output/x": values.astype("i1") if dtype == "?" else values}
    )
    for kind in ("txt", "npy"):
        arguments = ["convert", "-d", str(path), "-out", str(tmp_path), "-t", kind]
        assert CliRunner().invoke(cli, arguments).exit_code == 0
    done = run(tmp_path / "op.1.output.x.txt", tmp_path / "op.1.output.x.npy", tmp_path)
    assert done.exit_code == 0, done.output
    assert written(done)["Shape"] == str(list(shape)).replace(" ", "")


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "complex64"])
def test_text_of_dtypes_that_numpy_lacks(tmp_path, name):
    numbers = ["(1.5-2j) (0+0.25j)"] if name == "complex64" else ["1.5 -2", "0 0.25"]
    shape = [1, 2] if name == "complex64" else [2, 2]
    (tmp_path / "a.txt").write_text("\n".join([f"# shape: {shape}", f"# dtype: {name}", *numbers]))
    tensor = tensors_in(tmp_path / "a.txt")["tensor"]
    expected = [[1.5 - 2j, 0.25j]] if name == "complex64" else [[1.5, -2], [0, 0.25]]
    assert (tensor.dtype, tensor.shape) == (name, tuple(shape))
    assert tensor.read().astype("c16").tolist() == expected


@pytest.mark.parametrize(
    ("text", "status", "word"),
    [
        ("0 1 2\n3 4 5\n", 0, "read as the other side's"),
        ("0\n1\n2\n3\n4\n5\n", 0, "read as the other side's"),
        ("0 1 2 3 4 6", 1, "read as the other side's"),
        ("0 1\n2 3\n4 5\n", 1, "shapes differ"),
        ("0 1 2\n", 1, "shapes differ"),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_lines_that_say_no_dtype_are_read_as_the_other_side(tmp_path, text, status, word, swapped):
    save(tmp_path / "b.npy", np.arange(6).reshape(2, 3), "i8")
    (tmp_path / "a.txt").write_text("# written by hand\n" + text)
    paths = [tmp_path / "a.txt", tmp_path / "b.npy"]
    done = run(*(paths[::-1] if swapped else paths), tmp_path)
    assert done.exit_code == status, done.output
    found = written(done)
    assert word in found["CompareFailReason"]
    assert found["DataType"] == ("NaN" if word == "shapes differ" else "int64")


def test_the_lines_of_a_pair(tmp_path):
    done = run(save(tmp_path / "a.npy", [1, 2]), save(tmp_path / "b.npy", [1, 4]), tmp_path / "out")
    assert done.exit_code == 1
    found = written(done)
    assert list(found)[:10] == FIRST
    assert found["MaxAbsoluteError"] == "2.000000" and found["MeanRelativeError"] == "0.250000"
    assert found["StandardDeviation"] == "(1.500;0.500),(2.500;1.500)"
    assert found["ExactMatch"] == "0.500000" and found["NPUDumpPath"] == str(tmp_path / "a.npy")
    assert "MaxAbsoluteError           2.000000" in done.stdout
    (path,) = (tmp_path / "out").iterdir()
    assert path.name.startswith("file_result_20") and path.stat().st_mode & 0o777 == 0o600
    again = run(tmp_path / "a.npy", tmp_path / "b.npy", tmp_path / "out", "--exit-zero")
    assert again.exit_code == 0 and len(list((tmp_path / "out").iterdir())) == 2


@pytest.mark.parametrize(
    ("mine", "golden", "status", "reason"),
    [
        (np.zeros((2, 3), "f4"), np.zeros((3, 2), "f4"), 1, "shapes differ: [2, 3] in mine"),
        (np.zeros((), "f4"), np.zeros((1,), "f4"), 1, "shapes differ: [] in mine, [1]"),
        (np.zeros(2, "f4"), np.zeros(2, "i8"), 1, "dtypes differ: float32 in mine, int64"),
        (np.zeros(2, "f4"), np.zeros(2, "f8"), 0, "dtypes: float32 in mine, float64 in golden"),
        (np.zeros(2, "i4"), np.zeros(2, "i8"), 0, "dtypes: int32 in mine, int64 in golden"),
        (np.zeros(2, "f2"), np.zeros(2, "f4"), 0, "dtypes: float16 in mine, float32"),
        (np.zeros(0, "f4"), np.zeros(0, "f4"), 0, "This tensor is empty."),
        (np.array(7, "i8"), np.array(7, "i8"), 0, "This tensor is scalar."),
    ],
)
def test_shape_and_dtype_come_first(tmp_path, mine, golden, status, reason):
    np.save(tmp_path / "a.npy", mine)
    np.save(tmp_path / "b.npy", golden)
    done = run(tmp_path / "a.npy", tmp_path / "b.npy", tmp_path)
    assert done.exit_code == status
    found = written(done)
    assert reason in found["CompareFailReason"]
    assert (found["MaxAbsoluteError"] == "NaN") == ("differ" in reason)


def test_values_are_mapped_not_copied(tmp_path):
    path = save(tmp_path / "a.npy", np.arange(1000))
    values = tensors_in(path)["tensor"].read()
    assert not values.flags.owndata and not values.flags.writeable
    assert values.tolist() == list(range(1000))


def test_tensors_pair_by_name(tmp_path):
    """What only one side has is a row; lone tensors pair whatever they are called."""
    one, two = torch.ones(2), torch.full((2,), 2.0)
    torch.save({"a": one, "t10": one, "t2": two, "epoch": 3}, tmp_path / "m.pt")
    torch.save({"t2": one, "t10": one, "b": one}, tmp_path / "g.pt")
    done = run(tmp_path / "m.pt", tmp_path / "g.pt", tmp_path)
    assert done.exit_code == 1
    rows = written(done)
    assert [row["NPUDump"] for row in rows] == ["a", "b", "t2", "t10"]
    assert rows[0]["CompareFailReason"] == "No data match with a in golden dump data."
    assert rows[1]["NPUDumpPath"] == "NaN" and rows[1]["GroundTruthPath"] == "b"
    assert rows[2]["MaxAbsoluteError"] == "1.000000" and rows[3]["ExactMatch"] == "1.000000"
    assert "(only in mine)" in done.stdout and "dump" not in done.stdout.partition("result: ")[0]
    torch.save(one, tmp_path / "lone.pt")
    safetensors.torch.save_file({"other": one}, tmp_path / "lone.safetensors")
    assert run(tmp_path / "lone.pt", tmp_path / "lone.safetensors", tmp_path).exit_code == 0


@pytest.mark.parametrize("lone", ["a.pt", "a.npy", "a.txt"])
def test_a_tensor_without_name_is_called_tensor(tmp_path, lone):
    """Which pairs by that name where the other file has several."""
    one = torch.ones(2)
    torch.save(one, tmp_path / "a.pt")
    save(tmp_path / "a.npy", one)
    (tmp_path / "a.txt").write_text("1 1")
    for names, found in (("ab", ["NaN", "NaN", "NaN"]), (("a", "tensor"), ["NaN", "1.000000"])):
        torch.save(dict.fromkeys(names, one), tmp_path / "g.pt")
        done = run(tmp_path / lone, tmp_path / "g.pt", tmp_path)
        rows = written(done)
        assert [row["NPUDump"] for row in rows] == sorted({*names, "tensor"})
        assert [row["ExactMatch"] for row in rows] == found
        assert done.exit_code == 1 and "first difference: a (only in golden)" in done.stdout
        if len(found) == 3:
            reason = "No data match with tensor in golden dump data."
            assert rows[2]["CompareFailReason"] == reason and rows[2]["NPUDumpPath"] == "tensor"


def test_what_a_person_reads_speaks_of_no_dump(tmp_path):
    a, b = save(tmp_path / "a.npy", [1, np.nan]), save(tmp_path / "b.npy", [1, 2], "f8")
    for mine, golden in ((a, b), (save(tmp_path / "c.npy", [1, np.nan]), a), (a, tmp_path / "d")):
        if golden.suffix != ".npy":
            golden = save(tmp_path / "in my dump" / "d.npy", [0, 0])
        done = run(mine, golden, tmp_path)
        assert "dump" not in done.stdout.lower().replace("/in my dump/", ""), done.output
    assert "NaN or infinite: 1 of 2 elements in mine only" in done.stdout
    assert str(golden) in done.stdout


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("text", ["0 1 2\n", "# shape: [3]\n# dtype: float32\n0 1 2\n"])
def test_a_text_may_begin_with_a_byte_order_mark(tmp_path, mark, text):
    (tmp_path / "a.txt").write_text(mark + text, encoding="utf-8")
    done = run(tmp_path / "a.txt", save(tmp_path / "b.npy", [0, 1, 2]), tmp_path)
    assert done.exit_code == 0, done.output


@pytest.mark.filterwarnings("ignore")
def test_sparse_and_quantized_tensors_are_their_parts(tmp_path):
    entries = torch.tensor([[2, 0, 2]]), torch.tensor([1.0, 5.0, 2.0])
    state = {"s": torch.sparse_coo_tensor(*entries, (4,))}
    state["q"] = torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.5, 3, torch.qint8)
    torch.save(state, tmp_path / "m.pt")
    state["s"] = torch.sparse_coo_tensor([[0, 2]], [5.0, 3.0], (4,))
    state["q"] = torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.25, 3, torch.qint8)
    torch.save(state, tmp_path / "g.pt")
    rows = {row["NPUDump"]: row["ExactMatch"] for row in written(
        run(tmp_path / "m.pt", tmp_path / "g.pt", tmp_path))}  # fmt: skip
    equal = {name for name, share in rows.items() if share == "1.000000"}
    assert equal == {"s/indices", "s/values", "s/shape", "q/shape", "q/zero_point"}
    assert rows.keys() - equal == {"q/scale", "q/values"}


def test_natural_order():
    names = ["t10", "t2", "t", "s", "t2/b10", "t2/b9", "10", "9"]
    assert sorted(names, key=natural) == ["9", "10", "s", "t", "t2", "t2/b9", "t2/b10", "t10"]


def test_directories_pair_by_relative_name(tmp_path):
    for side, values in (("m", [1, 2]), ("g", [1, 3])):
        for name in ("t10.npy", "t2.npy", "sub/x.npy"):
            save(tmp_path / side / name, [1, 2] if name == "t2.npy" else values)
    save(tmp_path / "m" / "only.npy", [1])
    save(tmp_path / "g" / "there.npy", [1])
    (tmp_path / "m" / "notes.md").write_text("no tensor")
    (tmp_path / "g" / "t2.npy").chmod(0o400)
    done = run(tmp_path / "m", tmp_path / "g", tmp_path)
    assert done.exit_code == 1
    rows = written(done)
    names = ["only.npy", "sub/x.npy", "t2.npy", "t10.npy", "there.npy"]
    assert [row["NPUDump"] for row in rows] == names
    assert [row["Index"] for row in rows] == list("12345")
    assert [row["ExactMatch"] for row in rows] == ["NaN", "0.500000", "1.000000", "0.500000", "NaN"]
    assert "5 rows: 3 compared, of which 1 bit-equal and 2 differing; 2 unpaired" in done.stdout


def test_names_that_convert_gave_are_in_the_order_of_execution(tmp_path):
    tensors = {
        "relu/10/input/self": [1, 2], "relu/10/output/result": [1, 3], "mm/9/input/self": [1, 3],
        "mm/9/output/result": [1, 3], "cat/2/input/tensors/tensors_0": [1, 2],
        "cat/2/output/result": [1, 2],
    }  # fmt: skip
    for side in ("m", "g"):
        values = {
            name: np.array(value if side == "m" else [1, 2], "f4")
            for name, value in tensors.items()
        }
        path = dump(tmp_path / f"{side}.h5", values)
        arguments = ["convert", "-d", str(path), "-out", str(tmp_path / side)]
        assert CliRunner().invoke(cli, arguments).exit_code == 0
    save(tmp_path / "m" / "a.npy", [1])
    save(tmp_path / "g" / "a.npy", [1])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path)
    rows = written(done)
    assert [(row["Index"], row["NPUDump"]) for row in rows] == [
        ("2", "cat"), ("2", "cat"), ("9", "mm"), ("9", "mm"), ("10", "relu"), ("10", "relu"),
        ("11", "a.npy"),
    ]  # fmt: skip
    assert "first difference: relu.10.output.result.npy" in done.stdout
