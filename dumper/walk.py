"""From the root of a dump to its records, tensors and arguments.

Groups and datasets are read straight from the file's bytes where `headers` can, else h5py is asked:
at journals of killed writers, in groups of many links, where anything is unusual. h5py's low-level
calls are used because its high-level ones cost three times as much.

Nothing in the file is trusted. Only hard links are followed, so a file can name nothing outside
itself; loops and towers of groups end; a node that is not as the layout wants costs itself only and
is listed in `skipped`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from h5py import h5d, h5g, h5l, h5o

from . import layout
from .claims import EMPTY_LIST, NOTHING, ArgumentClaims, TensorClaims, claims_of
from .facts import facts_of
from .groups import Link, Tangle
from .headers import Headers
from .index import UNKNOWN, Entry
from .patience import patience
from .stored import DAMAGE, Argument, Source, Tensor, as_claimed, first_line

MAX_DEPTH = 32
"""Levels of groups below the root; a record needs five."""


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
    arguments: Mapping[str, Argument]
    has_inputs: bool = field(repr=False)
    entry: Entry = field(default=UNKNOWN, repr=False)
    results: Mapping[str, Argument] = field(default_factory=lambda: NOTHING, repr=False)

    @property
    def phase(self) -> str | None:
        """forward, backward, optimizer or recompute; grad or update for a value; None unknown."""
        return self.entry.phase


class _Place:
    """A node on the way down. It is opened only where h5py must be asked about what is below."""

    __slots__ = ("_above", "_name", "_node")

    def __init__(self, above: _Place | None, name: bytes, node: h5g.GroupID | None = None) -> None:
        self._above, self._name, self._node = above, name, node

    def node(self) -> h5g.GroupID | h5d.DatasetID:
        """The open node. Raises what h5py raises when it is damaged."""
        if self._node is None:
            # "./" because HDF5 would take a name that is itself "/" or "." for a path
            self._node = h5o.open(self._above.node(), b"./" + self._name)
        return self._node


class Walk:
    """One way through a file.

    source: of the datasets. headers: None where only h5py can read the file. skipped: gets (path,
    reason) of every node that could not be read as the layout wants.
    """

    def __init__(
        self,
        source: Source,
        headers: Headers[TensorClaims | ArgumentClaims | str] | None,
        skipped: list[tuple[str, str]],
    ) -> None:
        self._source, self._headers, self._skipped = source, headers, skipped
        self._groups: set[int] = set()
        self._texts: dict[bytes, str] = {}

    def records(self, links: list[Link], index: dict[tuple[str, int], Entry]) -> Iterator[Record]:
        """The records below the root's links; what the index says of them is taken out of it."""
        root = _Place(None, b"/", self._source.root)
        for link in links:
            ir = text_of(link.name)
            if ir == layout.COMFORT:
                continue
            place, path = _Place(root, link.name), f"/{ir}"
            for below in self._found(place, link, path, "an IR") or ():
                seqid = text_of(below.name)
                path = f"/{ir}/{seqid}"
                if not (below.name.isdigit() and len(below.name) <= 18):
                    self._skip(path, "no seqid: a record's name is a decimal number")
                    continue
                there = _Place(place, below.name)
                sides = self._found(there, below, path, "a record")
                if sides is not None:
                    number = int(seqid)
                    entry = index.pop((ir, number), UNKNOWN)
                    yield self._record(there, sides, ir, number, path, entry)

    def _record(
        self, place: _Place, sides: list[Link], ir: str, seqid: int, path: str, entry: Entry
    ) -> Record:
        tensors: dict[str, tuple[Tensor, ...]] = {}
        arguments: dict[str, dict[str, Argument]] = {}
        for link in sides:
            side = self._text(link.name)
            below = f"{path}/{side}"
            if side not in layout.SIDES:
                self._skip(below, "neither input nor output")
                continue
            there = _Place(place, link.name)
            links = self._found(there, link, below, f"the {side} group")
            if links is None:
                continue
            made: list[Tensor | Argument] = []
            self._values(made, there, links, path, side, "", 4)
            tensors[side] = tuple([each for each in made if type(each) is Tensor])
            if len(tensors[side]) < len(made):
                arguments[side] = {each.name: each for each in made if type(each) is not Tensor}
        inputs, outputs = tensors.get("input", ()), tensors.get("output", ())
        given, results = arguments.get("input", NOTHING), arguments.get("output", NOTHING)
        return Record(ir, seqid, path, inputs, outputs, given, "input" in tensors, entry, results)

    def _values(
        self,
        made: list[Tensor | Argument],
        place: _Place,
        links: list[Link],
        record: str,
        side: str,
        prefix: str,
        depth: int,
    ) -> None:
        """Append everything below one side, lists in the order of their numbers."""
        for link in _in_order(links):
            name = self._text(link.name)
            if prefix:
                name = prefix + name
            path, there = f"{record}/{side}/{name}", _Place(place, link.name)
            found = self._found(there, link, path)
            if found is None:
                continue
            if type(found) is tuple:
                claims, at = found
                if type(claims) is str:
                    self._skip(path, claims)
                    continue
            elif depth > MAX_DEPTH:
                self._skip(path, f"more than {MAX_DEPTH} groups inside each other")
                continue
            elif found or depth > 4:
                self._values(made, there, found, record, side, name + "/", depth + 1)
                continue
            else:
                claims, at = EMPTY_LIST, None
            made.append(as_claimed(claims, record, side, name, link.address, at, self._source))

    def _found(
        self, place: _Place, link: Link, path: str, what: str = ""
    ) -> list[Link] | tuple[TensorClaims | ArgumentClaims | str, int | None] | None:
        """What is at a link, which leads to a place: a group's links, a dataset's claims and where
        its elements begin, or None, and then it is listed why. what: the group that is expected, if
        only a group can be there."""
        if not link.hard:
            return self._skip(path, "a soft or external link, which is not followed")
        address = link.address
        if address in self._groups:
            # Datasets are shared on purpose, groups never: a loop, or a tower with 2**30 ways down.
            return self._skip(path, "a second link to a group that was read already")
        found = None
        if self._headers:
            try:
                found = self._headers.at(address)
            except Tangle:
                self._groups.add(address)
                return self._skip(path, "damaged: its tree leads to one node twice")
        if found is None:
            found = self._asked(place, address, path, what)
        if type(found) is list:
            self._groups.add(address)
        elif what and found is not None:
            return self._skip(path, f"not a group, where {what} is expected")
        return found

    def _asked(
        self, place: _Place, address: int, path: str, what: str
    ) -> list[Link] | tuple[TensorClaims | ArgumentClaims | str, int | None] | None:
        """What h5py finds there."""
        try:
            with patience:
                node = place.node()
            if isinstance(node, h5g.GroupID):
                self._groups.add(address)
                return links_of(node, self._source.size)
            if what:
                return self._skip(path, f"not a group, where {what} is expected")
            if not isinstance(node, h5d.DatasetID):
                return self._skip(path, "neither a group nor a dataset")
            with patience:
                facts = facts_of(node)
        except DAMAGE as error:
            return self._skip(path, f"damaged: {first_line(error)}")
        if self._headers:
            self._headers.learn(address, node)
            found = self._headers.at(address)
            if type(found) is tuple:
                return found
        return claims_of(facts), None

    def _text(self, name: bytes) -> str:
        """One text for all that have this name."""
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = text_of(name)
        return text

    def _skip(self, path: str, reason: str) -> None:
        self._skipped.append((path, reason))


