"""Dumping a GPT step against msprobe's `tensor` task at level L1: time added per stored tensor.

Both store full tensors of forward and backward. Ours stores more of them (every aten op's, msprobe
every API's), so the time is divided by their number: stored tensors for ours, links not counted,
files for msprobe.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import Case, Missing

ROOT = Path(__file__).resolve().parents[2]
STEP = Path(__file__).with_name("gpt_step.py")


def cases(folder: Path, quick: bool) -> list[Case]:
    """One case: the step of 6 layers (1 when quick). Raises Missing without msprobe."""
    layers = 1 if quick else 6
    packages = _msprobe()
    size = f"{layers} layers, d 256, batch 4 x 64"
    ours = _added_time("ours", folder / "ours", layers, ROOT)
    theirs = _added_time("msprobe", folder / "msprobe", layers, packages)
    return [Case("GPT step, all ops", size, "msprobe L1 tensor", ours, theirs, "ms a tensor")]


def _added_time(side: str, folder: Path, layers: int, packages: Path) -> Callable[[], float]:
    """Milliseconds that dumping adds to the step, per stored tensor, each run a fresh process."""

    def run() -> float:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, STEP, side, folder, str(layers)],
            env={**os.environ, "PYTHONPATH": str(packages)},
            capture_output=True,
            text=True,
        )
        shutil.rmtree(folder)
        if done.returncode:
            raise RuntimeError(f"the step under {side} failed:\n{done.stderr[-2000:]}")
        found = json.loads(done.stdout.splitlines()[-1])
        return (found["dumped_s"] - found["plain_s"]) / found["tensors"] * 1e3

    return run


def _msprobe() -> Path:
    """The packages of the environment that `scripts/peer probe` makes."""
    hint = "run scripts/peer probe"
    found = sorted((ROOT / ".peer" / "lib").glob("python*/site-packages"))
    if not found or not (found[0] / "tensorboard").exists():
        raise Missing(f"msprobe and what it imports are not installed: {hint}")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if found[0].parent.name != version:
        raise Missing(f".peer was made with {found[0].parent.name}, this is {version}: {hint}")
    return found[0]
