"""`msaccucmp replay`: recorded ops down to their TBE operators, without model or script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

import npu_core
from compare.cli import cli
from dumper import dumper
from ir2tbe.cann import file as cann_file
from ir2tbe.cann.folder import DumpFile, Missed, walk
from ir2tbe.cann.formats import CODES, format_name
from ir2tbe.relayout import relayout

PROGRAM = Path(__file__).resolve().parent.parent / "scripts" / "msaccucmp.py"
ACL = {"dump_path": "acl", "dump_list": [], "dump_mode": "all", "dump_op_switch": "on"}


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dump of one step on npu."""
    path = tmp_path_factory.mktemp("step") / "step.h5"
    torch.manual_seed(0)
    with npu_core.use("910A"), dumper(use_dump=True, dump_path=path):
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).npu()
        net(torch.randn(6, 4).npu()).square().sum().backward()
    return path


@pytest.fixture
def folder(step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with that dump and an acl.json."""
    shutil.copy(step, tmp_path / "step.h5")
    (tmp_path / "acl.json").write_text(json.dumps({"dump": ACL}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, ["replay", *arguments])
    assert done.exit_code == code, done.output
    return done


def files(root: Path) -> list[DumpFile]:
    found = [each for _, inside in walk(root, Missed()) for each in inside]
    return sorted(found, key=lambda each: each.name.task_id)


def values(file: DumpFile, output: int = 0) -> np.ndarray:
    tensor = cann_file.read(file.path).outputs[output]
    return relayout(tensor.values(), format_name(tensor.format), "ND", tensor.original_shape)


def test_an_op_becomes_its_operators(folder: Path) -> None:
    with npu_core.use("910A"):
        said = run("step.h5", "-op", "addmm").output
    assert "Ascend 910A (emulated by npu_core)" in said
    assert "Mul, MatMul, Add" in said and "is the recorded one" in said
    found = files(folder / "acl")
    assert [each.name.op_type for each in found] == ["Mul", "MatMul", "Add"]
    assert len({each.name.op_name.rpartition("_")[0] for each in found}) == 1


def test_other_devices_show_what_each_operator_should_make(folder: Path) -> None:
    with npu_core.use("910A"):
        run("step.h5", "-op", "native_batch_norm")
        run("step.h5", "-op", "native_batch_norm", "--device", "cpu", "--acl", _acl(folder, "cpu"))
    mine, golden = files(folder / "acl"), files(folder / "cpu")
    assert [each.name.op_type for each in mine] == ["BNTrainingReduce", "BNTrainingUpdate"]
    for a, b in zip(mine, golden, strict=True):
        assert (a.name.op_type, a.name.op_name) == (b.name.op_type, b.name.op_name)
        assert np.allclose(values(a), values(b), rtol=1e-5)


def test_on_a_vendors_npu_the_files_are_those_that_its_dump_leaves(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody lists them there: they are found below dump_path, new ones after each op."""
    calls: list[str] = []
    for name in ("synchronize", "init_dump", "set_dump", "finalize_dump"):
        original = getattr(torch.npu, name)

        def called(*given: object, name: str = name, original: object = original) -> None:
            calls.append(name)
            original(*given)

        monkeypatch.setattr(torch.npu, name, called)
    monkeypatch.setattr("ir2tbe.replay._is_emulated", lambda: False)
    with npu_core.use("910A"):
        first = run("step.h5", "-op", "addmm").output
        second = run("step.h5", "-op", "native_batch_norm").output
    assert "Mul, MatMul, Add" in first and "3 dump files" in first
    assert "BNTrainingReduce, BNTrainingUpdate" in second and "2 dump files" in second
    sync = "synchronize"
    around = [sync, "init_dump", "set_dump", sync, sync, "finalize_dump", sync]
    assert calls == around * 2


def test_a_whole_step(folder: Path) -> None:
    with npu_core.use("910A"):
        said = run("step.h5").output
    assert f"{len(files(folder / 'acl'))} dump files" in said
    assert "BNTrainingReduceGrad" in said


def test_stand_ins_are_said_on_other_devices_too(folder: Path) -> None:
    with dumper(use_dump=True, dump_path="sorted.h5"):
        torch.sort(torch.randn(4))
    done = run("sorted.h5", "-op", "sort", "--device", "cpu")
    assert "sort/" in done.output and "note: one TBE operator stands for all" in done.stderr


def test_operators_in_a_row_are_counted(folder: Path) -> None:
    with npu_core.use("910A"), dumper(use_dump=True, dump_path="lists.h5"):
        torch._foreach_add_([torch.ones(2).npu() for _ in range(3)], 1.0)
    with npu_core.use("910A"):
        said = run("lists.h5", "-op", "_foreach_add__Scalar").output
    assert "3 x Add" in said and said.count("Add") == 1


@pytest.mark.parametrize("module", [torch.nn.Conv1d, torch.nn.ConvTranspose1d])
def test_a_replay_compares_with_its_dump(folder: Path, module: type[torch.nn.Module]) -> None:
    """The chip has images where a 1-D convolution has rows."""
    with npu_core.use("910A"), dumper(use_dump=True, dump_path="rows.h5"):
        module(4, 6, 3).npu()(torch.randn(2, 4, 9).npu()).square().sum().backward()
    with npu_core.use("910A"):
        run("rows.h5")
    done = CliRunner().invoke(cli, ["compare", "-m", "acl", "-g", "rows.h5", "-out", "out"])
    assert done.exit_code == 0, done.output


def test_what_runs_no_operator_is_counted(folder: Path) -> None:
    with npu_core.use("910A"), dumper(use_dump=True, dump_path="mixed.h5"):
        (torch.empty(2).npu() + torch.ones(2).npu()).sum().item()
    with npu_core.use("910A"):
        said = run("mixed.h5").output
    assert "others run no operator" in said and "_local_scalar_dense" not in said


def test_chinese(folder: Path) -> None:
    with npu_core.use("910A"):
        assert "结果与记录逐位相同" in run("step.h5", "-op", "addmm", "--lang", "zh").output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.h5"], "missing.h5"),
        (["step.h5", "-op", "addmn"], "addmm"),
        (["step.h5", "--device", "tpu"], "no such device"),
        (["step.h5", "--acl", "other.json"], "other.json"),
        (["step.h5", "--acl", "step.h5"], "step.h5"),
        (["acl.json"], "acl.json"),
    ],
)
def test_trouble_is_one_message(folder: Path, arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, "replay", *arguments], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 2 and words in done.stderr
    assert "what to do" in done.stderr and "Traceback" not in done.stderr


