"""ir2tbe.cann.folder: what is written into a folder of dumps is found in it again, by its name."""

from __future__ import annotations

import csv
import fcntl
import os
import resource
import stat
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumper.errors import DumpError
from ir2tbe.cann.content import Dump, tensor_of
from ir2tbe.cann.file import read
from ir2tbe.cann.folder import DumpFile, Missed, walk, write_in
from ir2tbe.cann.names import DumpName, name_part
from ir2tbe.cann.types import BY_NAME
from ir2tbe.sources import find

STAMP = 1673383728093446
PLAIN = DumpName("Add", "a_b", 3, 2, STAMP)
ENDING = f".3.2.{STAMP}"
MIB = 1 << 20


def dump(number: int = 1) -> Dump:
    return Dump((tensor_of(np.full(3, number, "i4"), BY_NAME["int32"]),), op_name=f"op/{number}")


def long_name(length: int, first: str = "b") -> DumpName:
    """One whose text has so many bytes."""
    return replace(PLAIN, op_name=first + "b" * (length - len(f"Add.b{ENDING}")))


def found(folder: Path) -> list[DumpFile]:
    """What there is, in a folder where nothing is amiss."""
    missed = Missed()
    files = [file for _, files in walk(folder, missed) for file in files]
    assert (missed.errors, missed.passed) == ([], [])
    return files


def mapping(folder: Path) -> list[list[str]]:
    with open(folder / "mapping.csv", newline="") as file:
        return list(csv.reader(file))


def test_a_dump_lies_under_its_name(tmp_path: Path) -> None:
    path = write_in(tmp_path, DumpName("Add/V2", "layer1/fc.weight\\a b", 3, 2, STAMP), dump())
    assert path == tmp_path / f"Add_V2.layer1_fc_weight_a_b{ENDING}"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == [path.name]
    assert read(path) == dump()


@pytest.mark.parametrize("length", [254, 255, 256, 5000])
def test_a_name_of_255_bytes_is_in_the_mapping(tmp_path: Path, length: int) -> None:
    name = long_name(length)
    path = write_in(tmp_path, name, dump())
    if length < 255:
        assert os.listdir(tmp_path) == [str(name)] == [path.name]
    else:
        short = uuid.uuid3(uuid.NAMESPACE_DNS, str(name)).hex
        assert sorted(os.listdir(tmp_path)) == sorted([short, "mapping.csv"])
        assert mapping(tmp_path) == [[short, str(name)]]
        assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o600}
    assert found(tmp_path) == [DumpFile(path, name)]
    assert read(path) == dump()


TEXTS = st.text(min_size=1, max_size=9) | st.text("a/.", min_size=240, max_size=300)
IDS = st.integers(0, 2**64 - 1)


@settings(max_examples=80)
@given(
    TEXTS, TEXTS, IDS, st.none() | IDS, st.integers(10**15, 10**16 - 1),
    st.sampled_from([(), (3,), (0, 1, 2, 3), (0, 1, 2)]),
)  # fmt: skip
def test_any_name_is_found_again(tmp_path_factory, op_type, op_name, task, stream, stamp, rest):
    folder = tmp_path_factory.mktemp("names")
    fields = ["task_type", "context_id", "thread_id", "device_id"]
    more = dict(zip(fields[3:] if len(rest) == 1 else fields, rest, strict=False))
    name = DumpName(op_type, op_name, task, stream, stamp, **more)
    path = write_in(folder, name, dump())
    assert path.parent == folder
    plain = replace(name, op_type=name_part(op_type), op_name=name_part(op_name))
    assert found(folder) == [DumpFile(path, plain)]


@pytest.mark.parametrize(
    "changes",
    [
        {"op_name": ""},
        {"op_type": ""},
        {"task_id": -1},
        {"stream_id": None, "timestamp": 10**16, "device_id": 1},
        {"thread_id": 1},
        {"task_type": 1, "context_id": 1},
        {"op_name": "b" * 70_000},
    ],
)
def test_a_name_that_could_not_be_read_again(tmp_path: Path, changes: dict) -> None:
    with pytest.raises(DumpError, match="cannot be called") as caught:
        write_in(tmp_path, replace(PLAIN, **changes), dump())
    assert len(str(caught.value)) < 800
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("length", [60, 300])
def test_a_second_dump_of_a_name_is_refused(tmp_path: Path, length: int) -> None:
    path = write_in(tmp_path, long_name(length), dump(1))
    with pytest.raises(DumpError, match="cannot be written"):
        write_in(tmp_path, long_name(length), dump(2))
    assert [file.path for file in found(tmp_path)] == [path] and read(path) == dump(1)
    assert length < 255 or len(mapping(tmp_path)) == 1


