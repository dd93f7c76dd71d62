"""A run that was stopped, by a kill at any moment, is gone on with and ends as if it never was."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from chains import ROOT, chain, compare
from dumps import dump, put

from compare.partial import Partial

KILLED = """
import os, signal, sys
import compare.partial, compare.result, compare.results
point, count = sys.argv.pop(1), int(sys.argv.pop(1))
add, write, publish, link = (
    compare.partial.Partial.add, compare.results.write, compare.results.publish, os.link
)
links = []

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def counted(self, row, place):
    add(self, row, place)
    if self.count == count:
        if point == "torn":
            self._file.write(b'{"row":9,"index":')
        if point != "buffered":
            self.flush()
        die()

def written(file, *others):
    write(file, *others)
    if point == "document":
        file.flush()
        die()

def published(*given):
    publish(*given)
    die()

def linked(*given):
    link(*given)
    die()

if count:
    compare.partial.Partial.add = counted
compare.results.write = written
if point == "published":
    compare.results.publish = published
if point == "linked":
    os.link = linked
from compare.cli import cli
cli.main(prog_name="msaccucmp")
"""

POINTS = [
    ("buffered", 3),
    ("rows", 1),
    ("rows", 4),
    ("rows", 10),
    ("torn", 5),
    ("document", 0),
    ("linked", 0),
    ("published", 0),
]


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two dumps of which rows differ, have no partner, no like shape, and another argument."""
    monkeypatch.chdir(tmp_path)
    mine = chain([[1, 2], [2, 4], [2, 5], [np.nan]])
    golden = chain([[1, 2], [2, 4], [2, 4], [6]])
    mine["own/4/output/a"] = mine["shape/5/output/a"] = np.zeros(3, "f4")
    golden["theirs/4/output/a"] = golden["shape/5/output/a"] = np.zeros(2, "f4")
    mine["mul/9/output/result"] = golden["mul/9/output/result"] = np.float16([65504, np.inf])
    for path, tensors, device in (("npu.h5", mine, 10), ("cpu.h5", golden, 0)):
        dump(tmp_path / path, tensors, device)
        with h5py.File(tmp_path / path, "r+") as file:
            put(file, "mul/1/input/other", np.float64(device), kind=7)
            file.attrs["IndexDigest"] = "sha256:0"
            file.attrs["Environment"] = json.dumps({"torch": "2", "flag": float("inf")})
    return Path("npu.h5"), Path("cpu.h5")


def files(folder) -> dict[str, bytes]:
    """What is in a folder, by the end of its name; there is one of each."""
    found = {path.suffix: path.read_bytes() for path in Path(folder).iterdir()}
    assert len(found) == len(os.listdir(folder))
    return found


def named(done) -> dict[str, bytes]:
    """The files that a command names."""
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines()[-2:])
    return {Path(path).suffix: Path(path).read_bytes() for path in lines.values()}


def killed(pair, point, count, *more):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, point, str(count), "compare", "-m", pair[0], "-g", pair[1],
         "-out", "out", *more],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done


@pytest.mark.parametrize(("point", "count"), POINTS)
def test_a_kill_at_any_moment(pair, point, count):
    whole = files_of_a_whole_run(pair)
    killed(pair, point, count)
    left = [path for path in os.listdir("out") if path.endswith(".partial")]
    assert any(path.count(".") == 1 for path in left)
    done = compare(*pair, "-out", "out", "--resume")
    assert done.exit_code == 1
    assert "goes on from result_" in done.stderr
    assert named(done) == whole
    assert not [path for path in os.listdir("out") if path.endswith(".partial")]


def files_of_a_whole_run(pair, *more) -> dict[str, bytes]:
    assert compare(*pair, "-out", "whole", *more).exit_code == 1
    return files("whole")


def test_a_run_that_was_gone_on_with_may_be_killed_again(pair):
    whole = files_of_a_whole_run(pair, "-alg", "1,0", "-overflow_detection")
    given = ("-alg", "1,0", "-overflow_detection")
    killed(pair, "rows", 2, *given)
    killed(pair, "torn", 5, *given, "--resume")
    killed(pair, "document", 0, *given, "--resume")
    done = compare(*pair, "-out", "out", "--resume", *given)
    assert named(done) == files("out") == whole


