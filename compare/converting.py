"""CANN dump files taken apart into files, by all processors.

What each file becomes is `ir2tbe.convert`'s; here it is written, each file whole or not at all, and
never outside of the output folder. Files are dealt out to forked processes by their size before
any is read; a process sends what came of each through a pipe. When one ends before it is done, the
file that it was at is reported, and this process does the rest of its share. When this process
ends, so do they, after they have taken away what they had begun.
"""

from __future__ import annotations

import contextlib
import csv
import heapq
import io
import os
import pickle
import select
import signal
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from dumper.errors import DumpError
from ir2tbe.convert import Part, Request, parts_of
from ir2tbe.sources import Source

from .whole import folder_with_room, replacing

MAPPING = "mapping.csv"
FAILED = "convert_failed_file_list.txt"
_ROOM = "make room, or name another -out"
_LONGEST = 254
"""Bytes of a name; the original shortens one of 255, which Linux would still take."""

_WORTH = 32 << 20
"""Work from which on a second process pays: what it costs to start one is a few milliseconds."""

_OF_A_FILE = 1 << 20
"""What a small file costs, as if it had so many bytes more."""

_MAPPING_BYTES = 16 << 20
_STOPPING = {signal.SIGINT, signal.SIGTERM}
"""Signals that end a process after it has taken away what it had begun."""


@dataclass
class Converted:
    """What came of a file. at: its place among the sources. written: names, below the output
    folder. renamed: (folder, short name, name that was too long). notes: (name, what is to be
    known)."""

    at: int
    written: list[str] = field(default_factory=list)
    errors: list[DumpError] = field(default_factory=list)
    renamed: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def sendable(self) -> tuple[object, ...]:
        """What another process makes the same of: errors cannot be pickled."""
        errors = [(error.what, error.where, error.todo) for error in self.errors]
        return self.at, self.written, errors, self.renamed, self.notes

    @classmethod
    def received(cls, sent: tuple[Any, ...]) -> Converted:
        """What `sendable` was of."""
        at, written, errors, renamed, notes = sent
        return cls(at, written, [DumpError(*error) for error in errors], renamed, notes)


def convert_all(sources: Sequence[Source], out: Path, request: Request) -> Iterator[Converted]:
    """Convert files, and yield what came of each, as it comes.

    out: folder, made if missing. Names that were too long are added to mapping.csv in their folder
    at the end, also when that comes early. Raises DumpError where nothing can be written.
    """
    folder_with_room(out, 0, _ROOM)
    renamed: list[tuple[str, str, str]] = []
    names: set[str] = set()
    try:
        for result in _results(sources, out, request):
            renamed += result.renamed
            for name in result.written:
                if name in names:
                    what = "two dumps have parts of this name, and the later one is there"
                    result.errors.append(DumpError(what, out / name, "convert them apart"))
            names.update(result.written)
            yield result
    finally:
        for folder in sorted({folder for folder, _, _ in renamed}):
            pairs = {short: name for place, short, name in renamed if place == folder}
            _add_to_mapping(out / folder / MAPPING, pairs)


def write_failed(out: Path, paths: Sequence[Path]) -> None:
    """Write the list of files of which not all could be converted, as the original does."""
    with replacing(out / FAILED) as file:
        file.writelines(os.fsencode(path) + b"\n" for path in paths)


def _results(sources: Sequence[Source], out: Path, request: Request) -> Iterator[Converted]:
    shares = _shares(sources)
    if len(shares) == 1:
        for at in shares[0]:
            yield convert_one(at, sources[at], out, request)
        return
    with _Processes() as processes:
        for share in shares:
            processes.start(convert_one(at, sources[at], out, request) for at in share)
        left = [list(share) for share in shares]
        for number, result in processes.results():
            if isinstance(result, Converted):
                left[number].remove(result.at)
                yield result
                continue
            if result < 0 and left[number]:  # by a signal; what Python raised is raised again here
                at = left[number].pop(0)
                name = signal.Signals(-result).name
                what = f"reading this ended ({name}): memory is short, or the file became shorter"
                error = DumpError(what, sources[at].path, "convert it by itself")
                yield Converted(at, errors=[error])
            for at in left[number]:
                yield convert_one(at, sources[at], out, request)


