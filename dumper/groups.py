"""The links of a group, straight from the bytes of an HDF5 file.

h5py takes as long to open a group and to ask for its links as all the rest of reading a small
record takes. The two kinds of groups that dumps are made of are read here: those of HDF5's first
format, a B-tree of names in a heap, and small ones of the second, whose links are messages of the
object header (HDF5 File Format Specification 3.0, III.A.1, III.B, III.C, III.D and IV.A.2.g). None
stands for whatever is not exactly as expected there; h5py is asked then.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .messages import LINK, LINK_INFO, SHARED, SYMBOL_TABLE, UNDEFINED, Message
from .window import Window

_SOFT = 2
_MAX_LEVEL = 16
_SMALL_HEAP = 512
_MANY_NAMES = 10_000
_DIGITS = b"0123456789"

A_SYMBOL_TABLE = struct.pack("<HH", SYMBOL_TABLE, 16)
"""How the first message in a group's header begins."""

_group = struct.Struct("<4s4xI12xQQ")
_ONE_MESSAGE = b"\1\0\1\0"
_HEADER = 40
_tree = struct.Struct("<4sBBHQQ")
_leaf = struct.Struct("<8s24xQ")
_LEAF = b"TREE\0\0\1\0"
_heap = struct.Struct("<5s3xQQQ")
_HEAP = b"HEAP\0"

_TREE, _START, _NAMES = 544, 32, 88
_behind = struct.Struct("<8s24xQ504x16s8xQ88s")
"""A group's tree, heap and names behind its header. HDF5 makes room for them in one go, so in most
groups they lie like that, with these sizes."""
_NAMES_BEHIND = struct.pack("<8sQ", _HEAP, _NAMES)

_nodes = {
    b"SNOD\1\0" + count.to_bytes(2, "little"): struct.Struct("<8x" + "QQI20x" * count)
    for count in range(65)
}
"""By their first bytes: (name's place in the heap, address, kind) of entries. HDF5 writes at most 8
in a node where nobody asked for more."""


class Link(NamedTuple):
    """A link in a group. address: of the object header that it leads to, None of one that is not
    hard."""

    name: bytes
    address: int | None

    @property
    def hard(self) -> bool:
        """Whether it leads to an object of the same file."""
        return self.address is not None


Links = list[tuple[bytes, int | None]]
"""Name and address of each link: `Link`, or the plain pair, which is made in half the time."""


class Tangle(Exception):
    """A group whose tree leads to one node twice, which can be the way to 2**50 of them. HDF5 never
    writes that and would follow it."""


def in_order(links: Links) -> Links:
    """`x_2` before `x_10`: by name, but a trailing number counts as a number."""
    return sorted(links, key=_member_order)


def _member_order(link: tuple[bytes, int | None]) -> tuple[bytes, int, bytes]:
    name = link[0]
    stem = name.rstrip(_DIGITS)
    digits = name[len(stem) :]
    return stem, int(digits) if digits and len(digits) < 19 else -1, name


def links_in(messages: list[Message]) -> Links | None:
    """The links that are messages of a group's header, in order; None where it is no such group, or
    h5py must be asked."""
    links, is_group = [], False
    for message in messages:
        if message.kind == SYMBOL_TABLE:
            return None
        if message.kind == LINK_INFO:
            if message.flags & SHARED or _heap_of_links(message.body) != UNDEFINED:
                return None
            is_group = True
        elif message.kind == LINK:
            link = None if message.flags & SHARED else link_of(message.body)
            if link is None:
                return None
            links.append(link)
    names = sorted(link.name for link in links)
    return in_order(links) if is_group and _are_names(names) else None


