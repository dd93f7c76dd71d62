"""The operators that a folder of CANN dumps holds, in the order in which they ran.

An operator is a file, but for FFTS+, where it is the files of its threads: the k-th of each thread
belong together. The order is that of the timestamps in the files' names. No file is opened to find
them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from dumper.errors import DumpError
from ir2tbe.cann.content import Dump
from ir2tbe.cann.file import read
from ir2tbe.cann.folder import Missed, walk
from ir2tbe.cann.joining import joined
from ir2tbe.cann.names import DumpName
from ir2tbe.cann.threads import FFTS_PLUS, of_thread, thread_of, whole_name, without_slice

_EXAMPLE = "Add.add_1.3.2.1673383728093446"


class OpFile(NamedTuple):
    """One operator's file. number: from 1, in order of execution. place: its folder below the root,
    '' for the root itself. threads: of one that FFTS+ ran, each thread with its file, None of the
    whole; path is that of the first, and the name is the whole operator's. called: as its files are
    but for what tells threads apart. uneven: threads have
    left different numbers of files, so that nobody knows which belong together."""

    number: int
    path: Path
    name: DumpName
    place: str
    threads: tuple[tuple[int | None, Path], ...] = ()
    uneven: bool = False
    called: str = ""

    def read(self) -> Dump:
        """What the operator's file holds, or its files together. Raises DumpError."""
        if not self.threads:
            return of_thread(read(self.path), self.name)
        if self.uneven:
            what = "its threads have left different numbers of files, which do not say their runs"
            todo = "compare thread by thread with -ffts, or dump again"
            raise DumpError(what, self.path, todo)
        numbers, paths = zip(*self.threads, strict=True)
        return joined(map(read, paths), numbers)


@dataclass
class Folder(Missed):
    """A folder and all below it. has_threads: any file is of an FFTS+ thread. apart: those are
    operators of their own."""

    root: Path = Path()
    ops: list[OpFile] = field(default_factory=list)
    has_threads: bool = False
    apart: bool = False


class _File(NamedTuple):
    """A file that was found, in the order of execution."""

    timestamp: int
    path: str
    name: DumpName
    place: str


def folder_of(root: Path, apart: bool = False) -> Folder | None:
    """The CANN dumps of a folder and of those below it; None where there are none.

    apart: files of FFTS+ threads are operators of their own, called as they are. Reports of
    overflows are no operators. Raises DumpError for what cannot be looked at.
    """
    try:
        root.resolve()  # which the walk does too, where nobody would say why it cannot
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DumpError(f"cannot look at this ({reason})", root, "check the path") from None
    found = Folder(root=root, apart=apart)
    files = [
        _File(file.name.timestamp, os.fspath(file.path), file.name, _place(folder, root))
        for folder, dumps in walk(root, found)
        for file in dumps
        if not file.name.is_opdebug
    ]
    for error in found.errors:
        if error.where == str(root):  # nothing is known of it, not even that it is no such folder
            raise error
    files.sort(key=lambda file: file[:2])
    found.has_threads = any(thread_of(file.name) is not None for file in files)
    for number, op in enumerate(_one_by_one(files) if apart else _put_together(files), 1):
        found.ops.append(op._replace(number=number))
    return found if found.ops else None


def _place(folder: Path, root: Path) -> str:
    place = folder.relative_to(root).as_posix()
    return "" if place == "." else place


def _one_by_one(files: Iterable[_File]) -> list[OpFile]:
    return [
        OpFile(0, Path(file.path), file.name, file.place, called=file.name.op_name)
        for file in files
    ]


def _put_together(files: Iterable[_File]) -> list[OpFile]:
    """Operators in the order of their first files."""
    ops: dict[Hashable, tuple[_File, list[tuple[int | None, Path]]]] = {}
    runs: dict[Hashable, Counter[int]] = {}
    called: dict[Hashable, str] = {}
    for file in files:
        if file.name.task_type != FFTS_PLUS:
            ops[file.path] = file, []
            continue
        thread = thread_of(file.name)
        name = replace(file.name, op_name=whole_name(file.name.op_name), thread_id=None)
        graph = without_slice(file.name.op_name)
        key = file.place, name.op_type, graph, name.device_id
        run = file.path if thread is None else (key, runs.setdefault(key, Counter())[thread])
        if thread is not None:
            runs[key][thread] += 1
        called[run] = graph
        _, threads = ops.setdefault(run, (file._replace(name=name), []))
        threads.append((thread, Path(file.path)))
    uneven = {key for key, counts in runs.items() if len(set(counts.values())) > 1}
    return [
        OpFile(
            0, Path(file.path), file.name, file.place, tuple(sorted(threads)),
            isinstance(run, tuple) and run[0] in uneven,
            called[run] if threads else file.name.op_name,
        )
        for run, (file, threads) in ops.items()
    ]  # fmt: skip


def nothing_found(root: Path, wanted: str) -> DumpError:
    """What to say of a folder that has no file of a kind. wanted: which else would do, or ''."""
    also = f", and no {wanted}" if wanted else ""
    return DumpError(
        f"this is a directory without a CANN dump file in it{also}",
        root,
        f"CANN names its files like {_EXAMPLE}, {{op_type}}.{{op_name}}.{{task_id}}.{{stream_id}}."
        "{timestamp}; check the path",
    )


def no_npy_of_ops(root: Path) -> DumpError:
    """What to say of a folder that has neither a CANN dump nor an npy file of an op."""
    return nothing_found(root, "npy file that is called like conv1.0.1673383728093446.npy")
