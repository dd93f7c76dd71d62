"""h5copy: what the real one does with records, word for word where it matters."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from dumps import put

from compare.cli import cli
from dumper.reader import open_dump

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments):
    return CliRunner().invoke(cli, ["h5copy", *map(str, arguments)])


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A dump whose second record's input is a hard link to the first one's output."""
    monkeypatch.chdir(tmp_path)
    with h5py.File("in.h5", "w") as file:
        put(file, "mul/1/input/self", np.arange(3, dtype="f4"))
        put(file, "mul/1/input/other", np.float64(2), kind=7)
        file["relu/2/input/self"] = put(file, "mul/1/output/result", np.arange(3, dtype="f4") * 2)
        put(file, "relu/2/output/result", np.arange(3, dtype="f4") * 2)
        file["soft/3"] = h5py.SoftLink("/mul/1")
        file["outside/4"] = h5py.ExternalLink("/etc/hostname", "/")
    return "in.h5"


def tree(path):
    found = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, node: found.__setitem__(
                name,
                (node[()].tolist(), sorted(node.attrs)) if isinstance(node, h5py.Dataset) else None,
            )
        )
    return found


def test_a_record_with_its_linked_input(source):
    done = run("-pv", "-i", source, "-o", "out.h5", "-s", "/relu/2/", "-d", "/relu/2/")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "Copying file <in.h5> and object </relu/2/> to file <out.h5> and object </relu/2/>",
        "h5copy: Creating parent groups",
    ]
    with open_dump("out.h5") as opened:
        (record,) = opened.records
        assert record.path == "/relu/2"
        assert record.inputs[0].read().tolist() == [0, 2, 4]
    assert stat.S_IMODE(os.stat("out.h5").st_mode) == 0o600


def test_repeated_calls_add(source):
    for name in ("/relu/2/", "mul/1"):
        assert run("-p", "-i", source, "-o", "out.h5", "-s", name, "-d", name).exit_code == 0
    with open_dump("out.h5") as opened:
        assert [record.path for record in opened.records] == ["/mul/1", "/relu/2"]
        assert opened.records[0].arguments["other"].value == 2.0


def test_within_one_file(source):
    assert run("-p", "-i", source, "-o", source, "-s", "/mul/1", "-d", "/copy/1").exit_code == 0
    found = tree(source)
    assert found["copy/1/output/result"] == found["mul/1/output/result"]


CALLS = [
    ("-pv", "-s", "/relu/2/", "-d", "/relu/2/"),
    ("-p", "-v", "-s", "relu/2", "-d", "other/name"),
    ("-v", "-s", "/mul/1", "-d", "/one"),
    ("-v", "-s", "/mul/1/output/result", "-d", "x"),
    ("-pv", "-f", "shallow", "-s", "/relu", "-d", "/relu"),
    ("-pv", "-f", "noattr", "-s", "/relu/2", "-d", "/relu/2"),
    ("-pv", "-f", "shallow", "-f", "noattr", "-s", "/", "-d", "/all"),
]


@pytest.mark.parametrize("call", CALLS)
def test_like_the_real_one(source, hdf5_tools, call):
    real = subprocess.run(
        [hdf5_tools["h5copy"], "-i", source, "-o", "real.h5", *call], capture_output=True, text=True
    )
    ours = run("-i", source, "-o", "ours.h5", *call)
    assert (ours.exit_code, real.returncode) == (0, 0)
    assert ours.stdout == real.stdout.replace("real.h5", "ours.h5")
    assert tree("ours.h5") == tree("real.h5") != {}


def test_the_real_tools_read_what_we_copied(source, hdf5_tools):
    run("-p", "-i", source, "-o", "out.h5", "-s", "/relu/2", "-d", "/relu/2")
    again = [
        hdf5_tools["h5copy"],
        "-pv",
        "-i",
        source,
        "-o",
        "out.h5",
        "-s",
        "/mul/1",
        "-d",
        "/mul/1",
    ]
    assert subprocess.run(again, capture_output=True).returncode == 0
    listed = subprocess.run(
        [hdf5_tools["h5ls"], "-r", "out.h5"], capture_output=True, text=True, check=True
    )
    assert "/mul/1/output/result Dataset {3}" in " ".join(listed.stdout.split())
    assert "/relu/2/input/self Dataset {3}" in " ".join(listed.stdout.split())


BAD = {
    "no such source": (("-p", "-s", "/nope/1", "-d", "/nope/1"), "there is no object /nope/1"),
    "below a dataset": (("-p", "-s", "/mul/1/output/result/x", "-d", "/x"), "there is no object"),
    "no parents": (("-s", "/relu/2", "-d", "/relu/2"), "group </relu> doesn't exist"),
    "the root": (("-p", "-s", "/relu/2", "-d", "/"), "root"),
    "a soft link": (("-p", "-s", "/soft/3", "-d", "/x"), "not followed"),
    "an external link": (("-p", "-s", "/outside/4", "-d", "/x"), "not followed"),
}


