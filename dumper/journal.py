"""A file under h5py that a kill at any moment leaves whole.

HDF5 overwrites its own metadata in place, and evicts it to disk whenever it likes: a process killed
between two flushes leaves a root that points at half of something (1 kill in 10, measured). So
bytes that a flush has once committed are never touched between flushes. Appends go straight to the
file, where nothing committed points at them yet; overwrites of committed bytes stay in page copies
in memory; a flush writes them to a journal beside the file, then into the file, then drops the
journal. Killed before the journal is complete, the file is as the last flush left it; killed after,
whoever opens it next reads through the journal (`pages_of`).

Blocks of the file are set aside ahead of large values: one extent of some megabytes costs less than
a place for every page. They lie behind the file's end, where a kill leaves a few of them. A thread
that writes behind the step's back was tried and lost: the copy that it needs costs what the write
costs, and it takes a core from the step.

This guards against the death of the process, not of the machine: nothing is fsynced.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import io
import os
import stat
import struct
import weakref
import zlib
from collections.abc import Mapping

import numpy as np

PAGE = 4096
_RUN = 1 << 16  # bytes that are worth a system call of their own; HDF5's metadata comes in some 100
_AHEAD = 8 << 20  # bytes set aside at a time
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
_fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
if _fallocate is not None:
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_MAGIC = b"TDJRNL02"
# magic; length of the file before and after the flush; number of pages; crc32 of the pages
_HEAD = struct.Struct("<8sQQII")
# page number; crc32 of what the page was before the flush; the page follows
_PAGE = struct.Struct("<QI")
_STEP = _PAGE.size + PAGE


def journal_path(path: str) -> str:
    """Where the journal of the file `path` lies while a flush is under way."""
    return path + ".journal"


def pages_of(path: str) -> tuple[int, dict[int, bytes]]:
    """Read the journal that a killed writer left beside `path`.

    Returns the length of the file and its pages by number. (0, {}) when the file is whole as it is:
    there is no journal, it is not complete, or it is another file's (each page of the file must be
    what it was before that flush or what the flush made of it).
    """
    try:
        with (
            open(path, "rb", buffering=0, opener=_without_waiting) as file,
            open(journal_path(path), "rb", buffering=0, opener=_of_ours) as journal,
        ):
            found = os.fstat(journal.fileno())
            size = os.fstat(file.fileno()).st_size
            room = size // PAGE + 1
            if not stat.S_ISREG(found.st_mode) or found.st_size > _HEAD.size + room * _STEP:
                return 0, {}
            data = journal.read(found.st_size)
            return _checked(file.fileno(), size, data)
    except OSError:
        return 0, {}


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # for a pipe's other end


def _of_ours(path: str, flags: int) -> int:
    return _without_waiting(path, flags | os.O_NOFOLLOW)


def _checked(fd: int, size: int, data: bytes) -> tuple[int, dict[int, bytes]]:
    if len(data) < _HEAD.size:
        return 0, {}
    magic, before, length, count, crc = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if magic != _MAGIC or len(body) != count * _STEP or zlib.crc32(body) != crc:
        return 0, {}
    if length > size:  # whatever a flush adds is in the file before the journal is written
        return 0, {}
    pages = {}
    for at in range(0, len(body), _STEP):
        page, was = _PAGE.unpack_from(body, at)
        made = bytes(body[at + _PAGE.size : at + _STEP])
        tail = min(PAGE, before - page * PAGE)
        if tail <= 0 or page * PAGE >= size:
            return 0, {}
        there = os.pread(fd, tail, page * PAGE)
        if zlib.crc32(there) not in (was, zlib.crc32(made[:tail])):
            return 0, {}
        pages[page] = made
    return length, pages


class JournaledFile(io.RawIOBase):
    """File object for h5py's `fileobj` driver; created anew, readable and writable, mode 0600.

    failed: a write did not reach the file; HDF5's own state is lost with it.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(self._fd)
            if os.fstat(self._fd).st_size:  # ext4 syncs a file that was cut to nothing, at close
                os.ftruncate(self._fd, 0)
            os.fchmod(self._fd, 0o600)
            if os.path.lexists(journal_path(path)):  # of a killed run, for another content
                os.unlink(journal_path(path))
        except OSError:
            os.close(self._fd)
            raise
        self.failed = False
        self._at = 0
        self._length = 0  # as h5py sees it
        self._committed = 0  # bytes below are what the last flush left
        self._run = bytearray()  # appended bytes that are not in the file yet
        self._run_at, self._run_end = 0, -1  # -1: there is none
        self._pages: dict[int, bytearray] = {}
        self._were: dict[int, int] = {}  # crc32 of each held page's committed bytes
        self._discarding = False
        self._inherited = False  # in a forked child: the parent's file
        self._aside = 0  # blocks of the file before this offset are there
        self._sets_aside = _fallocate is not None
        _open_files.add(self)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET:
            offset += self._at if whence == os.SEEK_CUR else self._length
        self._at = offset
        return offset

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:
        self._spill()
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._length - self._at))
        stored = os.pread(self._fd, count, self._at)
        view[: len(stored)] = stored
        view[len(stored) : count] = bytes(count - len(stored))  # a hole past the end of the file
        if self._pages:
            held = max(0, min(count, self._committed - self._at))
            _overlay(view[:held], self._at, self._pages)
        self._at += count
        return count

    def write(self, data: memoryview) -> int:
        at = self._at
        if at == self._run_end and len(self._run) < _RUN:
            # Most writes: HDF5 brings its metadata in the order of the file.
            self._run += data
            end = self._at = self._run_end = self._run_at + len(self._run)
            self._length = max(self._length, end)
            return end - at
        view = memoryview(data).cast("B")
        if view and not self._discarding:
            rest = self._held(at, view)
            self._spill()
            if rest:
                self._run += rest
                self._run_end = at + len(view)
                self._run_at = self._run_end - len(rest)
            self._length = max(self._length, at + len(view))
        self._at = at + len(view)
        return len(view)

    def write_large(self, at: int, data: np.ndarray) -> None:
        """Write flat bytes at `at`, past HDF5; no matter what it wrote there before."""
        if self._discarding:
            return
        view = memoryview(data)
        rest = self._held(at, view)
        if self._run_at == at and len(self._run) <= len(view):
            self._drop_run()
        self._spill()
        if rest:
            end = at + len(view)
            self._set_aside(end - len(rest), end)
            self._put(rest, end - len(rest))
            self._length = max(self._length, end)

    def _held(self, at: int, view: memoryview) -> memoryview:
        """Take what would overwrite committed bytes into page copies; the rest is returned."""
        count = min(len(view), self._committed - at)
        if count <= 0:
            return view
        try:
            self._hold(at, view[:count])
        except BaseException:
            self.failed = True
            raise
        return view[count:]

    def _put(self, view: memoryview, at: int) -> None:
        try:
            _pwrite(self._fd, view, at)
        except BaseException:
            self.failed = True
            raise

    def _set_aside(self, start: int, end: int) -> None:
        if end <= self._aside or not self._sets_aside:
            return
        start = max(start, self._aside)
        count = max(_AHEAD, end - start)
        # Refused (file system, quota, disk): whether the bytes fit, their own write tells.
        self._sets_aside = _fallocate(self._fd, _KEEP_SIZE, start, count) == 0
        self._aside = start + count

    def _spill(self) -> None:
        if self._run:
            self._put(memoryview(self._run), self._run_at)
        self._drop_run()

    def _drop_run(self) -> None:
        # Not emptied: a frame that an interrupt keeps may still look at it.
        self._run = bytearray()
        self._run_end = -1

    def _hold(self, at: int, view: memoryview) -> None:
        done = 0
        for page, start, stop in _split(at, len(view)):
            copy = self._pages.get(page)
            piece = view[done : done + stop - start]
            done += stop - start
            if copy is None:
                there = os.pread(self._fd, PAGE, page * PAGE)
                if there[start:stop] == piece:  # the filled part of a chunk of text
                    continue
                self._were[page] = zlib.crc32(there[: self._committed - page * PAGE])
                copy = self._pages[page] = bytearray(there.ljust(PAGE, b"\0"))
            copy[start:stop] = piece

    def truncate(self, size: int | None = None) -> int:
        size = self._at if size is None else size
        if self._discarding:
            return size
        self._spill()
        # Committed bytes go only at the next flush: until then the committed root may point at
        # them.
        self._cut(max(size, self._committed))
        if size < self._committed:
            self._hold(size, memoryview(bytes(self._committed - size)))  # what regrows is zero
        self._length = size
        return size

    def flush(self) -> None:
        """Commit everything written so far."""
        if self.closed or self._discarding:
            return
        try:
            self._spill()
            self._commit()
        except BaseException:
            self.failed = True
            raise

    def _commit(self) -> None:
        if self._pages:
            try:
                self._write_journal()
            except OSError:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(journal_path(self._path))  # half a journal is none
                raise
            for page, copy in self._pages.items():
                tail = min(PAGE, self._committed - page * PAGE)
                _pwrite(self._fd, memoryview(copy)[:tail], page * PAGE)
            self._pages.clear()
            self._were.clear()
            self._cut(self._length)
            os.unlink(journal_path(self._path))
        self._committed = self._length

    def _cut(self, size: int) -> None:
        if os.fstat(self._fd).st_size != size:
            os.ftruncate(self._fd, size)

    def discard(self) -> None:
        """Let nothing more reach the file: it stays as the last flush left it."""
        self._discarding = True
        self._drop_run()
        if self._inherited:
            return
        if not os.path.exists(journal_path(self._path)):  # else a flush failed while applying it
            os.ftruncate(self._fd, self._committed)

    def _write_journal(self) -> None:
        # A page may straddle the committed end; what lies behind it went straight to the file.
        parts = []
        for page, copy in self._pages.items():
            tail = self._committed - page * PAGE
            if tail < PAGE:
                copy[tail:] = os.pread(self._fd, PAGE - tail, page * PAGE + tail).ljust(
                    PAGE - tail, b"\0"
                )
            parts += [_PAGE.pack(page, self._were[page]), copy]
        body = b"".join(parts)
        count, crc = len(self._pages), zlib.crc32(body)
        head = _HEAD.pack(_MAGIC, self._committed, self._length, count, crc)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(journal_path(self._path), flags, 0o600)
        try:
            _pwrite(fd, memoryview(head + body), 0)
        finally:
            os.close(fd)

    def close(self) -> None:
        if not self.closed:
            if not self._inherited:
                if not self._discarding:
                    os.ftruncate(self._fd, self._length)  # gives back what was set aside
                # Not left to close(): a forked child may still hold the same open file.
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
        super().close()

    def _forked(self) -> None:
        # The file, its lock and what is on its way to it are the parent's.
        self._discarding = self._inherited = True
        self._drop_run()


