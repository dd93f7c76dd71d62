"""`-op`: one tensor element by element, with every digit."""

import csv
import math
from fractions import Fraction

import h5py
import numpy as np
import pytest
from dumps import dump, put
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from test_compare_records import coo

from compare.elements import Table, coordinates, errors_of
from compare.metrics import compare_arrays
from compare.options import SingleOp
from compare.single import write_single
from dumper.errors import DumpError
from dumper.reader import open_dump

IN, OUT = "input/self", "output/result"


def shown(mine, golden, asked, folder, first=0):
    with open_dump(mine) as left, open_dump(golden) as right:
        return write_single(left, right, asked, folder, first)


def pair(path, x, y, op="op/1"):
    """Two dumps with one output each."""
    return [
        dump(path / name, {f"{op}/{OUT}": value, f"{op}/{IN}": value})
        for name, value in (("m.h5", x), ("g.h5", y))
    ]


def table(path):
    """(header, rows) of a csv whose lines end as ours do."""
    text = path.read_bytes().decode()
    header, *rows = csv.reader(text.splitlines())
    assert text.count("\r\n") == len(rows) + 1
    return header, rows


def test_the_originals_files(tmp_path):
    x = np.float32([[0.1, 1e-9], [3, 4]])
    y = np.float32([[0.1, 2e-9], [0, 5]])
    found = shown(*pair(tmp_path, x, y), SingleOp("op"), tmp_path / "out")
    names = ["op_output_0.npy", "op_output_0_0.csv", "op_output_0_absolute_error_topn.csv",
             "op_output_0_relative_error_topn.csv", "op_output_0_summary.txt"]  # fmt: skip
    assert [path.name for path in found.paths] == names
    assert sorted(tmp_path.joinpath("out").iterdir()) == sorted(found.paths)
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in found.paths)
    np.testing.assert_array_equal(np.load(found.paths[0]), x, strict=True)
    header, rows = table(found.paths[1])
    assert header == ["Index", "N C H W", "NPUDump", "GroundTruth", "AbsoluteError",
                      "RelativeError"]  # fmt: skip
    assert rows == [
        ["0", "0 0 0 0", "0.100000001", "0.100000001", "0", "0"],
        ["1", "0 1 0 0", "9.99999972e-10", "1.99999994e-09", "9.99999972e-10", "0.5"],
        ["2", "1 0 0 0", "3", "0", "3", "1"],
        ["3", "1 1 0 0", "4", "5", "1", "0.2"],
    ]
    for path, order in ((found.paths[2], "2310"), (found.paths[3], "2130")):
        assert table(path) == (header, [rows[int(i)] for i in order])
    assert found.paths[4].read_text().splitlines() == list(found.summary) == [
        "TotalCount:4",
        "NPUDump:/op/1/output/result",
        "GroundTruth:/op/1/output/result",
        "Format:N C H W",
        "MinAbsoluteError:0",
        "MaxAbsoluteError:3",
        "MinRelativeError:0",
        "MaxRelativeError:1",
        "DifferingCount:3",
    ]  # fmt: skip
    assert found.differing == 3


@pytest.mark.parametrize(
    ("dtype", "x", "y", "cells"),
    [
        ("f8", 1 / 3, 0.5, ["0.3333333333333333", "0.5", "0.16666666666666669",
                            "0.33333333333333337"]),
        ("f2", 65504, -65504, ["65504", "-65504", "131008", "2"]),
        ("i8", 2**63 - 1, -(2**63), [str(2**63 - 1), str(-(2**63)), str(2**64 - 1), "2.0"]),
        ("u1", 0, 255, ["0", "255", "255", "1.0"]),
        ("i4", -7, -7, ["-7", "-7", "0", "0.0"]),
    ],
)  # fmt: skip
def test_every_dtype_keeps_its_digits(tmp_path, dtype, x, y, cells):
    files = pair(tmp_path, np.array([x], dtype), np.array([y], dtype))
    found = shown(*files, SingleOp("op"), tmp_path)
    assert table(found.paths[1])[1] == [["0", "0 0 0 0", *cells]]


