"""Recording stops while 1 GiB is free; what was recorded before is there, and training goes on."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
from forked import Forked

from dumper import dtypes, open_dump
from dumper.room import RESERVE, Room, free_bytes
from dumper.writer import TensorAttributes, Writer

MB = 1 << 20


class Disk:
    """A file system of so many free bytes, and a file that takes of them as it grows."""

    def __init__(self, free: int) -> None:
        self.free, self.asked = free, 0

    def __call__(self, path: str) -> int:
        self.asked += 1
        return self.free - (os.path.getsize(path) if os.path.exists(path) else 0)


def test_free_bytes_are_the_file_systems(tmp_path: Path) -> None:
    assert 0 < free_bytes(str(tmp_path / "not-there-yet.h5")) < 1 << 60


def test_the_last_gib_is_not_touched(tmp_path: Path) -> None:
    disk = Disk(RESERVE + 10 * MB)
    room = Room(str(tmp_path / "x.h5"), disk)
    room.take(4 * MB)
    disk.free -= 4 * MB
    room.take(6 * MB)
    disk.free -= 6 * MB
    with pytest.raises(OSError, match="less than 1 GiB would be left on this disk") as raised:
        room.take(1)
    assert raised.value.errno == errno.ENOSPC


def test_what_others_write_counts(tmp_path: Path) -> None:
    disk = Disk(RESERVE + 1000 * MB)
    room = Room(str(tmp_path / "x.h5"), disk)
    room.take(MB)
    disk.free = RESERVE
    with pytest.raises(OSError, match="1 GiB"):
        for _ in range(100):
            room.take(MB)


def test_space_that_came_back_is_used(tmp_path: Path) -> None:
    disk = Disk(RESERVE + MB)
    room = Room(str(tmp_path / "x.h5"), disk)
    disk.free = RESERVE + 100 * MB
    room.take(50 * MB)


def test_the_file_system_is_asked_seldom(tmp_path: Path) -> None:
    disk = Disk(RESERVE + 10_000 * MB)
    room = Room(str(tmp_path / "x.h5"), disk)
    for _ in range(10_000):
        room.take(1000)
    assert disk.asked == 1
    for _ in range(100):
        room.take(MB)
    assert 2 < disk.asked < 20


def test_half_of_the_room_is_warned_about_once(tmp_path: Path) -> None:
    room = Room(str(tmp_path / "x.h5"), Disk(RESERVE + 3000 * MB))
    for _ in range(20):
        room.take(100 * MB)
    with pytest.warns(RuntimeWarning, match="has taken half of the 4.2 GB that were free") as said:
        for _ in range(5):
            room.take(100 * MB)
    assert len(said) == 1


def record(writer: Writer, seqid: int, elements: int) -> None:
    """Two outputs, so that the disk may be full between them, and an input that is a link."""
    path = f"/op/{seqid}"
    for i in range(2):
        bits = np.full(elements, seqid, np.float32)
        attributes = TensorAttributes(0, 0, None)
        writer.tensor(f"{path}/output/result{i}", bits, dtypes.BY_NAME["float32"], attributes)
        if not i:
            writer.same(f"{path}/input/self", f"{path}/output/result0")
    writer.line("index", json.dumps({"seqid": seqid, "ir": "op", "phase": "forward"}))
    writer.record_done()


def test_a_writer_keeps_the_whole_records_and_nothing_of_the_last(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    writer = Writer(str(path), {}, free=Disk(RESERVE + 5 * MB + 100_000))
    with pytest.raises(OSError, match="1 GiB"):
        for seqid in range(1, 10):
            record(writer, seqid, MB // 4)
    assert writer.failed
    writer.abandon()
    with open_dump(path) as dump:
        assert dump.finished is False and dump.skipped == []
        assert [r.seqid for r in dump.records] == [1, 2]  # the third was half done
        for found in dump.records:
            for tensor in (*found.inputs, *found.outputs):
                np.testing.assert_array_equal(tensor.read(), found.seqid)
        assert [line["seqid"] for line in dump.lines("index")] == [1, 2]
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.h5"]


def test_a_disk_without_a_gib_gets_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    writer = Writer(str(path), {}, free=Disk(RESERVE - 1))
    with pytest.raises(OSError, match="1 GiB"):
        record(writer, 1, 3)
    writer.abandon()
    with open_dump(path) as dump:
        assert dump.finished is False and dump.records == ()


def test_recording_stops_and_training_goes_on(tmp_path: Path, forked: Forked) -> None:
    path = tmp_path / "x.h5"
    script = f"""
        import os, torch, dumper
        from dumper import room, writer
        start = writer.Writer.__init__
        def free(path):
            return room.RESERVE + (3 << 20) - os.path.getsize(path)
        def small(self, path, environment, memory=0):
            start(self, path, environment, memory, free)
        writer.Writer.__init__ = small
        with torch.utils.dumper(use_dump=True, dump_path={str(path)!r}):
            x = torch.zeros(1 << 18)
            for _ in range(20):
                x = x + 1
        print(x.sum().item() == 20 << 18)
    """
    done = forked.run(script)
    assert done.stdout.split() == ["True"], done.stderr
    assert done.stderr.count("recording stopped at") == 1
    assert "less than 1 GiB would be left on this disk" in done.stderr
    with open_dump(path) as dump:
        assert dump.finished is False and dump.skipped == []
        assert [r.ir for r in dump.records] == ["zeros", "add_Tensor"]
        np.testing.assert_array_equal(dump.records[-1].outputs[0].read(), 1)
