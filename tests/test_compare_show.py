"""`msaccucmp show`: one record, its numbers against numpy, its place, its counterpart."""

from __future__ import annotations

import json
import math
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from dumps import dump, put
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import npu_core
from compare.cli import cli
from compare.show import WORST, furthest, largest, statistics
from dumper import dumper, open_dump


def run(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def shown(*arguments):
    done = run("show", *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def of(case, side, name):
    (found,) = [t for t in case["tensors"] if (t["side"], t["name"]) == (side, name)]
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same two layers on cpu and on the 910A, which multiplies in half precision."""
    folder = tmp_path_factory.mktemp("show")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU())
    found, x = {}, torch.randn(16, 16)
    with npu_core.use("910A"):
        for device in ("cpu", "npu"):
            net.to(device)
            found[device] = folder / f"{device}.h5"
            with dumper(use_dump=True, dump_path=found[device]):
                net(x.to(device)).sum().backward()
            net.zero_grad()
    return found


def record(path, ir, nth=0):
    with open_dump(path) as opened:
        return opened.by_ir[ir][nth].path


def test_where_a_record_belongs(files):
    path = record(files["cpu"], "addmm")
    case = shown(files["cpu"], path)
    assert case["phase"] == "forward" and case["module"] == "0" and case["step"] == 0
    assert case["api"] == "torch.nn.functional.linear.0"
    assert case["source"].startswith("test_compare_show.py:")
    assert of(case, "input", "self")["parameter"] == "0.bias"
    result = of(case, "output", "result")
    assert result["used_by"] == [
        record(files["cpu"], "gelu"),
        record(files["cpu"], "gelu_backward"),
    ]
    gelu = shown(files["cpu"], record(files["cpu"], "gelu"))
    assert of(gelu, "input", "self")["made_by"] == path


def test_a_view_is_described(files):
    case = shown(files["cpu"], record(files["cpu"], "t"))
    (result,) = [t for t in case["tensors"] if t["side"] == "output"]
    assert result["note"] == "no values: view" and result["statistics"] is None
    assert (result["shape"], result["stride"]) == ([16, 32], [1, 16])


def test_values_and_formats(files):
    path = record(files["npu"], "addmm")
    case = shown(files["npu"], path)
    with open_dump(files["npu"]) as opened:
        (tensor,) = [t for r in opened.records if r.path == path for t in r.outputs]
        values = tensor.read()
    result = of(case, "output", "result")
    assert result["first"] == values.reshape(-1)[:8].tolist()
    assert result["statistics"]["greatest"] == values.max()
    assert result["worst"][0]["value"] == values.flat[np.abs(values).argmax()]
    assert result["device"] == "npu" and result["format"] == "ND"
    assert of(case, "input", "mat2")["format"] in ("ND", "FRACTAL_NZ")


def test_against_golden(files):
    path = record(files["npu"], "addmm")
    case = shown(files["npu"], path, "-g", files["cpu"])
    assert case["golden"] == record(files["cpu"], "addmm")
    result, given_input = of(case, "output", "result"), of(case, "input", "mat1")
    assert given_input["metrics"]["exact"] == 1.0 and given_input["worst"] == []
    worst = result["worst"][0]
    assert worst["difference"] == result["metrics"]["max_absolute"] > 0
    assert abs(worst["value"] - worst["golden"]) == pytest.approx(worst["difference"])
    text = run("show", files["npu"], path, "-g", files["cpu"]).stdout
    assert "RelativeEuclidean" in text and "differ most" in text


def test_what_people_see(files):
    path = record(files["cpu"], "addmm")
    done = run("show", files["cpu"], path)
    assert done.exit_code == 0 and done.stderr == ""
    assert done.stdout.splitlines()[0] == path
    for word in ("torch.nn.functional.linear.0", "0.bias", "first values", "largest", "made by"):
        assert word in done.stdout


def test_only_the_shown_record_is_read(files, monkeypatch):
    from dumper.stored import Tensor

    read, path = [], record(files["cpu"], "addmm")
    original = Tensor.read
    monkeypatch.setattr(Tensor, "read", lambda self: read.append(self.path) or original(self))
    assert run("show", files["cpu"], path).exit_code == 0
    assert read and all(each.startswith(f"{path}/") for each in read)


MISSING = [
    ("/op/7", "there is no record /op/7", "/op/5, /op/8"),
    ("op/8/output/nothing", "", ""),
    ("/ops/7", "there is no record /ops/7", "/op/1"),
    ("/zzz/5", "there is no record /zzz/5", "/op/5"),
    ("op", "'op' is no record's path", "/op/1"),
    ("/op/x", "is no record's path", "/op/1"),
    ("/op/1\x1b", "is no record's path", "/op/1"),
]


@pytest.mark.parametrize(("path", "what", "todo"), MISSING)
def test_a_record_that_is_not_there(tmp_path, path, what, todo):
    file = dump(tmp_path / "a.h5", {f"op/{i}/output/x": np.ones(2, "f4") for i in (1, 5, 8)})
    done = run("show", file, path)
    if not what:
        assert done.exit_code == 0
        return
    block = done.stderr.splitlines()
    assert done.exit_code == 2 and done.stdout == "" and len(block) == 3
    assert what in block[0] and todo in block[2] and "\x1b" not in done.stderr


def test_a_record_without_counterpart(tmp_path):
    one = dump(tmp_path / "a.h5", {"op/1/output/x": np.ones(2, "f4")})
    other = dump(tmp_path / "b.h5", {"other/1/output/x": np.ones(2, "f4")})
    done = run("show", one, "/op/1", "-g", other)
    assert done.exit_code == 2 and "/op/1 has no counterpart" in done.stderr


def test_the_counterpart_is_the_one_that_compare_takes(tmp_path):
    """The second call of an IR, whatever its seqid; in load mode the same seqid."""
    mine = {f"op/{i}/{side}/x": np.full(2, i, "f4") for i in (1, 2) for side in ("input", "output")}
    golden = {f"op/{i}/input/x": np.full(2, i, "f4") for i in (2, 3)}
    golden |= {f"op/{i}/output/x": np.full(2, i, "f4") for i in (2, 3)}
    load = {f"op/{i}/output/x": np.full(2, i, "f4") for i in (2, 3)}
    files = [dump(tmp_path / n, t) for n, t in (("m.h5", mine), ("g.h5", golden), ("l.h5", load))]
    assert shown(files[0], "/op/2", "-g", files[1])["golden"] == "/op/3"
    assert shown(files[0], "/op/2", "-g", files[2])["golden"] == "/op/2"


def test_another_shape_in_golden_is_said(tmp_path):
    mine = dump(tmp_path / "a.h5", {"op/1/output/x": np.ones(2, "f4")})
    golden = dump(tmp_path / "b.h5", {"op/1/output/x": np.ones(3, "f4")})
    assert of(shown(mine, "/op/1", "-g", golden), "output", "x")["note"] == "golden has float32 [3]"


def test_damage_is_said_and_the_rest_shown(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("op/1/output/x", (9,), "f4").attrs["Type"] = np.int32(0)
        put(file, "op/1/output/y", np.ones(2, "f4"))
    case = shown(tmp_path / "a.h5", "/op/1")
    assert "claims 36 bytes" in of(case, "output", "x")["note"]
    assert of(case, "output", "y")["first"] == [1.0, 1.0]


def test_statistics_of_what_is_not_finite():
    found = statistics(np.array([np.nan, np.inf, -np.inf, 0.0, -3.0, 4.0], "f4"))
    assert (found.nan, found.infinite, found.zero, found.size) == (1, 2, 1, 6)
    assert (found.least, found.greatest, found.norm) == (-3.0, 4.0, 5.0)
    nothing = statistics(np.array([np.nan]))
    assert (nothing.least, nothing.mean, nothing.nan) == (None, None, 1)
    assert statistics(np.zeros((0, 3), "f4")).size == 0


def test_statistics_neither_overflow_nor_lose_digits():
    found = statistics(np.array([3e200, 4e200]))
    assert found.norm == pytest.approx(5e200) and found.mean == pytest.approx(3.5e200)
    tiny = statistics(np.array([3e-200, 4e-200]))
    assert tiny.norm == pytest.approx(5e-200)
    exact = statistics(np.array([2**63 - 1, -(2**63)]))
    assert (exact.greatest, exact.least) == (2**63 - 1, -(2**63))


FLOATS = arrays.arrays(
    np.float32, arrays.array_shapes(max_dims=3, max_side=6), elements=st.floats(width=32)
)


@given(FLOATS)
def test_the_largest_against_a_sort(values):
    found = [element.index for element in largest(values)]
    places = sorted(
        np.ndindex(values.shape),
        key=lambda at: (0, 0.0, at) if math.isnan(values[at]) else (1, -abs(float(values[at])), at),
    )
    assert found == places[:WORST]


@given(st.data())
def test_what_differs_most_against_a_sort(data):
    mine = data.draw(FLOATS)
    change = arrays.arrays(np.float32, mine.shape, elements=st.floats(width=32))
    same = data.draw(arrays.arrays(np.bool_, mine.shape))
    golden = np.where(same, mine, data.draw(change)).astype("f4")
    gaps = {}
    for at in np.ndindex(mine.shape):
        a, b = float(mine[at]), float(golden[at])
        if not (a == b or (math.isnan(a) and math.isnan(b))):
            gaps[at] = abs(a - b)
    places = sorted(gaps, key=lambda at: (not math.isnan(gaps[at]), -gaps[at], at))
    assert [element.index for element in furthest(mine, golden)] == places[:WORST]


@pytest.mark.parametrize(
    ("mine", "golden", "difference"),
    [
        (np.array([2**63 - 1]), np.array([-(2**63)]), float(2**64)),
        (np.array([127], "i1"), np.array([-128], "i1"), 255.0),
        (np.array([0], "u1"), np.array([255], "u1"), 255.0),
        (np.array([True]), np.array([False]), 1.0),
        (np.array([1 + 1j], "c8"), np.array([1 - 2j], "c8"), 3.0),
        (np.array([1], ml_dtypes.bfloat16), np.array([3], ml_dtypes.bfloat16), 2.0),
        (np.array(1.0), np.array(1.5), 0.5),
    ],
)
def test_differences_of_every_kind(mine, golden, difference):
    (element,) = furthest(mine, golden)
    assert element.difference == difference
    assert furthest(mine, mine) == []