class SymbolTables:
    """Reads the groups of HDF5's first format of one file.

    The names below `input` are the same few again and again, so they are cut out of the heap once.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._known: dict[tuple[bytes, tuple[int, ...], tuple[int, ...]], list[tuple]] = {}

    def links(self, address: int, piece: bytes, at: int) -> Links | None:
        """The links, in order, of the group whose header is at an address, which is at `at` of a
        piece of the file; None where h5py must be asked.

        Raises Tangle; ValueError, struct.error, OverflowError or OSError where bytes are missing or
        cannot be what they should be.
        """
        start, size, tree, heap = _group.unpack_from(piece, at)
        if start != _ONE_MESSAGE or size != 24:
            return None
        leaf = None
        if tree == address + _HEADER and heap == tree + _TREE:
            leaf, node, start, data, names = _behind.unpack_from(piece, at + _HEADER)
        if leaf == _LEAF and start == _NAMES_BEHIND and data == heap + _START:
            entries = self._entries(node)
        else:
            entries, names = self._all_entries(tree), self._heap(heap)
        key = names, entries[::3], entries[2::3]
        places = self._known.get(key)
        if places is None:
            places = _places(*key)
            if places is None:
                return None
            if len(names) <= _SMALL_HEAP:
                if len(self._known) >= _MANY_NAMES:
                    self._known.clear()
                self._known[key] = places
        return [(name, entries[place] if place else None) for name, place in places]

    def _heap(self, address: int) -> bytes:
        """The names in a heap."""
        signature, size, _, data = _heap.unpack_from(*self._window.around(address))
        if signature != _HEAP or size > 1 << 32:
            raise ValueError("no heap of names")
        return self._window.read(data, size)

    def _all_entries(self, tree: int) -> tuple[int, ...]:
        """What the symbol table nodes of a tree say."""
        leaf, node = _leaf.unpack_from(*self._window.around(tree))
        if leaf == _LEAF:
            return self._entries(node)
        entries: list[int] = []
        for node in _leaves(self._window, tree):  # far apart: what is around them is of no use yet
            read = _nodes.get(self._window.read(node, 8))
            if read is None:
                raise ValueError("no symbol table node")
            entries += read.unpack(self._window.read(node, read.size))
        return tuple(entries)

    def _entries(self, address: int) -> tuple[int, ...]:
        """What a symbol table node says of its links, by `_nodes`."""
        piece, at = self._window.around(address)
        node = _nodes.get(piece[at : at + 8])
        if node is None:
            raise ValueError("no symbol table node")
        return node.unpack_from(piece, at)


def _places(
    heap: bytes, offsets: tuple[int, ...], kinds: tuple[int, ...]
) -> list[tuple[bytes, int]] | None:
    """(name, where among the entries' numbers its address is, 0 of a soft link) of links, in order;
    None where h5py must be asked."""
    left = len(heap)  # a hostile file has many names of one long text,
    names = []
    for offset in offsets:
        name = heap[offset : heap.index(0, offset)]
        left -= len(name) + 1
        if left < 0:  # so what is made of them is bounded by the file
            return None
        names.append(name)
    if not _are_names(names) or any(kind > _SOFT for kind in kinds):
        return None
    places = [0 if kind == _SOFT else 3 * k + 1 for k, kind in enumerate(kinds)]
    return in_order(list(zip(names, places, strict=True)))


def _leaves(window: Window, tree: int) -> list[int]:
    """Addresses of the symbol table nodes of a tree, in order."""
    level, nodes, seen = None, [tree], set()
    while level != 0:
        below: list[int] = []
        for node in nodes:
            if node in seen:
                raise Tangle
            seen.add(node)
            signature, kind, height, count, _, _ = _tree.unpack(window.read(node, _tree.size))
            if signature != b"TREE" or kind != 0 or height > _MAX_LEVEL:
                raise ValueError("no node of a group's tree")
            if level is None:
                level = height + 1
            if height != level - 1:
                raise ValueError("a tree of unequal height")
            found = struct.unpack(f"<8x{'Q8x' * count}", window.read(node + 24, count * 16 + 8))
            below += found
        nodes, level = below, level - 1
    if len(set(nodes)) != len(nodes):
        raise Tangle
    return nodes


def _heap_of_links(info: bytes) -> int:
    """Where the links are that a header does not hold."""
    if info[0] != 0:
        raise ValueError("an unknown version of a group's header")
    return int.from_bytes(info[10:18] if info[1] & 1 else info[2:10], "little")


def link_of(body: bytes) -> Link | None:
    """The link in a message; None for one that is unusual."""
    version, flags = body[0], body[1]
    if version != 1 or flags > 0x1F:
        return None
    at = 2
    kind = 0
    if flags & 0x08:
        kind, at = body[at], at + 1
    at += (8 if flags & 0x04 else 0) + (1 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    start = at + width
    end = start + int.from_bytes(body[at:start], "little")
    name = body[start:end]
    if len(name) < end - start:
        return None
    if kind:
        return Link(name, None)
    return Link(name, int.from_bytes(body[end : end + 8], "little"))


def _are_names(names: list[bytes]) -> bool:
    """Whether these are names that a file can have, in the order of a group's tree."""
    last = b""
    for name in names:
        if name <= last or b"/" in name or b"\0" in name:
            return False
        last = name
    return True
