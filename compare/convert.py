"""Tensors of a dump as npy or txt files, named `<IR>.<seqid>.<input|output>.<arg>[.<i>].<type>`.

Names come from the file and are never paths: what is not a letter, a digit or `_` is escaped. Files
of an earlier conversion are replaced, each by a whole one; what else has the name, a symbolic link
say, stays, and its tensor is reported. numpy has no bfloat16 and no
float8 that others could load, so these are widened to float32, which holds them exactly.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dumper.errors import DumpError
from dumper.layout import unescape
from dumper.reader import Dump, Record
from dumper.stored import Tensor
from ir2tbe.text import write_text

from .whole import check_place, replacing

WIDENED = "float32"
_TEXT_BYTES = {
    "int8": 5,
    "uint8": 4,
    "bool": 2,
    "int16": 7,
    "int32": 12,
    "int64": 21,
    "float32": 16,
}
_TEXT_BYTES_MOST = 50
_NAME_BYTES = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9_]")


def select(dump: Dump, name: str | None) -> list[Record]:
    """The records that NAME or NAME/SEQID asks for; all of them for None.

    Raises DumpError when there is none, with the nearest names.
    """
    if name is None:
        return list(dump.records)
    ir, _, seqid = name.strip("/").rpartition("/")
    if not ir or not seqid.isdecimal():
        ir, seqid = name.strip("/"), ""
    found = [record for record in dump.records if ir in (record.ir, unescape(record.ir))]
    if found and seqid:
        numbers = [record.seqid for record in found]
        found = [record for record in found if record.seqid == int(seqid)]
        near = [str(number) for number in numbers[:10]]
    else:
        near = difflib.get_close_matches(ir, dump.by_ir, n=5)
    if not found:
        hint = (
            f"the nearest are {', '.join(near)}" if near else f"names are like {dump.records[0].ir}"
        )
        raise DumpError(f"no record {name} in this dump", dump.path, hint)
    return found


def tensors_of(records: list[Record]) -> list[tuple[Record, Tensor]]:
    """All tensors of the records, inputs first."""
    return [(record, tensor) for record in records for tensor in (*record.inputs, *record.outputs)]


def check_sizes(
    tensors: list[tuple[Record, Tensor]],
) -> tuple[list[tuple[Record, Tensor]], list[DumpError]]:
    """Part those whose size the file can hold from the others, of which it says what is wrong."""
    sound, errors = [], []
    for record, tensor in tensors:
        try:
            tensor.check()
        except DumpError as error:
            errors.append(error)
        else:
            sound.append((record, tensor))
    return sound, errors


def estimate(tensors: list[tuple[Record, Tensor]], kind: str) -> int:
    """Bytes that the files will take: exact to the header for npy, an upper guess for txt."""
    return sum(128 + tensor.size * _item_bytes(tensor, kind) for _, tensor in tensors)


def convert(
    tensors: list[tuple[Record, Tensor]], folder: Path, kind: str
) -> Iterator[DumpError | None]:
    """Write each tensor to its file; yields None, or what was wrong with that tensor.

    folder: existing directory. kind: "npy" or "txt". Raises DumpError when files cannot be written
    there.
    """
    taken: set[str] = set()
    for record, tensor in tensors:
        name = file_name(record, tensor)
        if name in taken:  # two names of the file that look alike after escaping
            name = f"{name}.{hashlib.sha256(tensor.path.encode(errors='replace')).hexdigest()[:16]}"
        taken.add(name)
        path = folder / f"{name}.{kind}"
        try:
            check_place(path)
            values = tensor.read()
        except DumpError as error:
            yield error
            continue
        with replacing(path) as file:
            _write(file, values, tensor, kind)
        yield None


def is_widened(tensor: Tensor) -> bool:
    """Whether numpy lacks the tensor's dtype, so that its file is float32."""
    return tensor.dtype.startswith(("bfloat16", "float8"))


def _write(file: BinaryIO, values: np.ndarray, tensor: Tensor, kind: str) -> None:
    if is_widened(tensor):
        values = values.astype(WIDENED)
    if kind == "npy":
        np.save(file, values, allow_pickle=False)
    else:
        write_text(file, values, tensor.shape, tensor.dtype)


def file_name(record: Record, tensor: Tensor) -> str:
    """What a tensor's file is called, without its ending."""
    parts = tensor.name.split("/")
    last, parent = parts[-1], parts[-2] if len(parts) > 1 else ""
    if parent and last.removeprefix(f"{parent}_").isdecimal():
        parts[-1] = last.removeprefix(f"{parent}_")
    return safe(record.ir, str(record.seqid), tensor.side, *parts)


def safe(*parts: str) -> str:
    """Names from a file as one name of a file here, which is no path and not too long."""
    name = ".".join(_UNSAFE.sub(lambda match: f"_x{ord(match[0]):04x}_", part) for part in parts)
    if len(name) > _NAME_BYTES:
        name = f"{name[:_NAME_BYTES]}.{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return name


def _item_bytes(tensor: Tensor, kind: str) -> int:
    if kind == "txt":
        return _TEXT_BYTES.get(tensor.dtype, _TEXT_BYTES_MOST)
    if is_widened(tensor):
        return 4
    return 8 if tensor.dtype == "complex32" else tensor.nbytes // max(tensor.size, 1)
