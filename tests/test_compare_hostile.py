"""Files that mean harm: one clear message each, bounded memory, and nothing that acts in what is
printed or written."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import tracemalloc
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from dumps import dump, put
from fuzz_seeds import PAGE, journal
from h5py import h5a, h5d, h5g, h5s, h5t

from compare.cli import cli
from dumper.errors import printable
from dumper.journal import JournaledReader

PEAK = 64 << 20  # bytes that Python and numpy may hold at once; the files are of some kilobytes
SECRET = np.float32(1234577.0)
FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.]|inf|nan)")
CONTROL = re.compile(r"[^\n -~─-╿…]")  # all else in the output of these tests can be ASCII
NAMES = {
    "a formula": b'=HYPERLINK("x","y")',
    "a sum": b"+1+1",
    "a command": b"@SUM(A1)",
    "a difference": b"-2+3",
    "a line of its own": b"a\n=1+1",
    "a carriage return": b"a\r=1",
    "a tab": b"\t=1",
    "the parent": b"..",
    "a way out": b"..\\..\\x",
    "an escape": b"\x1b[2J\x1b]0;x\x07",
    "a long escape": b"\xc2\x9b31m",
    "no UTF-8": b"\xff\xfe",
    "from right to left": "\u202egpj.x".encode(),
    "markup": b"[bold red]x",
    "quotes": b'",",\'',
    "long": b"x" * 3000,
}


def run(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory) -> None:
    """The loops compiled, if they are not: a compiler that is traced takes a minute."""
    folder = tmp_path_factory.mktemp("compiled")
    for name in ("a", "b"):
        dump(folder / name, {"op/1/output/x": np.arange(2, dtype="f4")})
    assert run("compare", "-m", folder / "a", "-g", folder / "b", "-out", folder).exit_code == 0


@pytest.fixture
def golden(tmp_path, monkeypatch) -> Path:
    """A sound dump in the working directory, and beside it files that nobody may read."""
    monkeypatch.chdir(tmp_path)
    with h5py.File("secret.h5", "w") as file:
        put(file, "x", np.full(4, SECRET))
    Path("secret.bin").write_bytes(np.full(4, SECRET).tobytes())
    names = ("op/1/input/x", "op/1/output/x", "zz/3/output/x")
    return dump(Path("golden.h5"), {name: np.arange(2, dtype="f4") for name in names})


def external(file: h5py.File, path: str = "op/1/output/y") -> None:
    data = file.create_dataset(path, (4,), "f4", external=[("secret.bin", 0, 16)])
    data.attrs["Type"] = np.int32(0)


def virtual(file: h5py.File, path: str = "op/1/output/y") -> None:
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource("secret.h5", "x", (4,))
    file.create_virtual_dataset(path, layout).attrs["Type"] = np.int32(0)


def many_attributes(file: h5py.File) -> None:
    file["op/1/output/x"].attrs["Type"] = [0, 0]
    node, space = file["op/1/output/x"].id, h5s.create(h5s.SCALAR)
    for i in range(3000):  # h5py's own way takes a minute
        h5a.create(node, b"Stride%d" % i, h5t.STD_I64LE, space)


def large_attribute(file: h5py.File) -> None:
    file["op/1/output/x"].attrs["Type"] = np.zeros(8000, "i8")


def long_text(file: h5py.File) -> None:
    file["op/1/output/x"].attrs["Type"] = "0" * (20 << 20)


def loop(file: h5py.File) -> None:
    file["op/1/output/list"] = file["op/1"]


def deep(file: h5py.File) -> None:
    file.create_group("op/1/output" + "/a" * 400)


def claims(file: h5py.File, **how: object) -> None:
    data = file.create_dataset("op/1/output/y", (1 << 44,), "f4", **how)
    data.attrs["Type"] = np.int32(0)


HARM = {
    "attributes by the thousand": (many_attributes, "the attribute Type has shape (2,)"),
    "a large attribute": (large_attribute, "the attribute Type has shape (8000,)"),
    "a long text for an attribute": (long_text, "the attribute Type is no integer"),
    "a group inside itself": (loop, "a second link to a group"),
    "groups in groups": (deep, "more than 32 groups inside each other"),
    "a soft link": (
        lambda file: file.__setitem__("op/1/output/y", h5py.SoftLink("/zz/3/output/x")),
        "a soft or external link",
    ),
    "a soft link to itself": (
        lambda file: file.__setitem__("op/1/output/y", h5py.SoftLink("/op/1/output/y")),
        "a soft or external link",
    ),
    "an external link": (
        lambda file: file.__setitem__("op/1/output/y", h5py.ExternalLink("secret.h5", "/x")),
        "a soft or external link",
    ),
    "an external link for an IR": (
        lambda file: file.__setitem__("other", h5py.ExternalLink("/etc/passwd", "/")),
        "a soft or external link",
    ),
    "values in another file": (external, "takes its values from another file"),
    "values of another file": (virtual, "takes its values from another file"),
    "64 TiB that are not there": (claims, "claims 70368744177664 bytes and the file holds 0"),
    "64 TiB in chunks": (
        lambda file: claims(file, chunks=(1 << 20,), compression="gzip"),
        "claims 70368744177664 bytes and the file holds 0",
    ),
}


def bounded(*arguments):
    """Run a command; what Python and numpy held at its peak stays below PEAK."""
    tracemalloc.start()
    try:
        done = run(*arguments)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < PEAK, arguments
    return done


def assert_inert(done, folder: str = "out") -> None:
    """Nothing that was printed or written acts, or holds a value of the secret files."""
    assert not CONTROL.search(done.output), done.output
    assert "1234577" not in done.output and "1.23458e" not in done.output
    for path in Path(folder).rglob("*"):
        data = path.read_bytes()
        assert b"1234577" not in data and SECRET.tobytes() not in data, path
        if path.suffix == ".npy":
            continue
        assert not CONTROL.search(data.decode().replace("\r\n", "\n")), path
        if path.suffix == ".csv":
            for row in csv.reader(io.StringIO(data.decode(), newline="")):
                assert not [cell for cell in row if FORMULA.match(cell)]
        elif path.suffix == ".json":
            json.loads(data)


@pytest.mark.parametrize(("harm", "words"), HARM.values(), ids=list(HARM))
def test_harm_is_one_message(golden, harm, words):
    bad = Path("bad.h5")
    bad.write_bytes(golden.read_bytes())
    with h5py.File(bad, "r+", libver="latest") as file:
        harm(file)
    verified = bounded("info", bad, "--verify")
    assert verified.exit_code == 1
    assert [words in line for line in verified.stdout.splitlines()].count(True) == 1
    converted = bounded("convert", "-d", bad, "-out", "out")
    assert converted.stderr.count(words) == 1
    for arguments in (
        ("compare", "-m", bad, "-g", golden, "-out", "out"),
        ("compare", "-m", golden, "-g", bad, "-out", "out"),
        ("show", bad, "/op/1", "-g", golden),
    ):
        assert_inert(done := bounded(*arguments))
        assert done.exit_code == (0 if arguments[0] == "show" else 1)
    for done in (verified, converted):
        assert_inert(done)
    assert sorted(os.listdir()) == ["bad.h5", "golden.h5", "out", "secret.bin", "secret.h5"]


def add_named(file: h5py.File, name: bytes, value: float) -> None:
    """Four records of one tensor, in which the IR, the side, a list, the tensor has that name."""
    for place in range(4):
        parts = [b"op", b"output", b"list", b"list_0"]
        parts[place] = name
        parts.insert(1, b"%d" % (7 + place))
        group = file.id
        for part in parts[:-1]:
            exists = group.links.exists(part)
            group = (h5g.open if exists else h5g.create)(group, part)
        data = h5d.create(group, parts[-1], h5t.IEEE_F32LE, h5s.create_simple((2,)))
        data.write(h5s.ALL, h5s.ALL, np.full(2, value, "f4"))
        h5py.Dataset(data).attrs["Type"] = np.int32(0)


@pytest.mark.parametrize("name", NAMES.values(), ids=list(NAMES))
def test_names_are_data(golden, name):
    mine = Path("mine.h5")
    mine.write_bytes(golden.read_bytes())
    for path, value in ((mine, 1), (golden, 2)):
        with h5py.File(path, "r+") as file:
            add_named(file, name, value)
    skipped = f"/op/8/{printable(os.fsdecode(name))}"
    for arguments, status, words in (
        (("compare", "-m", mine, "-g", golden, "-out", "out"), 1, "6 compared: 3 same"),
        (("info", mine), 0, "records"),
        (("info", mine, "--json"), 0, '"records": 6'),
        (("info", mine, "--verify"), 1, f"{skipped}: neither input nor output"),
        (("show", mine, os.fsdecode(b"/" + name + b"/7"), "-g", golden), 0, "list/list_0"),
        (("show", mine, "/op/10", "--json"), 0, '"path": "/op/10"'),
        (("convert", "-d", mine, "-out", "out"), 0, "6 files written"),
    ):
        done = run(*arguments)
        assert done.exit_code == status and words in done.stdout, done.output
        assert_inert(done)
        if "--json" in arguments:
            json.loads(done.stdout)
    assert sorted(os.listdir()) == ["golden.h5", "mine.h5", "out", "secret.bin", "secret.h5"]
    assert all(path.parent == Path("out") for path in Path("out").rglob("*"))


TEXTS = {
    "numbers for names": b'{"seqid": 1, "ir": "op", "names": 5, "values": [], "stubs": "x"}',
    "an unknown phase": b'{"seqid": 1, "ir": "op", "phase": "\\u001b[2J", "step": 0}',
    "a long number": b'{"seqid": 1, "ir": "op", "step": ' + b"9" * 5000 + b"}",
    "a large number": b'{"seqid": 1, "ir": "op", "phase": "forward", "step": ' + b"9" * 400 + b"}",
    "too deep": b"[" * 200_000,
    "a formula": b'{"seqid": 1, "ir": "op", "module": "=1+1", "phase": "forward"}',
    "no UTF-8": b'{"seqid": 1, "ir": "\xff"}',
    "a lone surrogate": b'{"seqid": 1, "ir": "op", "node": "\\ud800", "phase": "forward"}',
    "endless modules": b'{"seqid": 1, "ir": "op", "module": "' + b"." * 50_000 + b'"}',
    "a record with an escape": b'{"seqid": -1, "ir": "\\u001b]0;x\\u0007"}',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_texts_of_the_index_are_data(golden, text):
    bad = Path("bad.h5")
    bad.write_bytes(golden.read_bytes())
    with h5py.File(bad, "r+") as file:
        put(file, "_torch_dumper/0/index", np.frombuffer(text + b"\n", "u1"), kind=110)
        file.attrs["Environment"] = json.dumps({"choice": {"level": "op", "sides": 5}, "rank": []})
    for arguments in (
        ("compare", "-m", bad, "-g", golden, "-out", "out"),
        ("info", bad),
        ("info", bad, "--tree"),
        ("info", bad, "--verify"),
        ("show", bad, "/op/1", "--json"),
    ):
        done = bounded(*arguments)
        assert done.exit_code in (0, 1, 2) and "unexpected" not in done.output, done.output
        assert_inert(done)


def journaled(path: Path, before: int, after: int, page: int) -> None:
    """Damage the file's first page and put what it was into a journal, as a killed flush leaves it.

    before, after: lengths of the file that the journal claims. page: the number that it claims.
    """
    data = path.read_bytes()
    path.write_bytes(data[:64] + bytes(64) + data[128:])
    was = zlib.crc32(path.read_bytes()[:PAGE])
    journal(path, before, after, [(page, was, data[:PAGE])])


def test_a_journal_is_read_through(golden):
    with h5py.File(golden, "r+") as file:
        put(file, "_torch_dumper/0/index", np.frombuffer(text := b"{}\n", "u1"), kind=110)
        file.attrs["IndexDigest"] = f"sha256:{hashlib.sha256(text).hexdigest()}"
        file.attrs["Finished"] = np.int32(1)
    size = golden.stat().st_size
    journaled(golden, size, size, 0)
    done = run("info", golden, "--verify")
    assert done.exit_code == 0 and "whole: 2 records, 3 datasets checked" in done.stdout
    os.remove(f"{golden}.journal")
    assert run("info", golden, "--verify").exit_code == 2


@pytest.mark.parametrize("claim", [2**40, 2**63, 2**64 - 1])
@pytest.mark.parametrize("what", ["before", "after", "page"])
def test_a_journal_that_lies_is_none(golden, what, claim):
    size = golden.stat().st_size
    claims = {"before": size, "after": size, "page": 0}
    if what == "before":  # which alone says nothing false of the first page
        claims["page"] = claim // PAGE - 1
    journaled(golden, **claims | {what: claim})
    for more in ((), ("--verify",)):
        done = bounded("info", golden, *more)
        assert done.exit_code == 2 and "unexpected" not in done.stderr
        assert done.stderr.startswith("msaccucmp: error: ")


@pytest.mark.parametrize("at", [0, 100, 2**63, 2**64 - 8])
def test_nothing_is_read_behind_the_end_that_a_journal_claims(golden, at):
    reader = JournaledReader(str(golden), 100, {})
    reader.seek(at)
    assert reader.read(8) == (golden.read_bytes()[:8] if at == 0 else b"")


@pytest.mark.parametrize("elsewhere", [external, virtual])
def test_an_index_in_another_file_is_not_read(golden, elsewhere):
    with h5py.File(golden, "r+") as file:
        elsewhere(file, "_torch_dumper/0/index")
        file["_torch_dumper/0/index"].attrs["Type"] = np.int32(110)
        digest = hashlib.sha256(np.full(4, SECRET).tobytes()).hexdigest()
        file.attrs["IndexDigest"] = f"sha256:{digest}"  # true if the other file were read
    done = run("info", golden, "--verify")
    assert done.exit_code == 1
    assert "/_torch_dumper/0/index: the index cannot be read" in done.stdout
