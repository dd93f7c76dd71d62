"""`-map`: what belongs to what, in a csv, without a value read."""

import csv
import re

import h5py
import numpy as np
import pytest
from dumps import dump, put

from compare.mapping import COLUMNS, write_mapping
from dumper.errors import DumpError
from dumper.reader import open_dump

ONE = np.ones(2, "f4")


def mapped(mine, golden, folder):
    """(what was written, its rows as lists)."""
    with open_dump(mine) as left, open_dump(golden) as right:
        found = write_mapping(left, right, folder)
    text = found.path.read_bytes().decode()
    header, *rows = csv.reader(text.splitlines())
    assert tuple(header) == COLUMNS and found.rows == len(rows) == text.count("\r\n") - 1
    return found, rows


def test_every_tensor_and_what_it_belongs_to(tmp_path):
    mine = dump(
        tmp_path / "m.h5",
        {
            "NpuConvolutionBackward/1/input/input": ONE,
            "NpuConvolutionBackward/1/input/weight": ONE,
            "NpuConvolutionBackward/1/output/result": ONE,
            "relu/2/output/result": ONE,
            "relu/2/output/extra": ONE,
            "mine/3/output/result": ONE,
        },
        device=10,
    )
    golden = dump(
        tmp_path / "g.h5",
        {
            "CudnnConvolutionBackward/7/input/self": ONE,
            "CudnnConvolutionBackward/7/input/weight": ONE,
            "CudnnConvolutionBackward/7/output/result": ONE,
            "relu/8/output/result": ONE,
            "gold/9/output/result": ONE,
        },
        device=1,
    )
    with h5py.File(mine, "r+") as file:
        put(file, "relu/2/input/inplace", np.int8(1), kind=4)  # an argument is no tensor
    found, rows = mapped(mine, golden, tmp_path / "out")
    npu, cudnn = "NpuConvolutionBackward", "CudnnConvolutionBackward"
    conv = ["1", npu, f"{npu}/1", f"{cudnn}/7"]
    relu = ["2", "relu", "relu/2", "relu/8"]
    none = "NaN"
    assert rows == [
        [*conv, f"{npu}/1:input:0", f"/{npu}/1/input/input", f"/{cudnn}/7/input/self"],
        [*conv, f"{npu}/1:input:1", f"/{npu}/1/input/weight", f"/{cudnn}/7/input/weight"],
        [*conv, f"{npu}/1:output:0", f"/{npu}/1/output/result", f"/{cudnn}/7/output/result"],
        [*relu, "relu/2:output:0", "/relu/2/output/extra", none],
        [*relu, "relu/2:output:1", "/relu/2/output/result", "/relu/8/output/result"],
        ["3", "mine", "mine/3", none, none, none, none],
        ["4", "gold", none, "gold/9", none, none, "/gold/9"],
    ]
    assert found.unpaired == 3
    assert re.fullmatch(r"mapping_\d{14}\.csv", found.path.name)
    assert found.path.stat().st_mode & 0o777 == 0o600


def test_in_load_mode_outputs_are_mapped_by_seqid(tmp_path):
    mine = dump(tmp_path / "m.h5", {"a/5/output/x": ONE})
    golden = dump(tmp_path / "g.h5", {"a/4/output/x": ONE, "a/5/input/y": ONE, "a/5/output/x": ONE})
    found, rows = mapped(mine, golden, tmp_path)
    assert [row[2:4] for row in rows] == [["a/5", "a/5"], ["NaN", "a/4"]] and found.unpaired == 1


def test_two_mappings_of_a_second_have_two_names(tmp_path):
    files = [dump(tmp_path / n, {"a/1/output/x": ONE}) for n in ("m.h5", "g.h5")]
    paths = [mapped(*files, tmp_path / "out")[0].path for _ in range(3)]
    assert len({path.name for path in paths}) == 3
    assert sorted((tmp_path / "out").iterdir()) == sorted(paths)


def test_values_are_not_read(tmp_path):
    """A dataset that claims more than its file holds is none to compare, and one to map."""
    for name in ("m.h5", "g.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            data = file.create_dataset("a/1/output/x", (1 << 40,), "f4")
            data.attrs.update({"Type": np.int32(0), "DataType": np.int32(1)})
    found, rows = mapped(tmp_path / "m.h5", tmp_path / "g.h5", tmp_path)
    assert rows[0][5:] == ["/a/1/output/x"] * 2 and found.unpaired == 0


def test_names_are_inert(tmp_path):
    name = '=cmd|"a\x1b[31m,b'
    files = [dump(tmp_path / n, {f"{name}/1/output/x": ONE}) for n in ("m.h5", "g.h5")]
    _, rows = mapped(*files, tmp_path)
    assert rows[0][1] == "'=cmd|\"a\\x1b[31m,b"


def test_where_nothing_can_be_written_is_one_message(tmp_path):
    files = [dump(tmp_path / n, {"a/1/output/x": ONE}) for n in ("m.h5", "g.h5")]
    (tmp_path / "out").write_text("a file")
    with pytest.raises(DumpError, match="cannot be written"):
        mapped(*files, tmp_path / "out")
