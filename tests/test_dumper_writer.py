"""The file as others see it: exact attributes, HDF5's own tools, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from dumper import dumper, open_dump
from dumper.journal import pages_of


def dump(path: Path, step: object) -> Path:
    with dumper(use_dump=True, dump_path=path):
        step()
    return path


def test_attributes_are_the_originals(tmp_path: Path, device: str) -> None:
    x = torch.arange(6.0).reshape(2, 3).to(device).t()
    path = dump(tmp_path / "x.h5", lambda: x * 2)
    with h5py.File(path) as file:
        stored = file["mul_Tensor/1/input/self"]
        attributes = dict(stored.attrs)
        assert {k: v.dtype for k, v in attributes.items()} == {
            **dict.fromkeys(("Type", "DataType", "DeviceType", "FormatType"), np.dtype("<i4")),
            **dict.fromkeys(("Stride", "LiveStride"), np.dtype("<i8")),
        }
        assert attributes["DeviceType"] == {"cpu": 0, "npu": 10}[device]
        assert attributes["FormatType"] == {"cpu": 0, "npu": 2}[device]
        assert (attributes["Type"], attributes["DataType"]) == (0, 1)
        assert attributes["Stride"].tolist() == [2, 1]
        assert attributes["LiveStride"].tolist() == [1, 3]
        assert stored.dtype == "<f4"
        assert list(file["mul_Tensor/1/input/other"].attrs) == ["Type"]

        def visit(name: str, node: h5py.Group | h5py.Dataset) -> None:
            is_group = isinstance(node, h5py.Group)
            assert (len(node.attrs) == 0) == is_group, name

        file.visititems(visit)


def test_hdf5_tools_read_it(tmp_path: Path, hdf5_tools: dict[str, str]) -> None:
    def step() -> None:
        x = torch.tensor([1.0, -2.5, 1.015625]).to(torch.bfloat16)
        torch.stack([x, x]) * x
        torch.complex(torch.ones(2), torch.ones(2)).exp()

    path = dump(tmp_path / "x.h5", step)
    listing = subprocess.run(
        [hdf5_tools["h5ls"], "-r", path], capture_output=True, text=True, check=True
    )
    assert "/stack/3/input/tensors/tensors_1 Dataset, same as" in listing.stdout
    shown = subprocess.run(
        [hdf5_tools["h5dump"], "-d", "/mul_Tensor/4/input/other", path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "(0): 1, -2.5, 1.01562" in shown.stdout
    assert '"bfloat16"' in shown.stdout


def test_h5py_reads_bfloat16_as_numbers(tmp_path: Path) -> None:
    x = torch.tensor([1.0, -2.5, float("inf")]).to(torch.bfloat16)
    with h5py.File(dump(tmp_path / "x.h5", lambda: x.neg())) as file:
        assert file["neg/1/input/self"][:].tolist() == [1.0, -2.5, float("inf")]


KILLS = 12


@pytest.mark.parametrize("kill", range(KILLS))
def test_kill_9_leaves_what_was_recorded(kill: int, tmp_path: Path) -> None:
    """Killed at a moment that moves through the run, at times inside a flush."""
    path = tmp_path / "x.h5"
    script = f"""
import torch, dumper
x = torch.zeros(50)
with torch.utils.dumper(use_dump=True, dump_path={str(path)!r}):
    while True:
        x = x + 1
"""
    root = str(Path(__file__).resolve().parent.parent)
    child = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": root})
    while not path.exists() and child.poll() is None:
        time.sleep(0.01)
    time.sleep(0.05 + 0.037 * kill)
    child.send_signal(signal.SIGKILL)
    child.wait()
    with open_dump(path) as recorded:
        assert recorded.finished is False
        assert recorded.skipped == []
        assert recorded.records
        for i, record in enumerate(recorded.records):
            assert (record.seqid, record.phase) == (i + 1, "forward")
            np.testing.assert_array_equal(record.outputs[0].read(), np.full(50, i + 1, np.float32))
    if not pages_of(str(path))[1]:  # not inside a flush: readers that know no journal see the same
        with h5py.File(path) as plain:
            assert len(plain.get("add_Tensor", ())) == len(recorded.records)


def test_a_kill_inside_a_flush_is_read_through_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the journal was complete and before the file was: the journal is what counts."""
    path = tmp_path / "x.h5"
    script = f"""
import os, sys, torch, dumper
from dumper import journal
original, flushes = journal._pwrite, 0
def dies(fd, view, at):
    global flushes
    frame = sys._getframe(1)
    if frame.f_code.co_name == "_commit":  # the journal is written, its pages not yet
        flushes += 1
        if flushes > 20:
            os.kill(os.getpid(), 9)
    original(fd, view, at)
journal._pwrite = dies
x = torch.zeros(50)
with torch.utils.dumper(use_dump=True, dump_path={str(path)!r}):
    while True:
        x = x + 1
"""
    root = str(Path(__file__).resolve().parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": root}, timeout=120
    )
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "x.h5.journal").exists()
    with open_dump(path) as recorded:
        assert recorded.skipped == []
        assert len(recorded.records) >= 64
        for i, record in enumerate(recorded.records):
            np.testing.assert_array_equal(record.outputs[0].read(), np.full(50, i + 1, np.float32))
