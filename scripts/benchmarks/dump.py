"""What a dump costs, each case beside what it may cost: ratio 1 is the limit, more is better.

1. A GPT step, every op, against msprobe's `tensor` task at level L1 on the same step: time added
   for each recorded tensor, at most a third of msprobe's for each of its files. Recorded is every
   input and output of every op, also one that is stored as a link.
2. A step of wide layers, tensors of 4 and 16 MB, and one where every tensor is of 4 MB: the file
   grows at 60 % of the rate of one plain write of as many bytes.
3. Small ops: the last tenth or twentieth at 80 % of the first one's rate, memory flat.
4. Copies that wait to be written: peak memory over the plain step's, at most the setting.
5. A dumper that is disabled, before and after: 1 % of the step.

A process each, because msprobe wraps torch's functions for good and memory is the process's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import Case, Missing

ROOT = Path(__file__).resolve().parents[2]
GPT = Path(__file__).with_name("gpt_step.py")
STEP = Path(__file__).with_name("dump_step.py")

_THIRD, _GROWTH, _STEADY, _OFF = 1 / 3, 0.6, 0.8, 1.01


def cases(folder: Path, quick: bool) -> list[Case]:
    """Seven cases, small ones when quick. Raises Missing without msprobe."""
    packages = _msprobe()
    layers = 1 if quick else 6
    wide = 4 if quick else 64
    small = 2_000 if quick else 200_000
    window = small // 20
    run = partial(_run, folder)

    def added(side: str, path: Path) -> float:
        found = run(GPT, side, folder / side, layers, packages=path)
        return (found["dumped_s"] - found["plain_s"]) / found["recorded"] * 1e3

    wide_step = _Both(lambda: run(STEP, "wide", folder / "wide", wide // 16 or 1))
    square = _Both(lambda: run(STEP, "square", folder / "square", wide // 4))
    steady = _Both(lambda: run(STEP, "small", folder / "small", small))
    memory = _Both(lambda: run(STEP, "memory", folder / "memory", wide))
    off = _Both(lambda: run(STEP, "off", folder / "off", layers))
    return [
        Case(
            "GPT step, every op",
            f"{layers} layers, d 256, batch 4 x 64",
            "a third of msprobe L1 tensor",
            lambda: added("ours", ROOT),
            lambda: added("msprobe", packages) * _THIRD,
            "ms a recorded tensor",
        ),
        Case(
            "wide layers",
            f"{wide // 8 or 2} layers, tensors of 4 and 16 MB",
            "plain write / 0.6",
            lambda: wide_step.ours("dumped_s"),
            lambda: wide_step.theirs("plain_write_s") / _GROWTH,
            "s",
        ),
        Case(
            "wide layers, the smallest",
            f"{wide // 4} layers, tensors of 4 MB",
            "plain write / 0.6",
            lambda: square.ours("dumped_s"),
            lambda: square.theirs("plain_write_s") / _GROWTH,
            "s",
        ),
        Case(
            f"small ops, the last {window}",
            f"{small} ops",
            f"the first {window} / 0.8",
            lambda: steady.ours("last_s"),
            lambda: steady.theirs("first_s") / _STEADY,
            "s",
        ),
        Case(
            "small ops, growth of memory",
            f"{small} ops",
            "16 MB",
            lambda: steady.ours("grown_mb"),
            lambda: 16.0,
            "MB",
        ),
        Case(
            "waiting copies, peak memory",
            f"{wide} x 4 MB",
            "memory=64 MiB and 64 MB of its own",
            lambda: memory.ours("extra_mb"),
            lambda: memory.theirs("allowed_mb"),
            "MB",
        ),
        Case(
            "dumper disabled",
            f"{layers} layers, d 256, batch 4 x 64",
            "plain step + 1 %",
            lambda: off.ours("disabled_s"),
            lambda: off.theirs("plain_s") * _OFF,
            "s",
        ),
    ]


class _Both:
    """A process that measures both sides at once: run for ours, its other figures for theirs."""

    def __init__(self, run: Callable[[], dict[str, float]]) -> None:
        self._run = run
        self._found: dict[str, float] = {}

    def ours(self, key: str) -> float:
        """A figure of a new run."""
        self._found = self._run()
        return self._found[key]

    def theirs(self, key: str) -> float:
        """A figure of the run that ours came from."""
        return self._found[key]


def _run(folder: Path, script: Path, *arguments: object, packages: Path = ROOT) -> dict[str, float]:
    """The figures that one process prints."""
    place = Path(str(arguments[1]))
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{packages}{os.pathsep}{ROOT / 'scripts'}"},
        capture_output=True,
        text=True,
    )
    shutil.rmtree(place)
    if done.returncode:
        raise RuntimeError(f"{script.name} {arguments[0]} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


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
