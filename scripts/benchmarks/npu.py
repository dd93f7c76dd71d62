"""The emulated npu against the CPU: what an op costs more, and what a step costs.

Small tensors show the price of the way through Python; its measure is an empty TorchDispatchMode
on the CPU, the least that any tool which sees every op has to pay. At d 512 the arithmetic weighs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from torch.utils._python_dispatch import TorchDispatchMode

import npu_core
from benchmarks import Case
from benchmarks.gpt_step import make, seconds

PROFILES = ("exact", "910B", "910A")


class Empty(TorchDispatchMode):
    """Sees every op, counts it, does nothing."""

    ops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops += 1
        return func(*args, **(kwargs or {}))


def cases(folder: Path, quick: bool) -> list[Case]:
    """Added cost per op with small tensors, then whole steps at d 512 in each profile."""
    layers, width = (1, 32) if quick else (6, 512)
    small = (1, 32, (1, 4)) if quick else (6, 32, (1, 8))
    repeat = 2 if quick else 9
    size = f"{small[0]} layers, d {small[1]}, batch {small[2][0]} x {small[2][1]}"
    found = [
        Case(
            "GPT step, added per op",
            size,
            "empty dispatch mode, CPU",
            _added_per_op(small, "npu", nullcontext, repeat),
            _added_per_op(small, "cpu", Empty, repeat),
            "us an op",
        )
    ]
    for profile in PROFILES:
        found.append(
            Case(
                f"GPT step, {profile}",
                f"{layers} layers, d {width}, batch 4 x 64",
                "CPU",
                _step(layers, width, "npu", profile, repeat),
                _step(layers, width, "cpu", profile, repeat),
                "ms",
            )
        )
    return found


def _median(step: Callable[[], None], repeat: int) -> float:
    return statistics.median(seconds(step) for _ in range(repeat))


def _added_per_op(
    size: tuple, device: str, mode: Callable[[], AbstractContextManager], repeat: int
) -> Callable[[], float]:
    """Microseconds that `device` under `mode` adds to an op of the plain CPU step."""
    layers, width, batch = size
    plain = make(layers, width, "cpu", batch)[1]
    step = make(layers, width, device, batch)[1]
    with Empty() as counted:
        step()

    def run() -> float:
        with npu_core.use("exact"):
            base = _median(plain, repeat)
            with mode():
                slow = _median(step, repeat)
        return (slow - base) / counted.ops * 1e6

    return run


def _step(layers: int, width: int, device: str, profile: str, repeat: int) -> Callable[[], float]:
    """Milliseconds of a step, the median of several."""
    step = make(layers, width, device)[1]

    def run() -> float:
        with npu_core.use(profile):
            return _median(step, repeat) * 1e3

    return run
