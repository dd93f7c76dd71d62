"""`msaccucmp compare` against the peer's, both as a user starts them, on files in the peer's
layout."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from benchmarks import Case, Missing

ROOT = Path(__file__).resolve().parents[2]
NPU, CUDA = 10, 1


def cases(folder: Path, quick: bool) -> list[Case]:
    """Few large tensors, which measure arithmetic, and many small ones, which measure the rest.

    TORCH_DUMPER_PEER_PYTHON and TORCH_DUMPER_PEER name the peer's Python and msaccucmp.py; without
    them the environment of scripts/peer is used. Raises Missing without a peer.
    """
    peer = _peer()
    ops, elements = (4, 1 << 18) if quick else (100, 1 << 20)
    large = _pair(folder / "large", ops, ("output/result0", "output/result1"), elements)
    count = 200 if quick else 5000
    small = _pair(folder / "small", count, ("input/self", "input/other", "output/result"), 64)
    return [
        _case(f"{ops} ops x 2 outputs x {elements} float32", large, peer, folder),
        _case(f"{count} ops x 3 tensors x 64 float32", small, peer, folder),
    ]


def _case(name: str, pair: tuple[Path, Path], peer: list[str], folder: Path) -> Case:
    ours = [sys.executable, str(ROOT / "scripts" / "msaccucmp.py")]
    size = f"{pair[0].stat().st_size / 1e6:.0f} MB a file"
    arguments = ["compare", "-m", str(pair[0]), "-g", str(pair[1]), "-out", str(folder / "out")]
    return Case(
        name, size, "peer msaccucmp", _timed(ours + arguments, 1), _timed(peer + arguments, 0)
    )


def _timed(command: list[str], status: int) -> Callable[[], float]:
    """Seconds that a command takes; it must end with the status that its result has."""

    def run() -> float:
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - start
        if done.returncode != status:
            raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return seconds

    return run


def _peer() -> list[str]:
    python = Path(os.environ.get("TORCH_DUMPER_PEER_PYTHON", ROOT / ".peer" / "bin" / "python"))
    script = os.environ.get("TORCH_DUMPER_PEER")
    if not python.exists():
        raise Missing(f"the peer is not installed ({python} is missing): run scripts/peer")
    if script is None:
        found = subprocess.run(
            [ROOT / "scripts" / "peer"], capture_output=True, text=True, check=True
        )
        script = found.stdout.strip()
    return [str(python), script]


def _pair(folder: Path, ops: int, names: tuple[str, ...], elements: int) -> tuple[Path, Path]:
    folder.mkdir()
    paths = folder / "npu.h5", folder / "cuda.h5"
    for path, device, noise in zip(paths, (NPU, CUDA), (1e-3, 0.0), strict=True):
        _write(path, device, ops, names, elements, noise)
    return paths


def _write(
    path: Path, device: int, ops: int, names: tuple[str, ...], elements: int, noise: float
) -> None:
    """A dump in the original layout. noise: relative; golden has none."""
    random = np.random.default_rng(1)
    base = random.standard_normal(elements).astype(np.float32)
    error = np.float32(noise) * random.standard_normal(elements).astype(np.float32)
    with h5py.File(path, "w") as file:
        for seqid in range(1, ops + 1):
            values = base * np.float32(1 + seqid / ops)
            for i, name in enumerate(names):
                data = file.create_dataset(
                    f"op{seqid % 20}/{seqid}/{name}", data=values * (1 + error * (i + 1))
                )
                for key, value in (("Type", 0), ("DataType", 1), ("DeviceType", device)):
                    data.attrs[key] = np.int32(value)
                data.attrs["FormatType"] = np.int32(0)
                data.attrs["Stride"] = np.array([1], np.int64)
