"""One CANN dump file read and written: a length, the message, and the bytes of all parts.

    u64 little-endian   length of the message
    DumpData            its `data` fields empty
    bytes               of all inputs, outputs, buffers and workspaces, one after the other

Nothing the file says is believed before its size bears it out, and only the message is read when it
is opened.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from google.protobuf.message import Message

from dumper.errors import DumpError

from .content import Blob, Dump, Origin, Tensor
from .message import DumpData, parsed

_LENGTH = struct.Struct("<Q")

_HEADER = 8 << 20
"""Bytes of a message that are parsed: protobuf takes up to 50 times as much memory, and no op has
a hundredth of it."""

_PARTS = 1 << 16
_AGAIN = "copy it again, completely, or dump again"


def read(path: str | Path) -> Dump:
    """Open a dump file; bytes of tensors are mapped later, one by one.

    Raises DumpError for what is no file, no dump, or not whole.
    """
    path = Path(path)
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        header = _header(file, size, path)
    return _content(parsed(header, path), _LENGTH.size + len(header), size, path)


def write(path: str | Path, dump: Dump) -> None:
    """Write a new dump file, mode 0600, all of it or none.

    Raises DumpError where there is one or none can be, and for a dump that is too large to be read.
    """
    message = _packed(dump, path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(path, flags, 0o600), "wb") as file, _gone_if_not_whole(path):
            file.write(_LENGTH.pack(len(message)))
            file.write(message)
            for part in dump.parts:
                file.write(part.read().data)
            file.flush()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        todo = "remove what is in the way, or make room"
        raise DumpError(f"this cannot be written ({reason})", path, todo) from None


@contextlib.contextmanager
def _gone_if_not_whole(path: str | Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        os.unlink(path)
        raise


def _packed(dump: Dump, path: str | Path) -> bytes:
    """The message of a dump. Raises DumpError for one that no reader takes."""
    try:
        message = _message(dump).SerializeToString(deterministic=True)
    except ValueError as error:
        what = f"this dump cannot be written ({error})"
        raise DumpError(what, path, "names are Unicode, numbers fit their fields") from None
    if len(message) > _HEADER:
        what = f"this dump needs a header of {len(message)} bytes, and none has more than {_HEADER}"
        raise DumpError(what, path, "dump fewer tensors in one file")
    if len(dump.parts) > _PARTS:
        what = f"this dump has {len(dump.parts)} tensors, and none has more than {_PARTS}"
        raise DumpError(what, path, "dump fewer tensors in one file")
    return message


def _header(file: BinaryIO, size: int, path: Path) -> bytes:
    if size <= _LENGTH.size:
        raise DumpError(f"a dump has more than {_LENGTH.size} bytes, this has {size}", path, _AGAIN)
    (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
    rest = size - _LENGTH.size
    if length > rest:
        what = f"its first 8 bytes claim a header of {length} bytes and {rest} follow"
        raise DumpError(what, path, f"this is no dump file of CANN, or it is cut off: {_AGAIN}")
    if not length:
        raise DumpError("its header is empty", path, f"this is no dump file of CANN: {_AGAIN}")
    if length > _HEADER:
        what = f"its header has {length} bytes, and none has more than {_HEADER}"
        raise DumpError(what, path, "this is no dump file of CANN, or it is damaged")
    return file.read(length)


def _content(message: Message, at: int, end: int, path: Path) -> Dump:
    """at: where the bytes of the parts begin. end: of the file."""
    groups = {
        "input": message.input,
        "output": message.output,
        "buffer": message.buffer,
        "space": message.space,
    }
    if (count := sum(map(len, groups.values()))) > _PARTS:
        what = f"its header lists {count} tensors, and none has more than {_PARTS}"
        raise DumpError(what, path, "this is no dump file of CANN, or it is damaged")
    found: dict[str, tuple[Tensor | Blob, ...]] = {}
    for title, items in groups.items():
        parts = []
        for i, item in enumerate(items):
            where = f"{title} {i} of {path}"
            _check(item, end - at, title, i, path)
            data = partial(_mapped, path, at, item.size)
            parts.append(_MAKE[title](item, data, where))
            at += item.size
        found[title] = tuple(parts)
    return Dump(
        found["input"],
        found["output"],
        found["buffer"],
        found["space"],
        message.op_name,
        message.version,
        message.dump_time,
        tuple((attribute.name, attribute.value) for attribute in message.attr),
        end - at,
    )


def _check(item: Message, left: int, title: str, number: int, path: Path) -> None:
    if item.data:
        what = f"{title} {number} lies inside the header, as in dumps of version 1"
        raise DumpError(what, path, "dump again with a CANN that writes version 2")
    if item.size > left:
        what = f"{title} {number} claims {item.size} bytes and {left} are left"
        raise DumpError(what, path, _AGAIN)


def _input(item: Message, data: Callable[[], np.ndarray], where: str) -> Tensor:
    return Tensor(
        item.data_type,
        item.format,
        tuple(item.shape.dim),
        item.size,
        data,
        tuple(item.original_shape.dim),
        item.sub_format,
        item.address,
        item.offset,
        where=where,
    )


def _output(item: Message, data: Callable[[], np.ndarray], where: str) -> Tensor:
    origin = None
    if item.HasField("original_op"):
        op = item.original_op
        origin = Origin(op.name, op.output_index, op.data_type, op.format)
    ranges = tuple((each.dim_start, each.dim_end) for each in item.dim_range)
    return replace(_input(item, data, where), origin=origin, dim_ranges=ranges)


_MAKE: dict[str, Callable[[Message, Callable[[], np.ndarray], str], Tensor | Blob]] = {
    "input": _input,
    "output": _output,
    "buffer": lambda item, data, _: Blob(item.buffer_type, item.size, data),
    "space": lambda item, data, _: Blob(item.type, item.size, data),
}


def _message(dump: Dump) -> Message:
    message = DumpData(version=dump.version, dump_time=dump.dump_time, op_name=dump.op_name)
    for tensor in dump.inputs:
        _fill(message.input.add(), tensor)
    for tensor in dump.outputs:
        item = message.output.add()
        _fill(item, tensor)
        if (origin := tensor.origin) is not None:
            item.original_op.SetInParent()
            item.original_op.name = origin.name
            item.original_op.output_index = origin.output_index
            item.original_op.data_type = origin.data_type
            item.original_op.format = origin.format
        for start, end in tensor.dim_ranges:
            item.dim_range.add(dim_start=start, dim_end=end)
    for blob in dump.buffers:
        message.buffer.add(buffer_type=blob.type, size=blob.size)
    for name, value in dump.attributes:
        message.attr.add(name=name, value=value)
    for blob in dump.workspaces:
        message.space.add(type=blob.type, size=blob.size)
    return message


def _fill(item: Message, tensor: Tensor) -> None:
    item.data_type, item.format, item.size = tensor.data_type, tensor.format, tensor.size
    item.shape.SetInParent()  # that of a scalar is there and empty
    item.shape.dim.extend(tensor.shape)
    if tensor.original_shape:
        item.original_shape.dim.extend(tensor.original_shape)
    item.sub_format, item.address, item.offset = tensor.sub_format, tensor.address, tensor.offset


def _mapped(path: Path, at: int, size: int) -> np.ndarray:
    """Bytes of a file, read-only; they stay as long as the array does."""
    if not size:
        return np.empty(0, np.uint8)
    with _opened(path) as file:
        if at + size > os.fstat(file.fileno()).st_size:
            raise DumpError("this file has become shorter while it was read", path, "read it again")
        try:
            array = np.memmap(file, np.uint8, "r", at, (size,))
        except (OSError, ValueError, OverflowError) as error:
            raise DumpError(f"this file cannot be mapped ({error})", path, "check it") from None
    return array.view(np.ndarray)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A regular file open for reading. Raises DumpError for all else; no pipe is waited for."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        todo = "check the path and its mode"
        raise DumpError(f"this file cannot be read ({reason})", path, todo) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise DumpError("this is not a regular file", path, "name a file")
    with open(number, "rb") as file:
        yield file
