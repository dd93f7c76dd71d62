"""Train on the emulated npu for long and see whether memory stays flat.

scripts/soak [CASE...] [--steps N] [--profile P]. Each case warms up for a tenth of the steps, then
the process's memory is read twenty times. Two figures: bytes in use by malloc, where one lost
tensor a step shows at once, and the resident size, which also holds what Python's own allocator
keeps. A case is flat when neither grew by more than 64 bytes a step (the smallest tensor takes
several hundred) beside what a figure moves by itself: 64 KiB in use, 1 MiB resident. Ends with 1
when a case is not flat.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import click
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import npu_core

Step = Callable[[], object]
BYTES_A_STEP, SWAY_IN_USE, SWAY_RESIDENT = 64, 64 << 10, 1 << 20
READINGS = 20


class Growth(NamedTuple):
    """Growth in bytes over some steps."""

    steps: int
    in_use: int
    resident: int

    @property
    def flat(self) -> bool:
        """Whether it is less than one lost tensor a step would make."""
        allowed = BYTES_A_STEP * self.steps
        return self.in_use <= allowed + SWAY_IN_USE and self.resident <= allowed + SWAY_RESIDENT


def mlp() -> Step:
    """Linear layers, SGD one tensor at a time."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10)).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=False)
    inputs, targets = torch.randn(8, 16).npu(), torch.randint(0, 10, (8,)).npu()

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def cnn() -> Step:
    """Convolution and batch norm under autocast with loss scaling, AdamW foreach, fresh batches."""
    layers = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 10)).npu()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    scaler = torch.amp.GradScaler("npu")

    def step() -> None:
        inputs, targets = torch.randn(4, 1, 8, 8).npu(), torch.randint(0, 10, (4,)).npu()
        optimizer.zero_grad()
        with torch.autocast("npu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def transformer() -> Step:
    """A transformer layer with dropout, recomputed in backward; hooks, Adam fused."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).npu()
    layer.register_full_backward_hook(lambda *_: None)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-4, fused=True)
    inputs = torch.randn(2, 5, 16).npu().requires_grad_()

    def step() -> float:
        optimizer.zero_grad()
        loss = checkpoint(layer, inputs, use_reentrant=False).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


CASES = {case.__name__: case for case in (mlp, cnn, transformer)}


def grow(step: Step, warm_up: int, steps: int) -> Growth:
    """Growth of the process's memory over `steps` calls after `warm_up` ones.

    From the median of the first quarter of the readings to that of the last: what lies between is
    three quarters of the steps, which is what the result says.
    """
    for _ in range(warm_up):
        step()
    readings = []
    for _ in range(READINGS):
        for _ in range(steps // READINGS):
            step()
        gc.collect()
        readings.append((torch.npu.memory_allocated(), torch.npu.memory_reserved()))
    quarter = READINGS // 4
    in_use, resident = (
        int(median(figures[-quarter:]) - median(figures[:quarter]))
        for figures in zip(*readings, strict=True)
    )
    return Growth(steps // READINGS * (READINGS - quarter), in_use, resident)


@click.command()
@click.argument("names", metavar="[CASE]...", nargs=-1, type=click.Choice(list(CASES)))
@click.option("--steps", default=10_000, type=click.IntRange(min=10 * READINGS), show_default=True)
@click.option("--profile", default="910A", type=click.Choice(["910A", "910B", "exact"]))
def soak(names: tuple[str, ...], steps: int, profile: str) -> None:
    """Train each CASE (all by default) and say whether memory stays flat."""
    npu_core.use(profile)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    flat = True
    for name in names or CASES:
        growth = grow(CASES[name](), steps // 10, steps)
        flat = flat and growth.flat
        click.echo(
            f"{name}: {'flat' if growth.flat else 'GREW'} over {growth.steps} steps: "
            f"{growth.in_use / 1024:+.0f} KiB in use, {growth.resident / 1024:+.0f} KiB resident"
        )
    sys.exit(0 if flat else 1)


if __name__ == "__main__":
    soak()
