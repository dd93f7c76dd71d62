"""convert on damaged CANN files, seeded, and on what ends while it works: one message, and nothing
half or elsewhere. `python tests/test_ir2tbe_convert_fuzz.py 5000` runs more of them.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch  # noqa: F401 - before memory is bounded: pt files need it
from click.testing import CliRunner
from test_ir2tbe_cann_fuzz import (
    HUGE,
    NAMES,
    SECONDS,
    bounded,
    damaged,
    lying_mapping,
    make_seeds,
    within,
)

from compare import converting
from compare.cli import cli
from compare.converting import convert_all
from dumper.errors import DumpError
from ir2tbe.cann.content import Dump, tensor_of
from ir2tbe.cann.file import write
from ir2tbe.cann.formats import CODES
from ir2tbe.cann.message import DumpData
from ir2tbe.cann.types import BY_NAME
from ir2tbe.convert import KINDS, Request
from ir2tbe.relayout import TARGETS
from ir2tbe.sources import find
from npu_core.formats import to_storage

STAMP = 1673383728093446
COUNT = 400
SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "msaccucmp.py"
SHAPES = [(), (), (2, 3), (4, 3, 2, 2), (4, 2, 2, 3), (16,), (2**40, 2**30), (1,) * 32, (2**62,)]


def tiled_seeds(folder: Path) -> list[tuple[str, bytes]]:
    """Sound files whose tensors are in each tiled format, with groups."""
    image = np.arange(4 * 3 * 2 * 2, dtype="f2").reshape(4, 3, 2, 2)
    found = []
    for name in ("NC1HWC0", "FRACTAL_Z", "FRACTAL_NZ"):
        groups = 2 if name == "FRACTAL_Z" else 1
        stored = to_storage(image, name, groups)
        tensor = tensor_of(stored, BY_NAME["float16"], name, image.shape)
        path = folder / "seed"
        write(path, Dump((replace(tensor, sub_format=groups),), (tensor,), op_name="a/b"))
        found.append((f"Conv2D.a.3.2.{STAMP}", path.read_bytes()))
        path.unlink()
    return found


def lying_of_layout(draw: random.Random, data: bytes) -> bytes:
    """A file that says of a part another format, number of groups, or shape before padding."""
    length = struct.unpack("<Q", data[:8])[0]
    message = DumpData.FromString(data[8 : 8 + length])
    part = draw.choice([*message.input, *message.output])
    for _ in range(draw.randint(1, 2)):
        kind = draw.randrange(4)
        if kind == 0:
            part.sub_format = draw.choice((-1, 0, 2, 3, 4, 17, 2**31 - 1))
        elif kind == 1:
            part.format = draw.choice([CODES[name] for name in TARGETS])
        elif kind == 2 and part.original_shape.dim:
            at = draw.randrange(len(part.original_shape.dim))
            part.original_shape.dim[at] = draw.choice((*HUGE, 3, 17))
        else:
            part.original_shape.dim.extend([draw.choice((*HUGE, 2))] * draw.choice((1, 2, 40)))
    if draw.random() < 0.2:  # sizes that multiply to nothing need no bytes
        part.shape.dim[draw.randrange(len(part.shape.dim))] = 0
        part.shape.dim[draw.randrange(len(part.shape.dim))] = draw.choice(HUGE[:4])
    changed = message.SerializeToString()
    return struct.pack("<Q", len(changed)) + changed + data[8 + length :]


def renamed(data: bytes, op_name: str) -> bytes:
    """A file whose message has one field more: the last op_name counts."""
    length = struct.unpack("<Q", data[:8].ljust(8, b"\0"))[0]
    if length > len(data):
        return data
    more = DumpData(op_name=op_name).SerializeToString()
    return struct.pack("<Q", length + len(more)) + data[8 : 8 + length] + more + data[8 + length :]


def check(number: int, seeds: list[tuple[str, bytes]], folder: Path) -> bool:
    """Convert damaged file `number`; whether it was refused. Any other exception is a fault."""
    draw = random.Random(number)
    name, data = draw.choice(seeds)
    target = draw.choice(TARGETS) if draw.random() < 0.6 else None
    request = Request(draw.choice(KINDS), target)
    if target is not None and draw.random() < 0.5:
        side = draw.choice([None, "input", "output"])
        request = replace(request, shape=draw.choice(SHAPES), side=side, index=draw.randrange(3))
    (folder / "dump").mkdir()
    tiled = name.startswith("Conv2D") and draw.random() < 0.8
    bad = lying_of_layout(draw, data) if tiled else damaged(draw, data, draw.choice(seeds)[1])
    if draw.random() < 0.2:
        bad = renamed(bad, draw.choice(NAMES))
    if draw.random() < 0.15:
        name = "123456"
        (folder / "dump" / "mapping.csv").write_bytes(lying_mapping(draw, name))
    (folder / "dump" / name).write_bytes(bad)
    with within(SECONDS):
        found = find([folder / "dump"])
        results = list(convert_all(found.files, folder / "out", request))
    errors = [*found.errors, *(error for result in results for error in result.errors)]
    assert all(isinstance(error, DumpError) and "\n  where: " in str(error) for error in errors)
    assert sorted(os.listdir(folder)) == ["dump", "out"]
    written = {name for result in results for name in result.written}
    there = {path.name for path in (folder / "out").iterdir()}
    assert there == written or there == written | {"mapping.csv"}
    return bool(errors)


def test_damaged_files(tmp_path: Path) -> None:
    seeds = make_seeds(tmp_path) + 6 * tiled_seeds(tmp_path)
    refused = 0
    for number in range(COUNT):
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder, bounded():
            refused += check(number, seeds, Path(folder))
    assert COUNT // 4 < refused < COUNT  # some are refused, and some are what they were or near it


@pytest.mark.parametrize("command", ["convert", "overflow"])
def test_a_folder_of_damaged_files(tmp_path: Path, command: str) -> None:
    """As a user has it: many at once, by all processors, with a mapping that lies."""
    draw, seeds = random.Random(7), make_seeds(tmp_path) + 6 * tiled_seeds(tmp_path)
    for i in range(120):
        name, data = draw.choice(seeds)
        name = f"{name[:-1]}{i}" if i % 3 else str(100 + i)
        folder = tmp_path / "dump" / str(i % 4)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(damaged(draw, data, draw.choice(seeds)[1]))
        rows = lying_mapping(draw, name).decode(errors="ignore").rstrip('"x')
        with open(folder / "mapping.csv", "a") as file:
            file.write(f"{rows}\n{name},Add.b.{i}.2.{STAMP}\n")
    before = sorted(os.listdir(tmp_path))
    arguments = [command, "-d", str(tmp_path / "dump"), "-out", str(tmp_path / "out")]
    with within(SECONDS):
        done = CliRunner().invoke(
            cli, [*arguments, *(["-n", "99"] if command == "overflow" else [])]
        )
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "out"])
    assert all(path.is_dir() or path.is_file() for path in (tmp_path / "out").rglob("*"))


def many(folder: Path, count: int, size: int) -> Path:
    folder.mkdir()
    tensor = tensor_of(np.ones(size, "f2"), BY_NAME["float16"])
    for i in range(count):
        write(folder / f"Add.a.{i}.2.{STAMP}", Dump((tensor,)))
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_leaves_no_partial_file(tmp_path: Path, number: int) -> None:
    dump = many(tmp_path / "dump", 60, 1 << 20)
    command = [sys.executable, SCRIPT, "convert", "-d", dump, "-out", tmp_path / "out", "-t", "txt"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "out").exists() or not os.listdir(tmp_path / "out"):
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and "interrupted" in errors
    assert all(name.endswith(".txt") for name in os.listdir(tmp_path / "out"))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor has one process")
def test_a_process_that_is_killed_costs_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump, parent = many(tmp_path / "dump", 80, 4), os.getpid()
    convert_one = converting.convert_one

    def dying(at: int, *rest: object) -> converting.Converted:
        if at == 40:
            assert os.getpid() != parent
            os.kill(os.getpid(), signal.SIGKILL)
        return convert_one(at, *rest)

    monkeypatch.setattr(converting, "convert_one", dying)
    sources = find([dump]).files
    results = list(convert_all(sources, tmp_path / "out", Request()))
    assert sorted(result.at for result in results) == list(range(80))
    (failed,) = [result for result in results if result.errors]
    assert failed.at == 40 and "SIGKILL" in str(failed.errors[0])
    assert len(os.listdir(tmp_path / "out")) == 79


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor has one process")
def test_a_fault_in_a_process_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(at: int, *rest: object) -> converting.Converted:
        raise ZeroDivisionError(f"at {at}")

    monkeypatch.setattr(converting, "convert_one", faulty)
    with pytest.raises(ZeroDivisionError):
        list(convert_all(find([many(tmp_path / "dump", 80, 4)]).files, tmp_path / "out", Request()))


def main(count: int) -> None:
    """Try as many damaged files as that, others than the test does."""
    with tempfile.TemporaryDirectory() as base:
        seeds = make_seeds(Path(base)) + 6 * tiled_seeds(Path(base))
        refused = 0
        for number in range(COUNT, COUNT + count):
            with tempfile.TemporaryDirectory(dir=base) as folder, bounded():
                refused += check(number, seeds, Path(folder))
    sys.stdout.write(f"{count} files, {refused} refused, no fault\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
