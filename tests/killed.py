"""Kills dump writers, and prints what their files have lost: `killed.py FOLDER KILLS SLOW`.

A process of its own that never imports torch, so that it may fork: each child writes records until
it is killed, by its parent at a random moment, or by itself at a random point of a commit. One line
of JSON a child: how it died, how many records it had done, how many its file has, and for how long
the first lost one had been done.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from dumper import dtypes, journal
from dumper.reader import open_dump
from dumper.writer import TensorAttributes, Writer

FLOAT = dtypes.BY_NAME["float32"]
PLAIN = TensorAttributes(0, 0, None)
PAGE = journal.PAGE
_RECORDS = 1 << 16
_IN_COMMIT = ("_commit", "_write_journal")


def values(seqid: int) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors of a record: small, large, none."""
    yield "result0", np.full(50, seqid, np.float32)
    yield "result1", np.full((3, 40_000) if seqid % 9 == 0 else (0, 2), seqid, np.float32)


def write(path: Path, done: mmap.mmap, pause: float) -> None:
    """Write records until the end. done: gets the moment at which each was done."""
    writer = Writer(str(path), {})
    parent = os.getppid()
    for seqid in range(1, _RECORDS):
        if os.getppid() != parent:
            return
        record = f"/op{seqid % 7}/{seqid}"
        for name, value in values(seqid):
            writer.tensor(f"{record}/output/{name}", value, FLOAT, PLAIN)
        if seqid > 1:
            earlier = f"/op{(seqid - 1) % 7}/{seqid - 1}/output/result0"
            writer.same(f"{record}/input/self", earlier)
        writer.group(f"{record}/input")
        writer.line(
            "index", json.dumps({"seqid": seqid, "ir": f"op{seqid % 7}", "phase": "forward"})
        )
        writer.record_done()
        struct.pack_into("<d", done, seqid * 8, time.monotonic())
        struct.pack_into("<q", done, 0, seqid)
        time.sleep(pause)


def die_in_commit(when: random.Random) -> None:
    """Let this process die in one of its next commits, before, after or amid one of its writes."""
    left = when.randrange(1, 40)

    def dies(call: Callable, is_write: bool = False) -> Callable:
        def wrapped(*args: object) -> object:
            nonlocal left
            callers = sys._getframe(1), sys._getframe(2)
            if any(frame.f_code.co_name in _IN_COMMIT for frame in callers):
                left -= 1
            if left == 0:
                if is_write:
                    fd, view, at = args  # a kill lets the kernel end the page it is at
                    os.pwrite(fd, view[: when.randrange(len(view) // PAGE + 1) * PAGE], at)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args)

        return wrapped

    journal._pwrite = dies(journal._pwrite, is_write=True)
    journal.os = type("os", (), dict(vars(os)))
    for name in ("ftruncate", "unlink", "open"):
        setattr(journal.os, name, staticmethod(dies(getattr(os, name))))


def start(path: Path, how: str, when: random.Random) -> tuple[int, mmap.mmap]:
    """Fork a writer that is to die in one of three ways; returns it and what it has done."""
    done = mmap.mmap(-1, _RECORDS * 8)
    child = os.fork()
    if not child:
        if how == "commit":
            die_in_commit(when)
        write(path, done, 0.03 if how == "slow" else 0.0)
        os._exit(1)
    return child, done


def report(path: Path, how: str, done: mmap.mmap, died: float) -> dict[str, object]:
    """Open a dead writer's file, check every value in it, and say what is missing."""
    count = struct.unpack_from("<q", done, 0)[0]
    has_journal = os.path.exists(journal.journal_path(str(path)))
    with open_dump(path) as dump:
        assert dump.finished is False and dump.skipped == [], dump.skipped
        for seqid, record in enumerate(dump.records, 1):
            assert record.seqid == seqid
            found = [tensor.read() for tensor in record.outputs]
            for value, (_, expected) in zip(found, values(seqid), strict=True):
                assert np.array_equal(value, expected), seqid
            before = [tensor.read()[0] for tensor in record.inputs]
            assert before == [seqid - 1] * (seqid > 1)
        found = len(dump.records)
        assert len(list(dump.lines("index"))) == found
    first_lost = struct.unpack_from("<d", done, (found + 1) * 8)[0] if found < count else died
    return {
        "how": how,
        "done": count,
        "found": found,
        "journal": has_journal,
        "lost_s": died - first_lost,
    }


def main() -> None:
    """Kill writers one by one, and slow ones all at a time."""
    folder, kills, slow = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    when = random.Random(7)
    slow_ones = [
        (folder / f"slow{i}.h5", *start(folder / f"slow{i}.h5", "slow", when)) for i in range(slow)
    ]
    for i in range(kills):
        path = folder / f"{i}.h5"
        how = "commit" if i % 2 else "any"
        child, done = start(path, how, when)
        if how == "any":
            while not struct.unpack_from("<q", done, 0)[0]:
                time.sleep(0.001)
            time.sleep(when.random() * 0.06)
            os.kill(child, signal.SIGKILL)
        when.random()  # the child has moved its own copy
        status = os.waitpid(child, 0)[1]
        died = time.monotonic()
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        print(json.dumps(report(path, how, done, died)))
        path.unlink()
        done.close()
    for path, child, done in slow_ones:
        os.kill(child, signal.SIGKILL)
        died = time.monotonic()
        os.waitpid(child, 0)
        print(json.dumps(report(path, "slow", done, died)))


if __name__ == "__main__":
    main()