@pytest.mark.parametrize("value", ["float64", "complex64", "complex128", "bool"])
def test_what_is_written_reads_back(value):
    x = np.array([1 / 3, 0, -2 / 3]).astype(value)
    (line, *_) = Table(x, x[::-1].copy(), (3,)).lines(np.array([0]))
    cell = line.decode().split(",")[2]
    read = {"bool": "True".__eq__, "float64": float}.get(value, complex)
    assert np.dtype(value).type(read(cell)) == x[0]


@pytest.mark.parametrize(
    ("shape", "header", "last"),
    [
        ((), "ID", "0"),
        ((3,), "N C H W", "2 0 0 0"),
        ((2, 3), "N C H W", "1 2 0 0"),
        ((1, 2, 3, 4), "N C H W", "0 1 2 3"),
        ((1, 1, 2, 1, 2), "N C D H W", "0 0 1 0 1"),
        ((1, 1, 1, 1, 1, 2), "D0 D1 D2 D3 D4 D5", "0 0 0 0 0 1"),
    ],
)
def test_coordinates_of_every_rank(tmp_path, shape, header, last):
    values = np.ones(shape, "f4")
    found = shown(*pair(tmp_path, values, values), SingleOp("op", "input"), tmp_path)
    names, rows = table(found.paths[1])
    assert names[1] == header == coordinates(len(shape)) and rows[-1][1] == last
    assert np.load(found.paths[0]).shape == shape and f"Format:{header}" in found.summary
    assert found.differing == 0


@pytest.mark.parametrize(("topn", "expected"), [(1, "3"), (2, "31"), (4, "3120"), (20, "3120")])
def test_the_worst_come_first_and_all_where_there_are_fewer(tmp_path, topn, expected):
    """Where the original lists one less than there are. Of equal errors, the earlier one first."""
    x, y = np.float32([1, 5, 3, 9]), np.float32([1, 7, 1, 4])
    found = shown(*pair(tmp_path, x, y), SingleOp("op", topn=topn), tmp_path)
    assert "".join(row[0] for row in table(found.paths[2])[1]) == expected


def test_a_nan_or_an_infinity_of_one_side_is_the_worst(tmp_path):
    """The original takes them for no error. The same one on both sides is none."""
    nan, inf = np.nan, np.inf
    x = np.float32([inf, 5, inf, nan, 2, nan])
    y = np.float32([inf, 1, 1, nan, nan, 3])
    found = shown(*pair(tmp_path, x, y), SingleOp("op"), tmp_path)
    rows = table(found.paths[2])[1]
    assert [row[0] for row in rows] == ["4", "5", "2", "1", "0", "3"]
    assert [row[4] for row in rows] == ["nan", "nan", "inf", "4", "0", "0"]
    assert "MaxAbsoluteError:nan" in found.summary and "MinAbsoluteError:0" in found.summary
    assert found.differing == 4


def test_elements_are_split_into_files(tmp_path):
    x = np.arange(25_000, dtype="f4").reshape(250, 100)
    y = x.copy()
    y[249, 99] = -1
    files = pair(tmp_path, x, y)
    old, other = tmp_path / "op_output_0_20001.csv", tmp_path / "op_output_0_x.csv"
    for path in (old, other):
        path.write_text("of an earlier run")
    found = shown(*files, SingleOp("op", max_line=10_000), tmp_path)
    parts = [tmp_path / f"op_output_0_{start}.csv" for start in (0, 10_000, 20_000)]
    assert list(found.paths[1:4]) == parts
    numbers = [row[0] for path in parts for row in table(path)[1]]
    assert numbers == list(map(str, range(25_000)))
    assert [len(table(path)[1]) for path in parts] == [10_000, 10_000, 5_000]
    assert table(parts[2])[1][-1] == ["24999", "249 99 0 0", "24999", "-1", "25000", "25000"]
    assert not old.exists() and other.exists()
    brief = shown(*files, SingleOp("op", max_line=10_000, elements=False), tmp_path)
    assert brief.summary == found.summary and not any(path.exists() for path in parts)
    assert [path.name for path in brief.paths] == [
        path.name for path in found.paths if path not in parts
    ]


