"""Read a dump: ours, the original fork's, and what is left of either. No torch.

Nothing in the file is trusted. Only hard links are followed, so a file can name nothing outside
itself; loops and towers of groups end; a size is believed only when the file holds the bytes; a
node that is not as the layout wants costs itself only and is listed in `Dump.skipped`. h5py's
low-level calls are used because its high-level ones cost three times as much a dataset, and a dump
is many small datasets.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from h5py import h5a, h5d, h5f, h5g, h5l, h5o, h5p, h5t

from . import layout
from .errors import DumpError
from .facts import Facts, Headers, facts_of
from .index import BY_CHOICE, UNKNOWN, Entry, entries
from .journal import JournaledReader, pages_of
from .stored import DAMAGE, Argument, Source, Tensor, describe, empty_list, first_line
from .superblock import check_file, has_plain_addresses

MAX_DEPTH = 32
"""Levels of groups below the root; a record needs five."""

_FALLBACK = "run the dump again; what was recorded before the damage cannot be read"


class Link(NamedTuple):
    """A link in a group: where it leads is the address of an object header, if it is a hard one."""

    name: bytes
    hard: bool
    address: int


@dataclass(frozen=True, slots=True)
class Record:
    """One op call: `ir` and `path` as the file has them, tensors and arguments by schema name.

    entry: what the index says about it. results: outputs that are no tensors.
    """

    ir: str
    seqid: int
    path: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    arguments: dict[str, Argument]
    has_inputs: bool = field(repr=False)
    entry: Entry = field(default=UNKNOWN, repr=False)
    results: dict[str, Argument] = field(default_factory=dict, repr=False)

    @property
    def phase(self) -> str | None:
        """forward, backward, optimizer or recompute; grad or update for a value; None unknown."""
        return self.entry.phase


def open_dump(path: str | os.PathLike) -> Dump:
    """Open a dump for reading and list its records.

    path: any HDF5 file, whatever its ending; the journal of a killed writer beside it is read
    through. Raises DumpError when there is no such file, when it is no whole HDF5 file, when it is
    locked or may not be read. Close the result, or use it in `with`.
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
    plain = not pages and has_plain_addresses(path) and hasattr(os, "preadv")
    headers = Headers(path) if plain else None
    try:
        return Dump(path, file, size, headers)
    except BaseException:
        file.close()
        if headers:
            headers.close()
        raise


