"""One process of scripts/fuzz: makes hostile files, gives them to msaccucmp, judges what it did.

The commands run in this process, through click's runner, because starting a program takes a hundred
times longer than most of them. What kills the process or never ends is judged by its parent, which
is told before each command what is about to run.
"""

from __future__ import annotations

import contextlib
import csv
import faulthandler
import io
import json
import os
import random
import re
import resource
import shutil
import sys
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import click
import h5py
from click.testing import CliRunner, Result
from fuzz_bytes import Map, damage
from fuzz_hostile import HOSTILE, MARK, secret
from fuzz_seeds import PAGE, journal

from compare import opening, program
from compare.cli import cli
from dumper.errors import DumpError
from dumper.stored import DAMAGE

ROOM = 64 << 20  # bytes that a file may grow to, or the disk would be full one day
MEMORY = 1 << 30  # bytes resident that no small file may cost
_CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]")
_MARKS = (b"%d" % MARK, MARK.tobytes(), b"%.6g" % MARK)
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.]|inf|nan)")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_MOVES = ("os.rename", "os.mkdir", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.truncate")


class Fault(NamedTuple):
    """kind: what is alike in all faults of one cause. command: what was run. detail: for people."""

    kind: str
    command: str
    detail: str


class Seed(NamedTuple):
    """A sound file. journal: what lies beside it, if anything does."""

    name: str
    data: bytes
    journal: bytes | None
    where: Map


def make(number: int, seed: int, seeds: list[Seed], folder: Path) -> tuple[Path, Path]:
    """Write the `number`th hostile file and the sound one it was made from into `folder`.

    Returns the paths of both.
    """
    dice = random.Random(f"{seed}/{number}")
    chosen = dice.choice(seeds)
    bad, good = folder / "bad.h5", folder / "good.h5"
    good.write_bytes(chosen.data)
    bad.write_bytes(chosen.data)
    hostile = dice.random() < 0.35 and not chosen.journal
    if hostile:
        with h5py.File(bad, "r+") as file:
            for add in dice.choices(HOSTILE, k=dice.choice((1, 1, 2, 4))):
                with contextlib.suppress(*DAMAGE):
                    add(file, dice)  # one that the others left no place for
    if not hostile or dice.random() < 0.1:
        donors = [other.data for other in seeds]
        bad.write_bytes(damage(dice, bad.read_bytes(), chosen.where, donors))
    if chosen.journal:
        Path(f"{good}.journal").write_bytes(chosen.journal)
        _damage_journal(dice, bad, chosen)
    return bad, good


def _damage_journal(dice: random.Random, bad: Path, chosen: Seed) -> None:
    """A journal that is damaged, or whole and false."""
    if dice.random() < 0.3:
        data = bytearray(chosen.journal)
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        Path(f"{bad}.journal").write_bytes(data)
        return
    bad.write_bytes(chosen.data)
    size = len(chosen.data)
    page = damage(dice, chosen.journal[-PAGE:], chosen.where.first(PAGE), [])
    page = page.ljust(PAGE, b"\0")[:PAGE]
    was = int.from_bytes(chosen.journal[-PAGE - 4 : -PAGE], "little")
    length = dice.choice((size, size, size + 1, 2**40, 2**63, 2**64 - 1, 0, 100))
    number = dice.choice((0, 0, 0, 1, 2**52, 2**64 - 1))
    before = dice.choice((size, size, 2**63, 2**64 - 1, 0))
    journal(bad, before, length, [(number, was, page)])


def commands(dice: random.Random, bad: str, good: str, record: str) -> list[list[str]]:
    """What is run over each file."""
    kind, plain = dice.choice(("npy", "txt")), dice.choice(([], ["--json"]))
    found = [
        ["compare", "-m", bad, "-g", good, "-out", "out"],
        ["compare", "-m", good, "-g", bad, "-out", "out"],
        ["info", bad, *plain],
        ["info", bad, "--tree", *plain],
        ["info", bad, "--verify", *plain],
        ["overflow", "-d", bad, "-out", "out"],
        ["show", bad, record, *dice.choice(([], ["-g", good])), *plain],
        ["convert", "-d", bad, "-out", "out", "-t", kind],
    ]
    if dice.random() < 0.3:
        flags = dice.choice(([], ["-f", "soft"], ["-f", "noattr"]))  # ext follows links on purpose
        found.append(
            ["h5copy", "-p", "-i", bad, "-o", "out/copy.h5", "-s", record, "-d", "/a", *flags]
        )
    return found


def serve(connection: Connection, folder: Path, seed: int, seeds: list[Seed]) -> None:
    """Take numbers until the other end closes; send, for each, arguments and then faults."""
    folder.mkdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))
    with open(folder / "stack", "w") as stack:  # where it was when it died
        faulthandler.enable(stack)
        _compile(folder, seeds)
        watch = Watch(folder)
        while True:
            try:
                number = connection.recv()
            except EOFError:
                return
            faults = []
            for arguments, found in judged(number, seed, seeds, folder, watch):
                if found is None:
                    connection.send(arguments)
                faults += found or []
            connection.send(faults)
            if any(fault.kind.startswith("memory") for fault in faults):
                return


def _compile(folder: Path, seeds: list[Seed]) -> None:
    """Compare each seed with itself: no loop shall be compiled while a clock runs."""
    for seed in seeds:
        pair = [folder / f"{side}.h5" for side in ("mine", "golden")]
        for path in pair:
            path.write_bytes(seed.data)
        arguments = ["compare", "-m", str(pair[0]), "-g", str(pair[1]), "-out", str(folder)]
        CliRunner().invoke(cli, arguments)


