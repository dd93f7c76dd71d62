"""The scripts in examples/, run as a user runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "examples" / "train_digits.py"


def run(*arguments: str | Path, profile: str = "910A") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)],
        env={**os.environ, "NPU_CORE": profile},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


def epochs(output: str) -> list[tuple[int, float, float]]:
    """Epoch, loss and accuracy of every line the script prints."""
    found = re.findall(r"epoch (\d+) loss ([\d.]+) acc1 ([\d.]+) seconds", output)
    return [(int(epoch), float(loss), float(accuracy)) for epoch, loss, accuracy in found]


@pytest.mark.parametrize(
    "options",
    [(), ("--amp", "O1"), ("--amp", "O2"), ("--amp", "O2", "--loss-scale", "dynamic")],
    ids=" ".join,
)
def test_the_migration_guides_script_learns_the_digits(options: tuple[str, ...]) -> None:
    done = run(*options, "--epochs", "10")
    assert done.returncode == 0, done.stderr
    lines = epochs(done.stdout)
    assert [epoch for epoch, _, _ in lines] == list(range(10))
    assert lines[-1][2] > 90


@pytest.mark.parametrize("amp", ["none", "O1", "O2"])
def test_a_resumed_run_ends_as_an_unbroken_one(amp: str, tmp_path: Path) -> None:
    half, whole, resumed = (tmp_path / name for name in ("half.pt", "whole.pt", "resumed.pt"))
    options = ("--amp", amp, "--loss-scale", "dynamic")
    run(*options, "--epochs", "1", "--checkpoint", half)
    unbroken = run(*options, "--epochs", "2", "--checkpoint", whole)
    rest = run(*options, "--epochs", "2", "--resume", half, "--checkpoint", resumed)
    assert rest.returncode == 0, rest.stderr
    assert epochs(rest.stdout) == epochs(unbroken.stdout)[1:]

    import torch

    a, b = (torch.load(file, map_location="cpu")["model"] for file in (whole, resumed))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_the_profiler_takes_the_guides_argument() -> None:
    done = run("--epochs", "1", "--profile")
    assert done.returncode == 0, done.stderr
    assert "aten::conv2d" in done.stdout


def test_a_second_card_is_answered_with_their_number() -> None:
    done = run("--device", "npu:1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "RuntimeError: npu:1 does not exist: npu_core emulates 1 device, npu:0"
    )
