"""What a dataset says of itself: shape, stored type, attributes. Two ways to the same answer.

h5py makes a Python object for every attribute it opens, and a dump has hundreds of thousands: that
is most of the time it takes to open one. So the object headers, as HDF5 1.8's format has them and
every dump uses them, are read from the file itself (HDF5 File Format Specification 3.0, section
IV.A). Whatever is not exactly as expected there is asked of h5py instead.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np
from h5py import h5a, h5d, h5t

from . import dtypes

NUMBERS = (b"Type", b"DataType", b"DeviceType", b"FormatType", b"RequiresGrad", b"Uninitialised")
STRIDES = (b"Stride", b"LiveStride", b"LiveOffset")
DTYPE = b"TorchDType"
_WANTED = {*NUMBERS, *STRIDES, DTYPE}

_BFLOAT16 = (15, 7, 8, 0, 7)
_MAX_RANK = 64
_MAX_HEADER = 1 << 16
_FIRST_READ = 768  # the whole header of a tensor, in most files

_SPACE, _LINK_INFO, _TYPE, _LINK, _EXTERNAL, _LAYOUT = 0x01, 0x02, 0x03, 0x06, 0x07, 0x08
_ATTRIBUTE, _CONTINUATION, _SYMBOL_TABLE, _ATTRIBUTE_INFO = 0x0C, 0x10, 0x11, 0x15
_READ = {_SPACE, _TYPE, _LAYOUT, _ATTRIBUTE}
_NOT_OURS = {_LINK_INFO, _LINK, _SYMBOL_TABLE, _EXTERNAL}  # a group, or values in other files
_CONTIGUOUS = 1
_SHARED = 0x02
_INTEGER, _STRING = 0, 3
_UNDEFINED = 0xFFFFFFFFFFFFFFFF
# What precedes a message: its type, its size, its flags.
_message_1 = struct.Struct("<HHB3x")
_message_2 = struct.Struct("<BHB")
_message_2_ordered = struct.Struct("<BHB2x")
_attribute = struct.Struct("<BBHHH")


@dataclass(slots=True)
class Facts:
    """A dataset's claims; nothing of it is checked against the file yet.

    shape: None for the null dataspace. stored_name, stored: torch's name and numpy's dtype in
    memory of the HDF5 type, None for what is no number. numbers, strides: the attributes by name.
    torch_dtype: the attribute of that name. odd: what is wrong with an attribute that is there and
    cannot be used.
    """

    shape: tuple[int, ...] | None
    stored_name: str | None
    stored: np.dtype | None
    numbers: dict[bytes, int] = field(default_factory=dict)
    strides: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    torch_dtype: str | None = None
    data: tuple[int, int] | None = None
    odd: dict[bytes, str] = field(default_factory=dict)


def facts_of(node: h5d.DatasetID) -> Facts:
    """Ask h5py. Raises what h5py raises when the dataset is damaged.

    An attribute that is not what its name asks for is taken as absent and noted in `odd`.
    """
    facts = Facts(node.shape, *_stored_type(node.get_type()))
    for name in (*NUMBERS, *STRIDES):
        if h5a.exists(node, name):
            _ask_attribute(h5a.open(node, name), name, facts)
    if h5a.exists(node, DTYPE):
        try:
            value = h5py.AttributeManager(h5py.Dataset(node)).get(DTYPE)
        except (OSError, RuntimeError, TypeError, ValueError):  # of a type that h5py cannot read
            value = None
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if isinstance(value, str):
            facts.torch_dtype = value
        else:
            facts.odd[DTYPE] = "is no text"
    return facts


def _ask_attribute(attribute: h5a.AttrID, name: bytes, facts: Facts) -> None:
    kind, shape = attribute.get_type(), attribute.shape
    if not isinstance(kind, h5t.TypeIntegerID | h5t.TypeEnumID) or shape is None:
        facts.odd[name] = "is no integer"
        return
    count = math.prod(shape)
    if (count != 1) if name in NUMBERS else (len(shape) != 1 or count > _MAX_RANK):
        facts.odd[name] = f"has shape {shape}"
        return
    value = np.empty(shape, np.int64)
    if count:
        attribute.read(value, h5t.NATIVE_INT64)
    if name in NUMBERS:
        facts.numbers[name] = value.item()
    else:
        facts.strides[name] = tuple(value.tolist())


class Headers:
    """Reads object headers and elements of one file. Types are learnt from h5py, once each."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._types: dict[bytes, tuple[str | None, np.dtype | None, bool]] = {}

    def close(self) -> None:
        """Close the file; reading from it raises ValueError then."""
        self._file.close()

    def facts(self, address: int) -> Facts | None:
        """The claims of the dataset whose header is at `address`; None where h5py must be asked."""
        found = self._parse(address)
        if found is None or found[1] not in self._types:
            return None
        facts, kind = found
        facts.stored_name, facts.stored, as_stored = self._types[kind]
        if not as_stored:
            facts.data = None
        return facts

    def learn(self, address: int, node: h5d.DatasetID) -> None:
        """Remember what h5py says of the type of the dataset whose header is at `address`."""
        found = self._parse(address)
        if found is not None and len(self._types) < 1000:
            kind = node.get_type()
            name, stored = _stored_type(kind)
            self._types[found[1]] = name, stored, _lies_as(kind, stored)

    def read_into(self, array: np.ndarray, at: int) -> int:
        """Fill a contiguous array from the bytes at `at`; returns how many there were."""
        view, done = memoryview(array.reshape(-1).view(np.uint8)), 0
        while done < len(view):
            count = os.preadv(self._file.fileno(), [view[done:]], at + done)
            if not count:
                break
            done += count
        return done

    def _parse(self, address: int) -> tuple[Facts, bytes] | None:
        try:
            return _parse(lambda at, count: os.pread(self._file.fileno(), count, at), address)
        except (struct.error, IndexError, ValueError, OSError, OverflowError):
            return None  # not what a header looks like


