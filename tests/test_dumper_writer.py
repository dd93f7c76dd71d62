"""The file as others see it: exact attributes, HDF5's own tools, and what a kill leaves."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from forked import Forked

from dumper import dumper, open_dump
from dumper.dtypes import BY_NAME
from dumper.journal import pages_of
from dumper.layout import Type
from dumper.writer import TensorAttributes, Writer


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
def test_kill_9_leaves_what_was_recorded(kill: int, tmp_path: Path, forked: Forked) -> None:
    """Killed at a moment that moves through the run, at times inside a flush."""
    path = tmp_path / "x.h5"
    script = f"""
import torch, dumper
x = torch.zeros(50)
with torch.utils.dumper(use_dump=True, dump_path={str(path)!r}):
    while True:
        x = x + 1
"""

    def kill_once_it_writes(child: int) -> None:
        while not path.exists() or path.stat().st_size < 150_000:  # the first flush ends before
            os.kill(child, 0)  # raises where it has ended
            time.sleep(0.01)
        time.sleep(0.037 * kill)
        os.kill(child, signal.SIGKILL)

    assert forked.run(script, kill_once_it_writes).returncode == -signal.SIGKILL
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


def test_a_kill_inside_a_flush_is_read_through_the_journal(tmp_path: Path, forked: Forked) -> None:
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
    assert forked.run(script).returncode == -signal.SIGKILL
    assert (tmp_path / "x.h5.journal").exists()
    with open_dump(path) as recorded:
        assert recorded.skipped == []
        assert len(recorded.records) >= 64
        for i, record in enumerate(recorded.records):
            np.testing.assert_array_equal(record.outputs[0].read(), np.full(50, i + 1, np.float32))


FLOAT = BY_NAME["float32"]
PLAIN = TensorAttributes(0, 0, None)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_values_of_every_size_and_dtype_survive(name: str, tmp_path: Path) -> None:
    """Below 64 KiB a value travels in a copy of its template, above it goes past HDF5."""
    dtype, random = BY_NAME[name], np.random.default_rng(3)
    edge = (1 << 16) // dtype.bits.itemsize
    shapes = [(), (0,), (3, 0, 2), (5,), (2, 3), (edge,), (edge + 1,), (2, 3, edge), (edge, 5)]
    path, expected = tmp_path / "x.h5", {}
    writer = Writer(str(path), {})
    for seqid, shape in enumerate(shapes * 2, 1):  # again, by way of the template that is there
        count = int(np.prod(shape)) * dtype.bits.itemsize
        bits = np.frombuffer(random.bytes(count), dtype.bits).reshape(shape)
        live = bits.copy()
        writer.tensor(f"/op/{seqid}/output/result", live, dtype, PLAIN)
        live.reshape(-1).view(np.uint8)[:] = 255  # the next op writes it
        expected[seqid] = bits
        writer.record_done()
    assert writer.bytes == sum(bits.nbytes for bits in expected.values())
    writer.close()
    with open_dump(path) as dump:
        assert dump.finished and dump.skipped == []
        for record in dump.records:
            (found,) = record.outputs
            assert found.dtype == name and found.shape == expected[record.seqid].shape
            assert found.bits().tobytes() == expected[record.seqid].tobytes(), found.shape


def test_equal_shapes_keep_their_own_attributes(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    kinds = [
        TensorAttributes(0, 0, None),
        TensorAttributes(10, 2, (1, 4)),
        TensorAttributes(10, 29, (1, 4), live_offset=7),
        TensorAttributes(0, 0, None, live_offset=8, uninitialised=True),
    ]
    writer = Writer(str(path), {})
    for seqid, kind in enumerate(kinds * 2, 1):
        writer.tensor(f"/op/{seqid}/output/result", np.full((4, 3), seqid, "f4"), FLOAT, kind)
    writer.close()
    with open_dump(path) as dump:
        for record, kind in zip(dump.records, kinds * 2, strict=True):
            (found,) = record.outputs
            seen = [
                found.device_type,
                found.format_type,
                found.live_stride,
                found.live_offset,
                found.uninitialised,
            ]
            assert tuple(seen) == kind.key()
            assert found.stride == (3, 1)
            np.testing.assert_array_equal(found.read(), record.seqid)


def test_templates_that_grow_too_many_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumper.templates._MANY", 20_000)
    path = tmp_path / "x.h5"
    writer = Writer(str(path), {})
    for seqid in range(1, 200):
        bits = np.full(seqid % 50, seqid, "f4")
        writer.tensor(f"/op/{seqid}/output/result", bits, FLOAT, PLAIN)
    writer.close()
    with open_dump(path) as dump:
        assert [r.outputs[0].shape for r in dump.records] == [(n % 50,) for n in range(1, 200)]
        assert all((r.outputs[0].read() == r.seqid).all() for r in dump.records)


def test_writers_of_one_process_do_not_share_templates(tmp_path: Path) -> None:
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    writers = [Writer(str(path), {}) for path in paths]
    for seqid in range(1, 20):
        for number, writer in enumerate(writers):
            bits = np.full(5, 100 * number + seqid, "f4")
            writer.tensor(f"/op/{seqid}/output/result", bits, FLOAT, PLAIN)
    for writer in writers:
        writer.close()
    for number, path in enumerate(paths):
        with open_dump(path) as dump:
            for record in dump.records:
                np.testing.assert_array_equal(record.outputs[0].read(), 100 * number + record.seqid)


def test_a_value_in_parts_is_the_value(tmp_path: Path) -> None:
    path, value = tmp_path / "x.h5", np.arange(30_000, dtype="f4").reshape(100, 300)
    writer = Writer(str(path), {})
    buffer = np.empty((7, 300), np.float32)

    def pieces(rows: int) -> Iterator[np.ndarray]:
        for start in range(0, rows, 7):
            part = value[start : start + 7]
            buffer[: len(part)] = part
            yield buffer[: len(part)]

    writer.parts("/op/1/output/result", value.shape, pieces(100), FLOAT, PLAIN)
    with pytest.raises(ValueError, match="84000 bytes came for a tensor of 120000"):
        writer.parts("/op/2/output/result", value.shape, pieces(70), FLOAT, PLAIN)
    writer.tensor("/op/3/output/result", value, FLOAT, PLAIN)
    writer.close()
    with open_dump(path) as dump:
        assert [(r.seqid, len(r.outputs)) for r in dump.records] == [(1, 1), (2, 0), (3, 1)]
        for record in dump.records[::2]:
            np.testing.assert_array_equal(record.outputs[0].read(), value)


def test_a_finished_file_has_the_digest_of_its_index(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    writer = Writer(str(path), {})
    for seqid in range(1, 200):
        writer.tensor(f"/op/{seqid}/output/result", np.ones(3, "f4"), FLOAT, PLAIN)
        writer.line("index", json.dumps({"seqid": seqid, "ir": "op", "phase": "forward"}))
        writer.line("calls", '{"call": 1}')
        writer.record_done()
    writer.flush()
    with h5py.File(path, locking=False) as file:
        assert "IndexDigest" not in file.attrs and file.attrs["Finished"] == 0
    writer.close()
    with h5py.File(path) as file:
        text = file["_torch_dumper/0/index"][:].tobytes()
        assert text.count(b"\n") == 199
        assert file.attrs["IndexDigest"] == "sha256:" + hashlib.sha256(text).hexdigest()
        assert file.attrs["Finished"] == 1
        assert file["_torch_dumper/0/calls"][:].tobytes() == b'{"call": 1}\n' * 199


def on_disk(path: Path) -> int:
    """How many records another process would find now."""
    with h5py.File(path, locking=False) as file:
        return len(file.get("op", ()))


def test_a_flush_comes_at_64_records_or_after_half_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("dumper.writer.time.monotonic", lambda: now)
    path = tmp_path / "x.h5"
    writer = Writer(str(path), {})
    seen = []
    for seqid in range(1, 140):
        writer.tensor(f"/op/{seqid}/output/result", np.ones(3, "f4"), FLOAT, PLAIN)
        if seqid == 70:
            now += 0.6
        writer.record_done()
        seen.append(on_disk(path))
    assert seen == [0] * 63 + [64] * 6 + [70] * 64 + [134] * 6
    writer.close()


def test_an_empty_group_and_an_equal_argument_are_one_object(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    writer = Writer(str(path), {})
    for seqid in (1, 2):
        writer.argument(f"/op/{seqid}/input/alpha", Type.I64, np.array(1, "<i8"))
        writer.argument(f"/op/{seqid}/input/beta", Type.DOUBLE, np.array(1, "<f8"))
        writer.group(f"/op/{seqid}/input/list")
        writer.group(f"/op/{seqid}/input")  # is there
    writer.close()
    with h5py.File(path) as file:
        assert file["op/1/input/alpha"] == file["op/2/input/alpha"]
        assert file["op/1/input/alpha"] != file["op/1/input/beta"]
        assert len(file["op/2/input/list"]) == 0


def test_a_longer_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    path.write_bytes(b"x" * 1_000_000)
    writer = Writer(str(path), {})
    writer.tensor("/op/1/output/result", np.ones(3, "f4"), FLOAT, PLAIN)
    writer.close()
    assert path.stat().st_size < 100_000
    with open_dump(path) as dump:
        np.testing.assert_array_equal(dump.records[0].outputs[0].read(), 1)


def test_no_more_of_the_disk_is_kept_than_the_file_needs(tmp_path: Path) -> None:
    """Blocks set aside for large values are given back."""
    path = tmp_path / "x.h5"
    writer = Writer(str(path), {})
    writer.tensor("/op/1/output/result", np.ones(50_000, "f4"), FLOAT, PLAIN)
    writer.close()
    found = path.stat()
    assert found.st_blocks * 512 < found.st_size + 100_000
