"""The file under h5py: whatever moment a kill chooses, what was committed is whole."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumper import journal
from dumper.journal import PAGE, JournaledFile, JournaledReader, journal_path, pages_of

SIZES = st.integers(0, 3 * PAGE)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 5 * PAGE), SIZES, st.integers(1, 255)),
        st.tuples(st.just("truncate"), st.integers(0, 6 * PAGE)),
        st.tuples(st.just("flush")),
    ),
    max_size=12,
)


class Killed(BaseException):
    """Stands in for the end of the process."""


def apply(file: Any, step: tuple) -> None:
    if step[0] == "write":
        file.seek(step[1])
        file.write(bytes([step[3]]) * step[2])
    elif step[0] == "truncate":
        file.truncate(step[1])
    else:
        file.flush()


def content(file: Any) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return file.read(size)


def committed(path: str) -> bytes:
    """What a reader sees: the file, through its journal if there is one."""
    length, pages = pages_of(path)
    if pages:
        with JournaledReader(path, length, pages) as reader:
            return content(reader)
    return Path(path).read_bytes()


def model(steps: list[tuple]) -> list[bytes]:
    """The plain file's content at the start and after every flush."""
    plain, states = io.BytesIO(), [b""]
    for step in steps:
        if step[0] == "truncate":  # BytesIO does not grow by truncate
            plain.seek(0, os.SEEK_END)
            plain.write(bytes(max(0, step[1] - plain.tell())))
        if step[0] == "write":  # nor by writing nothing
            plain.seek(step[1])
            plain.write(bytes([step[3]]) * step[2]) if step[2] else None
        else:
            apply(plain, step)
        if step[0] == "flush":
            states.append(plain.getvalue())
    return states


@given(steps=STEPS)
def test_reads_back_what_was_written(steps: list[tuple], tmp_path_factory: Any) -> None:
    path = str(tmp_path_factory.mktemp("journal") / "file")
    file = JournaledFile(path)
    for step in steps:
        apply(file, step)
    assert content(file) == model([*steps, ("flush",)])[-1]
    file.flush()
    file.close()
    assert Path(path).read_bytes() == model([*steps, ("flush",)])[-1]
    assert not os.path.exists(journal_path(path))


def starts_with(found: bytes, expected: bytes) -> bool:
    """A killed file may hold uncommitted bytes behind the committed end; nothing points at them."""
    return found[: len(expected)] == expected


@given(steps=STEPS, moment=st.integers(0, 40))
def test_a_kill_at_any_call_leaves_a_commit(
    steps: list[tuple], moment: int, tmp_path_factory: Any
) -> None:
    path = str(tmp_path_factory.mktemp("journal") / "file")
    states = model([*steps, ("flush",)])
    with pytest.MonkeyPatch.context() as patch:
        calls = [0]

        def mortal(call: Callable) -> Callable:
            def wrapped(*args: Any) -> Any:
                calls[0] += 1
                if calls[0] > moment:
                    raise Killed
                return call(*args)

            return wrapped

        file = JournaledFile(path)
        for name in ("pwrite", "ftruncate", "unlink"):
            patch.setattr(journal.os, name, mortal(getattr(os, name)))
        flushes = 0
        try:
            for step in [*steps, ("flush",)]:
                apply(file, step)
                flushes += step[0] == "flush"
        except Killed:
            pass
    # The commit under way may have been made, or not; nothing between.
    candidates = states[flushes : flushes + 2]
    assert any(starts_with(committed(path), state) for state in candidates)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "magic"])
def test_a_journal_that_is_not_whole_is_none(damage: str, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    file = JournaledFile(path)
    file.write(b"a" * 100)
    file.flush()
    file.seek(0)
    file.write(b"b" * 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal.os, "unlink", lambda path: None)  # killed before the last call
        file.flush()
    kept = Path(journal_path(path))
    assert pages_of(path)[1][0][:100] == b"b" * 100
    whole = kept.read_bytes()
    kept.write_bytes(
        {
            "cut": whole[:-1],
            "flipped": whole[:-1] + bytes([whole[-1] ^ 1]),
            "empty": b"",
            "magic": b"X" + whole[1:],
        }[damage]
    )
    assert pages_of(path) == (0, {})


def test_a_failed_flush_keeps_the_last_commit(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    file = JournaledFile(path)
    file.write(b"a" * 10_000)
    file.flush()
    file.seek(0)
    file.write(b"b" * 20_000)

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal.os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            file.flush()
    file.discard()
    file.write(b"c" * 20_000)
    file.flush()
    file.close()
    assert committed(path) == b"a" * 10_000
    assert os.listdir(tmp_path) == ["file"]


def killed_in_flush(path: str) -> None:
    """Leave a complete journal: `a` was committed, `b` is in the journal and not in the file."""
    file = JournaledFile(path)
    file.write(b"a" * 3 * PAGE)
    file.flush()
    file.seek(PAGE // 2)
    file.write(b"b" * PAGE)
    with pytest.MonkeyPatch.context() as patch:
        original = journal._pwrite

        def dies(fd: int, view: memoryview, at: int) -> None:
            if fd == file._fd:
                raise Killed
            original(fd, view, at)

        patch.setattr(journal, "_pwrite", dies)
        with pytest.raises(Killed):
            file.flush()
    os.close(file._fd)


def test_the_journal_of_a_killed_flush_counts(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    killed_in_flush(path)
    half = b"a" * (PAGE // 2)
    assert Path(path).read_bytes() == b"a" * 3 * PAGE
    assert committed(path) == half + b"b" * PAGE + half + b"a" * PAGE


@pytest.mark.parametrize("other", [b"c" * 3 * PAGE, b"a" * 3 * PAGE + b"c", b"a" * PAGE, b""])
def test_a_journal_is_never_laid_over_another_file(other: bytes, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    killed_in_flush(path)
    Path(path).write_bytes(other)
    same = other.startswith(b"a" * 3 * PAGE)  # longer: uncommitted bytes of the same file
    assert (pages_of(path) == (0, {})) is not same


@pytest.mark.parametrize("kind", ["fifo", "device", "link", "folder", "huge"])
def test_a_journal_that_is_no_journal_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    Path(path).write_bytes(b"x" * 100)
    beside = Path(journal_path(path))
    if kind == "fifo":
        os.mkfifo(beside)
    elif kind == "device":
        beside.symlink_to("/dev/zero")
    elif kind == "link":
        killed_in_flush(str(tmp_path / "other"))
        beside.symlink_to(journal_path(str(tmp_path / "other")))
    elif kind == "folder":
        beside.mkdir()
    else:
        beside.write_bytes(b"")
        os.truncate(beside, 1 << 40)
    assert pages_of(path) == (0, {})
