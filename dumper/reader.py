"""Read a dump: ours, the original fork's, and what is left of either. No torch.

Nothing in the file is trusted: a size is believed only when the file holds the bytes, and a node
that is not as the layout wants costs itself only and is listed in `Dump.skipped`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import h5py
import numpy as np
from h5py import h5a, h5f, h5g, h5o, h5p, h5t

from . import layout
from .claims import NOTHING, claims_of
from .errors import DumpError
from .facts import facts_of
from .garbage import uncollected
from .groups import Link
from .headers import Headers
from .index import BY_CHOICE, entries
from .journal import JournaledReader, pages_of
from .patience import patience
from .stored import DAMAGE, Source, as_claimed, first_line
from .superblock import check_file, has_plain_addresses
from .walk import Record, Walk, links_of
from .walked import unpacked
from .window import Window

_FALLBACK = "run the dump again; what was recorded before the damage cannot be read"


def open_dump(
    path: str | os.PathLike, *, checked: bool = False, walked: bytes | None = None
) -> Dump:
    """Open a dump for reading and list its records.

    path: any HDF5 file, whatever its ending; the journal of a killed writer beside it is read
    through. checked: HDF5 reads all groups and headers, which takes some times as long and finds
    what is wrong with their checksums. walked: what another process found there (`walked.packed`),
    which is believed of the same file. Raises DumpError when there is no such file, when it is no
    whole HDF5 file, when it is locked or may not be read. Close the result, or use it in `with`.
    """
    path = Path(path)
    length, pages = _journal(path)
    size = length or check_file(path)
    try:
        if pages:
            file = h5py.File(JournaledReader(os.fspath(path), length, pages), "r").id
        else:
            access = h5p.create(h5p.FILE_ACCESS)
            access.set_fclose_degree(h5f.CLOSE_STRONG)  # or what is open in it keeps it locked
            file = h5f.open(os.fsencode(path), h5f.ACC_RDONLY, access)
    except DAMAGE as error:
        raise explain_open(path, error) from None
    # The journal's pages are not in the file yet, a user block shifts every address, and Windows
    # has no preadv.
    plain = not (pages or checked) and has_plain_addresses(path) and hasattr(os, "preadv")
    window = Window(path) if plain else None
    try:
        with uncollected():
            return Dump(path, file, size, window, walked)
    except BaseException:
        with contextlib.suppress(*DAMAGE):
            file.close()
        if window:
            window.close()
        raise


class Dump:
    """The records of one file in execution order, and what is known about the file.

    path: pathlib.Path. records: tuple of Record by (seqid, ir). finished: whether the file was
    closed by its writer; None where the writer does not say. skipped: (path, reason) of every node
    that could not be read as the layout wants. omitted: (path, reason) of what the writer left out.
    state: by what the file is the same, and as it was, when it is opened again.
    """

    def __init__(
        self, path: Path, file: h5f.FileID, size: int, window: Window | None, walked: bytes | None
    ) -> None:
        self.path = path
        self._file = file
        self._window = window
        self.skipped: list[tuple[str, str]] = []
        try:
            self._root = h5g.open(file, b"/")
            self._source = Source(self._root, size, window)
            links = links_of(self._root, size)
            self.finished = self._finished()
        except DAMAGE as error:
            raise DumpError(
                f"the root of this HDF5 file cannot be read ({first_line(error)})", path, _FALLBACK
            ) from None
        self.state = self._state()
        known = unpacked(walked, self._source, self.state) if walked else None
        if known:
            records, self.skipped, omitted = known
        else:
            records = self._walk(links)
            omitted = self._omissions(records)
        self.omitted = tuple(omitted)
        self.records: tuple[Record, ...] = tuple(
            sorted(records, key=lambda record: (record.seqid, record.ir, record.path))
        )

    def _state(self) -> tuple[int, ...]:
        found = os.fstat(self._window.number) if self._window else os.stat(self.path)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _walk(self, links: list[Link]) -> list[Record]:
        index = entries(self.lines("index"), self.lines("calls"))
        headers = Headers(self._window, claims_of) if self._window else None
        records = list(Walk(self._source, headers, self.skipped).records(links, index))
        if self._window:
            self._window.forget()
        records += [
            Record(ir, seqid, layout.record_path(ir, seqid), (), (), NOTHING, False, entry)
            for (ir, seqid), entry in index.items()  # of what is described only
        ]
        return records

    def __enter__(self) -> Dump:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; tensors of this dump cannot be read afterwards."""
        if self._file.valid:
            with contextlib.suppress(*DAMAGE), patience:  # which was read already
                self._file.close()
        if self._window:
            self._window.close()

    @cached_property
    def by_ir(self) -> dict[str, list[Record]]:
        """Records by IR name, each list in seqid order."""
        groups: dict[str, list[Record]] = {}
        for record in self.records:
            groups.setdefault(record.ir, []).append(record)
        return groups

    @cached_property
    def load_mode(self) -> bool:
        """Whether this file was made in load mode: it says so, or has not one `input` group."""
        mode = self.environment.get("mode")
        if mode is not None:
            return mode == "load"
        return bool(self.records) and not any(record.has_inputs for record in self.records)

    @cached_property
    def device_type(self) -> int | None:
        """`DeviceType` of the first tensor that is not on CPU, else 0; None without any tensor."""
        device = None
        for record in self.records:
            for tensor in (*record.inputs, *record.outputs):
                if tensor.device_type:
                    return tensor.device_type
                device = 0
        return device

    @cached_property
    def environment(self) -> dict:
        """What the writer noted about versions and flags (root attribute `Environment`)."""
        try:
            with patience:
                if not h5a.exists(self._root, b"Environment"):
                    return {}
                value = h5py.Group(self._root).attrs["Environment"]
            found = json.loads(value)
        except DAMAGE:
            self.skipped.append(("/", "the attribute Environment is no JSON text"))
            return {}
        return found if isinstance(found, dict) else {}

    @cached_property
    def index_digest(self) -> str | None:
        """The digest of the index that the writer noted at the end (`IndexDigest`); None where it
        noted none, or no text."""
        try:
            with patience:
                noted = h5py.Group(self._root).attrs.get("IndexDigest")
        except DAMAGE:
            return None
        return noted if isinstance(noted, str) else None

    @property
    def rank(self) -> int:
        """Number of the process that wrote it; 0 outside of a distributed run."""
        rank = self.environment.get("rank", 0)
        return rank if isinstance(rank, int) else 0

    def _finished(self) -> bool | None:
        if not h5a.exists(self._root, b"Finished"):
            return None
        value = np.zeros((), np.int64)
        h5a.open(self._root, b"Finished").read(value, h5t.NATIVE_INT64)
        return bool(value)

    def lines(self, name: str) -> Iterator[dict]:
        """The JSON objects of one comfort text. Without it, or where it is damaged, there are
        none."""
        try:
            text = self.text(name)
        except DumpError as error:
            self.skipped.append((error.where, error.what))
            return
        for line in io.BytesIO(text):
            try:
                entry = json.loads(line.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                continue  # cut off by a kill
            if isinstance(entry, dict):
                yield entry

    def text(self, name: str) -> bytes:
        """One comfort text as it is stored, empty where there is none; only hard links lead to it.

        Raises DumpError where it cannot be read.
        """
        where = f"/{layout.COMFORT}"
        path = f"{where}/0/{name}"
        try:
            node = self._root
            for part in path[1:].encode().split(b"/"):
                links = links_of(node, self._source.size)
                if not any(link.hard and link.name == part for link in links):
                    return b""
                with patience:
                    node = h5o.open(node, part)
            with patience:
                claims = claims_of(facts_of(node))
            if isinstance(claims, str):
                raise ValueError(claims)
            return as_claimed(claims, where, "0", name, 0, None, self._source).raw().tobytes()
        except (*DAMAGE, DumpError, AttributeError) as error:
            what = f"this text cannot be read ({first_line(error)})"
            raise DumpError(what, path, _FALLBACK) from None

    def _omissions(self, records: list[Record]) -> Iterator[tuple[str, str]]:
        listed = set()
        for line in self.lines("omitted"):
            listed.add(path := str(line.get("path")))
            yield path, str(line.get("reason"))
        for record in records:
            for key, stub in record.entry.stubs.items():
                path = f"{record.path}/{key}"
                if stub.reason not in BY_CHOICE and path not in listed:
                    yield path, stub.reason


def _journal(path: Path) -> tuple[int, dict[int, bytes]]:
    try:
        return pages_of(os.fspath(path))
    except (OSError, ValueError):  # no readable journal; what is wrong with the path is said later
        return 0, {}


def explain_open(path: Path, error: BaseException) -> DumpError:
    """Say why HDF5 could not open a file that `check_file` let pass."""
    if isinstance(error, BlockingIOError):
        return DumpError(
            "this file is locked: another process has it open",
            path,
            "wait until the dump is finished; on a disk without locks set "
            "HDF5_USE_FILE_LOCKING=FALSE",
        )
    if isinstance(error, PermissionError):
        return DumpError("no permission to read this file", path, "change its mode or owner")
    return DumpError(f"this HDF5 file is damaged ({first_line(error)})", path, _FALLBACK)
