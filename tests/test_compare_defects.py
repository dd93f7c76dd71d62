"""What the original's comparator gets wrong, by its number in docs/metrics.md, from file to csv.

Only what no other file tests; the table in docs/metrics.md names all of them.
"""

import csv
import json

import h5py
import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from dumps import dump, put

from compare.cli import cli

CPU, CUDA, NPU = 0, 1, 10
NUMBERS = (
    "CosineSimilarity MaxAbsoluteError AccumulatedRelativeError RelativeEuclideanDistance "
    "KullbackLeiblerDivergence MeanAbsoluteError RootMeanSquareError MaxRelativeError "
    "MeanRelativeError"
).split()


def compare(folder, status):
    """Rows of `m.h5` against `g.h5` by my path, or golden's."""
    arguments = ["compare", "-m", f"{folder}/m.h5", "-g", f"{folder}/g.h5", "-out", f"{folder}"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == status, done.output
    path = done.stdout.splitlines()[-1].removeprefix("result: ")
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for row in rows:
        path = row["NPUDumpPath"] if row["NPUDumpPath"] != "NaN" else row["GroundTruthPath"]
        assert path not in found or path == "NaN"
        found[path] = row
    return found


def one(folder, mine, golden, status=1, **options):
    """The row of one tensor."""
    for name, values in (("m.h5", mine), ("g.h5", golden)):
        with h5py.File(folder / name, "w") as file:
            put(file, "op/1/output/x", values, **options)
    return compare(folder, status)["/op/1/output/x"]


@pytest.mark.parametrize("name", ["torch.add", "a:b", "aten::add", "a b", "=1+1", "@x", "加"])
def test_1_to_3_a_name_costs_no_row(tmp_path, name):
    """Not its own, and none of those that come after it."""
    names = ["A1", name, "A3", "A4"]
    tensors = {f"{ir}/{i}/output/x": np.full(2, i, "f4") for i, ir in enumerate(names)}
    for file in ("m.h5", "g.h5"):
        dump(tmp_path / file, tensors)
    rows = compare(tmp_path, 0)
    assert [row["Index"] for row in rows.values()] == list("0123")
    assert {row["ExactMatch"] for row in rows.values()} == {"1.000000"}


STRAYS = {
    "a dataset without attributes": lambda file: file.create_dataset("A2/2/output/y", data=[1.0]),
    "a dataset beside the seqids": lambda file: put(file, "A2/y", [1.0]),
    "a dataset beside input and output": lambda file: put(file, "A2/2/y", [1.0]),
    "a seqid that is no number": lambda file: put(file, "A2/two/output/y", [1.0]),
    "a group beside input and output": lambda file: put(file, "A2/2/middle/y", [1.0]),
}


@pytest.mark.parametrize("stray", STRAYS.values(), ids=list(STRAYS))
def test_2_what_is_out_of_place_costs_no_other_row(tmp_path, stray):
    tensors = {f"A{i}/{i}/output/x": np.full(2, i, "f4") for i in (1, 2, 3)}
    for name in ("m.h5", "g.h5"):
        with h5py.File(dump(tmp_path / name, tensors), "r+") as file:
            stray(file)
    rows = compare(tmp_path, 1)  # it could not be compared, and that is said
    whole = {path: rows[f"/{path}"]["ExactMatch"] for path in tensors}
    assert whole == dict.fromkeys(tensors, "1.000000")


def test_2_a_group_with_attributes_hides_nothing(tmp_path):
    for name, value in (("m.h5", 1), ("g.h5", 2)):
        with h5py.File(tmp_path / name, "w") as file:
            put(file, "A1/1/output/x", np.full(2, value, "f4"))
            file["A1"].attrs["note"] = file["A1/1"].attrs["note"] = 1
            file["A1/1/output"].attrs["note"] = 1
    assert compare(tmp_path, 1)["/A1/1/output/x"]["MaxAbsoluteError"] == "1.000000"


def small(name):
    return np.array([1.5, -2, 0.25, 4], getattr(ml_dtypes, name)).view(f"u{1 + (name[0] == 'b')}")


@pytest.mark.parametrize(
    ("name", "code", "bits", "changed", "error"),
    [
        ("float8_e4m3fn", 124, small("float8_e4m3fn"), small("float8_e4m3fn")[[0, 1, 2, 0]], 2.5),
        ("float8_e5m2", 123, small("float8_e5m2"), small("float8_e5m2")[[0, 1, 2, 0]], 2.5),
        ("complex64", 109, np.array([1 + 2j, 3j], "c8"), np.array([1 + 2j, 4 + 0j], "c8"), 5.0),
    ],
)
def test_4_dtypes_that_it_lacks_have_their_numbers(tmp_path, name, code, bits, changed, error):
    if name == "complex64":
        bits, changed = (v.view([("r", "<f4"), ("i", "<f4")]) for v in (bits, changed))
    row = one(tmp_path, changed, bits, code=code, TorchDType=np.bytes_(name.encode()))
    assert row["DataType"] == name and row["CompareFailReason"] == ""
    assert float(row["MaxAbsoluteError"]) == error
    assert "NaN" not in [row[column] for column in NUMBERS]


@pytest.mark.parametrize("code", [15, 4, 8, 99])
def test_4_an_unknown_code_is_compared_by_what_is_stored(tmp_path, code):
    row = one(tmp_path, np.array([1, 2], "f4"), np.array([1, 4], "f4"), code=code)
    assert (row["DataType"], row["MaxAbsoluteError"]) == ("float32", "2.000000")


@pytest.mark.parametrize(
    ("mine", "golden"), [(CPU, CPU), (CUDA, CUDA), (CPU, CUDA), (CUDA, CPU), (NPU, NPU), (CPU, NPU)]
)
def test_5_any_two_devices(tmp_path, mine, golden):
    for name, device, value in (("m.h5", mine, 1), ("g.h5", golden, 3)):
        dump(tmp_path / name, {"op/1/output/x": np.full(2, value, "f4")}, device)
    assert compare(tmp_path, 1)["/op/1/output/x"]["MaxAbsoluteError"] == "2.000000"


@pytest.mark.parametrize(
    ("mine", "golden"), [((2, 3), (3, 2)), ((), (1,)), ((1,), (3,)), ((6,), (2, 3))]
)
def test_12_another_shape_is_a_finding(tmp_path, mine, golden):
    row = one(tmp_path, np.zeros(mine, "f4"), np.zeros(golden, "f4"))
    words = f"shapes differ: {list(mine)} in my dump, {list(golden)} in golden"
    assert row["CompareFailReason"] == words
    assert {row[column] for column in NUMBERS} == {"NaN"}


@pytest.mark.parametrize(
    ("scale", "dtype"), [(1e25, "f4"), (1e300, "f8"), (1e-20, "f4"), (1e-300, "f8")]
)
def test_17_18_the_size_of_the_data_changes_no_ratio(tmp_path, scale, dtype):
    """Norms that float32 cannot hold, and data that is called equal because it is small."""
    x, y = (np.array(values, dtype) * dtype_of(dtype, scale) for values in ([1, 0, 2], [0, 1, 2]))
    row = one(tmp_path, x, y)
    assert float(row["CosineSimilarity"]) == pytest.approx(0.8, rel=1e-6)
    assert float(row["RelativeEuclideanDistance"]) == pytest.approx((2 / 5) ** 0.5, rel=1e-6)
    assert float(row["MaxAbsoluteError"]) == pytest.approx(scale, rel=1e-6)
    assert float(one(tmp_path, x, x, 0)["CosineSimilarity"]) == pytest.approx(1, rel=1e-6)


def dtype_of(dtype, value):
    return np.dtype(dtype).type(value)


@pytest.mark.parametrize(
    ("dtype", "mine", "golden", "error"),
    [
        ("i8", 2**24 + 1, 2**24, 1.0),
        ("i8", 2**62 + 1, 2**62, 1.0),
        ("f8", 1 + 2**-40, 1, 2.0**-40),
        ("i4", 2**31 - 1, -(2**31), 2.0**32 - 1),
    ],
)
def test_17_no_digit_is_lost_before_the_difference(tmp_path, dtype, mine, golden, error):
    x, y = (np.array([value, 3], dtype) for value in (mine, golden))
    row = one(tmp_path, x, y)
    assert float(row["MaxAbsoluteError"]) == pytest.approx(error, rel=1e-6)
    assert row["ExactMatch"] == "0.500000"


def test_19_an_error_of_a_gradient_is_not_0(tmp_path):
    row = one(tmp_path, np.array([1e-9, 2e-9], "f8"), np.array([2e-9, 2e-9], "f8"))
    assert row["MaxAbsoluteError"] == "1.000000e-09" and row["MeanAbsoluteError"] == "5.000000e-10"
    assert row["StandardDeviation"] == "(1.500e-09;5.000e-10),(2.000e-09;0.000)"


def test_20_bool_has_all_its_numbers(tmp_path):
    x, y = np.array([1, 1, 0, 1], "i1"), np.array([1, 0, 0, 1], "i1")
    row = one(tmp_path, x, y, code=9)
    assert row["DataType"] == "bool" and row["CompareFailReason"] == ""
    assert row["MeanAbsoluteError"] == "0.250000" and row["ExactMatch"] == "0.750000"
    assert float(row["CosineSimilarity"]) == pytest.approx(2 / 6**0.5, rel=1e-6)


def test_24_an_element_that_golden_has_as_0_counts(tmp_path):
    row = one(tmp_path, np.array([1, 1, 0, 2], "f4"), np.array([0, 2, 0, 2], "f4"))
    assert row["MaxRelativeError"] == "1.000000"
    assert row["AccumulatedRelativeError"] == "1.500000"
    assert row["MeanRelativeError"] == "0.375000"


def test_25_where_it_differs_is_said(tmp_path):
    """The op, the element, both values; in the csv and in the json."""
    golden = np.arange(6, dtype="f4").reshape(2, 3)
    mine = golden + np.array([[0, 0, 0], [0, -0.5, 0.25]], "f4")
    row = one(tmp_path, mine, golden)
    assert (row["WorstIndex"], row["WorstMine"], row["WorstGolden"]) == ("[1,1]", "3.5", "4")
    (path,) = tmp_path.glob("result_*.json")
    (entry,) = json.loads(path.read_text("utf-8"))["rows"]
    assert entry["metrics"]["worst"] == {"index": [1, 1], "mine": 3.5, "golden": 4.0}
