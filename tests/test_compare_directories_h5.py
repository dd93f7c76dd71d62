"""compare on a folder of CANN dumps and an HDF5 dump: results by record, and what has none."""

import json

import h5py
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from dumps import dump
from folders import header, put, rows, run, tensor

from compare.cli import cli
from ir2tbe.cann.file import read
from ir2tbe.relayout import relayout


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """A dump of one addmm and one max with indices, on the CPU."""
    path = tmp_path_factory.mktemp("golden") / "g.h5"
    torch.manual_seed(0)
    bias, x, w = torch.randn(4), torch.randn(3, 5), torch.randn(5, 4)
    with torch.utils.dumper(use_dump=True, dump_path=str(path)):
        torch.max(torch.addmm(bias, x, w), 1)
    return path


def held(path):
    """Values of each output in the file, by `<IR>/<seqid>/output/<name>`."""
    found = {}

    def add(name, node):
        if isinstance(node, h5py.Dataset) and "/output/" in name and node.attrs.get("Type") == 0:
            found[name] = node[()]

    with h5py.File(path) as file:
        file.visititems(add)
    return found


def test_results_are_compared_and_the_rest_is_said(tmp_path, golden):
    values = held(golden)
    (addmm,) = (name for name in values if name.startswith("addmm"))
    pair = sorted(name for name in values if name.startswith("max"))
    assert len(pair) == 2
    record, largest = addmm.partition("/output/")[0], pair[0].partition("/output/")[0]
    mine = tmp_path / "m"
    product = tensor(values[addmm].astype("f2"), "float16")
    stored = relayout(values[addmm], "ND", "FRACTAL_NZ")
    result = tensor(stored, form="FRACTAL_NZ", original=values[addmm].shape, origin=(record, 0))
    put(mine, 0, "MatMul", f"{record}/0", [values[addmm]], [product])
    put(mine, 1, "Add", f"{record}/1", [product], [result])
    wrong = values[pair[0]] + 1
    outputs = [
        tensor(wrong, origin=(f"/{pair[0]}", 7)),
        tensor(values[pair[1]], origin=(largest, 1)),
    ]
    put(mine, 2, "ArgMaxWithValue", f"{largest}/0", (), outputs)
    done = run(mine, golden, tmp_path / "out")
    said = [(r["TensorIndex"], r["GroundTruth"], r["Verdict"], r["PairedBy"]) for r in rows(done)]
    assert said == [
        (f"{record}/0:input:0", "NaN", "cannot_tell", "NaN"),
        (f"{record}/0:output:0", "NaN", "cannot_tell", "NaN"),
        (f"{record}/1:input:0", "NaN", "cannot_tell", "NaN"),
        (f"{record}/1:output:0", record, "same", "record"),
        (f"{largest}/0:output:0", largest, "differs", "record"),
        (f"{largest}/0:output:1", largest, "same", "record"),
    ]
    reason = rows(done)[1]["CompareFailReason"]
    assert reason.startswith(f"an intermediate value of {record}: golden has none; replay")
    assert header(done).count("Address") == 1 and done.exit_code == 1
    assert f"first output that is not as in golden: ArgMaxWithValue {largest}/0" in done.stdout
    assert "whether its inputs are equal is not known" in done.stdout
    assert "1 between two operators of one record" in done.stdout


ONE = np.float32([1, 2, 3])


@pytest.fixture
def two(tmp_path):
    return dump(
        tmp_path / "two.h5",
        {"mm/1/output/out": ONE, "mm/1/output/more": ONE, "view/2/output/out": ONE},
    )


def test_what_is_nobodys_fault_is_no_difference(tmp_path, two):
    """A record of which there is no file may have run no operator, as a view."""
    outputs = [tensor(ONE, origin=("mm/1", i)) for i in range(2)]
    put(tmp_path / "m", 0, "MatMul", "mm/1/0", [ONE], outputs)
    done = run(tmp_path / "m", two, tmp_path / "out")
    assert done.exit_code == 0, done.output
    found = [(r["GroundTruth"], r["CompareFailReason"], r["Verdict"]) for r in rows(done)]
    assert found[-1] == ("view/2", "no file of my folder is of view/2", "cannot_tell")
    assert "1 record that no file is of" in done.stdout and "nothing differs" in done.stdout


@pytest.mark.parametrize(
    ("name", "origin", "reason"),
    [
        ("mm/1/0", ("mm/1", 2), "mm/1 has 2 output tensors in golden"),
        ("mm/1/0", ("mm/1/output/other", 0), "No data match with mm/1/output/other in golden"),
        ("mm/7/0", ("mm/7", 0), "No data match with mm/7 in golden"),
        ("mm/7/0", None, "No data match with mm/7/0:output:0 in golden"),
        ("mm/1/0", ("../../etc/passwd", 0), "No data match with ../../etc/passwd in golden"),
    ],
)
def test_what_golden_lacks(tmp_path, two, name, origin, reason):
    put(tmp_path / "m", 0, "MatMul", name, (), [tensor(ONE, origin=origin)])
    done = run(tmp_path / "m", two, tmp_path / "out")
    assert done.exit_code == 1 and rows(done)[0]["CompareFailReason"].startswith(reason)
    missing = [row["TensorIndex"] for row in rows(done)[1:] if row["Verdict"] == "not_comparable"]
    assert missing == (["mm/1:output:0", "mm/1:output:1"] if name == "mm/1/0" else [])