def _parse(read: Callable[[int, int], bytes], address: int) -> tuple[Facts, bytes] | None:
    """The claims in an object header of version 1 or 2, and the bytes of its type message."""
    block = read(address, _FIRST_READ)
    if block[0] == 1:
        prefix, start, size = _message_1, 16, int.from_bytes(block[8:12], "little")
    elif block[:5] == b"OHDR\x02":
        flags = block[5]
        width = 1 << (flags & 3)
        at = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        prefix, start = _message_2_ordered if flags & 4 else _message_2, at + width
        size = int.from_bytes(block[at:start], "little")
    else:
        return None
    end = start + size
    if end > _MAX_HEADER:
        return None
    parts = [block[start:end] if end <= len(block) else read(address, end)[start:]]
    budget = _MAX_HEADER
    facts, kind, shape = Facts((), None, None), None, None
    for part in parts:
        budget -= len(part) + 1
        if budget < 0:
            return None
        at = 0
        while at + prefix.size <= len(part):
            message, size, flags = prefix.unpack_from(part, at)
            at += prefix.size
            if at + size > len(part) or message in _NOT_OURS:
                return None
            body = part[at : at + size]
            at += size
            if message in _READ and flags & _SHARED:
                return None
            if message == _ATTRIBUTE:
                if not _read_attribute(body, facts):
                    return None
            elif message == _SPACE:
                shape = _dimensions(body)
            elif message == _TYPE:
                kind = body
            elif message == _LAYOUT:
                if body[0] in (3, 4) and body[1] == _CONTIGUOUS:
                    facts.data = struct.unpack_from("<QQ", body, 2)
            elif message == _ATTRIBUTE_INFO:
                if _heap_address(body) != _UNDEFINED:
                    return None  # more attributes than a header holds
            elif message == _CONTINUATION:
                offset, length = struct.unpack_from("<QQ", body)
                more = read(offset, min(length, _MAX_HEADER))
                if prefix is not _message_1:
                    if more[:4] != b"OCHK":
                        return None
                    more = more[4:-4]  # behind the messages there is a checksum
                parts.append(more)
    if kind is None or shape is None:
        return None
    facts.shape = shape
    return facts, kind


