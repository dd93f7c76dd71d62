"""compare on folders of CANN dumps: files that lie, odd folders, and options of no meaning."""

import os
import struct
from dataclasses import replace

import numpy as np
import pytest
from dumps import dump
from folders import START, path_of, put, rows, run, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.columns import Columns
from compare.comparing import ALL
from compare.folders.originals import Originals
from compare.folders.pairs import Dumps, all_pairs
from compare.folders.rows import row_of
from compare.folders.scan import folder_of
from compare.folders.table import FolderColumns
from ir2tbe.cann.content import Dump
from ir2tbe.cann.file import write

X = np.float32([[1, 2], [3, 4]])


@pytest.fixture
def golden(tmp_path):
    put(tmp_path / "g", 0, "Add", "a", [X], [X])
    put(tmp_path / "g", 1, "Add", "b", [X], [X])
    return tmp_path / "g"


@pytest.mark.parametrize("damaged", ["mine", "golden"])
@pytest.mark.parametrize(
    "content", [b"", b"short", struct.pack("<Q", 1 << 60), struct.pack("<Q", 4) + b"\xff" * 40]
)
def test_a_damaged_file_is_one_row(tmp_path, golden, damaged, content):
    mine = tmp_path / "m"
    paths = [put(mine, at, "Add", name, [X], [X]) for at, name in enumerate("ab")]
    path = paths[0] if damaged == "mine" else golden / paths[0].name
    path.write_bytes(content)
    done = run(mine, golden, tmp_path / "out")
    found = rows(done)
    assert done.exit_code == 1 and "1 not comparable" in done.stdout
    assert [row["ExactMatch"] for row in found[:3]] == ["NaN", "1.000000", "1.000000"]
    assert str(path) in found[0]["CompareFailReason"] and found[0]["TensorIndex"] == "NaN"


def test_a_tensor_that_lies_is_one_row(tmp_path, golden):
    lies = [
        replace(tensor(X), shape=(1 << 40, 1 << 40)),
        replace(tensor(X), shape=(5, 5)),
        replace(tensor(X), data_type=77),
        replace(tensor(X), format=29, original_shape=(1 << 62, 7)),
        replace(tensor(X), format=3, shape=(2, 2), original_shape=(2,) * 40),
        replace(tensor(X), format=4, sub_format=2**31 - 1, original_shape=(2, 2, 1, 1)),
        replace(tensor(X), format=29, original_shape=(2,) * 10_000),
        replace(tensor(X), format=28, original_shape=(4, 1)),
        replace(tensor(X), format=9999, original_shape=(4, 1)),
    ]
    put(tmp_path / "m", 0, "Add", "a", [X], lies)
    put(tmp_path / "n", 0, "Add", "a", [X], [X] * len(lies))
    done = run(tmp_path / "m", tmp_path / "n", tmp_path / "out")
    found = rows(done)
    assert [row["Verdict"] for row in found] == ["same"] + ["not_comparable"] * len(lies)
    assert all(row["CompareFailReason"] for row in found[1:]) and found[3]["DataType"] == "code 77"


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "../../../tmp/x", "a\x1b[31m\u202e\n;=1+1"])
def test_names_are_inert(tmp_path, golden, name):
    content = Dump((tensor(X),), (tensor(X + 1),), op_name=name)
    for side in "mo":
        (tmp_path / side).mkdir()
        write(
            tmp_path / side / f"Add.a.0.0.{START}", content if side == "m" else Dump((tensor(X),))
        )
    for other in (golden, tmp_path / "o"):
        for more in ((), ("-map",)):
            done = run(tmp_path / "m", other, tmp_path / "out", *more)
            assert done.exit_code == 1 and "\x1b" not in done.output
            for line in path_of(done).read_text().splitlines():
                cells = [cell.strip('"') for cell in line.split(",")]
                assert "\x1b" not in line and not any(cell.startswith("=") for cell in cells)
    assert sorted(os.listdir(tmp_path)) == ["g", "m", "o", "out"]


def test_long_names_are_cut(tmp_path, golden):
    content = Dump(outputs=(tensor(X, origin=("o" * 9999, 0)),) * 20, op_name="a" * 1_000_000)
    (tmp_path / "m").mkdir()
    write(tmp_path / "m" / f"Add.a.0.0.{START}", content)
    for side in (golden, dump(tmp_path / "g.h5", {"mm/1/output/out": X})):
        done = run(tmp_path / "m", side, tmp_path / "out")
        assert done.exit_code == 1 and path_of(done).stat().st_size < 100_000


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_end_in_rows(tmp_path_factory, changes):
    """Whatever stands in a file, its tensors become rows, or the file does."""
    place = tmp_path_factory.getbasetemp() / "changed"
    if not place.exists():
        nz = tensor(np.ones((1, 1, 16, 16), "f2"), form="FRACTAL_NZ", original=(3, 5))
        put(place / "m", 0, "Add", "a", [nz], [tensor(X, origin=("conv", 1))])
        put(place / "g", 0, "Add", "a", [np.ones((3, 5), "f2")], [X])
        (place / "whole").write_bytes((place / "m" / f"Add.a.0.0.{START}").read_bytes())
    content = bytearray((place / "whole").read_bytes())
    for at, byte in changes:
        content[at] = byte
    (place / "m" / f"Add.a.0.0.{START}").write_bytes(content)
    mine, golden = folder_of(place / "m"), folder_of(place / "g")
    for right in (Dumps(mine, golden), Originals(mine, {}, None)):
        shape = FolderColumns(Columns(), True)
        found = [row_of(pair, ALL) for pair in all_pairs(mine, right, [1], rest=True)]
        assert found and all(shape.line(row)[:-2].isprintable() for row in found)


