"""`msaccucmp ir2tbe` and `msaccucmp ops`: what people and machines read, and the exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
import torch
from click.testing import CliRunner

from compare.cli import cli
from dumper import dumper


def run(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dump of a step whose ops the table has."""
    path = tmp_path_factory.mktemp("ops") / "step.h5"
    net = torch.nn.Linear(4, 2)
    with dumper(use_dump=True, dump_path=path):
        net(torch.ones(3, 4)).relu().sum().backward()
    return path


def trace(path: Path, *names: str) -> Path:
    path.write_text(json.dumps([{"ph": "X", "cat": "cpu_op", "name": name} for name in names]))
    return path


# ir2tbe OP


def test_an_op_is_told_step_by_step():
    found = run("ir2tbe", "native_batch_norm")
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert lines[0] == "aten::native_batch_norm (IR native_batch_norm)"
    assert lines[1].startswith("  1  BNTrainingReduce  or BN3DTrainingReduce  inputs x=self; ")
    assert lines[2].startswith("  2  BNTrainingUpdate  ")
    assert "  when training=False: BNInfer" in lines
    assert "  source: op-plugin@6.0.0, BatchNormKernelNpu.cpp; confidence curated" in lines
    assert "approximate" not in found.stdout


@pytest.mark.parametrize(
    ("op", "why"),
    [
        ("relu", "approximate: read from the source by rules, checked by nobody"),
        ("AcoshBackward0", "of which some are not known"),
        ("mkldnn_convolution", "mkldnn_convolution is what another device runs in its place"),
        ("addmm.dtype", "the table has no addmm.dtype, only another overload"),
        ("MulBackward", "MulBackward has several overloads; they do not agree"),
    ],
)
def test_what_is_approximate_says_so_and_why(op, why):
    found = run("ir2tbe", op)
    assert found.exit_code == 0 and why in found.stdout
    assert json.loads(run("ir2tbe", op, "--json").stdout)["approximate"] is True


@pytest.mark.parametrize(
    ("op", "says"),
    [
        ("view", "runs no TBE op"),
        ("isneginf.out", "has no TBE sequence, only aclnn: 910B and later"),
        ("UniqueBackward0", "what it runs is not known"),
        ("sum", "other overloads: aten::sum.dim_IntList"),
    ],
)
def test_what_has_no_sequence_is_said(op, says):
    assert says in run("ir2tbe", op).stdout


def test_an_op_as_json():
    found = json.loads(run("ir2tbe", "addmm", "--json").stdout)
    (entry,) = found["entries"]
    assert (found["match"], found["approximate"]) == ("exact", False)
    assert entry["tbe"] == ["Mul", "MatMul", "Add"]
    assert entry["steps"][1]["inputs"] == ["contiguous_mat1", "contiguous_mat2", "self"]
    assert {"when": "beta != 1 (910A)", "tbe": ["Mul", "MatMul", "AxpyV2"]} in entry["variants"]
    assert (entry["source"], entry["confidence"]) == ("op-plugin@6.0.0", "curated")


def test_who_uses_a_tbe_op():
    found = run("ir2tbe", "BNTrainingReduce")
    assert found.exit_code == 0 and "aten::native_batch_norm" in found.stdout
    assert "aten::addmm" not in found.stdout
    users = json.loads(run("ir2tbe", "BNInfer", "--json").stdout)["users"]
    here = [user for user in users if user["name"] == "aten::native_batch_norm"]
    assert [(user["kind"], user["where"]) for user in here] == [("condition", "training=False")]


@pytest.mark.parametrize(
    ("op", "says"),
    [
        ("bntrainingreduce", "near it: BNTrainingReduce"),
        ("adddmm", "near it: addmm"),
        ("tensor_split", "PyTorch makes this op of others"),
        ("no such\x1b[31m", "no such\\x1b[31m"),
        ("x" * 10_000, "the table has no such op"),
    ],
)
def test_an_unknown_name_is_one_message(op, says):
    found = run("ir2tbe", op)
    assert found.exit_code == 2 and found.stdout == ""
    assert says in found.stderr and found.stderr.count("error:") == 1 and "\x1b" not in found.stderr


@pytest.mark.parametrize("arguments", [(), ("addmm", "--dump", "x.h5"), ("",), ("--dump", "")])
def test_an_op_or_a_dump_is_named(arguments):
    assert run("ir2tbe", *arguments).exit_code == 2


def test_in_chinese_json_stays_as_it_is():
    assert "来源：op-plugin@6.0.0" in run("ir2tbe", "addmm", "--lang", "zh").stdout
    assert "个算子用到 BNTrainingReduce" in run("ir2tbe", "BNTrainingReduce", "--lang", "zh").stdout
    english, chinese = (run("ir2tbe", "addmm", "--json", "--lang", each) for each in ("en", "zh"))
    assert english.stdout == chinese.stdout


# All ops of a dump


