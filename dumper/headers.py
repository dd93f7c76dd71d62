"""What lies at an address of a dump: a dataset's claims or a group's links, without HDF5.

A dump has thousands of objects and few kinds of them: two of one kind have the same header but for
the addresses in it. So a header is read message by message once a kind. What was read is kept
beside its bytes without those addresses, and a header with the same bytes says the same: what a
header says depends on nothing else, and the addresses stand where they stood.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from h5py import h5d

from .facts import Facts, facts_in, lies_as, stored_type
from .groups import A_SYMBOL_TABLE, Links, SymbolTables, in_order, link_of, links_in
from .messages import (
    CONTINUATION,
    HAS_TIMES,
    LAYOUT,
    LINK,
    LINK_INFO,
    LINKS,
    SYMBOL_TABLE,
    TIME,
    Header,
    Message,
    header_at,
)
from .window import AHEAD, Window

Claims = TypeVar("Claims")

_UNREADABLE = (struct.error, IndexError, ValueError, OSError, OverflowError)
"""What bytes lead to that are not what they should be."""

_MANY_TYPES = 1000
_MANY_FORMS = 16  # of one beginning
_MUCH = 8 << 20  # bytes of headers that are known

_DIFFERS = {CONTINUATION: (0, "Q"), TIME: (4, "I"), LINKS: (1, "I"), LAYOUT: (2, "Q")}
"""Where in a message that is which differs within a kind. LAYOUT: of elements in one piece."""

_CONTIGUOUS = (b"\3\1", b"\4\1")
_LINKS_1, _TIMES_2 = [(4, "I")], [(6, "Q"), (14, "Q")]
"""Where that is ahead of the messages: in a header of version 1, and in one with times."""


class Headers(Generic[Claims]):
    """Reads one file. Types are learnt from h5py, once each.

    claims_of: makes of a dataset's facts what is wanted of them; asked once a kind.
    """

    def __init__(self, window: Window, claims_of: Callable[[Facts], Claims]) -> None:
        self._window, self._claims_of = window, claims_of
        self._tables = SymbolTables(window)
        self._types: dict[bytes, tuple] = {}
        self._forms: dict[bytes, list[_Form]] = {}
        self._kept = 0

    def at(self, address: int) -> tuple[Claims, int | None] | Links | None:
        """The links, in order, of the group at an address, or the claims of the dataset and where
        its elements begin; None where h5py must be asked.

        Raises Tangle.
        """
        try:
            piece, at = self._window.around(address)
            beginning = _beginning(piece, at)
            if beginning == A_SYMBOL_TABLE:
                return self._tables.links(address, piece, at)
            for form in self._forms.get(beginning, ()):
                found = form.find(self._window, piece, at)
                if found is not None:
                    return found
            header = header_at(self._window, address)
            if header is None:
                return None
            links = links_in(header.messages)
            if links is None:
                return self._dataset(beginning, header)
            if all(link.hard for link in links):
                self._remember(beginning, header, None)
            return links
        except _UNREADABLE:
            return None

    def learn(self, address: int, node: h5d.DatasetID) -> None:
        """Remember what h5py says of the type of the dataset whose header is at `address`."""
        try:
            header = header_at(self._window, address)
            found = facts_in(header.messages) if header else None
        except _UNREADABLE:
            return
        if found is not None and len(self._types) < _MANY_TYPES:
            kind = node.get_type()
            name, stored = stored_type(kind)
            self._types[found[1]] = name, stored, lies_as(kind, stored)

    def _dataset(self, beginning: bytes, header: Header) -> tuple[Claims, int | None] | None:
        found = facts_in(header.messages)
        if found is None or found[1] not in self._types:
            return None
        facts, kind = found
        at = facts.data[0] if facts.data else None
        facts.stored_name, facts.stored, as_stored = self._types[kind]
        if not as_stored:
            facts.data = None
        claims = self._claims_of(facts)
        self._remember(beginning, header, claims)
        return claims, at

    def _remember(self, beginning: bytes, header: Header, claims: Claims | None) -> None:
        """Remember a dataset's header, or without claims that of a group."""
        if any(size > AHEAD for _, size in header.parts):
            return
        piece, at = self._window.around(header.parts[0][0])
        cut = _cut(header, piece[at : at + 6])
        if cut is None:
            return
        form, links, elements = cut
        size = sum(size for _, size in header.parts)
        self._kept += size
        if self._kept > _MUCH:
            self._forms.clear()
            self._kept = size
        forms = self._forms.setdefault(beginning, [])
        same = next((known for known in forms if known.cuts == form.cuts), form)
        if same is form:
            if len(forms) >= _MANY_FORMS:
                forms.clear()
            forms.append(form)
        same.add(self._window, piece, at, links if claims is None else (claims, elements))