_open_files: weakref.WeakSet[JournaledFile] = weakref.WeakSet()


def _in_child() -> None:
    for file in list(_open_files):
        file._forked()


os.register_at_fork(after_in_child=_in_child)


class JournaledReader(io.RawIOBase):
    """Read-only file object: the file `path` as its killed writer's journal says it should be."""

    def __init__(self, path: str, length: int, pages: dict[int, bytes]) -> None:
        super().__init__()
        self._file = open(path, "rb", buffering=0)
        self._length, self._pages, self._at = length, pages, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._length)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:
        view = memoryview(buffer).cast("B")
        view = view[: max(0, min(len(view), self._length - self._at))]
        if not view:  # behind the end, and maybe where no file can reach
            return 0
        stored = os.pread(self._file.fileno(), len(view), self._at)
        view[: len(stored)] = stored
        _overlay(view, self._at, self._pages)
        self._at += len(view)
        return len(view)

    def close(self) -> None:
        self._file.close()
        super().close()


def _lock(fd: int) -> None:
    """Keep other writers off the file. Raises BlockingIOError while one is at work."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(errno.EWOULDBLOCK, "another process is writing this file") from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise  # else a file system without locks: nothing to keep others off with


def _overlay(view: memoryview, at: int, pages: Mapping[int, bytes | bytearray]) -> None:
    """Lay the copies in `pages` over the bytes that begin at file offset `at`."""
    for page, start, stop in _split(at, len(view)):
        copy = pages.get(page)
        if copy is not None:
            first = page * PAGE + start - at
            view[first : first + stop - start] = copy[start:stop]


def _split(at: int, count: int) -> list[tuple[int, int, int]]:
    """Cut the bytes [at, at + count) at page borders: (page, first byte in it, byte after the
    last).
    """
    parts = []
    end = at + count
    while at < end:
        page, start = divmod(at, PAGE)
        stop = min(PAGE, start + end - at)
        parts.append((page, start, stop))
        at += stop - start
    return parts


def _pwrite(fd: int, view: memoryview, at: int) -> None:
    while view:
        done = os.pwrite(fd, view, at)
        view, at = view[done:], at + done
