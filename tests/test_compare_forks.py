"""Small pairs measured by other processes: the same rows, whatever happens to those."""

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from dumps import dump, put

from compare import engine, forks, rooms
from compare.comparing import Options
from compare.engine import compare_and_write, compare_dumps
from dumper.reader import open_dump

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def pair(tmp_path):
    """Small tensors of many kinds, some that forks cannot have, and some that cannot be read."""
    random = np.random.default_rng(0)
    paths = tmp_path / "m.h5", tmp_path / "g.h5"
    for path in paths:
        with h5py.File(path, "w") as file:
            for i in range(40):
                for dtype in ("f4", "f2", "i1", "i8", "f8", "c8"):
                    put(file, f"op{i % 3}/{i}/output/{dtype}", random.normal(0, 9, i).astype(dtype))
                put(file, f"op{i % 3}/{i}/input/n", np.int64(i % 5), kind=3)
            put(file, "large/41/output/x", random.normal(0, 1, 1 << 17))
            packed = file.create_dataset(
                "packed/42/output/x", data=random.normal(0, 1, 64), chunks=(8,), compression="gzip"
            )
            for name, value in (("Type", 0), ("DataType", 11), ("DeviceType", 0)):
                packed.attrs[name] = np.int32(value)
            put(file, "shapes/43/output/x", np.zeros(3 if path == paths[0] else 4, "f4"))
    return paths


def rows(paths, **options) -> list:
    with open_dump(paths[0]) as mine, open_dump(paths[1]) as golden:
        return list(map(repr, compare_dumps(mine, golden, Options(**options))))


@pytest.fixture
def alone(pair) -> list:
    assert not forks.can_fork(len(rows(pair)))
    return rows(pair)


@pytest.fixture
def forking(alone, monkeypatch) -> list:
    """What `Forks` were made of from now on."""
    made = []

    class Watched(forks.Forks):
        def __init__(self, shares):
            super().__init__(shares)
            made.append(self)

    monkeypatch.setattr(forks, "WORTH", 1)
    monkeypatch.setattr(engine, "SHARE", 3)
    monkeypatch.setattr(forks.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(engine, "Forks", Watched)
    return made


def test_the_rows_are_the_same(pair, alone, forking):
    assert rows(pair) == alone
    assert len(forking) == 1


def test_what_is_written_is_the_same(pair, alone, forking, monkeypatch):
    """Of rows that forks have, and of all others; and the parent has its share of the work."""
    parent, made_here = os.getpid(), []

    def write(row):
        made_here.append(os.getpid() == parent)
        return repr(row), row.index

    with open_dump(pair[0]) as mine, open_dump(pair[1]) as golden:
        found = list(compare_and_write(mine, golden, write))
    assert [text for _, (text, _) in found] == list(map(repr, (row for row, _ in found))) == alone
    assert 0 < len(made_here) < len(alone) and all(made_here)


@pytest.mark.parametrize("skip", [1, 2, 3, 100, 10_000])
def test_known_rows_are_left_out(pair, alone, forking, skip):
    assert rows(pair, skip=skip) == alone[skip:]


@pytest.mark.parametrize("options", [{"divergence": False}, {"first": 5}])
def test_options_reach_them(pair, forking, monkeypatch, options):
    found = rows(pair, **options)
    monkeypatch.setattr(forks, "WORTH", 10**9)
    assert found == rows(pair, **options)
    assert len(forking) == 1


def test_a_process_that_dies_is_done_without(pair, alone, forking):
    with open_dump(pair[0]) as mine, open_dump(pair[1]) as golden:
        found = compare_dumps(mine, golden)
        first = repr(next(found))
        for child in forking[0]._children:
            os.kill(child, signal.SIGKILL)
        assert [first, *map(repr, found)] == alone


def test_there_may_be_more_shares_than_numbers(tmp_path, forking, monkeypatch):
    """Of which a pipe of the smallest size holds 1024: the parent makes the rest."""
    tensors = {f"op/{i}/output/x": np.full(2, i, "f4") for i in range(1100)}
    paths = [dump(tmp_path / name, tensors) for name in ("m.h5", "g.h5")]
    monkeypatch.setattr(engine, "SHARE", 1)
    monkeypatch.setattr(forks, "_PIPE", 1)
    found = rows(paths)
    assert len(found) == 1100 and len(forking) == 1
    monkeypatch.setattr(forks, "WORTH", 10**9)
    assert found == rows(paths)


@pytest.mark.parametrize("allowed", [0, 1])
def test_as_many_processes_as_the_system_allows(pair, alone, forking, monkeypatch, allowed):
    fork, count = os.fork, []

    def some():
        if len(count) == allowed:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        count.append(1)
        return fork()

    gc.collect()  # so that files of other tests' garbage are closed now
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(forks.os, "fork", some)
    assert rows(pair) == alone
    assert len(forking) == 1 and len(count) == allowed
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("dtype", ["i1", "u1", "?", "i4", "i8", "f2", "c8"])
def test_processes_measure_in_memory_of_their_own(tmp_path, dtype, monkeypatch):
    """Many small tensors of a dtype, of which each process always has one in its hands."""
    random = np.random.default_rng(0)
    paths = []
    for name in ("m.h5", "g.h5"):
        tensors = {f"op/{i}/output/x": random.integers(0, 2 if dtype == "?" else 100, 4000)
                   .astype(dtype) for i in range(200)}  # fmt: skip
        paths.append(dump(tmp_path / name, tensors))
    one = rows(paths)
    monkeypatch.setattr(forks, "WORTH", 1)
    monkeypatch.setattr(engine, "SHARE", 5)
    monkeypatch.setattr(forks.os, "cpu_count", lambda: 4)
    assert rows(paths) == one


def test_a_room_is_no_other_process_s():
    for side in rooms.own.sides:
        side[:] = 1
        child = os.fork()
        if not child:
            side[:] = 2
            os._exit(0)
        os.waitpid(child, 0)
        assert (side == 1).all()


def test_no_process_is_left(pair, forking):
    with open_dump(pair[0]) as mine, open_dump(pair[1]) as golden:
        found = compare_dumps(mine, golden)
        next(found)
        children = list(forking[0]._children)
        found.close()
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def test_they_end_with_their_parent(pair, tmp_path):
    code = (
        "import os, sys, time\n"
        "from compare import engine, forks\n"
        "from dumper.reader import open_dump\n"
        "forks.WORTH, engine.SHARE = 1, 1\n"
        "engine.os.cpu_count = lambda: 4\n"
        "mine, golden = map(open_dump, sys.argv[1:])\n"
        "rows = engine.compare_dumps(mine, golden)\n"
        "next(rows)\n"
        "print(*open(f'/proc/{os.getpid()}/task/{os.getpid()}/children').read().split())\n"
        "sys.stdout.flush(); time.sleep(60)\n"
    )
    # so much that it does not fit into a pipe
    tensors = {f"op/{i}/output/x": np.full(3, i, "f4") for i in range(3000)}
    paths = [dump(tmp_path / name, tensors) for name in ("a.h5", "b.h5")]
    parent = subprocess.Popen(
        [sys.executable, "-c", code, *paths], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    children = [int(child) for child in parent.stdout.readline().split()]
    assert len(children) == 3
    parent.kill()
    parent.wait()
    until = time.monotonic() + 30
    while any(Path(f"/proc/{child}").exists() and not _is_zombie(child) for child in children):
        assert time.monotonic() < until
        time.sleep(0.05)


def _is_zombie(child: int) -> bool:
    try:
        return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
