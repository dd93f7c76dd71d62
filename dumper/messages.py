"""The messages of an object header, straight from the bytes of an HDF5 file.

An object header is a list of messages: what an object is, its type, its attributes, its links. Its
first part stands at the object's address, further ones wherever a continuation message says (HDF5
File Format Specification 3.0, IV.A). Versions 1 and 2 are read, which is every file that HDF5 1.8
and later write. Nothing is checked but what keeps the reading bounded: whoever reads a message
decides whether it is as expected.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .window import Window

SPACE, LINK_INFO, TYPE, LINK, EXTERNAL, LAYOUT = 0x01, 0x02, 0x03, 0x06, 0x07, 0x08
ATTRIBUTE, CONTINUATION, SYMBOL_TABLE, TIME = 0x0C, 0x10, 0x11, 0x12
ATTRIBUTE_INFO, LINKS = 0x15, 0x16
"""Kinds of messages. LINKS: how many links lead to the object, where they are more than one."""

SHARED = 0x02
"""Flag of a message that only says where it is."""

UNDEFINED = 0xFFFFFFFFFFFFFFFF
"""The address of what is not there."""

HAS_TIMES = 0x20
"""Flag of a header of version 2, its sixth byte: 16 bytes of times follow."""

_MAX_HEADER = 1 << 16
_HAS_ORDER, _HAS_PHASES = 0x04, 0x10
# What precedes a message: its kind, its size, its flags.
_message_1 = struct.Struct("<HHB3x")
_message_2 = struct.Struct("<BHB")
_message_2_ordered = struct.Struct("<BHB2x")


class Message(NamedTuple):
    """One message. part, at: which part of the header its body lies in, and where in that part."""

    kind: int
    flags: int
    body: bytes
    part: int
    at: int


class Header(NamedTuple):
    """parts: (offset in the file, size) of all that was read; the first begins at the object's
    address."""

    parts: list[tuple[int, int]]
    messages: list[Message]


def header_at(window: Window, address: int) -> Header | None:
    """The header at an address; None where there is none, or a larger one than any dump has.

    Raises ValueError, struct.error or OSError where the file ends, or the bytes cannot be a header.
    """
    block = window.read(address, 12)
    if block[0] == 1:
        prefix, start, size = _message_1, 16, int.from_bytes(block[8:12], "little")
    elif block[:5] == b"OHDR\x02":
        flags = block[5]
        width = 1 << (flags & 3)
        at = 6 + (16 if flags & HAS_TIMES else 0) + (4 if flags & _HAS_PHASES else 0)
        prefix, start = _message_2_ordered if flags & _HAS_ORDER else _message_2, at + width
        size = int.from_bytes(window.read(address + at, width), "little")
    else:
        return None
    end = start + size
    if end > _MAX_HEADER:
        return None
    parts, messages = [(address, end)], []
    left = _MAX_HEADER
    for number, (offset, length) in enumerate(parts):  # which grows
        left -= length + 1
        if left < 0:
            return None
        part = window.read(offset, length)
        at, stop = (start, length) if number == 0 else (0, length)
        if number and prefix is not _message_1:
            if part[:4] != b"OCHK":
                return None
            at, stop = 4, length - 4  # behind the messages there is a checksum
        while at + prefix.size <= stop:
            kind, size, flags = prefix.unpack_from(part, at)
            at += prefix.size
            if at + size > stop:
                return None
            body = part[at : at + size]
            messages.append(Message(kind, flags, body, number, at))
            at += size
            if kind == CONTINUATION:
                parts.append(struct.unpack_from("<QQ", body))
    return Header(parts, messages)