def test_all_ops_of_a_dump_in_its_order(step):
    found = run("ir2tbe", "--dump", step)
    assert found.exit_code == 0
    rows = [line.split()[:2] for line in found.stdout.splitlines()]
    assert ["addmm", "1"] in rows
    assert rows.index(["addmm", "1"]) < rows.index(["relu", "1"]) < rows.index(["sum", "1"])
    addmm = next(line for line in found.stdout.splitlines() if line.startswith("addmm "))
    assert "Mul, MatMul, Add" in addmm and "curated" in addmm
    ops = {
        each["op"]: each
        for each in json.loads(run("ir2tbe", "--dump", step, "--json").stdout)["ops"]
    }
    assert "grad" not in ops and ops["addmm"]["tbe"] == ["Mul", "MatMul", "Add"]


def test_a_dump_of_the_original(golden):
    found = run("ir2tbe", "--dump", golden / "tiny" / "npu.h5")
    assert found.exit_code == 0
    lines = {line.split()[0]: line for line in found.stdout.splitlines() if line}
    assert "Conv2DBackpropInput, Conv2DBackpropFilter, ReduceSum" in lines["NpuConvolutionBackward"]
    assert "unknown" in lines["OnlyNpuBackward"]


def test_names_in_a_file_are_shown_inert(tmp_path):
    path = tmp_path / "odd.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("evil\x1b[31mop/1/input")
        group["x"] = [1.0]
        for name, value in {"DeviceType": 0, "DataType": 1, "FormatType": 0, "Type": 0}.items():
            group["x"].attrs[name] = value
        group["x"].attrs["Stride"] = [1]
    for command in (("ops", path), ("ir2tbe", "--dump", path)):
        found = run(*command)
        assert "evil\\x1b[31mop" in found.stdout and "\x1b" not in found.stdout


# ops FILE


def test_the_ops_of_a_model(step):
    found = run("ops", step)
    assert found.exit_code == 0 and "unknown" not in found.stdout
    assert "has a TBE sequence: " in found.stdout and "runs no TBE op: " in found.stdout
    said = json.loads(run("ops", step, "--json").stdout)
    assert said["kind"] == "dump" and all(each["source"] for each in said["ops"])
    assert {each["state"] for each in said["ops"]} == {"sequence", "nothing"}


@pytest.mark.parametrize(
    ("name", "state", "status"),
    [
        ("aten::addmm", "sequence", 0),
        ("aten::view", "nothing", 0),
        ("aten::tensor_split", "composite", 0),
        ("aten::isneginf", "aclnn_only", 1),
        ("aten::_thnn_fused_lstm_cell", "unknown", 1),
        ("mylib::addmm", "unknown", 1),
    ],
)
def test_the_exit_status_says_whether_something_is_lacking(tmp_path, name, state, status):
    path = trace(tmp_path / "trace.json", name, "aten::mm", name)
    said = json.loads(run("ops", path, "--json").stdout)
    assert {each["op"]: (each["calls"], each["state"]) for each in said["ops"]} == {
        name: (2, state), "aten::mm": (1, "sequence"),
    }  # fmt: skip
    assert run("ops", path).exit_code == status
    assert run("ops", path, "--exit-zero").exit_code == 0


def test_what_is_lacking_comes_first_and_a_profile_names_no_overload(tmp_path):
    path = trace(tmp_path / "trace.json", "aten::mm", "aten::where", "mylib::op", "aten::isneginf")
    lines = run("ops", path).stdout.splitlines()
    rows = [line.split()[0] for line in lines if "::" in line.split()[0]]
    assert rows == ["mylib::op", "aten::isneginf", "aten::where", "aten::mm"]
    (where,) = [line for line in lines if line.startswith("aten::where")]
    assert "ReduceSum, NonZero | Select" in where and "approximate" in where
    assert lines[-1].startswith("a profile counts an op that another one calls too")
    chinese = run("ops", path, "--lang", "zh").stdout
    assert "未知：1 种" in chinese and "有 TBE 序列" in chinese


@pytest.mark.parametrize("content", ["", "{", "[]", "words\n", "\x89HDF\r\n\x1a\n"])
def test_what_is_no_model_is_one_message(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content.encode("latin-1"))
    found = run("ops", path)
    assert found.exit_code == 2 and found.stdout == ""
    assert str(path) in found.stderr and found.stderr.count("error:") == 1


@pytest.mark.parametrize("path", ["absent", ".", "absent.h5", ""])
def test_what_is_no_file_is_one_message(path):
    for command in (("ops", path), ("ir2tbe", "--dump", path)):
        found = run(*command)
        assert found.exit_code == 2 and "Traceback" not in found.stderr and found.stderr


def test_no_torch_is_needed(tmp_path):
    path = trace(tmp_path / "trace.json", "aten::mm")
    code = (
        "import sys; from compare.cli import cli\n"
        "try: cli.main(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'torch' not in sys.modules"
    )
    for arguments in (("ops", str(path)), ("ir2tbe", "addmm")):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True
        )
        assert done.returncode == 0 and "MatMul" in done.stdout, done.stderr
