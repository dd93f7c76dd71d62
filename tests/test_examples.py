"""The scripts in examples/: one is started as a user starts it, the rest run in this process."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import npu_core

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "examples" / "train_digits.py"


class Runner:
    """Runs the script in this process, as `python train_digits.py ...` on 910A would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: str | Path) -> str:
        self.monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
        with npu_core.use("910A"):
            runpy.run_path(str(SCRIPT), run_name="__main__")
        return self.capsys.readouterr().out


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(monkeypatch, capsys)


def epochs(output: str) -> list[tuple[int, float, float]]:
    """Epoch, loss and accuracy of every line the script prints."""
    found = re.findall(r"epoch (\d+) loss ([\d.]+) acc1 ([\d.]+) seconds", output)
    return [(int(epoch), float(loss), float(accuracy)) for epoch, loss, accuracy in found]


def learned(output: str) -> bool:
    lines = epochs(output)
    return [epoch for epoch, _, _ in lines] == list(range(8)) and lines[-1][2] > 90


@pytest.mark.parametrize("options", [(), ("--amp", "O1"), ("--amp", "O2")], ids=" ".join)
def test_the_migration_guides_script_learns_the_digits(
    options: tuple[str, ...], run: Runner
) -> None:
    assert learned(run(*options))


def test_it_learns_them_in_a_process_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--amp", "O2", "--loss-scale", "dynamic"],
        env={**os.environ, "NPU_CORE": "910A", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert learned(done.stdout)
    assert done.stderr.startswith("emulated Ascend NPU, profile 910A; not real hardware\n")


@pytest.mark.parametrize("amp", ["none", "O1", "O2"])
def test_a_resumed_run_ends_as_an_unbroken_one(amp: str, run: Runner, tmp_path: Path) -> None:
    half, whole, resumed = (tmp_path / name for name in ("half.pt", "whole.pt", "resumed.pt"))
    options = ("--amp", amp, "--loss-scale", "dynamic")
    run(*options, "--epochs", "1", "--checkpoint", half)
    unbroken = run(*options, "--epochs", "2", "--checkpoint", whole)
    rest = run(*options, "--epochs", "2", "--resume", half, "--checkpoint", resumed)
    assert len(epochs(rest)) == 1
    assert epochs(rest) == epochs(unbroken)[1:]
    a, b = (torch.load(file, map_location="cpu")["model"] for file in (whole, resumed))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_the_profiler_takes_the_guides_argument(run: Runner) -> None:
    assert "aten::conv2d" in run("--epochs", "1", "--profile")


def test_a_second_card_is_answered_with_their_number(run: Runner) -> None:
    with pytest.raises(RuntimeError, match="^npu:1 does not exist: npu_core emulates 1 device"):
        run("--device", "npu:1")