def test_the_first_elements_only(tmp_path):
    x, y = np.float32([[1, 2], [3, 4]]), np.float32([[1, 2], [9, 9]])
    found = shown(*pair(tmp_path, x, y), SingleOp("op"), tmp_path, first=3)
    assert [row[0] for row in table(found.paths[1])[1]] == ["0", "1", "2"]
    assert found.summary[0] == "TotalCount:3" and found.differing == 1
    assert np.load(found.paths[0]).shape == (2, 2)


def test_an_empty_tensor_is_headers(tmp_path):
    empty = np.empty((0, 3), "f4")
    found = shown(*pair(tmp_path, empty, empty), SingleOp("op"), tmp_path)
    assert [table(path)[1] for path in found.paths[1:4]] == [[], [], []]
    assert found.summary[0] == "TotalCount:0" and found.differing == 0


def test_an_op_is_named_with_its_seqid_where_there_are_several(tmp_path):
    x = np.ones(2, "f4")
    tensors = {f"op/{i}/{OUT}": x * i for i in (1, 2)}
    files = [dump(tmp_path / n, tensors) for n in ("m.h5", "g.h5")]
    with pytest.raises(DumpError, match="there are 2 calls of op") as error:
        shown(*files, SingleOp("op"), tmp_path)
    assert "op/1, op/2" in error.value.todo
    found = shown(*files, SingleOp("/op/2/"), tmp_path)
    assert found.paths[0].name == "op_2_output_0.npy" and np.load(found.paths[0])[0] == 2


@pytest.mark.parametrize(
    "name", ["...", "a b+~:目录", "x" * 250, "torch.add", "a\x1b[31m\n"], ids=range(5)
)
def test_a_name_of_the_file_is_no_path(tmp_path, name):
    x = np.ones(2, "f4")
    files = pair(tmp_path, x, x, op=f"{name}/1")
    found = shown(*files, SingleOp(f"{name}/1"), tmp_path / "out")
    assert sorted(tmp_path.joinpath("out").iterdir()) == sorted(found.paths)
    assert all(path.name.isascii() and path.name.isprintable() for path in found.paths)
    assert "\x1b" not in "".join(found.summary)


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (SingleOp("no_such"), "no record no_such"),
        (SingleOp("op/9"), "no record op/9"),
        (SingleOp("op", number=1), "this op has 1 output tensors"),
        (SingleOp("op", "input", 2), "this op has 2 input tensors"),
        (SingleOp("op", "input", 1), "no counterpart in golden"),
        (SingleOp("mine"), "no counterpart in golden"),
        (SingleOp("shape"), r"shapes differ: \[2, 3\] in my dump, \[3, 2\] in golden"),
        (SingleOp("dtype"), "dtypes differ: float32 in my dump, int32 in golden"),
        (SingleOp("unwritten"), "uninitialised memory is not compared"),
    ],
)
def test_what_cannot_be_shown_is_one_message(tmp_path, asked, what):
    x = np.ones((2, 3), "f4")
    common = {f"op/1/{IN}": x, f"op/1/{OUT}": x}
    mine = {"op/1/input/z": x, f"mine/2/{OUT}": x, f"shape/3/{OUT}": x, f"dtype/4/{OUT}": x}
    golden = {f"shape/3/{OUT}": x.reshape(3, 2), f"dtype/4/{OUT}": x.astype("i4")}
    files = []
    for name, more in (("m.h5", mine), ("g.h5", golden)):
        files.append(dump(tmp_path / name, {**common, **more}))
        with h5py.File(files[-1], "r+") as file:
            put(file, f"unwritten/5/{OUT}", x, Uninitialised=np.int32(1))
    with pytest.raises(DumpError, match=what) as error:
        shown(*files, asked, tmp_path / "out")
    assert error.value.todo and not (tmp_path / "out").exists()


