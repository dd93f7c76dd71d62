"""How fast CANN dumps are converted, each case beside what it may cost: ratio 1 is the limit.

1. One file with 128 MiB of float16 to npy: 60 % of the rate at which Python reads and writes the
   same bytes, the page cache warm.
2. 1 Mi elements of float8_e5m2 to npy, which is float32: 20 ms.
3. A folder of 2000 small files, two inputs and an output each: 1000 files a second, in memory
   (/dev/shm) where there is such a disk: on others it can take half a millisecond to make a file,
   most of all when many were just removed. So each run has a folder of its own, which stays.
4. Memory that converting 16 tensors of 16 MiB adds: twice that of one tensor.

The peer's parser is closed and needs CANN, so it has no part in this; with a stand-in for it the
first took 0.71 s and the second 1.84 s, the start included. Without a limit: the whole command, and
the small files on disk, beside plainly making as many of the same size.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
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
    "import re, sys; sys.path[:0] = sys.argv[1:3]\n"
    "from benchmarks.convert import convert\n"
    "from pathlib import Path\n"
    "peak = lambda: int(re.search(r'VmHWM:\\s*(\\d+)', Path('/proc/self/status').read_text())[1])\n"
    "before = peak(); convert(Path(sys.argv[3]), Path(sys.argv[4])); print(peak() - before)\n"
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
    files = 2000 // scale
    on_disk, in_memory = _many(folder, files), _many(_memory(folder), files)
    tensors = [half[(8 << 20) // scale * (i % 8) :][: (8 << 20) // scale] for i in range(16)]
    wide = _dump(folder / f"Cast.wide.1.1.{_STAMP}", tensors, "float16")
    size = f"{count * 2 >> 20} MiB float16"
    limit = 2 * tensors[0].nbytes / 2**20 + (8 if quick else 0)

    return [
        Case("one large tensor", size, "read and write / 0.6", lambda: _taken(large, _new(folder)),
             lambda: _plain(large, _new(folder)) / _SHARE),
        Case("one large tensor, whole command", size, "read and write",
             lambda: _command(large, _new(folder)), lambda: _plain(large, _new(folder)),
             limit=False),
        Case("float8_e5m2", f"{data.size} elements", "20 ms", lambda: _taken(narrow, _new(folder)),
             lambda: _SECONDS),
        Case("small files", f"{files} files, 3 tensors each", "1000 files a second",
             lambda: _taken(in_memory, _new(in_memory.parent)), lambda: files / _RATE),
        Case("small files, on disk", f"{files} files, 3 tensors each", "made plainly",
             lambda: _taken(on_disk, _new(folder)), lambda: _made(3 * files, _new(folder)),
             limit=False),
        Case("memory", f"16 x {tensors[0].nbytes >> 20} MiB", "twice a tensor",
             lambda: _added(wide, _new(folder)), lambda: limit, unit="MiB"),
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


def _many(folder: Path, files: int) -> Path:
    many = folder / "many"
    many.mkdir()
    for i in range(files):
        _dump(many / f"Add.add_{i}.{i}.1.{_STAMP}", [np.ones(64, "f2")] * 3, "float16")
    return many


def _memory(folder: Path) -> Path:
    """A folder in memory; on disk where the system has no such thing."""
    shared = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="bench-", dir=shared if shared.is_dir() else folder))
    atexit.register(shutil.rmtree, made)
    return made


def _new(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix="out-", dir=folder))


def _made(count: int, out: Path) -> float:
    data = bytes(256)
    start = time.perf_counter()
    for i in range(count):
        (out / str(i)).write_bytes(data)
    return time.perf_counter() - start


def _taken(path: Path, out: Path) -> float:
    start = time.perf_counter()
    convert(path, out)
    taken = time.perf_counter() - start
    if path.is_file():
        shutil.rmtree(out)
    return taken


def _plain(path: Path, out: Path) -> float:
    start = time.perf_counter()
    (out / "copy").write_bytes(path.read_bytes())
    taken = time.perf_counter() - start
    shutil.rmtree(out)
    return taken


def _command(path: Path, out: Path) -> float:
    script = Path(__file__).resolve().parents[1] / "msaccucmp.py"
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, script, "convert", "-d", path, "-out", out],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    taken = time.perf_counter() - start
    shutil.rmtree(out)
    return taken


def _added(path: Path, out: Path) -> float:
    """MiB that converting adds to the peak of a fresh process; mapped files count."""
    scripts = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", _PEAK, scripts.parent, scripts, path, out]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    shutil.rmtree(out)
    return max(int(done.stdout) / 1024, 0.01)
