"""Two dumps opened at once, by two processes: what one alone would find, whatever happens."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from dumps import dump, put

from compare import opening
from dumper import walked
from dumper.errors import DumpError


@pytest.fixture
def pair(tmp_path) -> list[Path]:
    random = np.random.default_rng(0)
    tensors = {f"op/{i}/{side}/x": random.normal(0, 1, 9).astype("f4")
               for i in range(30) for side in ("input", "output")}  # fmt: skip
    return [dump(tmp_path / name, tensors) for name in ("m.h5", "g.h5")]


@pytest.fixture
def walks(monkeypatch) -> list[bytes | None]:
    """What other processes found from now on, for files of any size."""
    found = []

    class Watched(opening._Walk):
        def found(self):
            found.append(super().found())
            return found[-1]

    monkeypatch.setattr(opening, "_WORTH", 0)
    monkeypatch.setattr(opening.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(opening, "_Walk", Watched)
    return found


def records(paths) -> list[tuple]:
    mine, golden = map(str, paths)
    with (
        opening.walking(golden, beside=mine) as walk,
        opening.opening(mine) as left,
        opening.opening(golden, walked=walk()) as right,
    ):
        return [(each.records, each.skipped, each.omitted) for each in (left, right)]


def test_both_are_as_if_opened_alone(pair, walks):
    with h5py.File(pair[1], "a") as file:
        put(file, "op/x/output/y", np.ones(2, "f4"))  # no seqid
    found = records(pair)
    assert len(walks) == 1 and walks[0]
    opening._WORTH = 1 << 40
    assert found == records(pair) and len(walks) == 1
    assert "no seqid" in found[1][1][0][1]


def test_a_process_that_dies_is_done_without(pair, walks, monkeypatch):
    parent, kill = os.getpid(), walked.packed

    def dying(*given):
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return kill(*given)

    monkeypatch.setattr(walked, "packed", dying)
    found = records(pair)
    assert walks == [None] and [len(each[0]) for each in found] == [30, 30]


def test_a_process_that_cannot_be_is_done_without(pair, walks, monkeypatch):
    def refused():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    gc.collect()  # so that files of other tests' garbage are closed now
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(opening.os, "fork", refused)
    assert [len(each[0]) for each in records(pair)] == [30, 30] and not walks
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("how", ["replaced", "written"])
def test_a_file_that_changes_in_between_is_read_as_it_is(pair, walks, how):
    """What the other process found is of a file that is gone, or not that file any more."""
    golden, other = pair[1], pair[1].with_name("other.h5")
    dump(other, {f"op/{i}/output/x": np.ones(3, "f4") for i in range(40)})
    with opening.walking(str(golden), beside=str(pair[0])) as walk:
        found = walk()
        if how == "replaced":
            other.replace(golden)
        else:
            golden.write_bytes(other.read_bytes())
        with opening.opening(str(golden), walked=found) as dumped:
            assert found and len(dumped.records) == 40
            assert all(record.outputs[0].read().tolist() == [1] * 3 for record in dumped.records)


def test_what_is_wrong_with_a_file_is_said_as_ever(pair, walks):
    pair[1].write_bytes(pair[1].read_bytes()[:-3000])
    with pytest.raises(DumpError, match="shorter|truncated|ends|damaged") as error:
        records(pair)
    assert str(pair[1]) in str(error.value) and walks == [None]


def test_no_process_is_left(pair, walks, monkeypatch):
    """Where the first file is the one that cannot be opened."""
    begin, begun = opening.child.begin, []

    def noted(*given):
        begun.append(begin(*given))
        return begun[-1]

    monkeypatch.setattr(opening.child, "begin", noted)
    pair[0].write_bytes(b"no HDF5")
    with pytest.raises(DumpError):
        records(pair)
    ((number, _),) = begun
    with pytest.raises(ChildProcessError):
        os.waitpid(number, os.WNOHANG)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
@pytest.mark.parametrize("asked", [None, "2"])
def test_numpy_starts_no_threads_unless_somebody_asks(asked):
    script = """
import os
from compare.child import import_numpy
import_numpy()
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_THREADS")}
    if asked:
        environment["OPENBLAS_NUM_THREADS"] = asked
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    threads, left = run.stdout.split()
    assert left == str(asked)
    if not asked:
        assert threads == "1"