def test_what_is_left_can_be_read(pair):
    killed(pair, "rows", 4)
    (path,) = [path for path in Path("out").iterdir() if path.name.count(".") == 1]
    head, *rows = map(json.loads, path.read_text("ascii").splitlines())
    assert head["files"]["mine"]["path"] == "npu.h5"
    assert head["environments"]["mine"] == {"torch": "2", "flag": "inf"}
    assert [row["row"] for row in rows] == [1, 2, 3, 4]


def stopped(pair, monkeypatch, rows, *more):
    """A run that a user stops after some rows."""
    add = Partial.add

    def counted(self, *given):
        if self.count == rows:
            raise KeyboardInterrupt
        add(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Partial, "add", counted)
        return compare(*pair, "-out", "out", *more)


def test_a_user_gets_one_line(pair, monkeypatch):
    whole = files_of_a_whole_run(pair)
    done = stopped(pair, monkeypatch, 3)
    assert done.exit_code == 2
    assert done.stderr == (
        "msaccucmp: error: interrupted after 3 rows; the same command with --resume goes on there\n"
    )
    assert [path.suffix for path in Path("out").iterdir()] == [".partial"]
    assert named(compare(*pair, "-out", "out", "--resume")) == files("out") == whole


def test_nothing_is_left_of_a_run_without_rows(pair, monkeypatch):
    done = stopped(pair, monkeypatch, 0)
    assert (done.exit_code, done.stderr.strip()) == (2, "msaccucmp: error: interrupted")
    assert os.listdir("out") == []


def test_the_newest_is_taken(pair, monkeypatch):
    for rows in (2, 4):
        stopped(pair, monkeypatch, rows)
    older, newer = sorted(path.name for path in Path("out").iterdir())
    done = compare(*pair, "-out", "out", "--resume")
    assert f"goes on from {newer}" in done.stderr
    assert sorted(path.suffix for path in Path("out").iterdir()) == [".csv", ".json", ".partial"]
    assert f"goes on from {older}" in compare(*pair, "-out", "out", "--resume").stderr


def touch(pair):
    os.utime(pair[1], ns=(0, 0))


def replaced(path, old, new):
    """Another text of the same length, at the same time."""
    before, data = os.stat(path), path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def another_index(pair):
    replaced(pair[0], b"sha256:0", b"sha256:1")


def another_writer(pair):
    replaced(pair[0], b'"torch": "2"', b'"torch": "3"')


MISFITS = {
    "a time": (touch, (), "files.golden.modified differs"),
    "an index": (another_index, (), "files.mine.digest differs"),
    "a writer": (another_writer, (), "environments.mine.torch differs"),
    "a name": (lambda pair: pair[1].rename("gold.h5"), (), "files.golden.path differs"),
    "algorithms": (None, ("-alg", "0"), "options.algorithm differs"),
    "elements": (None, ("-max", "1"), "options.max_cmp_size differs"),
    "a column": (None, ("-overflow_detection",), "options.overflow_detection differs"),
}


@pytest.mark.parametrize(("change", "given", "words"), MISFITS.values(), ids=list(MISFITS))
def test_another_comparison_begins_anew(pair, monkeypatch, change, given, words):
    stopped(pair, monkeypatch, 3)
    (left,) = os.listdir("out")
    kept = Path("out", left).read_bytes()
    if change:
        change(pair)
    golden = pair[1] if pair[1].exists() else Path("gold.h5")
    done = compare(pair[0], golden, "-out", "out", "--resume", *given)
    assert done.exit_code == 1
    assert f"note: not gone on from {left}: " in done.stderr and words in done.stderr
    assert "no partial result of this comparison; it begins anew" in done.stderr
    assert Path("out", left).read_bytes() == kept
    fresh = compare(pair[0], golden, "-out", "fresh", *given)
    assert named(done) == named(fresh)


def garbage(path):
    path.write_bytes(os.urandom(500))


def another_json(path):
    path.write_text('{"format": "x"}\n')


def of_version(number):
    def change(path):
        head = json.loads(path.read_text().splitlines()[0])
        path.write_text(json.dumps({**head, "version": number}) + "\n")

    return change


def link(path):
    path.rename("elsewhere")
    path.symlink_to(Path("elsewhere").resolve())


def folder(path):
    path.unlink()
    path.mkdir()