def _beginning(piece: bytes, at: int) -> bytes:
    """Bytes by which forms are told apart: up to a dataset's rank or the size of a group's first
    name, but for what differs."""
    if piece[at] == 1:
        if piece[at + 16] == SYMBOL_TABLE:
            return piece[at + 16 : at + 20]
        return piece[at + 8 : at + 27]
    if piece[at + 5] & HAS_TIMES:
        end = 59 if piece[at + 23] == LINK_INFO else 26
        return piece[at : at + 6] + piece[at + 22 : at + end]
    return piece[at : at + 14]


_Known = list[tuple[bytes, int]] | tuple
"""(name, which number is the address) of a group's links, in order; or a dataset's claims, and
which number leads to its elements."""


class _Form:
    """Headers in which what differs within a kind stands at the same places.

    cuts: formats of the parts, cut at those places into bytes and numbers in turn; and which of all
    numbers lead to the second part and further ones.
    """

    __slots__ = ("_first", "_known", "_more", "cuts")

    def __init__(self, parts: list[str], leads: list[int]) -> None:
        self.cuts = parts, leads
        first, *more = (struct.Struct(part) for part in parts)
        self._first, self._more = first, tuple(zip(more, leads, strict=True))
        # by the bytes of the first part, and where there are more parts by theirs in turn
        self._known: dict[tuple[bytes, ...], _Known | dict[tuple[bytes, ...], _Known]] = {}

    def find(
        self, window: Window, piece: bytes, at: int
    ) -> tuple[Any, int | None] | list[tuple[bytes, int]] | None:
        """What `Headers.at` says of the header at `at` of a piece of the file, where it is known
        here."""
        try:
            values = self._first.unpack_from(piece, at)
            known, numbers = self._known.get(values[::2]), values[1::2]
            if self._more and known is not None:
                key, numbers = self._rest(window, numbers)
                known = known.get(key)
        except (struct.error, OverflowError, OSError):  # shorter, or an address that is none
            return None
        if known is None:
            return None
        if type(known) is list:
            return [(name, numbers[which]) for name, which in known]
        claims, which = known
        return claims, None if which is None else numbers[which]

    def add(self, window: Window, piece: bytes, at: int, known: _Known) -> None:
        """Remember what is known of the header at `at`."""
        values = self._first.unpack_from(piece, at)
        first = values[::2]
        if self._more:
            key, _ = self._rest(window, values[1::2])
            self._known.setdefault(first, {})[key] = known
        else:
            self._known[first] = known

    def _rest(
        self, window: Window, numbers: tuple[int, ...]
    ) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
        """The further parts' bytes, and all numbers."""
        key: tuple[bytes, ...] = ()
        for part, lead in self._more:
            values = part.unpack_from(*window.around(numbers[lead]))
            key += values[::2]
            numbers += values[1::2]
        return key, numbers


def _cut(header: Header, start: bytes) -> tuple[_Form, list[tuple[bytes, int]], int | None] | None:
    """Where a header is cut, its links, and which number leads to its elements. None where an
    address does not stand where it should."""
    is_first_version = start[0] == 1
    places: list[list[tuple[int, str, Message | None]]] = [[] for _ in header.parts]
    ahead = _LINKS_1 if is_first_version else _TIMES_2 if start[5] & HAS_TIMES else []
    places[0] += [(offset, code, None) for offset, code in ahead]
    for message in header.messages:
        kind, body = message.kind, message.body
        offset, code = _DIFFERS.get(kind, (0, ""))
        if kind == LINK:
            offset, code = len(body) - 8, "Q"
        elif kind == LAYOUT and body[:2] not in _CONTIGUOUS:
            continue
        if code and offset + struct.calcsize(code) <= len(body):
            places[message.part].append((message.at + offset, code, message))
    parts, leads, links, elements, number = [], [], [], None, 0
    for k, (_, size) in enumerate(header.parts):
        end = size if is_first_version or not k else size - 4  # the checksum
        form, at = "<", 0
        for offset, code, message in places[k]:
            form += f"{offset - at}s{code}"
            at = offset + struct.calcsize(code)
            kind = message.kind if message else 0
            if kind == CONTINUATION:
                leads.append(number)
            elif kind == LAYOUT:
                elements = number
            elif kind == LINK:
                link = link_of(message.body)
                if link.address != int.from_bytes(message.body[-8:], "little"):
                    return None
                links.append((link.name, number))
            number += 1
        parts.append(f"{form}{end - at}s")
    return _Form(parts, leads), in_order(links), elements