def _shares(sources: Sequence[Source]) -> list[list[int]]:
    """Places of the sources, by the process that takes them; the largest first."""
    costs = [source.size + _OF_A_FILE for source in sources]
    if sys.platform != "linux":  # no other system copies a process without trouble
        return [list(range(len(sources)))]
    number = min(len(os.sched_getaffinity(0)), len(sources), 1 + sum(costs) // _WORTH)
    if number < 2:
        return [list(range(len(sources)))]
    shares: list[list[int]] = [[] for _ in range(number)]
    loads = [(0, i) for i in range(number)]
    for at in sorted(range(len(sources)), key=lambda at: -costs[at]):
        load, i = loads[0]
        shares[i].append(at)
        heapq.heapreplace(loads, (load + costs[at], i))
    return shares


def convert_one(at: int, source: Source, out: Path, request: Request) -> Converted:
    """Convert one file; what is wrong with it, or with a part of it, is in the result."""
    result = Converted(at)
    place = str(source.folder) if source.folder.parts else ""
    try:
        folder = _folder(out, source.folder)
        for part in parts_of(source.path, source.name, request, source.opdebug):
            if isinstance(part, DumpError):
                result.errors.append(part)
                continue
            try:
                name = _write(part, folder)
            except DumpError as error:
                result.errors.append(error)
                continue
            except MemoryError:
                what = f"there is not enough memory for {part.name}"
                result.errors.append(DumpError(what, source.path, "use a machine with more"))
                continue
            result.written.append(os.path.join(place, name))
            if name != part.name:
                result.renamed.append((place, name, part.name))
            if part.note:
                result.notes.append((name, part.note))
            del part  # or its tensor would stay until the next is there
    except DumpError as error:
        result.errors.append(error)
    except MemoryError:
        what = "there is not enough memory for this file"
        result.errors.append(DumpError(what, source.path, "use a machine with more"))
    return result


def _folder(out: Path, below: Path) -> Path:
    """The folder for a file's parts, made if missing; a link there could lead anywhere."""
    folder = out / below
    if below.parts and not folder.is_dir():
        folder_with_room(folder, 0, _ROOM)
    if below.parts and not folder.resolve().is_relative_to(out.resolve()):
        what = "a symbolic link leads from here out of the output folder"
        raise DumpError(what, folder, "remove it, or name another -out")
    return folder


def _write(part: Part, folder: Path) -> str:
    """Write a part, and return the name that it got."""
    name = part.name
    if len(os.fsencode(name)) > _LONGEST:
        digest = uuid.uuid3(uuid.NAMESPACE_DNS, os.fsencode(name).decode(errors="replace"))
        name = f"{digest.hex}{Path(name).suffix}"
    folder_with_room(folder, part.size, _ROOM)
    with replacing(folder / name) as file:
        part.write(file)
    return name


def _add_to_mapping(path: Path, pairs: dict[str, str]) -> None:
    """Add short names and what they stand for; those that are there and other stay."""
    rows = []
    if path.is_file() and path.stat().st_size <= _MAPPING_BYTES:
        with contextlib.suppress(UnicodeDecodeError, csv.Error):  # it is replaced then
            with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
                rows = [row for row in csv.reader(file) if row and row[0] not in pairs]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([*rows, *sorted(pairs.items())])
    with replacing(path) as file:
        file.write(text.getvalue().encode(errors="surrogateescape"))


class _Processes:
    """Forked processes, each with a pipe of its own. End them with `with`."""

    def __init__(self) -> None:
        self._children: list[int] = []
        self._running: set[int] = set()
        self._pipes: list[BinaryIO] = []

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._running:
            os.kill(child, signal.SIGTERM)
        for pipe in self._pipes:
            pipe.close()
        for child in self._running:
            os.waitpid(child, 0)

    def start(self, results: Iterator[Converted]) -> None:
        """Fork a process that sends what the iterator has."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)  # or one could get lost
        read, write = os.pipe()
        child = os.fork()
        if child:
            os.close(write)
            self._children.append(child)
            self._running.add(child)
            self._pipes.append(open(read, "rb", buffering=0))
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return
        status = 1
        try:
            try:
                for number in _STOPPING:
                    signal.signal(number, _stop)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                os.close(read)
                for pipe in self._pipes:
                    os.close(pipe.fileno())
                with open(write, "wb") as file:
                    for result in results:
                        pickle.dump(result.sendable(), file, pickle.HIGHEST_PROTOCOL)
                        file.flush()
                status = 0
            finally:
                for number in _STOPPING:
                    signal.signal(number, signal.SIG_IGN)
        finally:
            os._exit(status)  # nothing of the parent's is flushed or cleaned up here

    def results(self) -> Iterator[tuple[int, Converted | int]]:
        """What processes send, with their number, and the exit code of one that has ended."""
        waiting = dict(enumerate(self._pipes))
        while waiting:
            for pipe in select.select(list(waiting.values()), [], [])[0]:
                number = self._pipes.index(pipe)
                try:
                    yield number, Converted.received(pickle.load(pipe))
                except (EOFError, pickle.UnpicklingError):
                    del waiting[number]
                    _, status = os.waitpid(self._children[number], 0)
                    self._running.discard(self._children[number])
                    yield number, os.waitstatus_to_exitcode(status)


def _stop(*_: object) -> None:
    """End a process, once: what it has begun is taken away meanwhile."""
    for number in _STOPPING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