def test_links_and_what_else_lies_there(tmp_path, golden):
    mine = tmp_path / "m"
    for at, name in enumerate("ab"):
        put(mine / "20230110" / "0" / "net" / "1" / "0", at, "Add", name, [X], [X])
    outside = put(tmp_path / "outside", 7, "Add", "far", [X])
    (mine / outside.name).symlink_to(outside)
    (mine / "ring").symlink_to(mine)
    report = f"Opdebug.Node_OpDebug.1.2.{START}"
    write(mine / report, Dump(outputs=(tensor(np.zeros(2048, "u1")),)))
    np.save(mine / f"Add.a.0.0.{START}.output.0.npy", X)
    np.save(mine / "conv.0.npy", X)
    done = run(mine, golden, tmp_path / "out")
    assert done.exit_code == 0 and len(rows(done)) == 4, done.output
    assert f"passed over {mine / outside.name}: a link that leads out of the folder" in done.stdout
    assert f"{mine} has CANN dump files, which are compared; its npy file is" in done.stdout
    assert run(mine, golden, tmp_path / "out", "--lang", "zh").stdout.startswith(
        f"{mine} 中有 CANN"
    )


def test_a_folder_that_cannot_be_read_is_trouble(tmp_path, golden):
    for at, name in enumerate("ab"):
        put(tmp_path / "m", at, "Add", name, [X], [X])
    (tmp_path / "m" / "mapping.csv").write_bytes(b"\xff\xfe")
    done = run(tmp_path / "m", golden, tmp_path / "out", "--exit-zero")
    assert done.exit_code == 2 and len(rows(done)) == 4
    assert "short names cannot be read" in done.stderr


def test_long_names_through_the_mapping(tmp_path):
    long = "x" * 300
    for side, short in (("m", "123"), ("g", "456")):
        put(tmp_path / side, 0, "Add", "a", [X], [X]).rename(tmp_path / side / short)
        (tmp_path / side / "mapping.csv").write_text(f"{short},Add.{long}.1.2.{START}\n")
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    assert done.exit_code == 0 and len(rows(done)) == 2


def test_many_files_keep_their_order(tmp_path):
    """Timestamps order the rows, not the names; one name's runs pair in order."""
    for at in range(400):
        for side in "mg":
            put(tmp_path / side, at, "Add", f"n{at % 7}", (), [np.int64([at])])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-alg", "1")
    assert done.exit_code == 0
    assert [row["NPUDump"] for row in rows(done)] == [f"n{at % 7}" for at in range(400)]


def test_paths_that_do_not_go_together(tmp_path, golden):
    (tmp_path / "empty").mkdir()
    (tmp_path / "npy").mkdir()
    np.save(tmp_path / "npy" / "some.npy", X)
    (tmp_path / "file.h5").write_bytes(b"no dump")
    for mine, other, word in [
        (golden, golden, "both paths name the same directory"),
        (
            golden,
            tmp_path / "empty",
            "without a CANN dump file in it, and no npy file that is called like",
        ),
        (
            golden,
            tmp_path / "npy",
            "without a CANN dump file in it, and no npy file that is called like",
        ),
        (golden, tmp_path / "missing.h5", "there is no such file"),
        (golden, tmp_path / "file.h5", "file.h5"),
        (tmp_path / "npy", golden, "swap -m and -g"),
        (tmp_path / "empty", tmp_path / "file.h5", "this is a directory without a CANN dump file"),
        (tmp_path / "empty", tmp_path / "npy", "no npy file in this directory, and no CANN dump"),
    ]:
        done = run(mine, other, tmp_path / "out")
        assert done.exit_code == 2 and word in done.stderr, (mine, other, done.output)
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("-p", "1"), "-p is for two HDF5 dumps"),
        (("-advisor", "-map"), "-map compares nothing"),
        (("-op", "a", "-alg", "0"), "-op compares one tensor"),
        (("-op", "a", "-s", "1"), "-op compares one tensor"),
        (("--resume",), "--resume, --op-map and --explain-align are for two HDF5 dumps"),
        (("--op-map", "x.json"), "--resume, --op-map"),
        (("--explain-align", "mm/1"), "--resume, --op-map"),
        (("-map", "-alg", "1"), "-alg would do nothing"),
        (("-map", "-max", "1"), "-max would do nothing"),
        (("-alg", "none"), "there is no algorithm 'none'"),
        (("-q", "x.json"), "golden is a folder of CANN dumps\n  where: -q/--quant_fusion_rule"),
    ],
)
def test_options_that_mean_nothing(tmp_path, golden, options, word):
    put(tmp_path / "m", 0, "Add", "a", [X], [X])
    done = run(tmp_path / "m", golden, tmp_path / "out", *options)
    assert done.exit_code == 2 and word in done.stderr and not (tmp_path / "out").exists()


@pytest.mark.parametrize("side", ["m", "g"])
def test_a_folder_that_cannot_be_read_is_called_that(tmp_path, monkeypatch, side):
    """Not a folder without dumps, whichever side it is."""
    for each in "mg":
        put(tmp_path / each, 0, "Relu", "a", (), [np.ones(2, "f4")])
    scandir = os.scandir

    def refused(path):
        if os.fspath(path) == str(tmp_path / side):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    assert done.exit_code == 2 and "Permission denied" in done.stderr
    assert str(tmp_path / side) in done.stderr and "swap" not in done.stderr
