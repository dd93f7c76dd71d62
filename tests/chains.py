"""Two small dumps of a chain of ops, and the command that compares them, for several test files."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from dumps import dump

from compare.cli import cli

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "msaccucmp.py"

GOOD = [[1, 2], [2, 4], [2, 4], [6]]
"""Values of the four tensors of `chain`."""


def chain(values: list) -> dict[str, np.ndarray]:
    """Three ops; the output of each is the next one's input. values: of the four tensors."""
    names = [
        "mul/1/input/self",
        "mul/1/output/result",
        "relu/2/output/result",
        "sum/3/output/result",
    ]
    tensors = dict(zip(names, (np.asarray(v, "f4") for v in values), strict=True))
    tensors["relu/2/input/self"] = tensors["mul/1/output/result"]
    tensors["sum/3/input/self"] = tensors["relu/2/output/result"]
    return tensors


def equal_pair(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two equal dumps of different devices in `folder`, which becomes the working directory."""
    monkeypatch.chdir(folder)
    dump(folder / "npu.h5", chain(GOOD), 10)
    dump(folder / "cpu.h5", chain(GOOD), 0)
    return Path("npu.h5"), Path("cpu.h5")


def run(*arguments: object) -> Result:
    """`msaccucmp` in this process."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def compare(mine: object, golden: object, *more: object) -> Result:
    """`msaccucmp compare` in this process."""
    return run("compare", "-m", mine, "-g", golden, *more)


def result(done: Result) -> list[dict[str, str]]:
    """The rows of the csv that a command named in its last line."""
    path = done.stdout.splitlines()[-1].removeprefix("result: ")
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def script(
    *arguments: object, cwd: Path, encoding: str = "utf-8", **environment: str
) -> subprocess.CompletedProcess:
    """`msaccucmp` as a program of its own. encoding: of what it prints."""
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        capture_output=True, encoding=encoding, cwd=cwd, env={**os.environ, **environment},
    )  # fmt: skip