def pipe(path):
    path.unlink()
    os.mkfifo(path)


USELESS = {
    "garbage": (garbage, "no partial result"),
    "another JSON": (another_json, "no partial result"),
    "nested": (lambda path: path.write_text("[" * 100_000), "no partial result"),
    "a newer version": (of_version(3), "version 3"),
    "an older version": (of_version(1), "version 1"),
    "a link": (link, "cannot be opened"),
    "a folder": (folder, "cannot be opened"),
    "a pipe": (pipe, "no partial result"),
    "nothing": (lambda path: path.write_text(""), "no partial result"),
}


@pytest.mark.parametrize(("change", "words"), USELESS.values(), ids=list(USELESS))
def test_what_is_no_partial_result_is_left_alone(pair, monkeypatch, change, words):
    stopped(pair, monkeypatch, 3)
    (left,) = Path("out").iterdir()
    change(left)
    kept = Path("elsewhere").read_bytes() if Path("elsewhere").exists() else None
    done = compare(*pair, "-out", "out", "--resume")
    assert done.exit_code == 1
    assert f"not gone on from {left.name}: " in done.stderr and words in done.stderr
    assert os.path.lexists(left)
    assert kept is None or Path("elsewhere").read_bytes() == kept


@pytest.mark.parametrize(
    "line",
    [
        b'{"row":2}\n',
        b"\0" * 100,
        b"\n",
        b'{"row":1,"index":1e999}\n',
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
    ],
)
def test_rows_after_damage_are_compared_again(pair, monkeypatch, line):
    whole = files_of_a_whole_run(pair)
    stopped(pair, monkeypatch, 5)
    (left,) = Path("out").iterdir()
    lines = left.read_bytes().splitlines(keepends=True)
    left.write_bytes(b"".join([*lines[:3], line, *lines[4:]]))
    assert named(compare(*pair, "-out", "out", "--resume")) == files("out") == whole


def test_a_run_that_is_alive_is_not_taken(pair, monkeypatch):
    stopped(pair, monkeypatch, 3)
    (left,) = Path("out").iterdir()
    with open(left, "rb") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        done = compare(*pair, "-out", "out", "--resume")
    assert "another run is writing it" in done.stderr
    assert left.exists() and done.exit_code == 1


@pytest.mark.parametrize("made", [False, True])
def test_nothing_to_go_on_from(pair, made):
    if made:
        Path("out").mkdir()
    done = compare(*pair, "-out", "out", "--resume")
    assert done.exit_code == 1
    assert done.stderr == (
        "msaccucmp: note: out has no partial result of this comparison; it begins anew\n"
    )


def test_a_partial_result_outlives_a_failure_to_go_on(pair, monkeypatch):
    whole = files_of_a_whole_run(pair)
    stopped(pair, monkeypatch, 3)
    (left,) = Path("out").iterdir()
    kept = left.read_bytes()
    in_the_way = left.with_suffix(".csv.partial")
    in_the_way.mkdir()
    done = compare(*pair, "-out", "out", "--resume")
    assert done.exit_code == 2 and "the result cannot be written" in done.stderr
    assert left.read_bytes() == kept
    in_the_way.rmdir()
    assert named(compare(*pair, "-out", "out", "--resume")) == files("out") == whole


def test_a_full_disk_costs_no_row_that_was_written(pair, monkeypatch):
    whole = files_of_a_whole_run(pair)
    add = Partial.add

    def filled(self, *given):
        if self.count == 4:
            self.flush()
            with open("/dev/full", "w") as full:
                os.dup2(full.fileno(), self._file.fileno())
        add(self, *given)
        if self.count > 4:
            self.flush()

    with monkeypatch.context() as patch:
        patch.setattr(Partial, "add", filled)
        done = compare(*pair, "-out", "out")
    assert done.exit_code == 2 and "No space left" in done.stderr
    assert [path.suffix for path in Path("out").iterdir()] == [".partial"]
    assert named(compare(*pair, "-out", "out", "--resume")) == files("out") == whole


def test_nothing_is_left_where_not_even_the_first_line_is_written(pair, monkeypatch):
    def failing(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("compare.partial._first_line", failing)
    done = compare(*pair, "-out", "out")
    assert done.exit_code == 2 and "No space left" in done.stderr
    assert os.listdir("out") == []
