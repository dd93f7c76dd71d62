"""One process of the dump benchmark: python dump_step.py wide|square|small|memory|off FOLDER SIZE.

Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn

import dumper
from benchmarks import gpt_step
from benchmarks.gpt_step import seconds

MB = 1e6
FOUR_MB = 1 << 20  # float32 elements
ROUNDS = 10


def wide(folder: Path, blocks: int) -> dict[str, float]:
    """Wide layers, 1024 to 4096 and back, so tensors of 4 and 16 MB: see `_beside_plain`."""
    layers = [(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(blocks)]
    return _beside_plain(folder, nn.Sequential(*(layer for block in layers for layer in block)))


def square(folder: Path, count: int) -> dict[str, float]:
    """Layers whose tensors are all of 4 MB: see `_beside_plain`."""
    return _beside_plain(folder, nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(count))))


def _beside_plain(folder: Path, layers: nn.Module) -> dict[str, float]:
    """Time that dumping adds to forward and backward, and that of a plain write of as many bytes.

    Memory that a deleted file gave back is filled ten times faster than memory never used: each
    file is deleted before the next is begun, so that both sides have the former.
    """
    x = torch.ones(FOUR_MB).reshape(1024, 1024)

    def step() -> None:
        layers.zero_grad()
        layers(x).sum().backward()

    dumps = [folder / f"{i}.h5" for i in range(1 + ROUNDS)]

    def dumped(path: Path) -> None:
        with dumper.dumper(use_dump=True, dump_path=path):
            step()

    def write(path: Path) -> None:
        with open(path, "wb", buffering=0) as file:
            for _ in range(blocks):
                file.write(block)

    def without_file(call: Callable[[Path], None], path: Path) -> float:
        taken = seconds(partial(call, path))
        path.unlink()
        return taken

    step()
    dumped(dumps[0])
    block, blocks = os.urandom(1 << 22), dumps[0].stat().st_size >> 22
    dumps[0].unlink()
    added, written = [], []
    for path in dumps[1:]:
        written.append(without_file(write, folder / "plain"))
        added.append(without_file(dumped, path) - seconds(step))
    return {"dumped_s": statistics.median(added), "plain_write_s": statistics.median(written)}


def small(folder: Path, count: int) -> dict[str, float]:
    """Ops on 64 floats: time of the first and of the last twentieth, and how memory grew."""
    window = count // 20
    torch.set_num_threads(1)
    x, marks, memory = torch.ones(64), [time.perf_counter()], []
    with dumper.dumper(use_dump=True, dump_path=folder / "x.h5"):
        for _ in range(20):
            for _ in range(window):
                x.mul(1.5)
            marks.append(time.perf_counter())
            memory.append(resident())
    spans = [later - earlier for earlier, later in zip(marks, marks[1:], strict=False)]
    grown = (memory[-1] - memory[1]) / MB  # after the first tenth, which fills caches
    return {"first_s": spans[0], "last_s": spans[-1], "grown_mb": max(grown, 0.01)}


def memory(folder: Path, count: int) -> dict[str, float]:
    """How much higher the peak of a dumped step is than the plain step's."""
    kept = [torch.ones(FOUR_MB) for _ in range(count)]

    def step() -> None:
        for tensor in kept:
            tensor.mul_(1.0001)

    step()
    allowed = 64 << 20
    with dumper.dumper(use_dump=True, dump_path=folder / "first.h5", memory=allowed):
        torch.ones(1)
    before = peak()
    with dumper.dumper(use_dump=True, dump_path=folder / "x.h5", memory=allowed):
        step()
    return {"extra_mb": max((peak() - before) / MB, 0.01), "allowed_mb": allowed / MB + 64}


def off(folder: Path, layers: int) -> dict[str, float]:
    """A plain step and one inside a disabled context, in turn; medians."""
    _, step = gpt_step.make(layers)

    def disabled() -> None:
        with dumper.dumper(enabled=False, use_dump=True, dump_path=folder / "x.h5"):
            step()

    with dumper.dumper(use_dump=True, dump_path=folder / "y.h5"):
        step()  # what a context leaves behind would cost here
    step()
    pairs = [(seconds(step), seconds(disabled)) for _ in range(60)]
    plain, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {"plain_s": plain, "disabled_s": other}


def resident() -> int:
    """Bytes of memory that the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak() -> int:
    """Bytes of memory that the process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Measure one thing and print its figures."""
    what, folder, size = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    measure = {"wide": wide, "square": square, "small": small, "memory": memory, "off": off}[what]
    print(json.dumps(measure(folder, size)))


if __name__ == "__main__":
    main()
