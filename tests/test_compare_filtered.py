"""`-p 1`: which rows are taken out, and that each has its two arrays."""

import csv
import shutil

import h5py
import ml_dtypes
import numpy as np
import pytest
from dumps import dump, put

from compare.columns import Columns
from compare.engine import compare_dumps
from compare.filtered import is_low, write_filtered
from dumper.errors import DumpError
from dumper.reader import open_dump


def written(mine, golden, result):
    """(what was written, the csv's rows by name)."""
    columns = Columns()
    with open_dump(mine) as left, open_dump(golden) as right:
        rows = [row for row in compare_dumps(left, right) if is_low(row)]
        found = write_filtered(rows, left, right, result, columns.names, columns.cells)
    with open(found.folder / "filtered_result.csv", encoding="utf-8", newline="") as file:
        assert file.read().count("\r\n") == len(rows) + 1
        file.seek(0)
        return found, list(csv.DictReader(file))


def one_row(mine, golden):
    with open_dump(mine) as left, open_dump(golden) as right:
        (row,) = compare_dumps(left, right)
    return row


@pytest.mark.parametrize(
    ("cosine", "low"),
    [(0.95, True), (0.9500001, False), (1.0, False), (-1.0, True), (float("nan"), True),
     (None, True)],
)  # fmt: skip
def test_a_cosine_up_to_the_originals_limit_is_low(tmp_path, cosine, low):
    files = [dump(tmp_path / n, {"a/1/output/x": np.ones(2, "f4")}) for n in ("m.h5", "g.h5")]
    row = one_row(*files)
    assert is_low(row._replace(metrics=row.metrics._replace(cosine=cosine))) is low
    assert is_low(row._replace(metrics=None))


UP, DOWN = np.float32([[1, 2], [3, 4]]), np.float32([[4, -3], [2, -1]])


def test_every_low_row_has_its_arrays(tmp_path):
    """Two rows of one Index, one that is equal, a shape, no partner; the value of a link once."""
    mine = dump(
        tmp_path / "m.h5",
        {
            "a/1/output/x": UP,
            "a/1/output/y": UP * 2,
            "same/2/output/x": UP,
            "shape/3/output/x": UP,
            "only/4/output/x": UP,
            "half/6/output/x": UP.astype("f2"),
        },
    )
    golden = dump(
        tmp_path / "g.h5",
        {
            "a/1/output/x": DOWN,
            "a/1/output/y": DOWN * 2,
            "a/1/output/z": DOWN,
            "same/2/output/x": UP,
            "shape/3/output/x": UP.reshape(4),
            "half/6/output/x": DOWN.astype("f2"),
        },
    )
    for path in (mine, golden):
        with h5py.File(path, "r+") as file:
            file["b/5/input/x"] = file["a/1/output/x"]
    found, rows = written(mine, golden, tmp_path / "result_1.csv")
    assert found.folder == tmp_path / "result_1_filtered" and not found.errors
    names = [(row["NPUDump"], row["MyFile"], row["GoldenFile"]) for row in rows]
    assert names == [
        ("a", "my_dump1_1.npy", "gold_dump1_1.npy"),
        ("a", "my_dump1_2.npy", "gold_dump1_2.npy"),
        ("a", "NaN", "gold_dump1_3.npy"),
        ("shape", "my_dump3_1.npy", "gold_dump3_1.npy"),
        ("only", "NaN", "NaN"),
        ("b", "my_dump1_1.npy", "gold_dump1_1.npy"),
        ("half", "my_dump6_1.npy", "gold_dump6_1.npy"),
    ]
    for row in rows:
        for column, path in (("MyFile", "NPUDumpPath"), ("GoldenFile", "GroundTruthPath")):
            if row[column] != "NaN":
                array = np.load(found.folder / row[column])
                with h5py.File(mine if column == "MyFile" else golden) as file:
                    np.testing.assert_array_equal(array, file[row[path]][()], strict=True)
    arrays = {name for row in names for name in row[1:] if name != "NaN"}
    assert {path.name for path in found.folder.iterdir()} == {*arrays, "filtered_result.csv"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in found.folder.iterdir())


def test_a_value_that_numpy_lacks_is_widened(tmp_path):
    values = np.array([1, -2.5, 3], ml_dtypes.float8_e5m2)
    for name, sign in (("m.h5", 1), ("g.h5", -1)):
        with h5py.File(tmp_path / name, "w") as file:
            raw = (values * sign).astype(ml_dtypes.float8_e5m2).view("u1")
            put(file, "a/1/output/x", raw, TorchDType=np.bytes_(b"float8_e5m2"))
    found, (row,) = written(tmp_path / "m.h5", tmp_path / "g.h5", tmp_path / "r.csv")
    array = np.load(found.folder / row["MyFile"])
    assert array.dtype == np.float32 and array.tolist() == [1, -2.5, 3]


def test_without_low_rows_there_is_a_header(tmp_path):
    files = [dump(tmp_path / n, {"a/1/output/x": UP}) for n in ("m.h5", "g.h5")]
    found, rows = written(*files, tmp_path / "r.csv")
    assert (found.rows, rows) == (0, [])
    header = (found.folder / "filtered_result.csv").read_bytes()
    assert header.startswith(b"Index,NPUDump,") and header.endswith(b",MyFile,GoldenFile\r\n")


