"""Damage to the bytes of an HDF5 file, where it counts: what scripts/fuzz does to its seeds.

A random byte of a file is seldom one that a reader looks at. So the file's structures are found
first (superblock, messages of object headers, B-trees, heaps), each kind is as likely to be hit as
any other however rare it is, and the checksums of the newer format are made right again, without
which HDF5 would look no further.
"""

from __future__ import annotations

import random
import re
import struct
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

NAMES = (
    b"..", b".", b"/", b"../../x", b"=1+1", b"-2+3", b"@SUM(A1)", b"+1", b"\t=1", b"a\nb", b"a\rb",
    b"\x1b[2J", b"\x1b]0;x\x07", b"\x9b31m", b"\xff\xfe", b"\xe2\x80\xae", b"[bold]x", b"%s", b"",
    b'"', b"0", b"-1", b"00", b"9" * 18, b"9" * 40, b"Type", b"input", b"output", b"_torch_dumper",
)  # fmt: skip
_SIGNATURES = (
    b"TREE", b"HEAP", b"SNOD", b"GCOL", b"FRHP", b"FHDB", b"FHIB", b"BTHD", b"BTLF", b"BTIN",
    b"FSHD", b"FSSE", b"SMTB", b"OCHK", b"FAHD", b"FADB", b"EAHD", b"EAIB",
)  # fmt: skip
_UNCHECKED = (b"TREE", b"HEAP", b"SNOD", b"GCOL")
_NODE = 256  # bytes of a structure that are worth damage
_MANY, _FURTHEST = 1 << 16, 540  # bytes that a checksum is looked for behind
_CHECKED = b"OHDR"
_CONTINUATION = 0x10


class Region(NamedTuple):
    """Bytes [start, end) that are one structure."""

    start: int
    end: int


class Map(NamedTuple):
    """Where the structures of a file lie, by kind; addresses of them; where such an address stands;
    names; and what has a checksum right behind it."""

    regions: dict[str, list[Region]]
    addresses: list[int]
    pointers: list[int]
    texts: list[Region]
    checked: list[Region]

    def first(self, size: int) -> Map:
        """What lies in the first `size` bytes."""
        regions = {
            kind: kept
            for kind, found in self.regions.items()
            if (kept := [region for region in found if region.end <= size])
        }
        texts, checked = (
            [region for region in found if region.end + 4 <= size]
            for found in (self.texts, self.checked)
        )
        pointers = [at for at in self.pointers if at + 8 <= size]
        return Map(regions, self.addresses, pointers, texts, checked)


def map_of(data: bytes) -> Map:
    """Find the structures of an HDF5 file. data: one that is whole."""
    regions: dict[str, list[Region]] = defaultdict(list)
    base = max(0, data.find(b"\x89HDF"))
    regions["superblock"].append(Region(base, base + 96))
    starts, checked = set(), []
    for match in re.finditer(b"|".join(_SIGNATURES), data):
        starts.add(match.start())
        end = min(match.start() + _NODE, len(data))
        regions[match[0].decode()].append(Region(match.start(), end))
        if match[0] not in _UNCHECKED:
            checked += _checked(data, match.start())
    for match in re.finditer(rb"\x01\x00.\x00.\x00{3}.{8}", data, re.DOTALL):
        if match.start() % 8 == 0 and (found := _messages(data, match.start(), base)):
            starts.add(match.start())
            for kind, region in found:
                regions[f"message {kind}"].append(region)
    for match in re.finditer(_CHECKED + rb"\x02", data):
        starts.add(match.start())
        regions["OHDR"].append(Region(match.start(), min(match.start() + _NODE, len(data))))
    addresses = sorted(starts)
    words = struct.unpack_from(f"<{len(data) // 8}Q", data)
    pointers = [8 * i for i, word in enumerate(words) if word and word + base in starts]
    texts = [Region(*match.span()) for match in re.finditer(rb"[A-Za-z_][ -~]{2,}", data)]
    return Map(dict(regions), addresses, pointers, texts, checked)


