"""How fast CANN dumps are converted, each case beside what it may cost: ratio 1 is the limit.

1. One file with 128 MiB of float16 to npy: 60 % of the rate at which Python reads and writes the
   same bytes, the page cache warm.
2. 1 Mi elements of float8_e5m2 to npy, which is float32: 20 ms.
3. A folder of 2000 small files, two inputs and an output each: 1000 files a second.
4. Memory that converting 16 tensors of 16 MiB adds: that of one tensor, twice for what is widened.

The peer's parser is closed and needs CANN, so it has no part in this; with a stand-in for it the
first took 0.71 s and the second 1.84 s, the start included. Without a limit: the whole command.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks import Case
from compare.converting import convert_all
from ir2tbe.cann.content import Dump, tensor_of
from ir2tbe.cann.file import write
from ir2tbe.cann.types import BY_NAME, decode
from ir2tbe.convert import Request
from ir2tbe.sources import find

_STAMP = 1673383728093446
_SHARE, _SECONDS, _RATE = 0.6, 0.020, 1000
_PEAK = (
    "import resource, sys; sys.path[:0] = sys.argv[1:3]\n"
    "from benchmarks.convert import convert\n"
    "from pathlib import Path\n"
    "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    "convert(Path(sys.argv[3]), Path(sys.argv[4]))\n"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
)


def cases(folder: Path, quick: bool) -> list[Case]:
    """All cases, small ones when quick."""
    scale = 64 if quick else 1
    count = (64 << 20) // scale
    half = np.random.default_rng(0).integers(0, 1 << 16, count, np.uint16).view("f2")
    large = _dump(folder / f"Cast.large.1.1.{_STAMP}", [half], "float16")
    data = half.view(np.uint8)[: (1 << 20) // scale]
    small = decode(data, BY_NAME["float8_e5m2"], data.size)
    narrow = _dump(folder / f"Cast.narrow.1.1.{_STAMP}", [small], "float8_e5m2")
    many = folder / "many"
    many.mkdir()
    for i in range(files := 2000 // scale):
        _dump(many / f"Add.add_{i}.{i}.1.{_STAMP}", [half[:64]] * 3, "float16")
    tensors = [half[: (8 << 20) // scale] + np.float16(i) for i in range(16)]
    wide = _dump(folder / f"Cast.wide.1.1.{_STAMP}", tensors, "float16")
    out, size = folder / "out", f"{count * 2 >> 20} MiB float16"
    limit = 2 * tensors[0].nbytes / 2**20 + (8 if quick else 0)

    return [
        Case("one large tensor", size, "read and write / 0.6", lambda: _taken(large, out),
             lambda: _plain(large, out) / _SHARE),
        Case("one large tensor, whole command", size, "read and write", lambda: _command(large, out),
             lambda: _plain(large, out), limit=False),
        Case("float8_e5m2", f"{data.size} elements", "20 ms", lambda: _taken(narrow, out),
             lambda: _SECONDS),
        Case("small files", f"{files} files, 3 tensors each", "1000 files a second",
             lambda: _taken(many, out), lambda: files / _RATE),
        Case("memory", f"16 x {tensors[0].nbytes >> 20} MiB", "twice a tensor",
             lambda: _added(wide, out), lambda: limit, unit="MiB"),
    ]  # fmt: skip


def convert(path: Path, out: Path) -> None:
    """Convert a file or folder to npy. Raises the first error."""
    for result in convert_all(find([path]).files, out, Request()):
        for error in result.errors:
            raise error


def _dump(path: Path, tensors: list[np.ndarray], kind: str) -> Path:
    made = [tensor_of(values, BY_NAME[kind]) for values in tensors]
    write(path, Dump(tuple(made[:-1]), tuple(made[-1:])))
    return path


def _taken(path: Path, out: Path) -> float:
    shutil.rmtree(out, ignore_errors=True)
    start = time.perf_counter()
    convert(path, out)
    return time.perf_counter() - start


def _plain(path: Path, out: Path) -> float:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    start = time.perf_counter()
    (out / "copy").write_bytes(path.read_bytes())
    return time.perf_counter() - start


def _command(path: Path, out: Path) -> float:
    shutil.rmtree(out, ignore_errors=True)
    script = Path(__file__).resolve().parents[1] / "msaccucmp.py"
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, script, "convert", "-d", path, "-out", out],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return time.perf_counter() - start


def _added(path: Path, out: Path) -> float:
    """MiB that converting adds to the peak of a fresh process; mapped files count."""
    shutil.rmtree(out, ignore_errors=True)
    scripts = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", _PEAK, scripts.parent, scripts, path, out]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return max(int(done.stdout) / 1024, 0.01)
