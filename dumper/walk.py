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
from operator import itemgetter

from h5py import h5d, h5g, h5l, h5o

from . import layout
from .claims import EMPTY_LIST, NOTHING, ArgumentClaims, TensorClaims, claims_of
from .facts import facts_of
from .groups import Link, Links, Tangle, in_order
from .headers import Headers
from .index import UNKNOWN, Entry
from .patience import patience
from .stored import DAMAGE, Argument, Source, Tensor, as_claimed, first_line

MAX_DEPTH = 32
"""Levels of groups below the root; a record needs five."""

_NO_VALUES = (), NOTHING
_GROUP_OF = {side: f"the {side} group" for side in layout.SIDES}


@dataclass(slots=True)
class Record:
    """One op call: `ir` and `path` as the file has them, tensors and arguments by schema name.

    entry: what the index says about it. results: outputs that are no tensors. Nobody changes it;
    it is not frozen because that takes five times as long to make.
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

    def path(self) -> str:
        """Where it is in the file; the root is the empty text."""
        return f"{self._above.path()}/{text_of(self._name)}" if self._above else ""


class _Texts(dict[bytes, str]):
    """Names as texts, one text for all that have a name."""

    def __missing__(self, name: bytes) -> str:
        text = self[name] = text_of(name)
        return text


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
        self._texts = _Texts()

    def records(self, links: Links, index: dict[tuple[str, int], Entry]) -> Iterator[Record]:
        """The records below the root's links; what the index says of them is taken out of it.

        They come by seqid, which is the way that the file was written: what lies side by side in it
        is read then.
        """
        found: list[tuple[int, bytes, bytes, int | None]] = []
        root = _Place(None, b"", self._source.root)
        for ir, address in links:
            if self._texts[ir] == layout.COMFORT:
                continue
            place = _Place(root, ir)
            for name, leads in self._found(place, address, "an IR") or ():
                if name.isdigit() and len(name) <= 18:
                    found.append((int(name), ir, name, leads))
                else:
                    self._skip(_Place(place, name), "no seqid: a record's name is a decimal number")
        found.sort(key=itemgetter(0))
        for seqid, name, below, address in found:
            place = _Place(_Place(root, name), below)  # open IRs would cost kilobytes each
            sides = self._found(place, address, "a record")
            if sides is not None:
                ir = self._texts[name]
                path = f"/{ir}/{text_of(below)}"
                entry = index.pop((ir, seqid), UNKNOWN)
                yield self._record(place, sides, ir, seqid, path, entry)

    def _record(
        self, place: _Place, sides: Links, ir: str, seqid: int, path: str, entry: Entry
    ) -> Record:
        values: dict[str, tuple[tuple[Tensor, ...], Mapping[str, Argument]]] = {}
        for name, address in sides:
            side, there = self._texts[name], _Place(place, name)
            if side not in layout.SIDES:
                self._skip(there, "neither input nor output")
                continue
            links = self._found(there, address, _GROUP_OF[side])
            if links is not None:
                tensors: list[Tensor] = []
                arguments: dict[str, Argument] = {}
                self._values(tensors, arguments, there, links, path, side, "", 4)
                values[side] = tuple(tensors), arguments or NOTHING
        inputs, given = values.get("input", _NO_VALUES)
        outputs, results = values.get("output", _NO_VALUES)
        return Record(ir, seqid, path, inputs, outputs, given, "input" in values, entry, results)

    def _values(
        self,
        tensors: list[Tensor],
        arguments: dict[str, Argument],
        place: _Place,
        links: Links,
        record: str,
        side: str,
        prefix: str,
        depth: int,
    ) -> None:
        """Add everything below one side, lists in the order of their numbers."""
        texts, source = self._texts, self._source
        for link, address in links:
            there = _Place(place, link)
            found = self._found(there, address)
            if found is None:
                continue
            name = prefix + texts[link] if prefix else texts[link]
            if type(found) is tuple:
                claims, at = found
                if type(claims) is str:
                    self._skip(there, claims)
                    continue
            elif depth > MAX_DEPTH:
                self._skip(there, f"more than {MAX_DEPTH} groups inside each other")
                continue
            elif found or depth > 4:
                below = name + "/"
                self._values(tensors, arguments, there, found, record, side, below, depth + 1)
                continue
            else:
                claims, at = EMPTY_LIST, None
            made = as_claimed(claims, record, side, name, address, at, source)
            if type(made) is Tensor:
                tensors.append(made)
            else:
                arguments[name] = made

    def _found(
        self, place: _Place, address: int | None, what: str = ""
    ) -> Links | tuple[TensorClaims | ArgumentClaims | str, int | None] | None:
        """What is at a place, whose link has an address: a group's links in order, a dataset's
        claims and where its elements begin, or None, and then it is listed why. what: the group
        that is expected, if only a group can be there."""
        if address is None:
            return self._skip(place, "a soft or external link, which is not followed")
        if address in self._groups:
            # Datasets are shared on purpose, groups never: a loop, or a tower with 2**30 ways down.
            return self._skip(place, "a second link to a group that was read already")
        try:
            found = self._headers.at(address) if self._headers else None
        except Tangle:
            self._groups.add(address)
            return self._skip(place, "damaged: its tree leads to one node twice")
        if found is None:
            found = self._asked(place, address, what)
        if type(found) is list:
            self._groups.add(address)
        elif what and found is not None:
            return self._skip(place, f"not a group, where {what} is expected")
        return found

    def _asked(
        self, place: _Place, address: int, what: str
    ) -> Links | tuple[TensorClaims | ArgumentClaims | str, int | None] | None:
        """What h5py finds there."""
        try:
            with patience:
                node = place.node()
            if isinstance(node, h5g.GroupID):
                self._groups.add(address)
                return in_order(links_of(node, self._source.size))
            if what:
                return self._skip(place, f"not a group, where {what} is expected")
            if not isinstance(node, h5d.DatasetID):
                return self._skip(place, "neither a group nor a dataset")
            with patience:
                facts = facts_of(node)
        except DAMAGE as error:
            return self._skip(place, f"damaged: {first_line(error)}")
        if self._headers:
            self._headers.learn(address, node)
            found = self._headers.at(address)
            if type(found) is tuple:
                return found
        return claims_of(facts), None

    def _skip(self, place: _Place, reason: str) -> None:
        self._skipped.append((place.path(), reason))


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
        found.append(Link(name, info.u if info.type == h5l.TYPE_HARD else None))

    with patience:
        group.links.iterate(take, info=True)
    return found


def text_of(name: bytes) -> str:
    """A name as Python has it; bytes that are no UTF-8 come back as they are when encoded."""
    return name.decode("utf-8", "surrogateescape")