def test_an_array_that_cannot_be_read_costs_only_itself(tmp_path):
    mine = dump(tmp_path / "m.h5", {"a/1/output/x": UP, "b/2/output/x": UP})
    golden = dump(tmp_path / "g.h5", {"b/2/output/x": DOWN})
    with h5py.File(golden, "r+") as file:
        packed = file.create_dataset("a/1/output/x", data=DOWN, chunks=(2, 2), compression="gzip")
        packed.attrs.update({"Type": np.int32(0), "DataType": np.int32(1)})
        chunk = packed.id.get_chunk_info(0)
    with open(golden, "r+b") as file:
        file.seek(chunk.byte_offset)
        file.write(b"\xff" * chunk.size)
    found, rows = written(mine, golden, tmp_path / "r.csv")
    assert [(row["MyFile"], row["GoldenFile"]) for row in rows] == [
        ("my_dump1_1.npy", "NaN"),
        ("my_dump2_1.npy", "gold_dump2_1.npy"),
    ]
    (error,) = found.errors
    assert error.where == "/a/1/output/x" and "cannot be read" in error.what


def claiming(path, op, elements):
    """A value that claims so many floats and stores none of them."""
    with h5py.File(path, "r+") as file:
        data = file.create_dataset(f"{op}/output/x", (elements,), "f4")
        data.attrs.update({"Type": np.int32(0), "DataType": np.int32(1)})


def test_a_value_that_claims_terabytes_costs_only_itself(tmp_path):
    mine = dump(tmp_path / "m.h5", {"b/2/output/x": UP})
    golden = dump(tmp_path / "g.h5", {"b/2/output/x": DOWN})
    claiming(mine, "a/1", 1 << 40)
    claiming(golden, "a/1", 1 << 40)
    found, rows = written(mine, golden, tmp_path / "r.csv")
    names = {row["NPUDump"]: (row["MyFile"], row["GoldenFile"]) for row in rows}
    assert names == {"a": ("NaN", "NaN"), "b": ("my_dump2_1.npy", "gold_dump2_1.npy")}
    assert [error.where for error in found.errors] == ["/a/1/output/x"] * 2
    assert all("claims 4398046511104 bytes" in error.what for error in found.errors)


@pytest.mark.parametrize(("free", "fit"), [(8_200, 0), (14_000, 1), (17_500, 2)])
def test_a_value_without_room_costs_only_itself(tmp_path, monkeypatch, free, fit):
    """An array of 8 KB takes 8 KB, on each side; and the csv, of less than 1 KB, keeps its room."""
    values = np.arange(2000, dtype="f4")
    files = [
        dump(tmp_path / name, {"a/1/output/x": array})
        for name, array in (("m.h5", values), ("g.h5", -values))
    ]

    def usage(folder):
        used = sum(path.stat().st_size for path in folder.glob("*.npy"))
        return shutil._ntuple_diskusage(free, used, free - used)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    found, (row,) = written(*files, tmp_path / "r.csv")
    assert sum(row[name] != "NaN" for name in ("MyFile", "GoldenFile")) == fit
    assert len(found.errors) == 2 - fit
    assert all("no room for this value: 8" in error.what for error in found.errors)
    assert len(list(found.folder.glob("*.npy"))) == fit


def test_both_arrays_are_written_where_their_values_have_one_address(tmp_path):
    """Two files of one layout: an address says nothing beyond its own file."""
    files = [dump(tmp_path / n, {"a/1/output/x": v}) for n, v in (("m.h5", UP), ("g.h5", DOWN))]
    with open_dump(files[0]) as left, open_dump(files[1]) as right:
        (mine,), (golden,) = (dump.records[0].outputs for dump in (left, right))
        assert mine.address == golden.address
    found, (row,) = written(*files, tmp_path / "r.csv")
    assert np.load(found.folder / row["MyFile"]).tolist() == UP.tolist()
    assert np.load(found.folder / row["GoldenFile"]).tolist() == DOWN.tolist()


@pytest.mark.parametrize("make", ["link", "folder"])
def test_what_has_a_files_name_is_not_followed(tmp_path, make):
    files = [
        dump(tmp_path / name, {"a/1/output/x": value})
        for name, value in (("m.h5", UP), ("g.h5", DOWN))
    ]
    (tmp_path / "r_filtered").mkdir()
    taken, other = tmp_path / "r_filtered" / "my_dump1_1.npy", tmp_path / "other"
    other.write_text("mine")
    taken.symlink_to(other) if make == "link" else taken.mkdir()
    found, (row,) = written(*files, tmp_path / "r.csv")
    assert (row["MyFile"], row["GoldenFile"]) == ("NaN", "gold_dump1_1.npy")
    assert other.read_text() == "mine" and "is not replaced" in found.errors[0].what


def test_where_nothing_can_be_written_is_one_message(tmp_path):
    files = [dump(tmp_path / n, {"a/1/output/x": UP}) for n in ("m.h5", "g.h5")]
    (tmp_path / "r_filtered").write_text("a file")
    with pytest.raises(DumpError, match="cannot be written") as error:
        written(*files, tmp_path / "r.csv")
    assert error.value.where == str(tmp_path / "r_filtered")
