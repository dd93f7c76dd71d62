"""ACL dump among threads and processes: whose op a file is of, and that nobody waits or fails."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import npu_core
from dumper.acl_dump import AclDump
from ir2tbe.cann.folder import DumpFile, Missed, walk


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    asked = {"dump_path": str(tmp_path / "acl"), "dump_list": [], "dump_op_switch": "on"}
    path = tmp_path / "acl.json"
    path.write_text(json.dumps({"dump": asked}))
    with npu_core.use("910A"):
        yield path


@contextmanager
def another_thread(stop: threading.Event) -> Iterator[list[BaseException]]:
    """One that runs sigmoid on npu until the block ends; the errors that it met."""
    errors: list[BaseException] = []

    def work() -> None:
        x = torch.ones(4).npu()
        try:
            while not stop.is_set():
                torch.sigmoid(x)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield errors
    finally:
        stop.set()
        thread.join()


def dumped(root: Path) -> list[DumpFile]:
    return [each for _, files in walk(root, Missed()) for each in files]


def names(root: Path) -> list[str]:
    return [each.name.op_type for each in dumped(root)]


def test_a_record_has_the_ops_of_its_own_thread_only(config: Path) -> None:
    x, dump = torch.ones(3, 3).npu(), AclDump(config)
    with another_thread(threading.Event()) as errors:
        for number in range(50):
            with dump.around("mm", number):
                torch.mm(x, x)
    assert names(config.parent / "acl") == ["MatMul"] * 50 and not errors


def test_a_dump_that_ends_while_another_thread_works(config: Path) -> None:
    with another_thread(threading.Event()) as errors, warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(50):
            torch.npu.init_dump()
            torch.npu.set_dump(str(config))
            torch.npu.finalize_dump()
    assert not errors


def test_a_forked_child_has_no_dump_and_goes_on(config: Path) -> None:
    code = f"""
import os, signal, threading, torch, npu_core
npu_core.register("910A")
signal.alarm(60)
x = torch.ones(4).npu()
works = lambda: bool((torch.sigmoid(x) + 1)[0] > 1.5)
assert works()  # no op's first call may be a child's: it registers what is to be undone at exit,
# under a lock of libc's that the thread may have held at the fork
torch.npu.init_dump(); torch.npu.set_dump({str(config)!r})
done = threading.Event()
thread = threading.Thread(target=lambda: [torch.sigmoid(x) for _ in iter(done.is_set, True)])
thread.start()
for _ in range(20):
    child = os.fork()
    if not child:
        signal.alarm(60)  # which a child does not inherit
        torch.npu.finalize_dump()
        os._exit(0 if works() else 1)
    assert os.waitpid(child, 0)[1] == 0
done.set(); thread.join(); torch.npu.finalize_dump()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = dumped(config.parent / "acl")
    assert {each.name.op_type for each in found} == {"Sigmoid"}
    assert {each.path.parent.name for each in found} == {"0"}  # no optimizer made a step
