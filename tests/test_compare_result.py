"""The csv as a file: names never reused, nothing half-written, any name in one cell."""

import csv
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.columns import inert
from compare.result import result_file
from compare.row import Row, Status
from dumper.errors import DumpError


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
