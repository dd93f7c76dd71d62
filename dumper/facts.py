"""What a dataset says of itself: shape, stored type, attributes. Two ways to the same answer.

h5py makes a Python object for every attribute it opens, and a dump has hundreds of thousands: that
is most of the time it takes to open one. So they are also read from the messages of the object
header. Whatever is not exactly as expected there is asked of h5py instead.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

import h5py
import numpy as np
from h5py import h5a, h5d, h5t

from . import dtypes
from .messages import (
    ATTRIBUTE,
    ATTRIBUTE_INFO,
    EXTERNAL,
    LAYOUT,
    LINK,
    LINK_INFO,
    SHARED,
    SPACE,
    SYMBOL_TABLE,
    TYPE,
    UNDEFINED,
    Message,
)

NUMBERS = (b"Type", b"DataType", b"DeviceType", b"FormatType", b"RequiresGrad", b"Uninitialised")
STRIDES = (b"Stride", b"LiveStride", b"LiveOffset")
DTYPE = b"TorchDType"
_WANTED = {*NUMBERS, *STRIDES, DTYPE}

_BFLOAT16 = (15, 7, 8, 0, 7)
_MAX_RANK = 64
_READ = {SPACE, TYPE, LAYOUT, ATTRIBUTE}
_NOT_OURS = {LINK_INFO, LINK, SYMBOL_TABLE, EXTERNAL}  # a group, or values in other files
_CONTIGUOUS = 1
_INTEGER, _STRING = 0, 3
_attribute = struct.Struct("<BBHHH")


@dataclass(slots=True)
class Facts:
    """A dataset's claims; nothing of it is checked against the file yet.

    shape: None for the null dataspace. stored_name, stored: torch's name and numpy's dtype in
    memory of the HDF5 type, None for what is no number. numbers, strides: the attributes by name.
    torch_dtype: the attribute of that name. data: (offset, size) in the file of elements that lie
    there in one piece as numpy has them in memory; only the header tells. odd: what is wrong with
    an attribute that is there and cannot be used.
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
    facts = Facts(node.shape, *stored_type(node.get_type()))
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


def facts_in(messages: Iterable[Message]) -> tuple[Facts, bytes] | None:
    """The claims in a dataset's header, its type left out, and the bytes of that type's message.

    None where it is no dataset, or h5py must be asked. Raises IndexError, ValueError or
    struct.error for bytes that cannot be a header.
    """
    facts, kind, shape = Facts((), None, None), None, None
    for message in messages:
        number, body = message.kind, message.body
        if number in _NOT_OURS or (number in _READ and message.flags & SHARED):
            return None
        if number == ATTRIBUTE:
            if not _read_attribute(body, facts):
                return None
        elif number == SPACE:
            shape = _dimensions(body)
        elif number == TYPE:
            kind = body
        elif number == LAYOUT:
            if body[0] in (3, 4) and body[1] == _CONTIGUOUS:
                facts.data = struct.unpack_from("<QQ", body, 2)
        elif number == ATTRIBUTE_INFO and _heap_address(body) != UNDEFINED:
            return None  # more attributes than a header holds
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


def stored_type(kind: h5t.TypeID) -> tuple[str | None, np.dtype | None]:
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


def lies_as(kind: h5t.TypeID, stored: np.dtype | None) -> bool:
    """Whether elements of an HDF5 type lie in the file as numpy's dtype has them in memory."""
    if stored is None or stored.kind in "SO":
        return False
    return is_bfloat16(kind) or bool(kind.equal(h5t.py_create(stored)))


def is_bfloat16(kind: h5t.TypeID) -> bool:
    """Whether an HDF5 type is the 2-byte float that bfloat16 is stored as."""
    if not isinstance(kind, h5t.TypeFloatID):
        return False
    return kind.get_size() == 2 and kind.get_fields() == _BFLOAT16
