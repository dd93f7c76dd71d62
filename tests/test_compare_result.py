"""The csv: columns, numbers that keep their digits, cells that nothing runs, names never reused."""

import csv
import dataclasses
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.engine import Row, Status
from compare.metrics import Metrics
from compare.result import COLUMNS, cells, inert, number, result_file, share
from dumper.errors import DumpError

PEER_COLUMNS = (
    "Index,NPUDump,NPUDumpPath,GroundTruthPath,DataType,Shape,CosineSimilarity,MaxAbsoluteError,"
    "AccumulatedRelativeError,RelativeEuclideanDistance,KullbackLeiblerDivergence,StandardDeviation,"
    "MeanAbsoluteError,RootMeanSquareError,MaxRelativeError,MeanRelativeError,CompareFailReason"
).split(",")


def row(op="relu", index=1, reasons=(), path="/relu/1/output/result"):
    return Row(
        index,
        op,
        "output",
        "/relu/1",
        path,
        path,
        "float32",
        (2, 3),
        Status.UNPAIRED,
        None,
        reasons,
    )


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_columns_are_the_originals_then_ours():
    assert list(COLUMNS) == [*PEER_COLUMNS, "ExactMatch"]
    assert len(cells(row())) == len(COLUMNS)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000000"),
        (-0.0, "0.000000"),
        (1.0, "1.000000"),
        (0.001, "0.001000"),
        (0.0009999, "9.999000e-04"),
        (1e-9, "1.000000e-09"),
        (-1e-9, "-1.000000e-09"),
        (9.99e15, "9990000000000000.000000"),
        (1e16, "1.000000e+16"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (None, "NaN"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_keep_at_least_four_digits(value):
    assert float(number(value)) == pytest.approx(value, rel=5.1e-4, abs=0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.000000"),
        (0.0, "0.000000"),
        (1 - 1e-9, "0.999999"),
        (1e-9, "0.000001"),
        (0.5, "0.500000"),
    ],
)
def test_a_share_is_one_only_when_it_is(value, text):
    assert share(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (0.001, "0.001"),
        (-3.7e-05, "-3.700e-05"),
        (1.25, "1.250"),
        (2e16, "2.000e+16"),
    ],
)
def test_means_and_deviations_keep_their_digits(value, text):
    pair = (value, 0.5)
    numbers = Metrics(1, 0, 0, 0, 0, pair, pair, 0, 0, 0, 0, 1.0, 6)
    found = dict(zip(COLUMNS, cells(dataclasses.replace(row(), metrics=numbers)), strict=True))
    assert found["StandardDeviation"] == f"({text};0.500),({text};0.500)"


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1", "@SUM(A1)", "%x", "\t=1", " =1", "=cmd|' /C calc'!A0", "＝1", "a;=1+1"],
)
def test_formulas_are_inert(text):
    for part in inert(text).split(";"):
        assert not part.strip().startswith(tuple("=+-@%\t＝"))


@pytest.mark.parametrize(
    "text", ["/relu/1/output/result", "relu", "名字", "shapes differ: [2] [3]"]
)
def test_plain_text_stays(text):
    assert inert(text) == text


@given(st.text(max_size=40))
def test_any_name_survives_as_one_cell(tmp_path_factory, name):
    with result_file(tmp_path_factory.mktemp("out")) as result:
        result.add(row(op=name, reasons=(name,)))
    (found,) = read(result.path)
    assert found["NPUDump"] == inert(name)
    assert found["ExactMatch"] == "NaN"
    raw = result.path.read_bytes()
    assert raw.count(b"\n") == raw.count(b"\r\n") == 2


def test_name_mode_and_encoding(tmp_path):
    with result_file(tmp_path / "new" / "out") as result:
        result.add(row(op="名字"))
    assert result.path.parent == tmp_path / "new" / "out"
    assert (
        result.path.name.startswith("result_20")
        and len(result.path.name) == len("result_.csv") + 14
    )
    assert stat.S_IMODE(result.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(result.path.parent.stat().st_mode) == 0o700
    assert "名字".encode() in result.path.read_bytes()
    assert os.listdir(result.path.parent) == [result.path.name]


def test_results_of_one_second_do_not_share_a_file(tmp_path):
    paths = set()
    for index in range(5):
        with result_file(tmp_path) as result:
            result.add(row(index=index))
        paths.add(result.path)
    assert len(paths) == 5
    assert sorted(int(found["Index"]) for path in paths for found in read(path)) == list(range(5))


def test_an_interrupted_comparison_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), result_file(tmp_path) as result:
        result.add(row())
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_the_name_appears_when_it_is_complete(tmp_path):
    with result_file(tmp_path) as result:
        result.add(row())
        assert [name.endswith(".csv") for name in os.listdir(tmp_path)] == [False]
    assert os.listdir(tmp_path) == [result.path.name]


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_was_taken_meanwhile_is_left_alone(tmp_path, monkeypatch, links):
    if not links:

        def no_links(*_):
            raise OSError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", no_links)
    with result_file(tmp_path) as result:
        (partial,) = os.listdir(tmp_path)
        taken = (tmp_path / partial).with_suffix(".csv")
        taken.write_text("mine")
        result.add(row())
    assert taken.read_text() == "mine"
    assert result.path != taken and len(read(result.path)) == 1
    assert sorted(os.listdir(tmp_path)) == sorted([taken.name, result.path.name])


def test_two_results_at_a_time(tmp_path):
    with result_file(tmp_path) as one, result_file(tmp_path) as other:
        one.add(row(index=1))
        other.add(row(index=2))
    assert [read(result.path)[0]["Index"] for result in (one, other)] == ["1", "2"]


def test_a_full_disk(tmp_path, monkeypatch):
    """The error of a write is told as ours, and that of the block is its own."""
    with pytest.raises(DumpError, match="No space left"), result_file(tmp_path) as result:
        with open("/dev/full", "w") as full:
            result._file.flush()
            os.dup2(full.fileno(), result._file.fileno())
        for _ in range(1000):
            result.add(row())
    assert os.listdir(tmp_path) == []
    with pytest.raises(OSError, match="of the block"), result_file(tmp_path):
        raise OSError("of the block")
    assert os.listdir(tmp_path) == []


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(DumpError, match="file in the way"), result_file(tmp_path / "out"):
        pass
    assert (tmp_path / "out").read_text() == "mine"
