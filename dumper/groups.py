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
_tree = struct.Struct("<4sBBHQQ")
_leaf = struct.Struct("<4sBBH24xQ")
_A_LEAF = [b"TREE", 0, 0, 1]
_heap = struct.Struct("<5s3xQQQ")
_HEAP = b"HEAP\0"
_node = struct.Struct("<4sBBH")
_entries = [struct.Struct("<" + "QQI20x" * count) for count in range(65)]
"""By their number: (name's place in the heap, address, kind) of entries. HDF5 writes at most 8 in a
node where nobody asked for more."""


class Link(NamedTuple):
    """A link in a group: where it leads is the address of an object header, if it is a hard one."""

    name: bytes
    hard: bool
    address: int


class Tangle(Exception):
    """A group whose tree leads to one node twice, which can be the way to 2**50 of them. HDF5 never
    writes that and would follow it."""


def links_in(messages: list[Message]) -> list[Link] | None:
    """The links that are messages of a group's header, by name; None where it is no such group, or
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
    links.sort()
    return links if is_group and _are_names([link.name for link in links]) else None


class SymbolTables:
    """Reads the groups of HDF5's first format of one file.

    The names below `input` are the same few again and again, so they are cut out of the heap once.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._known: dict[tuple[bytes, tuple[int, ...]], list[bytes]] = {}

    def links(self, tree: int, heap: int) -> list[Link] | None:
        """The links below a B-tree, whose names are in a heap, by name; None where h5py must be
        asked.

        Raises Tangle; ValueError, struct.error, OverflowError or OSError where bytes are missing or
        cannot be what they should be.
        """
        *found, node = _leaf.unpack_from(*self._window.around(tree))
        nodes = [node] if found == _A_LEAF else _leaves(self._window, tree)
        piece, at = self._window.around(heap)
        signature, size, _, data = _heap.unpack_from(piece, at)
        if signature != _HEAP or size > 1 << 32:
            return None
        names = self._window.read(data, size)
        entries: list[int] = []
        for node in nodes:
            piece, at = self._window.around(node)
            signature, version, _, count = _node.unpack_from(piece, at)
            if signature != b"SNOD" or version != 1 or count >= len(_entries):
                return None
            entries.extend(_entries[count].unpack_from(piece, at + _node.size))
        kinds = entries[2::3]
        if kinds and max(kinds) > _SOFT:
            return None
        found = self._names(names, tuple(entries[::3]))
        if found is None:
            return None
        return [
            Link(name, kind != _SOFT, address)
            for name, kind, address in zip(found, kinds, entries[1::3], strict=True)
        ]

    def _names(self, heap: bytes, offsets: tuple[int, ...]) -> list[bytes] | None:
        key = heap, offsets
        found = self._known.get(key)
        if found is not None:
            return found
        found, left = [], len(heap)
        for offset in offsets:
            name = heap[offset : heap.index(0, offset)]
            left -= len(name) + 1
            if left < 0:  # so what is made of them is bounded by the file
                return None
            found.append(name)
        if not _are_names(found):
            return None
        if len(heap) <= _SMALL_HEAP:
            if len(self._known) >= _MANY_NAMES:
                self._known.clear()
            self._known[key] = found
        return found


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
        return Link(name, False, 0)
    return Link(name, True, int.from_bytes(body[end : end + 8], "little"))


def _are_names(names: list[bytes]) -> bool:
    """Whether these are names that a file can have, in the order of a group's tree."""
    last = b""
    for name in names:
        if name <= last or b"/" in name or b"\0" in name:
            return False
        last = name
    return True