OTHER = """
import sys
from pathlib import Path
sys.path[:0] = {path}
from test_ir2tbe_cann_folder import dump, long_name, write_in
for i in range(100, 130):
    write_in(Path({folder!r}), long_name(300, chr(97 + i % 26) + str(i)), dump(i))
"""


def test_threads_and_processes_write_to_one_folder(tmp_path: Path) -> None:
    code = OTHER.format(path=sys.path, folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code]) as process, ThreadPoolExecutor(8) as pool:
        names = [long_name(300, f"x{i}") for i in range(100)]
        paths = list(pool.map(lambda i: write_in(tmp_path, names[i], dump(i)), range(100)))
        assert process.wait(60) == 0
    assert len(mapping(tmp_path)) == len(found(tmp_path)) == 130
    by_path = {file.path: file.name for file in found(tmp_path)}
    for i, path in enumerate(paths):
        assert by_path[path] == names[i] and read(path) == dump(i)


def test_a_line_waits_until_the_one_before_is_whole(tmp_path: Path) -> None:
    with open(tmp_path / "mapping.csv", "wb") as file, ThreadPoolExecutor(1) as pool:
        fcntl.flock(file, fcntl.LOCK_EX)
        writing = pool.submit(write_in, tmp_path, long_name(300), dump())
        with pytest.raises(TimeoutError):
            writing.result(0.2)
        assert mapping(tmp_path) == []
        fcntl.flock(file, fcntl.LOCK_UN)
        assert [DumpFile(writing.result(60), long_name(300))] == found(tmp_path)


def test_a_mapping_of_someone_elses_stays(tmp_path: Path) -> None:
    """Whose last line has no end."""
    (tmp_path / "mapping.csv").write_text(f"123,{PLAIN}")
    write_in(tmp_path, replace(PLAIN, op_name="other"), dump()).rename(tmp_path / "123")
    path = write_in(tmp_path, long_name(300), dump())
    names = {file.path: file.name for file in found(tmp_path)}
    assert names == {tmp_path / "123": PLAIN, path: long_name(300)}


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
@pytest.mark.parametrize("quote", ["", '"'])
def test_a_mapping_that_a_spreadsheet_saved(tmp_path: Path, start, end, quote) -> None:
    path = write_in(tmp_path, PLAIN, dump()).rename(tmp_path / "123")
    (tmp_path / "mapping.csv").write_bytes(f"{start}{quote}123{quote},{PLAIN}{end}".encode())
    assert found(tmp_path) == [DumpFile(path, PLAIN)]


LAYOUTS = [
    "20230110204848/0/resnet50/1/0",
    "20230110204848/0/1/0",
    "20230110204848/7/resnet50/1/12",
]


def test_the_documented_folders(tmp_path: Path) -> None:
    """Of a net time, device, model's name and id, and index of the data; of one op without its
    name."""
    paths = {}
    for layout in LAYOUTS:
        (tmp_path / layout).mkdir(parents=True)
        for name in (PLAIN, long_name(300)):
            paths[write_in(tmp_path / layout, name, dump())] = layout, name
    assert {file.path: file.name for file in found(tmp_path)} == {
        path: name for path, (_, name) in paths.items()
    }
    assert {source.path: str(source.folder) for source in find([tmp_path]).files} == {
        path: layout for path, (layout, _) in paths.items()
    }


@pytest.mark.parametrize("what", ["link", "pipe", "folder", "full", "no folder", "no room"])
def test_where_a_name_cannot_be_kept_nothing_is_left(tmp_path: Path, what: str) -> None:
    place = tmp_path / "mapping.csv"
    (tmp_path / "target").write_text("mine\n")
    if what == "link":
        place.symlink_to(tmp_path / "target")
    elif what == "pipe":
        os.mkfifo(place)
    elif what == "folder":
        place.mkdir()
    elif what == "full":
        with open(place, "wb") as file:
            file.truncate(16 * MIB)
    elif what == "no room":
        place.write_text("x" * 1999 + "\n")
    before = sorted(os.listdir(tmp_path)), os.lstat(place).st_size if place.exists() else None
    folder = tmp_path / "none" if what == "no folder" else tmp_path
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        if what == "no room":  # for the dump, and for some bytes of the line
            resource.setrlimit(resource.RLIMIT_FSIZE, (2010, limits[1]))
        with pytest.raises(DumpError) as caught:
            write_in(folder, long_name(300), dump())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.todo
    after = sorted(os.listdir(tmp_path)), os.lstat(place).st_size if place.exists() else None
    assert after == before and (tmp_path / "target").read_text() == "mine\n"
