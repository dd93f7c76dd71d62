"""What the program cannot foresee: the streams, the memory, the user, itself. One block, exit 2."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from chains import SCRIPT, chain, equal_pair, run
from dumps import dump, put


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two equal dumps of different devices, in the working directory."""
    return equal_pair(tmp_path, monkeypatch)


COMMANDS = {
    "equal": "compare -m npu.h5 -g cpu.h5",
    "differing": "compare -m npu.h5 -g odd.h5",
    "convert": "convert -d npu.h5 -out out",
    "h5copy": "h5copy -pv -i npu.h5 -o out.h5 -s /mul -d /mul",
    "help": "--help",
    "help of one": "compare --help",
    "version": "h5copy -V",
}


STREAMS = ["> /dev/full", ">&-", "<&- >&-", "| true"]


@pytest.mark.parametrize(
    ("command", "streams"),
    [(command, STREAMS[0]) for command in COMMANDS]
    + [(command, streams) for command in ("differing", "h5copy") for streams in STREAMS[1:]],
)
def test_an_output_that_cannot_be_written(pair, tmp_path, command, streams):
    dump(tmp_path / "odd.h5", chain([[1, 2], [2, 4], [2, 5], [7]]))
    before = {path: Path(path).read_bytes() for path in os.listdir()}
    # `sleep`: so that nobody reads the pipe any more when something is written
    line = f'{{ sleep 0.3; "$0" "$1" {COMMANDS[command]}; echo "status $?" >&2; }} {streams}'
    done = subprocess.run(
        ["bash", "-c", line, sys.executable, SCRIPT], capture_output=True, text=True
    )
    block = done.stderr.splitlines()
    assert block[0].startswith("msaccucmp: error: the output cannot be written (")
    assert block[1:] == [
        "  where: standard output or standard error",
        "  what to do: make room, or send it elsewhere; files written before are complete",
        "status 2",
    ]
    assert {path: Path(path).read_bytes() for path in before} == before
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("streams", ["2> /dev/full", "2>&-", ">&- 2>&- <&-"])
def test_nobody_to_tell(pair, streams):
    line = f'"$0" "$1" compare -m npu.h5 -g nope.h5 {streams}; echo "status $?" > status'
    done = subprocess.run(
        ["bash", "-c", line, sys.executable, SCRIPT], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert Path("status").read_text() == "status 2\n"


UNFORESEEN = {
    "a fault of ours": (
        ZeroDivisionError("by\x1bzero"),
        "unexpected ZeroDivisionError: by\\x1bzero",
    ),
    "an assertion": (AssertionError(), "unexpected AssertionError"),
    "memory": (MemoryError(), "there is not enough memory"),
    "a disk": (OSError(5, "Input/output error", "some file"), "Input/output error"),
    "a user": (KeyboardInterrupt(), "interrupted"),
}


@pytest.mark.parametrize(("error", "words"), UNFORESEEN.values(), ids=list(UNFORESEEN))
@pytest.mark.parametrize("command", ["equal", "convert"])
def test_the_unforeseen_is_trouble_and_no_difference(pair, monkeypatch, command, error, words):
    def fail(*_):
        raise error

    monkeypatch.setattr("compare.comparing.obstacle", fail)
    monkeypatch.setattr("compare.convert.estimate", fail)
    done = run(*COMMANDS[command].split())
    if isinstance(error, MemoryError) and command == "equal":
        assert done.exit_code == 1  # which costs its rows only
        return
    assert done.exit_code == 2
    assert words in done.stderr and done.stderr.lstrip().startswith("msaccucmp: error: ")
    assert ("please report" in done.stderr) is words.startswith("unexpected")
    assert not [name for name in os.listdir() if name.startswith("result")]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_leaves_nothing(tmp_path, name):
    """In the middle of a long comparison, conversion or copy."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        put(file, "op/1/output/x", np.arange(3_000_000, dtype="f8"))
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, SCRIPT, "convert", "-d", tmp_path / "a.h5", "-t", "txt", "-out", out],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not (out.exists() and os.listdir(out)) and process.poll() is None:
        time.sleep(0.01)
    assert process.poll() is None
    process.send_signal(getattr(signal, name))
    _, errors = process.communicate()
    assert process.returncode == 2
    assert errors.strip() == "msaccucmp: error: interrupted"
    assert os.listdir(out) == []


@pytest.mark.parametrize(
    "command",
    [
        "compare -m PIPE -g cpu.h5",
        "compare -m npu.h5 -g PIPE",
        "convert -d PIPE -out out",
        "h5copy -i PIPE -o out.h5 -s /mul -d /mul",
        "info PIPE",
        "ir2tbe --dump PIPE",
        "ops PIPE",
        "overflow -d PIPE",
        "replay PIPE",
        "show PIPE /mul/1",
    ],
)
def test_no_command_waits_for_what_a_pipe_may_bring(pair, command):
    os.mkfifo("dump.h5")
    done = subprocess.run(
        [sys.executable, SCRIPT, *command.replace("PIPE", "dump.h5").split()],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and "dump.h5" in done.stderr
    assert "what to do" in done.stderr and "Traceback" not in done.stderr