class Dump:
    """The records of one file in execution order, and what is known about the file.

    path: pathlib.Path. records: tuple of Record by (seqid, ir). finished: whether the file was
    closed by its writer; None where the writer does not say. skipped: (path, reason) of every node
    that could not be read as the layout wants. omitted: (path, reason) of what the writer left out.
    """

    def __init__(self, path: Path, file: h5f.FileID, size: int, headers: Headers | None) -> None:
        self.path = path
        self._file = file
        self._headers = headers
        self.skipped: list[tuple[str, str]] = []
        self._groups: set[int] = set()
        try:
            self._root = h5g.open(file, b"/")
            self._source = Source(self._root, size, headers)
            links = _children(self._root)
            self.finished = self._finished()
        except DAMAGE as error:
            raise DumpError(
                f"the root of this HDF5 file cannot be read ({first_line(error)})", path, _FALLBACK
            ) from None
        index = entries(self.lines("index"), self.lines("calls"))
        records = list(self._records(links, index))
        records += [
            Record(ir, seqid, layout.record_path(ir, seqid), (), (), {}, False, entry)
            for (ir, seqid), entry in index.items()  # of what is described only
        ]
        self.omitted = tuple(self._omissions(records))
        self.records: tuple[Record, ...] = tuple(
            sorted(records, key=lambda record: (record.seqid, record.ir, record.path))
        )

    def __enter__(self) -> Dump:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; tensors of this dump cannot be read afterwards."""
        if self._file.valid:
            self._file.close()
        if self._headers:
            self._headers.close()

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
            if not h5a.exists(self._root, b"Environment"):
                return {}
            value = h5py.Group(self._root).attrs["Environment"]
            found = json.loads(value)
        except DAMAGE:
            self.skipped.append(("/", "the attribute Environment is no JSON text"))
            return {}
        return found if isinstance(found, dict) else {}

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
        path = f"/{layout.COMFORT}/0/{name}"
        try:
            node = self._root
            for part in path[1:].encode().split(b"/"):
                if not any(link.hard and link.name == part for link in _children(node)):
                    return
                node = h5o.open(node, part)
            found = describe(facts_of(node), path, "", name, 0, self._source)
            text = found.raw().tobytes()
        except (*DAMAGE, DumpError, AttributeError) as error:
            self.skipped.append((path, f"this text cannot be read ({first_line(error)})"))
            return
        for line in text.decode("utf-8", "replace").splitlines():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue  # cut off by a kill
            if isinstance(entry, dict):
                yield entry

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

    def _records(self, links: list[Link], index: dict[tuple[str, int], Entry]) -> Iterator[Record]:
        """The records that have a group; what the index says about them is taken out of it."""
        for link in links:
            ir = _text(link.name)
            if ir == layout.COMFORT:
                continue
            group = self._open(self._root, link, f"/{ir}", "an IR", h5g.GroupID)
            for below in self._listed(group, f"/{ir}"):
                seqid = _text(below.name)
                path = f"/{ir}/{seqid}"
                if not (below.name.isdigit() and len(below.name) <= 18):
                    self.skipped.append((path, "no seqid: a record's name is a decimal number"))
                    continue
                record = self._open(group, below, path, "a record", h5g.GroupID)
                if record is not None:
                    yield self._record(record, ir, path, index.pop((ir, int(seqid)), UNKNOWN))

    def _record(self, group: h5g.GroupID, ir: str, path: str, entry: Entry) -> Record:
        tensors: dict[str, list[Tensor]] = {side: [] for side in layout.SIDES}
        arguments: dict[str, dict[str, Argument]] = {side: {} for side in layout.SIDES}
        has_inputs = False
        for link in self._listed(group, path):
            side = _text(link.name)
            below = f"{path}/{side}"
            if side not in layout.SIDES:
                self.skipped.append((below, "neither input nor output"))
                continue
            node = self._open(group, link, below, f"the {side} group", h5g.GroupID)
            if node is None:
                continue
            has_inputs = has_inputs or side == "input"
            for found in self._values(node, below, side, "", 4):
                if isinstance(found, Tensor):
                    tensors[side].append(found)
                else:
                    arguments[side][found.name] = found
        seqid = int(path.rpartition("/")[2])
        inputs, outputs = tuple(tensors["input"]), tuple(tensors["output"])
        given, made = (arguments[side] for side in layout.SIDES)
        return Record(ir, seqid, path, inputs, outputs, given, has_inputs, entry, made)

    def _values(
        self, group: h5g.GroupID, path: str, side: str, prefix: str, depth: int
    ) -> Iterator[Tensor | Argument]:
        """Everything below one side, lists in the order of their numbers."""
        for link in sorted(self._listed(group, path), key=_member_order):
            key = prefix + _text(link.name)
            below = f"{path}/{_text(link.name)}"
            facts = self._headers.facts(link.address) if link.hard and self._headers else None
            if facts is not None:
                yield from self._described(facts, below, side, key, link)
                continue
            node = self._open(group, link, below, "a tensor or a list", object)
            if isinstance(node, h5g.GroupID):
                if depth > MAX_DEPTH:
                    self.skipped.append((below, f"more than {MAX_DEPTH} groups inside each other"))
                    continue
                empty = True
                for found in self._values(node, below, side, key + "/", depth + 1):
                    empty = False
                    yield found
                if empty and depth == 4 and not self._listed(node, below):
                    yield empty_list(below, side, key, link.address, self._source)
            elif isinstance(node, h5d.DatasetID):
                try:
                    facts = facts_of(node)
                except DAMAGE as error:
                    self.skipped.append((below, f"damaged: {first_line(error)}"))
                    continue
                if self._headers:
                    self._headers.learn(link.address, node)
                yield from self._described(facts, below, side, key, link)
            elif node is not None:
                self.skipped.append((below, "neither a group nor a dataset"))

    def _described(
        self, facts: Facts, path: str, side: str, key: str, link: Link
    ) -> Iterator[Tensor | Argument]:
        try:
            yield describe(facts, path, side, key, link.address, self._source)
        except DumpError as error:
            self.skipped.append((path, error.what))

    def _listed(self, group: h5g.GroupID | None, path: str) -> list[Link]:
        if group is None:
            return []
        try:
            return _children(group)
        except DAMAGE as error:
            self.skipped.append((path, f"damaged: {first_line(error)}"))
            return []

    def _open(
        self, parent: h5g.GroupID, link: Link, path: str, what: str, kind: type
    ) -> h5py.h5g.GroupID | h5d.DatasetID | None:
        if not link.hard:
            self.skipped.append((path, "a soft or external link, which is not followed"))
            return None
        try:
            # "./" because HDF5 would take a name that is itself "/" or "." for a path
            node = h5o.open(parent, b"./" + link.name)
        except DAMAGE as error:
            self.skipped.append((path, f"damaged: {first_line(error)}"))
            return None
        if not isinstance(node, kind):
            self.skipped.append((path, f"not a group, where {what} is expected"))
            return None
        if isinstance(node, h5g.GroupID):
            # Datasets are shared on purpose, groups never: a loop, or a tower with 2**30 ways down.
            if link.address in self._groups:
                self.skipped.append((path, "a second link to a group that was read already"))
                return None
            self._groups.add(link.address)
        return node


def _children(group: h5g.GroupID) -> list[Link]:
    found: list[Link] = []
    # h5py hands out one LinkInfo object for all links, so its fields are taken at once
    group.links.iterate(
        lambda name, info: found.append(Link(name, info.type == h5l.TYPE_HARD, info.u)), info=True
    )
    return found


def _member_order(link: Link) -> tuple[bytes, int, bytes]:
    """`x_2` before `x_10`: by name, but a trailing number counts as a number."""
    name = link.name
    stem = name.rstrip(b"0123456789")
    digits = name[len(stem) :]
    return stem, int(digits) if digits and len(digits) < 19 else -1, name


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


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
