"""Damaged CANN files and folders: a DumpError or a result, never another exception, much memory, a
hang, or a file elsewhere.

Seeded: a failure names its number, and `check(number)` does it again. `python
tests/test_ir2tbe_cann_fuzz.py 5000` runs more of them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import signal
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from google.protobuf.descriptor import Descriptor

from compare.overflow.cann import Read, overflows
from compare.overflow.numbers import numbers_of
from compare.overflow.phrases import Words
from compare.overflow.summary import lines_of, show_report
from dumper.errors import DumpError
from ir2tbe.cann.content import Dump, blob_of, tensor_of
from ir2tbe.cann.file import read, write
from ir2tbe.cann.folder import Missed, walk
from ir2tbe.cann.message import DumpData
from ir2tbe.cann.opdebug import pack_new, pack_old
from ir2tbe.cann.overflow import look_through
from ir2tbe.cann.types import TYPES, decode

STAMP = 1673383728093446
COUNT = 300
HUGE = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
NAMES = (
    "..", ".", "../../x", "a/..", "/etc/passwd", "/", "a\0b", "a\nb", "=cmd()", "\x1b[2J", "\u202e",
    "x" * 300, "\u00e9" * 200, "", "C:\\x", "%s%n", "mapping.csv", "-rf", "~", "$HOME", '"', "a,b",
)  # fmt: skip
"""Of ops, in a file; on disk, in a mapping."""

SECONDS = 20
"""That one file may take at most; it takes some milliseconds."""

IDS = {"task_id": 3, "stream_id": 2, "context_id": 65535, "thread_id": 65535}


def make_seeds(folder: Path) -> list[tuple[str, bytes]]:
    """Sound files: (name, bytes) of op dumps of all data types, and of reports of every layout."""
    dumps = []
    data = np.arange(64, dtype=np.uint8) & 63
    for kind in TYPES.values():
        values = decode(data, kind, 16 if kind.bits < 32 else 64 * 8 // kind.bits)
        tensor = tensor_of(values.reshape(2, -1), kind, "NCHW", (2, 3))
        dumps.append(
            Dump((tensor,), (tensor, tensor), (blob_of(b"L1"),), (blob_of(b"log"),), "a/b")
        )
    seeds = [(f"Add.a.3.2.{STAMP}", _bytes(folder, dump)) for dump in dumps]
    reports = [pack_old({"AI Core": {**IDS, "status": 32}, "L2 Atomic Add": {**IDS, "status": 1}})]
    for unit in ("AIC", "AIV", "AICPU", "SDMA"):
        reports.append(pack_new([(unit, IDS, (32,)), ("AICPU", IDS, (1,))]))
    reports.append(pack_new([("AIC", IDS, (32, 0, 0, 1)), ("AIV", IDS, (0, 0, 1, 0))], 1))
    for each in reports:
        output = tensor_of(np.frombuffer(each, "u1"), TYPES[4])
        dump = _bytes(folder, Dump(outputs=(output, output), op_name="Node_OpDebug"))
        seeds.append((f"Opdebug.Node_OpDebug.9.3.{STAMP}", dump))
    return seeds


def _bytes(folder: Path, dump: Dump) -> bytes:
    path = folder / "seed"
    write(path, dump)
    found = path.read_bytes()
    path.unlink()
    return found


def lying(draw: random.Random, data: bytes) -> bytes:
    """A file whose message is sound and says of one part what is not so."""
    length = struct.unpack("<Q", data[:8])[0]
    message = DumpData.FromString(data[8 : 8 + length])
    part = draw.choice([*message.input, *message.output])
    numbers = [draw.choice((*HUGE, *range(40))) for _ in range(draw.randint(1, 3))]
    kind = draw.randrange(8)
    if kind == 0:
        part.data_type = draw.randrange(-2, 50)
    elif kind == 5:
        part.offset, part.address = draw.choice(HUGE), draw.choice(HUGE)
    elif kind == 6:  # whose sum comes round again
        for each in (*message.input, *message.output, *message.buffer, *message.space):
            each.size = draw.choice((*HUGE, each.size, 2**64 - each.size))
    elif kind == 7:
        message.op_name = draw.choice(NAMES)
    elif kind == 1:
        part.shape.dim.extend(numbers)
    elif kind == 2:
        del part.shape.dim[:]
    elif kind == 3:
        part.size = numbers[0]
    else:
        part.format = draw.randrange(-2, 300)
    if draw.random() < 0.2:
        message.output.extend(list(message.output) * draw.randrange(40))
    changed = message.SerializeToString()
    return struct.pack("<Q", len(changed)) + changed + data[8 + length :]


def lengths(header: bytes, at: int, end: int, kind: Descriptor) -> Iterator[tuple[int, int, int]]:
    """Where the length of each part of a sound message is, in the parts too: (from, to, length)."""
    while at < end:
        tag, at = _number(header, at)
        start = at
        value, at = _number(header, at)
        if tag & 7 == 2:
            yield start, at, value
            if (inner := kind.fields_by_number[tag >> 3].message_type) is not None:
                yield from lengths(header, at, at + value, inner)
            at += value


def lying_of_lengths(draw: random.Random, data: bytes) -> bytes:
    """A file in whose message a part, at some depth, is not as long as it says."""
    length = struct.unpack("<Q", data[:8])[0]
    header = data[8 : 8 + length]
    found = list(lengths(header, 0, length, DumpData.DESCRIPTOR))
    for start, end, value in sorted(draw.sample(found, draw.choice((1, 1, 2))), reverse=True):
        said = draw.choice((*HUGE, value + 1, max(value - 1, 0), value + 9, length))
        header = header[:start] + _varint(said) + header[end:]
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A varint, and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def lying_mapping(draw: random.Random, short: str) -> bytes:
    """A mapping.csv that says of a short name, and of others, what they are called."""
    sound = f"Add.a.3.2.{STAMP}"
    names = (sound, f"Opdebug.Node_OpDebug.9.3.{STAMP}", f"../{sound}", f"/tmp/{sound}", *NAMES)
    rows = []
    for _ in range(draw.randint(1, 6)):
        key = draw.choice((short, short, "../dump", "/etc/passwd", "..", "999", *NAMES))
        rows.append(draw.choice(("{},{}", '"{}","{}"', "{}", "{},{},more", '{},"{}')))
        rows[-1] = rows[-1].format(key, draw.choice(names))
    text = draw.choice(("\n", "\r\n", "\r", "\n\n")).join(rows).encode()
    return draw.choice((text, text, text, text + b"\xff", text + b'"' + b"x" * 200_000))


def damaged(draw: random.Random, data: bytes, other: bytes) -> bytes:
    """A file that lies, or one to three changes to its bytes, or both."""
    if draw.random() < 0.15:
        return lying_of_lengths(draw, data)
    if draw.random() < 0.5:
        data = lying(draw, data)
        if draw.random() < 0.8:
            return data
    changed = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        kind = draw.randrange(8)
        at = draw.randrange(max(len(changed), 1))
        # most damage goes where the message is: data of tensors can be anything
        near = draw.randrange(max(min(len(changed), 160), 1))
        if kind == 0:
            changed[near : near + 1] = bytes([draw.randrange(256)])
        elif kind == 1 and changed:
            changed[near] ^= 1 << draw.randrange(8)
        elif kind == 2:
            del changed[at:]
        elif kind == 3:
            changed[0:8] = struct.pack(
                "<Q", draw.choice((*HUGE, len(changed), max(len(changed) - 8, 0)))
            )
        elif kind == 4:
            changed[near:near] = _varint(draw.choice(HUGE))
        elif kind == 5:
            start = draw.randrange(len(other))
            changed[near : near + draw.randrange(9)] = other[start : start + draw.randrange(40)]
        elif kind == 6:
            del changed[near : near + draw.randrange(1, 9)]
        else:
            width = draw.choice((4, 8))
            changed[at : at + width] = draw.choice(HUGE).to_bytes(8, "little")[:width]
    if draw.random() < 0.5 and len(changed) > 8:  # so that what is inside the message is reached
        length = struct.unpack("<Q", data[:8])[0] + len(changed) - len(data)
        changed[:8] = struct.pack("<Q", max(length, 0))
    return bytes(changed)


def _varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def check(number: int, folder: Path, seeds: list[tuple[str, bytes]]) -> str:
    """Damage the file that a number stands for, and read it in every way; what came of it."""
    draw = random.Random(number)
    name, sound = draw.choice(seeds)
    mapped = folder / "dump" / "mapping.csv"
    if draw.random() < 0.15:
        mapped.write_bytes(lying_mapping(draw, "123456"))
        file = folder / "dump" / "123456"
        file.write_bytes(sound)
        for _, files in walk(folder / "dump", Missed()):
            assert all(each.path.parent == folder / "dump" for each in files)
    file = folder / "dump" / name
    file.write_bytes(damaged(draw, sound, draw.choice(seeds)[1]))
    with within(SECONDS):
        outcome = _read(file)
        _overflow(folder)
    assert sorted(os.listdir(folder)) == ["dump", "out"]
    file.write_bytes(sound)
    for path in (mapped, folder / "dump" / "123456"):
        path.unlink(missing_ok=True)
    return outcome


def _read(file: Path) -> str:
    outcome = "read"
    try:
        for tensor in (dump := read(file)).inputs + dump.outputs:
            try:
                numbers_of(tensor.values(), tensor.kind)
            except DumpError:
                outcome = "read in part"
        for blob in dump.buffers + dump.workspaces:
            blob.read()
    except DumpError as error:
        assert error.what and error.where and error.todo
        outcome = "refused"
    return outcome


def _overflow(folder: Path) -> None:
    """The command's own way through the folder."""
    for each in overflows(look_through(folder / "dump"), folder / "out", 9):
        if isinstance(each, Read):
            with contextlib.redirect_stdout(io.StringIO()):
                show_report(each, Words("zh"))
            for found in each.overflows:
                assert all("\n" not in line for line in lines_of(found))
    for path in (folder / "out").iterdir():
        assert path.parent == folder / "out" and path.is_file() and not path.is_symlink()
        if path.suffix == ".json":
            json.loads(path.read_bytes())
        elif path.suffix == ".npy":
            np.load(path, allow_pickle=False)
        path.unlink()


def run(folder: Path, numbers: range) -> Counter[str]:
    (folder / "dump").mkdir()
    (folder / "out").mkdir()
    seeds = make_seeds(folder)
    for name, data in (seeds[0], seeds[-1]):  # so that a report has its op, and an op its report
        (folder / "dump" / name).write_bytes(data)
    return Counter(check(number, folder, seeds) for number in numbers)


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Nothing that these files say may cost memory: they have a kilobyte or two."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (pages + (256 << 20), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """What takes longer hangs. On the main thread only."""

    def stop(*_: object) -> None:
        raise AssertionError(f"this takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_damaged_files(tmp_path: Path) -> None:
    with bounded():
        found = run(tmp_path, range(COUNT))
    assert sum(found.values()) == COUNT
    assert min(found[how] for how in ("read", "read in part", "refused")) > COUNT // 20


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, bounded():
        found = run(Path(name), range(COUNT, COUNT + int(sys.argv[1])))
    sys.stdout.write(f"{dict(found)}, no fault\n")