def test_many_records_take_as_long_each_as_few(folder: Path) -> None:
    """No walk of the folder for each record: the files come from who writes them."""
    with npu_core.use("910A"), dumper(use_dump=True, dump_path="many.h5"):
        x = torch.ones(2, 2).npu()
        for _ in range(40):
            x = torch.tanh(x)
    with npu_core.use("910A"):
        lines = run("many.h5", "-op", "tanh").output.splitlines()
    assert sum(line.split()[1] == "Tanh" for line in lines if line.startswith("  tanh/")) == 40


@pytest.mark.parametrize("device", ["npu", "cpu"])
def test_a_dump_that_fails_ends_the_replay(folder: Path, device: str) -> None:
    """A folder in which no file can be made any more, as on a full disk."""
    with npu_core.use("910A"), dumper(use_dump=True, dump_path="large.h5"):
        torch.ones(2, 2, device=device) + torch.ones(2, 2, device=device)
    code = (
        "from resource import RLIMIT_FSIZE, setrlimit; import signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "import compare.cli, torch; setrlimit(RLIMIT_FSIZE, (64, -1))\n"
        f"compare.cli.cli.main(['replay', 'large.h5', '--device', '{device}'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder,
        env={**os.environ, "NPU_CORE": "910A"},
    )  # fmt: skip
    assert done.returncode == 2 and "File too large" in done.stderr, done.stderr
    assert done.stderr.count("what to do") == 1 and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--against", "nonexist"], "--against nonexist"),
        (["--device", "meta"], "no values"),
        (["-op", "grad"], "no op"),
    ],
)
def test_what_leaves_nothing_behind(folder: Path, arguments: list[str], words: str) -> None:
    before = sorted(folder.iterdir())
    done = run("step.h5", *arguments, code=2)
    assert words in done.stderr and sorted(folder.iterdir()) == before


def test_two_in_one_second_have_folders_of_their_own(folder: Path) -> None:
    with npu_core.use("exact"):
        for _ in range(2):
            run("step.h5", "-op", "addmm", "--against", "cpu", "-out", "out", "--exit-zero")
    assert len(list((folder / "out").glob("replay_*"))) == 2


def test_without_torch_it_says_what_is_missing(folder: Path) -> None:
    code = (
        "import sys; from importlib.abc import MetaPathFinder\n"
        "class NoTorch(MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'torch': raise ModuleNotFoundError('No module named torch')\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "from compare.cli import cli\n"
        "cli.main(['replay', 'step.h5'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder,
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )  # fmt: skip
    assert done.returncode == 2 and "a replay runs ops, which needs torch" in done.stderr


def _acl(folder: Path, name: str) -> str:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"dump": {**ACL, "dump_path": name}}))
    return str(path)


@pytest.mark.parametrize(
    ("make", "format"),
    [
        (lambda: torch.randn(4, 3, 2, 2, 2), "FRACTAL_Z_3D"),
        (lambda: torch.randn(4, 2, 2, 2, 3).permute(0, 4, 1, 2, 3), "FRACTAL_Z_3D"),
        (lambda: torch.randn(4, 3, 2, 2, 2), "NDC1HWC0"),
        (lambda: torch.randn(4, 3, 2, 2), "FRACTAL_Z"),
        (lambda: torch.randn(4, 3, 2, 2).contiguous(memory_format=torch.channels_last), "NC1HWC0"),
        (lambda: torch.randn(4, 3), "FRACTAL_NZ"),
    ],
)
def test_a_cast_to_a_tiled_format(folder: Path, make, format: str) -> None:
    """What is replayed is no view of a flat tensor, which some formats cannot hold."""
    code = CODES[format]
    with npu_core.use("910A"), dumper(use_dump=True, dump_path="cast.h5"):
        torch.ops.npu.npu_format_cast(make().half().npu(), code)
    name = "npu::npu_format_cast"
    done = run("cast.h5", "--device", "npu", "--acl", "acl.json", "-op", name)
    assert "bit for bit" in done.stdout, done.output
    (file,) = files(folder / "acl")
    (output,) = cann_file.read(file.path).outputs
    assert format_name(output.format) == format