def _checked(data: bytes, at: int) -> list[Region]:
    """What of the structure at `at` its checksum guards; nothing where none is found."""
    for end in range(at + 8, min(at + _FURTHEST, len(data) - 4)):
        if int.from_bytes(data[end : end + 4], "little") == checksum(data[at:end]):
            return [Region(at, end)]
    return []


def _messages(data: bytes, at: int, base: int) -> list[tuple[int, Region]]:
    """Messages of what may be a header of version 1; none where it is not."""
    count, _, size = struct.unpack_from("<HII", data, at + 2)
    blocks, found = [(at + 16, size)], []
    for here, length in blocks:
        end = here + length
        while here + 8 <= min(end, len(data)):
            kind, length = struct.unpack_from("<HH", data, here)
            if kind > 0x18 or here + 8 + length > end:
                return []
            found.append((kind, Region(here, here + 8 + length)))
            if kind == _CONTINUATION and len(blocks) < count:
                offset, size = struct.unpack_from("<QQ", data, here + 8)
                blocks.append((base + offset, size))
            here += 8 + length
    return found if 0 < len(found) <= count else []


def damage(dice: random.Random, data: bytes, where: Map, donors: list[bytes]) -> bytes:
    """Damage a file in one to four ways. donors: files that pieces may come from."""
    found = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        way = dice.choices(_WAYS, _OFTEN)[0]
        way(dice, found, where, donors)
        if len(found) != len(data):
            break  # nothing lies where it lay
    if dice.random() < 0.9:
        _seal(found, where)
    return bytes(found)


def _region(dice: random.Random, where: Map) -> Region:
    return dice.choice(where.regions[dice.choice(sorted(where.regions))])