def test_what_no_operator_makes_is_nobodys_fault(tmp_path):
    """A replay against its own dump: no file names the rstd of a layer norm, nor a dropout mask."""
    path, out = tmp_path / "x.h5", tmp_path / "acl_dump"
    with torch.utils.dumper(use_dump=True, dump_path=str(path)):
        x = torch.nn.functional.layer_norm(torch.ones(4, 8), (8,))
        torch.ops.aten.native_dropout(x, 0.5, True)
        torch.rand(4)
    acl = {"dump_path": str(out), "dump_mode": "all", "dump_op_switch": "on"}
    (tmp_path / "acl.json").write_text(json.dumps({"dump": acl}))
    arguments = ["replay", path, "--device", "cpu", "--acl", tmp_path / "acl.json"]
    assert CliRunner().invoke(cli, [str(each) for each in arguments]).exit_code == 0
    files = [read(file) for file in out.rglob("*.*")]
    ran = {file.op_name.rpartition("/")[0] for file in files}
    named = {t.origin.name for file in files for t in file.outputs if t.origin is not None}
    expected = {name for name in held(path) if name.partition("/output/")[0] in ran} - named
    assert len(expected) >= 2  # or this shows nothing
    done = run(out, path, tmp_path / "out")
    unmade = [row for row in rows(done) if row["VerdictCode"] == "unmade"]
    assert done.exit_code == 0 and len(unmade) == len(expected), done.output
    assert {row["GroundTruth"] for row in unmade} == {n.partition("/output/")[0] for n in expected}
    assert {row["Verdict"] for row in unmade} == {"cannot_tell"}
    assert f"{len(expected)} results that no file names" in done.stdout
    assert "0 without partner" in done.stdout and "nothing differs" in done.stdout
    assert run(out, path, tmp_path / "out", "-map").exit_code == 0


def test_an_operator_that_names_no_result(tmp_path, two):
    """Another op ran in the record's place, as uniform_ does for rand."""
    put(tmp_path / "m", 0, "Uniform", "mm/1/0", (), [ONE])
    done = run(tmp_path / "m", two, tmp_path / "out")
    codes = [(r["TensorIndex"], r["VerdictCode"]) for r in rows(done)]
    assert codes == [
        ("mm/1/0:output:0", "intermediate"),
        ("mm/1:output:0", "unmade"),
        ("mm/1:output:1", "unmade"),
        ("NaN", "not_run"),
    ]
    assert done.exit_code == 1 and "nothing was compared" in done.stdout


def test_a_result_may_be_in_a_file_that_cannot_be_read(tmp_path, two):
    put(tmp_path / "m", 0, "Mul", "mm/1/0", (), [tensor(ONE, origin=("mm/1", 0))])
    put(tmp_path / "m", 1, "Add", "mm/1/1", (), [tensor(ONE, origin=("mm/1", 1))]).write_bytes(b"")
    done = run(tmp_path / "m", two, tmp_path / "out")
    (missed,) = (row for row in rows(done) if row["TensorIndex"] == "mm/1:output:1")
    assert missed["Verdict"] == "not_comparable" and done.exit_code == 1
    assert missed["CompareFailReason"] == "no file that could be read names this result"
    assert "1 without partner" in done.stdout


def test_uninitialised_memory_is_not_compared(tmp_path):
    path = tmp_path / "g.h5"
    with torch.utils.dumper(use_dump=True, dump_path=str(path)):
        torch.empty(3)
    (name,) = held(path)
    record = name.partition("/output/")[0]
    put(tmp_path / "m", 0, "Empty", f"{record}/0", (), [tensor(ONE, origin=(record, 0))])
    (row,) = rows(run(tmp_path / "m", path, tmp_path / "out"))
    assert row["CompareFailReason"] == "uninitialised memory is not compared"
    assert row["Verdict"] == "cannot_tell"


def test_fusion_rules_mean_nothing(tmp_path, two):
    put(tmp_path / "m", 0, "MatMul", "mm/1/0", (), [ONE])
    done = run(tmp_path / "m", two, tmp_path / "out", "-f", "rules.json")
    assert done.exit_code == 2 and "golden is an HDF5 dump" in done.stderr
    done = run(two, tmp_path / "m", tmp_path / "out")
    assert done.exit_code == 2 and "swap -m and -g" in done.stderr