def _heap_address(info: bytes) -> int:
    return int.from_bytes(info[4:12] if info[1] & 1 else info[2:10], "little")


def _read_attribute(body: bytes, facts: Facts) -> bool:
    """Take one attribute into `facts`; False where it is one of ours but not as ours are."""
    version, flags, name_size, type_size, space_size = _attribute.unpack_from(body)
    at = 8
    if version == 3:
        at = 9
    if version not in (1, 2, 3) or (version > 1 and flags):
        return False
    pad = (lambda n: n + -n % 8) if version == 1 else (lambda n: n)
    name = body[at : at + name_size].rstrip(b"\0")
    if name not in _WANTED:
        return True
    at += pad(name_size)
    kind = body[at : at + type_size]
    at += pad(type_size)
    shape = _dimensions(body[at : at + space_size])
    at += pad(space_size)
    itemsize = int.from_bytes(kind[4:8], "little")
    if shape is None or len(shape) > 1 or (shape and shape[0] > _MAX_RANK):
        return False
    count = shape[0] if shape else 1
    data = body[at : at + count * itemsize]
    if len(data) < count * itemsize:
        return False
    if name == DTYPE:
        if kind[0] & 0x0F != _STRING or shape:
            return False
        facts.torch_dtype = data.rstrip(b"\0").decode(errors="replace")
        return True
    # little-endian, signed, no padding bits: what int32 and int64 are
    if kind[0] & 0x0F != _INTEGER or kind[1] != 0x08 or kind[8:12] != _INTEGERS.get(itemsize):
        return False
    values = struct.unpack(f"<{count}{'i' if itemsize == 4 else 'q'}", data)
    if name in STRIDES:
        if not shape:
            return False
        facts.strides[name] = values
    elif count == 1:
        facts.numbers[name] = values[0]
    else:
        return False
    return True


_INTEGERS = {4: struct.pack("<HH", 0, 32), 8: struct.pack("<HH", 0, 64)}
"""Bit offset and precision of the integers that attributes are, by size."""


def _dimensions(space: bytes) -> tuple[int, ...] | None:
    """The shape in a dataspace message; None for the null dataspace and unknown versions."""
    version, rank = space[0], space[1]
    if version == 1:
        start = 8
    elif version == 2 and space[3] in (0, 1):
        start = 4
    else:
        return None
    if rank > 32:
        return None
    return struct.unpack_from(f"<{rank}Q", space, start)


def _stored_type(kind: h5t.TypeID) -> tuple[str | None, np.dtype | None]:
    """(torch's name, numpy's dtype in memory) of an HDF5 type; None for what is no number."""
    if is_bfloat16(kind):
        return "bfloat16", np.dtype("<u2")
    try:
        dtype = kind.dtype
    except TypeError:  # h5py has no numpy dtype for it
        return None, None
    if dtype.kind in "SO":
        return None, dtype
    if dtype.kind == "b":
        return "bool", dtype
    if dtype.kind == "c":
        part = f"<f{dtype.itemsize // 2}"
        dtype = np.dtype([("r", part), ("i", part)])
    elif dtype.kind in "iuf":
        dtype = dtype.newbyteorder("<")
    for name, known in dtypes.BY_NAME.items():
        # these three share their bits with an integer, which is what a file without names holds
        if known.bits == dtype and not name.startswith(("bool", "bfloat16", "float8")):
            return name, dtype
    return None, None


def _lies_as(kind: h5t.TypeID, stored: np.dtype | None) -> bool:
    """Whether elements of an HDF5 type lie in the file as numpy's dtype has them in memory."""
    if stored is None or stored.kind in "SO":
        return False
    return is_bfloat16(kind) or bool(kind.equal(h5t.py_create(stored)))


def is_bfloat16(kind: h5t.TypeID) -> bool:
    """Whether an HDF5 type is the 2-byte float that bfloat16 is stored as."""
    if not isinstance(kind, h5t.TypeFloatID):
        return False
    return kind.get_size() == 2 and kind.get_fields() == _BFLOAT16