def _number(dice: random.Random, data: bytearray, where: Map, donors: list[bytes]) -> None:
    """A size, count, version or flag of a structure becomes another number."""
    start, end = _region(dice, where)
    width = dice.choice((1, 1, 2, 4, 8, 8))
    at = start + dice.randrange(max(1, (end - start) // width)) * width
    old = int.from_bytes(data[at : at + width], "little")
    top = 1 << 8 * width
    number = dice.choice((
        0, 1, 2, 3, 255, top - 1, top - 2, top >> 1, (top >> 1) - 1, old + 1, old - 1, old * 2,
        old ^ 1 << dice.randrange(8 * width), len(data), len(data) - 8, 1 << dice.randrange(64),
        dice.randrange(top), dice.randrange(32),
    ))  # fmt: skip
    data[at : at + width] = (number % top).to_bytes(width, "little")


def _pointer(dice: random.Random, data: bytearray, where: Map, donors: list[bytes]) -> None:
    """An address leads to another structure, or to none."""
    if where.pointers:
        target = dice.choice((*dice.choices(where.addresses, k=4), 0, len(data) - 4, 2**64 - 1))
        struct.pack_into("<Q", data, min(dice.choice(where.pointers), len(data) - 8), target)


def _text(dice: random.Random, data: bytearray, where: Map, donors: list[bytes]) -> None:
    """A name becomes one that has a meaning somewhere, in the room that there is."""
    if where.texts:
        start, end = dice.choice(where.texts)
        name = dice.choice(NAMES)[: end - start]
        data[start : start + len(name)] = name
        if dice.random() < 0.5:
            data[start + len(name) : end] = bytes(end - start - len(name))


def _flip(dice: random.Random, data: bytearray, where: Map, donors: list[bytes]) -> None:
    start, end = _region(dice, where) if dice.random() < 0.8 else (0, len(data))
    for _ in range(dice.choice((1, 1, 2, 8))):
        data[dice.randrange(start, min(end, len(data)))] ^= 1 << dice.randrange(8)


def _run(dice: random.Random, data: bytearray, where: Map, donors: list[bytes]) -> None:
    """A run of bytes becomes zeros, ones or noise."""
    start, end = _region(dice, where)
    at, count = dice.randrange(start, end), dice.choice((1, 4, 8, 16, 64, 512))
    count = min(count, len(data) - at)
    data[at : at + count] = dice.choice((bytes(count), b"\xff" * count, dice.randbytes(count)))


def _splice(dice: random.Random, data: bytearray, where: Map, donors: list[bytes]) -> None:
    """Bytes of another place, or of another file."""
    donor = dice.choice((bytes(data), *donors))
    count = dice.choice((8, 32, 96, 512, 4096))
    at, of = (dice.randrange(len(each) // 8 + 1) * 8 for each in (data, donor))
    piece = donor[of : of + count]
    data[at : at + len(piece)] = piece


def _shift(dice: random.Random, data: bytearray, where: Map, donors: list[bytes]) -> None:
    """Bytes are lost, or come in."""
    at, count = dice.randrange(len(data)), dice.choice((1, 8, 64))
    data[at : at + count * dice.randrange(2)] = bytes(count * dice.randrange(2))


def _cut(dice: random.Random, data: bytearray, where: Map, donors: list[bytes]) -> None:
    """The end is lost; more often than not the file says that it should be so."""
    del data[dice.randrange(min(64, len(data)), len(data) + 1) :]
    if dice.random() < 0.7 and len(data) > 48 and data[8] in (0, 1):
        struct.pack_into("<Q", data, 40, len(data))


_WAYS: list[Callable[[random.Random, bytearray, Map, list[bytes]], None]]
_WAYS = [_number, _pointer, _text, _flip, _run, _splice, _shift, _cut]
_OFTEN = (8, 4, 3, 4, 2, 2, 1, 1)


def _seal(data: bytearray, where: Map) -> None:
    """Make the checksums right: those of object headers and the superblock at the size that they
    claim, others where they were."""
    if data[8:9] in (b"\2", b"\3") and len(data) >= 48:
        struct.pack_into("<I", data, 44, checksum(bytes(data[:44])))
    checked = [region for region in where.checked if region.end + 4 <= len(data)]
    for at in (region.start for region in where.regions.get("OHDR", ())):
        flags = data[at + 5] if at + 5 < len(data) else 0
        width, here = 1 << (flags & 3), at + 6 + 16 * bool(flags & 0x20) + 4 * bool(flags & 0x10)
        end = here + width + int.from_bytes(data[here : here + width], "little")
        if end + 4 <= min(len(data), at + _MANY):
            checked.append(Region(at, end))
    for start, end in checked:
        struct.pack_into("<I", data, end, checksum(bytes(data[start:end])))


def checksum(data: bytes) -> int:
    """Bob Jenkins' lookup3, `hashlittle` from 0, which HDF5 guards its metadata with."""
    a = b = c = (0xDEADBEEF + len(data)) & 0xFFFFFFFF
    rest = data
    while len(rest) > 12:
        x, y, z = struct.unpack_from("<III", rest)
        a, b, c = _mixed((a + x) & _32, (b + y) & _32, (c + z) & _32)
        rest = rest[12:]
    if not rest:
        return c
    x, y, z = struct.unpack("<III", rest.ljust(12, b"\0"))
    x, y, z = (c + z) & _32, (b + y) & _32, (a + x) & _32
    for turn in (14, 11, 25, 16, 4, 14, 24):
        x = ((x ^ y) - _rolled(y, turn)) & _32
        x, y, z = z, x, y
    return y


_32 = 0xFFFFFFFF


def _rolled(x: int, k: int) -> int:
    return ((x << k) | (x >> (32 - k))) & _32


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    for turn in (4, 6, 8, 16, 19, 4):
        a = ((a - c) & _32) ^ _rolled(c, turn)
        c = (c + b) & _32
        a, b, c = b, c, a
    return a, b, c
