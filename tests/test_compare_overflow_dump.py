"""`msaccucmp overflow` on HDF5 files: what it says, its exit status, and whatever a file holds."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from dumps import dump, put
from overflow_steps import recorded, scanned, t5

from compare.overflow.of_dump import dumps_in, report_dump
from dumper.overflow.events import Overflow, facts_of
from dumper.writer import Writer

INF = math.inf
SIDES = ("input/self", "output/result")


def lines_of(*events: Overflow) -> list[str]:
    return [json.dumps({"event": i, **facts_of(event)}) for i, event in enumerate(events)]


def written(path: Path, lines: list[str], name: str = "overflows", **environment: object) -> Path:
    """A file with one text, as the check writes it."""
    writer = Writer(str(path), {"mode": "overflow", **environment}, 2**20)
    for line in lines:
        writer.line(name, line)
    writer.close()
    return path


FAULT = Overflow("mm", 3, "forward", "created", "float16", value=7e4, stored=INF, index=(0, 1))


def test_what_the_check_wrote_is_believed(tmp_path, capsys):
    path = written(tmp_path / "o.h5", lines_of(FAULT))
    assert report_dump([path]) == 1
    out = capsys.readouterr().out
    assert out.startswith("the first overflow is /mm/3 (forward): 70000 does not fit float16")
    assert "no overflow check was recorded" not in out
    assert report_dump([path], exit_zero=True) == 0


def test_a_file_of_a_check_says_what_its_context_says(tmp_path, capsys):
    path = tmp_path / "o.h5"
    with torch.utils.dumper(check_overflow=True, dump_path=str(path)) as check:
        t5()
    capsys.readouterr()
    assert report_dump([path]) == 1
    assert capsys.readouterr().out.splitlines()[0] == check.report().splitlines()[0]


def test_a_dump_without_a_check_says_so(tmp_path, capsys):
    path = recorded(tmp_path / "d.h5", t5)
    capsys.readouterr()
    assert report_dump([path]) == 1
    out = capsys.readouterr().out
    assert "66246 does not fit float16" in out and "no overflow check was recorded" in out
    assert "\nhead-room: " in out


def test_a_clean_dump(tmp_path, capsys):
    assert report_dump([recorded(tmp_path / "d.h5", lambda: torch.ones(3) + 1)]) == 0
    assert capsys.readouterr().out.startswith("no overflow\n")


def test_every_rank_is_told_of(tmp_path, capsys):
    paths = [
        written(tmp_path / "b.h5", lines_of(FAULT), rank=1),
        written(tmp_path / "a.h5", lines_of(), rank=0),
    ]
    assert report_dump(paths, "zh") == 1
    out = capsys.readouterr().out
    assert out.startswith("第一处溢出是 /mm/3（rank 1，forward）")
    assert f"rank 0：{tmp_path / 'a.h5'}" in out and f"rank 1：{tmp_path / 'b.h5'}" in out


def test_files_that_name_one_rank_are_told_apart(tmp_path, capsys):
    paths = [written(tmp_path / f"{name}.h5", lines_of(FAULT)) for name in "ab"]
    assert report_dump(paths) == 1
    out = capsys.readouterr().out
    assert all(f"{path}:\nthe first overflow" in out for path in paths)
    assert "(rank" not in out and "rank 1" not in out  # two runs, not two ranks of one


@pytest.mark.parametrize("good", [False, True])
def test_a_file_that_cannot_be_read_is_said_and_the_others_are_told_of(tmp_path, capsys, good):
    bad = tmp_path / "bad.h5"
    bad.write_bytes(b"no HDF5")
    paths = [bad] + [written(tmp_path / "good.h5", lines_of())] * good
    assert report_dump(paths) == 2
    done = capsys.readouterr()
    assert "bad.h5" in done.err and ("no overflow" in done.out) is good


@pytest.mark.parametrize(("times", "status"), [(0.5, 2), (2.0, 1)])
def test_a_tensor_that_cannot_be_read_is_said_and_the_rest_is_told_of(
    tmp_path, capsys, times, status
):
    """Its values are to come from another file, which is not followed."""
    big = np.array([3e38, 1], "f4")
    path = tmp_path / "gap.h5"
    with h5py.File(path, "w") as file, np.errstate(over="ignore"):
        put(file, "mul/1/input/self", big)
        put(file, "mul/1/output/result", big * np.float32(times))
        data = file.create_dataset("exp/2/output/result", (2,), "f4", external=[("x", 0, 8)])
        data.attrs["Type"], data.attrs["DataType"] = np.int32(0), np.int32(1)
    assert report_dump([path]) == status
    said = capsys.readouterr()
    assert "/exp/2/output/result" in said.err and "is not followed" in said.err
    assert said.out.startswith("the first overflow is /mul/1" if status == 1 else "no overflow")


@pytest.mark.parametrize("options", [{"use_load": True}, {"use_dump": True, "sides": "input"}])
def test_a_file_that_cannot_tell_says_why(tmp_path, capsys, options):
    first = recorded(tmp_path / "first.h5", t5)
    path = tmp_path / "second.h5"
    if "use_load" in options:
        options = {**options, "load_file_path": str(first)}
    with torch.utils.dumper(dump_path=str(path), **options):
        t5()
    assert report_dump([path]) == 2
    error = capsys.readouterr().err
    assert "cannot be told" in error or "nothing tells" in error
    assert "what to do: " in error


HOSTILE = [
    "no JSON", "[]", "1", "{}", '{"event": true}', '{"event": 1}',
    '{"event": 2, "ir": "a\\u001b[2J\\n", "seqid": 1, "phase": "\\u202e", "kind": "created", '
    '"dtype": "float16", "value": 1e999, "stored": "nan", "module": "' + "m" * 9999 + '"}',
    '{"event": 3, "ir": "mm", "seqid": -1, "phase": "forward", "kind": "created", "dtype": "x"}',
    '{"event": 4, "ir": "mm", "seqid": 2, "phase": "forward", "kind": "created", "dtype": "x", '
    '"trail": [[1, "a", "inf"], 3], "inputs": {"a": {"index": [null], "values": [], "size": 0}}, '
    '"masked_by": 99, "again": 98, "bits": ' + str(2**62) + "}",
    '{"event": 5, "ir": "mm", "seqid": ' + "9" * 30 + ', "phase": "f", "kind": "created"}',
    "[" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_hostile_texts_are_told_in_inert_lines(tmp_path, capsys, lang):
    path = written(tmp_path / "o.h5", HOSTILE)
    assert report_dump([path], lang) == 1
    out = capsys.readouterr().out
    assert all(line.isprintable() and len(line) <= 100 for line in out.splitlines())
    assert "seqid 98" in out and r"a\x1b[2J\n" in out


@pytest.mark.parametrize("name", ["ranges", "loss_scale"])
def test_hostile_ranges_and_scales_leave_the_answer(tmp_path, capsys, name):
    path = written(tmp_path / "o.h5", HOSTILE, name)
    assert report_dump([path]) == 0
    assert capsys.readouterr().out == "no overflow\n"


def test_formulas_and_files_that_do_not_fit_are_no_traceback(tmp_path):
    """Shapes, names and arguments that no real call has: no value, and still an event."""
    bad = np.array([[INF]], "f4")
    tensors = {
        "mm/1/input/self": np.ones((2, 3), "f4"), "mm/1/input/mat2": np.ones((7, 2), "f4"),
        "mm/1/output/result": bad,
        "_softmax/2/input/self": np.ones(3, "f4"), "_softmax/2/output/result": bad,
        "exp/3/input/self": np.ones((9, 9), "f4"), "exp/3/output/result": bad,
        "mul_Tensor/4/output/result": bad, "add/5/input/self": np.array([1 + 1j]),
        "add/5/output/result": bad, "addmm/6/input/mat1": np.ones(2, "f4"),
        "addmm/6/output/result": bad, "baddbmm/7/input/self": np.ones((1, 1, 1), "i8"),
        "baddbmm/7/output/result": np.full((1, 1, 1), INF),
    }  # fmt: skip
    events = scanned(dump(tmp_path / "odd.h5", tensors)).events
    assert len(events) == 7 and all(event.value is None for event in events)


def contents(path: Path) -> list[range]:
    """Where the elements of all datasets lie in a file."""
    found = []

    def note(_: str, node: object) -> None:
        if isinstance(node, h5py.Dataset) and node.id.get_offset() is not None:
            start = node.id.get_offset()
            found.append(range(start, start + node.id.get_storage_size()))

    with h5py.File(path, "r") as file:
        file.visititems(note)
    return found


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("check", [False, True])
def test_whatever_values_and_texts_hold_there_is_an_answer(tmp_path, capsys, seed, check):
    """What lies between the elements is HDF5's, which may not come to an end with it; the command
    is guarded against that."""
    path = recorded(tmp_path / "d.h5", t5, check_overflow=check)
    capsys.readouterr()
    data, chance = bytearray(path.read_bytes()), random.Random(seed)
    places = [place for part in contents(path) for place in part]
    for _ in range(chance.choice([8, 40, 400])):
        data[chance.choice(places)] = chance.choice([0, 255, *b'0{}[],":-', chance.randrange(256)])
    path.write_bytes(data)
    status = report_dump([path])
    said = capsys.readouterr()
    assert status in (0, 1, 2) and (status != 2 or "msaccucmp: error: " in said.err)
    assert all(line.isprintable() for line in said.out.splitlines())


def test_dumps_of_a_directory(tmp_path):
    for name in ("b.h5", "a.hdf5", "c.txt"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "d.h5").mkdir()
    assert [path.name for path in dumps_in(tmp_path)] == ["a.hdf5", "b.h5"]
    assert dumps_in(tmp_path / "b.h5") == [tmp_path / "b.h5"]
    assert dumps_in(tmp_path / "d.h5") == []


def test_torch_is_not_needed(tmp_path):
    path = str(dump(tmp_path / "d.h5", {f"exp/1/{side}": np.ones(2) for side in SIDES}))
    script = (
        "import sys; from pathlib import Path; from compare.overflow.of_dump import report_dump; "
        f"report_dump([Path({path!r})]); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("no overflow"), done.stderr