class Watch:
    """Notes what is written outside of a folder, and what went wrong where nobody was told."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.outside, self.traces = folder, [], []
        sys.addaudithook(self._hook)
        self._unexpected = program._unexpected
        program._unexpected = self._note

    def _note(self, error: Exception) -> str:
        self.traces.append("".join(traceback.format_exception(error)))
        return self._unexpected(error)

    def _hook(self, event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & _WRITES:
                return
        elif event in _MOVES:
            path = arguments[1 if event in ("os.rename", "os.link", "os.symlink") else 0]
        else:
            return
        if isinstance(path, (str, bytes)):
            place = os.path.realpath(os.fsdecode(path))
            cache = "__pycache__" in place  # of compiled loops
            if not (place.startswith(f"{self.folder}{os.sep}") or place == os.devnull or cache):
                self.outside.append(f"{event} {place!r}")


def judged(
    number: int, seed: int, seeds: list[Seed], folder: Path, watch: Watch
) -> Iterator[tuple[tuple[str, ...], list[Fault] | None]]:
    """(arguments, None) before each command and (arguments, its faults) after it."""
    box = folder / "box"
    shutil.rmtree(box, ignore_errors=True)
    (box / "out").mkdir(parents=True)
    os.chdir(box)
    secret(box)
    bad, good = make(number, seed, seeds, box)
    there = sorted(os.listdir(box))
    dice = random.Random(f"{seed}/{number}/commands")
    yield ("info", bad.name), None
    for arguments in commands(dice, bad.name, good.name, _record(dice, bad)):
        yield tuple(arguments), None
        faults = attempt(cli, arguments, watch, box)
        if sorted(os.listdir(box)) != there:
            command = " ".join(arguments)
            faults.append(Fault("a file outside of the output folder", command, str(there)))
        yield tuple(arguments), faults


def attempt(program: click.Command, arguments: list[str], watch: Watch, box: Path) -> list[Fault]:
    """Run one command and judge it. box: the working directory; what is in its out/ is judged too,
    and removed."""
    watch.outside.clear()
    watch.traces.clear()
    done = CliRunner().invoke(program, arguments)
    return list(_faults(done, " ".join(arguments), watch, box))


def _record(dice: random.Random, path: Path) -> str:
    try:
        with opening.opening(str(path)) as dump:  # with the bounds that the commands have
            return dice.choice(dump.records).path if dump.records else "/op/1"
    except (DumpError, Exception):  # noqa: BLE001 - the commands will say
        return "/op/1"


def _faults(done: Result, command: str, watch: Watch, box: Path) -> Iterator[Fault]:
    name = command.split()[0]
    output = done.output_bytes
    detail = watch.traces[0] if watch.traces else output[-2000:].decode("utf-8", "replace")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        trace = "".join(traceback.format_exception(done.exception))
        yield Fault(f"traceback: {_kind(trace)}", command, trace)
    elif b"unexpected" in output or b"Traceback" in output:
        yield Fault(f"unexpected: {_kind(detail)}", command, detail)
    if done.exit_code not in (0, 1, 2):
        yield Fault(f"exit status {done.exit_code} of {name}", command, detail)
    if done.exit_code == 2 and len(done.stderr_bytes.splitlines()) < 2:
        yield Fault(f"no message by {name}", command, detail)
    yield from _inert(output, f"output of {name}", command)
    if any(mark in output for mark in _MARKS):
        yield Fault(f"another file's values in the output of {name}", command, detail)
    for event in watch.outside:
        yield Fault(f"written outside of the output folder by {name}", command, event)
    for path in sorted((box / "out").rglob("*")):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            if any(mark in data for mark in _MARKS):
                yield Fault(f"another file's values in a file of {name}", command, path.name)
            if path.suffix == ".csv":
                yield from _csv_faults(data, command)
            elif path.suffix == ".json":
                yield from _json_faults(data, command)
            path.unlink()
        else:
            yield Fault(f"no plain file made by {name}", command, path.name)
    if _peak() > MEMORY:
        yield Fault(f"memory of {name}", command, detail)


def _peak() -> int:
    """Bytes of memory at most; getrusage counts what the process was before it was this program."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def _csv_faults(data: bytes, command: str) -> Iterator[Fault]:
    yield from _inert(data.replace(b"\r\n", b"\n"), "csv", command)
    for row in csv.reader(io.StringIO(data.decode("utf-8"), newline="")):
        if len(row) < 17:
            yield Fault("a torn row in the csv", command, repr(row))
        for cell in row:
            if _FORMULA.match(cell):
                yield Fault("a formula in the csv", command, repr(cell))


def _json_faults(data: bytes, command: str) -> Iterator[Fault]:
    yield from _inert(data, "json", command)
    try:
        json.loads(data)
    except ValueError as error:
        yield Fault("a result that is no JSON", command, str(error))


def _inert(data: bytes, what: str, command: str) -> Iterator[Fault]:
    found = _CONTROL.search(data)
    if found:
        around = data[max(0, found.start() - 60) : found.end() + 60]
        yield Fault(f"a control character in the {what}", command, repr(around))


def _kind(trace: str) -> str:
    """The last place in this project's code, and the error, without what varies."""
    places = re.findall(r'File ".*?/((?:compare|dumper|npu_core)/[^"]+)", line (\d+)', trace)
    what = trace.strip().splitlines()[-1].partition(":")[0] if trace.strip() else "?"
    return f"{what} at {':'.join(places[-1])}" if places else f"{what} at no place of ours"