@pytest.mark.parametrize(("call", "words"), BAD.values(), ids=list(BAD))
def test_trouble_leaves_no_file(source, call, words):
    done = run("-i", source, "-o", "out.h5", *call)
    assert done.exit_code == 2 and words in done.stderr
    assert not os.path.exists("out.h5")


def test_an_existing_destination_stays(source):
    call = ("-p", "-i", source, "-o", "out.h5", "-s", "/relu/2", "-d", "/relu/2")
    run(*call)
    before = tree("out.h5")
    done = run(*call)
    assert done.exit_code == 2 and "already" in done.stderr
    assert tree("out.h5") == before


@pytest.mark.parametrize(
    ("source_file", "target", "words"),
    [
        ("nope.h5", "out.h5", "no such file"),
        ("in.h5", "text", "not an HDF5"),
        ("in.h5", "no/o.h5", "No such file or directory"),
        ("in.h5", "/proc/o.h5", "the output cannot be written"),
    ],
)
def test_bad_files(source, source_file, target, words):
    with open("text", "w") as file:
        file.write("no HDF5")
    done = run("-p", "-i", source_file, "-o", target, "-s", "/relu/2", "-d", "/relu/2")
    assert done.exit_code == 2 and words in done.stderr
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("-d", "/mul/1/output/result/x"), "/mul/1/output/result is no group"),
        (("-d", "/mul/1/output/result"), "there is an object /mul/1/output/result already"),
        (("-d", "/soft/3/x"), "/soft/3 is a soft or external link"),
        (("-d", "/outside/4/x"), "/outside/4 is a soft or external link"),
    ],
)
@pytest.mark.parametrize("parents", [(), ("-p",)])
def test_destinations_that_cannot_be(source, call, words, parents):
    with h5py.File("out.h5", "w") as file, h5py.File(source) as inside:
        for name in ("mul", "soft", "outside"):
            inside.copy(name, file)
    before = tree("out.h5")
    done = run(*parents, "-i", source, "-o", "out.h5", "-s", "/relu/2", *call)
    assert done.exit_code == 2 and words in done.stderr
    assert "where: out.h5" in done.stderr
    assert tree("out.h5") == before


LIMITED = """
import difflib, os, resource, sys  # difflib: click imports it late
import compare.extract, compare.cli
if sys.argv[1] == "size":
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
elif os.getuid() == 0:  # whom no mode stops
    os.setgroups([]), os.setuid(65534)
sys.argv[1:] = sys.argv[2:]
compare.cli.main()
"""


def limited(how, *arguments):
    """The program with a limit on the size of files, or as a user with limited rights."""
    return subprocess.run(
        [sys.executable, "-c", LIMITED, how, "h5copy", *arguments],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.parametrize("new", [True, False])
def test_no_room_for_the_output(source, new):
    with h5py.File("big.h5", "w") as file:
        put(file, "op/1/output/x", np.ones(100_000))
    if not new:
        run("-p", "-i", source, "-o", "out.h5", "-s", "/relu/2", "-d", "/relu/2")
    done = limited("size", "-p", "-i", "big.h5", "-o", "out.h5", "-s", "/op", "-d", "/op")
    assert done.returncode == 2
    assert done.stderr.splitlines()[:2] == [
        "msaccucmp: error: the output cannot be written (File too large)", "  where: out.h5",
    ]  # fmt: skip
    assert os.path.exists("out.h5") is not new


@pytest.mark.parametrize("how", ["read-only", "in a read-only directory"])
def test_an_output_that_may_not_be_written(source, tmp_path, how):
    os.chmod(source, 0o644)
    if how == "read-only":
        run("-p", "-i", source, "-o", "out.h5", "-s", "/relu/2", "-d", "/relu/2")
        os.chmod("out.h5", 0o444)
    tmp_path.chmod(0o555)
    done = limited("rights", "-p", "-i", source, "-o", "out.h5", "-s", "/mul/1", "-d", "/mul/1")
    tmp_path.chmod(0o755)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[:2] == [
        "msaccucmp: error: the output cannot be written (Permission denied)", "  where: out.h5",
    ]  # fmt: skip


@pytest.mark.parametrize("locked", ["in.h5", "out.h5"])
def test_a_locked_file_is_named(source, locked):
    run("-p", "-i", source, "-o", "out.h5", "-s", "/relu/2", "-d", "/relu/2")
    writer = (
        "import h5py, sys; f = h5py.File(sys.argv[1], 'r+'); print('open', flush=True); input()"
    )
    environment = {**os.environ, "HDF5_USE_FILE_LOCKING": "TRUE"}
    with subprocess.Popen(
        [sys.executable, "-c", writer, locked],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "open\n"
        done = run("-p", "-i", source, "-o", "out.h5", "-s", "/mul/1", "-d", "/mul/1")
        process.communicate("\n")
    assert done.exit_code == 2
    assert "this file is locked" in done.stderr and f"where: {locked}" in done.stderr


def test_version():
    done = run("-V")
    assert done.exit_code == 0
    assert done.stdout == f"h5copy: Version {h5py.version.hdf5_version}\n"