def test_in_load_mode_inputs_are_not_compared(tmp_path):
    x = np.ones(2, "f4")
    mine = dump(tmp_path / "m.h5", {f"op/3/{OUT}": x})
    golden = dump(tmp_path / "g.h5", {f"op/2/{OUT}": x * 2, f"op/3/{IN}": x, f"op/3/{OUT}": x})
    assert shown(mine, golden, SingleOp("op"), tmp_path).differing == 0
    with pytest.raises(DumpError, match="made in load mode"):
        shown(golden, mine, SingleOp("op/3", "input"), tmp_path)


def test_a_sparse_tensor_is_in_order(tmp_path):
    mine = coo(tmp_path / "m.h5", [2, 0, 2], [1, 5, 2], False)
    golden = coo(tmp_path / "g.h5", [0, 2], [5, 3], True)
    for number in (0, 1):
        assert shown(mine, golden, SingleOp("a", number=number), tmp_path).differing == 0


@pytest.mark.parametrize(("number", "expected"), [(0, [[0, 2]]), (1, [5, 3])])
def test_the_npy_of_a_sparse_tensor_is_what_the_csv_is_of(tmp_path, number, expected):
    mine = coo(tmp_path / "m.h5", [2, 0, 2], [1, 5, 2], False)
    golden = coo(tmp_path / "g.h5", [0, 2], [5, 3], True)
    found = shown(mine, golden, SingleOp("a", number=number), tmp_path)
    array = np.load(found.paths[0])
    assert array.tolist() == expected and array.dtype == ("i8", "f4")[number]
    assert [float(row[2]) for row in table(found.paths[1])[1]] == array.reshape(-1).tolist()
    ordered = shown(golden, golden, SingleOp("a", number=number), tmp_path / "ordered")
    assert np.load(ordered.paths[0]).tolist() == expected


WIDTHS = ["f2", "f4", "f8", "i1", "u1", "i2", "i4", "i8", "u8", "?"]


@st.composite
def two_arrays(draw):
    dtype = draw(st.sampled_from(WIDTHS))
    size = draw(st.integers(0, 8))
    return [draw(hnp.arrays(dtype, size)) for _ in "xy"]


@given(two_arrays())
def test_errors_are_the_exact_ones_rounded(arrays):
    """And the greatest is the metric of that name, so that -op and the csv agree."""
    x, y = arrays
    absolute, relative = errors_of(x, y)
    for a, b, distance, share in zip(
        *(v.tolist() for v in (x, y, absolute, relative)), strict=True
    ):
        if a == b or (a != a and b != b):
            assert (distance, share) == (0, 0)
        elif math.isfinite(a) and math.isfinite(b):
            exact = abs(Fraction(a) - Fraction(b))
            assert distance == (int(exact) if x.dtype.kind in "iub" else _rounded(exact))
            if b == 0:
                assert share == 1
            elif math.isfinite(distance):
                expected = _rounded(exact / abs(Fraction(b)))
                assert share == expected or math.isclose(share, expected, rel_tol=1e-15, abs_tol=0)
        else:
            expected = math.nan if a != a or b != b else math.inf
            assert [str(distance), str(share)] == [str(expected)] * 2
    if x.size:
        metrics = compare_arrays(x, y)
        for found, expected in (
            (absolute, metrics.max_absolute),
            (relative, metrics.max_relative),
        ):
            greatest = float(found.max())
            assert str(greatest) == str(expected) or math.isclose(greatest, expected, rel_tol=1e-14)


def _rounded(exact):
    try:
        return float(exact)
    except OverflowError:
        return math.inf