def links_of(group: h5g.GroupID, size: int) -> list[Link]:
    """The links of an open group, by name. size: of the file, which their names cannot exceed.

    Raises what h5py raises when the group is damaged.
    """
    found: list[Link] = []
    left = size

    # h5py hands out one LinkInfo object for all links, so its fields are taken at once
    def take(name: bytes, info: h5l.LinkInfo) -> None:
        nonlocal left
        left -= len(name)
        if left < 0:
            raise ValueError("more names than the file has bytes")
        found.append(Link(name, info.type == h5l.TYPE_HARD, info.u))

    with patience:
        group.links.iterate(take, info=True)
    return found


def text_of(name: bytes) -> str:
    """A name as Python has it; bytes that are no UTF-8 come back as they are when encoded."""
    return name.decode("utf-8", "surrogateescape")


def _in_order(links: list[Link]) -> list[Link]:
    """`x_2` before `x_10`: by name, as they come, but a trailing number counts as a number."""
    if any(link.name[-1:].isdigit() for link in links):
        return sorted(links, key=_member_order)
    return links


def _member_order(link: Link) -> tuple[bytes, int, bytes]:
    name = link.name
    stem = name.rstrip(b"0123456789")
    digits = name[len(stem) :]
    return stem, int(digits) if digits and len(digits) < 19 else -1, name
