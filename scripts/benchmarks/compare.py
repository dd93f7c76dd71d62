"""`msaccucmp compare` against the peer's and against its own limits, as a user starts it.

A baseline is what a case may take at most, so ratio 1 is the limit and more is better:

1. Large tensors: a fifteenth of the peer's time, a twenty-fifth without the Kullback-Leibler
   divergence. Rates are those of the work: of either side's time, what it takes for a pair of one
   element is taken off. The whole command is a case of its own.
2. Many small tensors: a twenty-fifth of the peer's, start included.
3. 100 000 ops: time per op as with a tenth of them, 20 % more allowed.
4. Other dtypes: half the rate of float32 in bytes.
5. Two files of 20 GB: peak memory of 500 MB.

Beside those, how ours stands to reading both files and summing them up with numpy, in one thread.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import Case, Missing
from benchmarks.compare_files import Pair, dense, once, sparse

ROOT = Path(__file__).resolve().parents[2]
_OURS = [sys.executable, str(ROOT / "scripts" / "msaccucmp.py")]
_LARGE = ("output/result0", "output/result1")
_SMALL = ("input/self", "input/other", "output/result")
_NO_DIVERGENCE = ("-alg", "0,1,2,3,5,6,7,8,9")
_MOST_MB = 500


def cases(folder: Path, quick: bool) -> list[Case]:
    """All cases, small ones when quick.

    TORCH_DUMPER_PEER_PYTHON and TORCH_DUMPER_PEER name the peer's Python and msaccucmp.py; without
    them the environment of scripts/peer is used. Raises Missing without a peer.
    """
    peer = _peer()
    out = folder / "out"
    ops, elements = (4, 1 << 18) if quick else (100, 1 << 20)
    count, many = (200, 2_000) if quick else (5000, 100_000)
    tensors, huge = (2, 1 << 24) if quick else (5, 1 << 30)
    start = once(dense, folder / "start", 1, _LARGE[:1], 1)
    large = once(dense, folder / "large", ops, _LARGE, elements)
    small = once(dense, folder / "small", count, _SMALL, 64)
    sizes = f"{ops} ops x 2 outputs x {elements} float32"

    def seconds(command: list[str], zero: str, pair: Callable[[], Pair], *more: str) -> float:
        mine, golden = pair()
        arguments = ["compare", "-m", str(mine), "-g", str(golden), "-out", str(out), *more]
        return _timed([*command, *arguments, *zero.split()])

    ours, theirs = partial(seconds, _OURS, "--exit-zero"), partial(seconds, peer, "")

    def work(side: Callable[..., float], pair: Callable[[], Pair], *more: str) -> float:
        return side(pair, *more) - side(start, *more)

    def per_op(pair: Callable[[], Pair], ops: int) -> float:
        return work(ours, pair) / ops * 1e6

    def per_gigabyte(pair: Callable[[], Pair]) -> float:
        return work(ours, pair) / (2 * pair()[0].stat().st_size) * 1e9

    tenth = once(dense, folder / "tenth", many // 10, _LARGE[:1], 16)
    whole = once(dense, folder / "whole", many, _LARGE[:1], 16)
    vast = once(sparse, folder / "vast", tensors, huge)
    found = [
        Case(f"{sizes}, without the start", "all ten", "peer / 15",
             lambda: work(ours, large), lambda: work(theirs, large) / 15),
        Case(f"{sizes}, without the start", "without divergence", "peer, all ten / 25",
             lambda: work(ours, large, *_NO_DIVERGENCE), lambda: work(theirs, large) / 25),
        Case(f"{sizes}, whole command", "all ten", "peer / 15",
             lambda: ours(large), lambda: theirs(large) / 15),
        Case(f"{sizes}, without the start", "all ten", "numpy, read and sum",
             lambda: work(ours, large), lambda: _read_and_sum(large()), limit=False),
        Case(f"{count} ops x 3 tensors x 64 float32", "whole command", "peer / 25",
             lambda: ours(small), lambda: theirs(small) / 25),
        Case("time an op", f"{many} ops", f"{many // 10} ops, 20 % more",
             lambda: per_op(whole, many), lambda: per_op(tenth, many // 10) * 1.2, unit="us"),
    ]  # fmt: skip
    for dtype in ("float16", "bfloat16", "int8", "float64"):
        other = once(dense, folder / dtype, ops, _LARGE, elements, dtype)
        found.append(
            Case(dtype, sizes.replace("float32", dtype), "float32, half the rate",
                 lambda other=other: per_gigabyte(other), lambda: 2 * per_gigabyte(large),
                 unit="s a GB")
        )  # fmt: skip
    found.append(
        Case("peak memory", f"2 x {tensors * huge * 4 / 1e9:.1f} GB", f"{_MOST_MB} MB",
             lambda: _peak(vast(), out), lambda: float(_MOST_MB), unit="MB")
    )  # fmt: skip
    return found


def _timed(command: list[str]) -> float:
    """Seconds that a command takes; it must end with 0."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return seconds


def _peak(pair: Pair, out: Path) -> float:
    """Megabytes of memory that a comparison takes at most."""
    arguments = ["compare", "-m", str(pair[0]), "-g", str(pair[1]), "-out", str(out)]
    arguments.append("--exit-zero")
    child = subprocess.Popen([*_OURS, *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"comparing {pair[0]} ended with {child.returncode}")
    return used.ru_maxrss * 1024 / 1e6


def _read_and_sum(pair: Pair) -> float:
    """Seconds to read both files and add their elements up, in pieces that fit a cache."""
    room = np.empty(1 << 18, np.float32)
    start = time.perf_counter()
    for path in pair:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(room):
                room.sum(dtype=np.float64)
    return time.perf_counter() - start


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
