"""What one CANN dump file is taken apart into: names of files and what goes into each.

Names are the original's, `<file>.<input|output>.<i>.npy` and the like; docs/convert.md lists them.
Nothing is written here and no name is a path: `parts_of` hands out one part after the other, each
with a function that writes it, so that no more than one tensor is in memory. npy and txt hold
numpy's own dtypes, wider where CANN's has no counterpart; bin holds the bits as the dump has them;
pt torch's dtypes, with torch imported only then.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

import ml_dtypes
import numpy as np

from dumper.dtypes import BY_NAME
from dumper.errors import DumpError

from .cann.content import Blob, Dump, Tensor
from .cann.file import read
from .cann.formats import format_name
from .cann.names import name_part, parse
from .cann.overflow import reports_of
from .cann.threads import of_thread
from .cann.types import DataType, decode, encode
from .custom_formats import CustomFormat
from .relayout import MOST_AXES, keeps_padding, relayout
from .text import write_text

KINDS = ("npy", "bin", "msnpy", "pt", "txt")
_SUFFIX = {"msnpy": "npy"}
_CHUNK = 1 << 18
"""Elements that are widened at once: they stay in the processor's cache."""

_FIELDS = 5
"""Of a file's name in which msnpy puts the network's name of the op; FFTS+ has more."""

_HEADER = 128
"""Bytes of an npy's, of all but the longest shapes."""

_TORCH = {np.dtype(name): name for name in ("bfloat16", "float8_e5m2", "float8_e4m3fn")}
_TORCH[np.dtype(ml_dtypes.float8_e8m0fnu)] = "float8_e8m0fnu"
"""Names in torch of the dtypes that ml_dtypes has and numpy has not."""


_Write = Callable[[BinaryIO], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted of every file. kind: of KINDS. format: to convert to; None for tensors as they
    lie. shape: of the result, in place of what the file says. side, index: this input or output
    alone. customs: by the format they are from."""

    kind: str = "npy"
    format: str | None = None
    shape: tuple[int, ...] = ()
    side: str | None = None
    index: int = 0
    customs: Mapping[str, CustomFormat] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """One file to be written. size: bytes, of txt at most about. note: what is to be known of it;
    '' if nothing."""

    name: str
    size: int
    write: _Write
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Values:
    """A tensor after its conversion. dtype: its name. code: None of a user's conversion, whose
    result is no longer of the data type in the dump."""

    array: np.ndarray
    dtype: str
    plain: np.dtype
    kind: DataType | None


def parts_of(path: Path, name: str, request: Request, opdebug: bool) -> Iterator[Part | DumpError]:
    """Take a dump file apart, and yield what is wrong in the place of a part that cannot be had.

    name: what the files are called after. opdebug: it is a report of overflows, which becomes json.
    Raises DumpError for a file that is no dump.
    """
    if opdebug:
        for i, report in enumerate(reports_of(path)):
            text = json.dumps(report.as_json(), indent=4).encode()
            yield Part(f"{name}.output.{i}.json", len(text), partial(_write_bytes, text))
        return
    dump = read(path)
    if (called := parse(name)) is not None:
        dump = of_thread(dump, called)
    if request.kind == "msnpy" and dump.op_name and name.count(".") == _FIELDS - 1:
        op_type, _, rest = name.split(".", 2)
        name = f"{op_type}.{name_part(dump.op_name.rpartition('/')[2])}.{rest}"
    for title, tensor in _chosen(dump, request, path):
        try:
            yield _part(tensor, f"{name}.{title}", request)
        except DumpError as error:
            yield error
    if request.format is None:
        for title, blob in dump.blobs():
            yield _blob(f"{name}.{title}.bin", blob)


def _chosen(dump: Dump, request: Request, path: Path) -> list[tuple[str, Tensor]]:
    if request.side is None:
        return list(dump.tensors())
    tensors = dump.inputs if request.side == "input" else dump.outputs
    if request.index >= len(tensors):
        what = f"there is no {request.side} {request.index}; it has {len(tensors)}"
        raise DumpError(what, path, f"-{request.side[0]} counts from 0")
    return [(f"{request.side}.{request.index}", tensors[request.index])]


def _blob(name: str, blob: Blob) -> Part:
    return Part(name, blob.size, lambda file: file.write(blob.read().data))


def _part(tensor: Tensor, stem: str, request: Request) -> Part:
    suffix = _SUFFIX.get(request.kind, request.kind)
    form = request.format or format_name(tensor.format)
    if request.format is None and request.kind == "bin":  # as it lies, so it is not looked at
        dims, kind = tensor.dims, tensor.kind
        size = kind.nbytes(math.prod(dims))
        name = f"{stem}.{_joined(dims, '_')}.{kind.name}.{form}.bin"
        return Part(name, size, lambda file: file.write(tensor.read()[:size].data))
    if request.format is None and suffix == "npy":
        kept = f".{form}" if request.kind == "msnpy" else ""
        return Part(f"{stem}{kept}.npy", *_lying_as_npy(tensor))
    note = ""
    if request.format is None:
        values = _Values(tensor.values(), tensor.kind.name, tensor.kind.plain, tensor.kind)
    else:
        values, note = _converted(tensor, request)
    dims = values.array.shape
    if request.kind == "bin":
        name = f"{stem}.{_joined(dims, '_')}.{values.dtype}.{form}.bin"
    elif request.kind == "msnpy":
        name = f"{stem}.{form}.npy"
    elif request.format is not None:
        name = f"{stem}.{_joined(dims, 'x')}.{suffix}"
    else:
        name = f"{stem}.{suffix}"
    return Part(name, *_WRITERS[suffix](values), note)


def _joined(dims: tuple[int, ...], between: str) -> str:
    return between.join(map(str, dims)) or "1"


def _converted(tensor: Tensor, request: Request) -> tuple[_Values, str]:
    """The tensor in the format that is wanted, and what is to be known of that."""
    kind, source = tensor.kind, format_name(tensor.format)
    if len(shape := request.shape or tensor.original_shape) > MOST_AXES:
        what = f"its original shape has {len(shape)} axes"
        raise DumpError(
            what, tensor.where, "the file is damaged: copy it again, or give a shape, -s"
        )
    groups = tensor.sub_format if tensor.sub_format >= 2 else 1
    values = tensor.values()
    if (custom := request.customs.get(source)) is not None and source != request.format:
        array = custom(_widened(values, kind.plain), shape, groups)
        return _Values(array, array.dtype.name, array.dtype, None), ""
    try:
        array = relayout(
            values, tensor.format, request.format, request.shape, groups, tensor.original_shape
        )
        padded = keeps_padding(tensor.format, request.format, shape)
    except (ValueError, MemoryError) as error:
        raise DumpError(
            f"{source} of shape {list(values.shape)} cannot become {request.format} "
            f"({error or 'there is not enough memory'})",
            tensor.where,
            f"choose tensors with -i or -o; -s gives the shape in {request.format}",
        ) from None
    if request.shape and source == request.format and array.shape != request.shape:
        what = f"it is in {source} already, with shape {list(array.shape)}"
        raise DumpError(what, tensor.where, "leave out -s, or choose tensors with -i or -o")
    note = "keeps the channels that pad: the file does not say how many there are, -s does"
    return _Values(array, kind.name, kind.plain, kind), note if padded else ""


def _widened(values: np.ndarray, plain: np.dtype) -> np.ndarray:
    if values.dtype.itemsize == 1 and plain.itemsize > 1:  # a look-up is faster than a cast
        with np.errstate(invalid="ignore"):  # numpy's word on NaN, which stays NaN
            table = np.arange(256, dtype=np.uint8).view(values.dtype).astype(plain)
        return table[values.view(np.uint8)]
    with np.errstate(invalid="ignore"):
        return values.astype(plain, copy=False)


def _write_bytes(data: bytes, file: BinaryIO) -> None:
    file.write(data)


def _lying_as_npy(tensor: Tensor) -> tuple[int, _Write]:
    """A tensor as it lies, which is read when it is written, and piece by piece."""
    kind, dims = tensor.kind, tensor.dims
    count = math.prod(dims)

    def write(file: BinaryIO) -> None:
        _write_header(file, dims, kind.plain)
        data = tensor.read()[: kind.nbytes(count)] if count else np.empty(0, np.uint8)
        if kind.values == kind.plain and kind.bits == 8 * kind.plain.itemsize and kind.plain != "?":
            file.write(data.data)
            return
        step = kind.nbytes(_CHUNK)
        for at in range(0, data.size, step):
            done = at // step * _CHUNK
            values = decode(data[at : at + step], kind, min(_CHUNK, count - done))
            file.write(_widened(values, kind.plain).data)

    return _HEADER + count * kind.plain.itemsize, write


def _as_npy(values: _Values) -> tuple[int, _Write]:
    array, plain = values.array, values.plain

    def write(file: BinaryIO) -> None:
        _write_header(file, array.shape, plain)
        flat = np.asarray(array, order="C").reshape(-1)
        for at in range(0, flat.size, _CHUNK):
            file.write(_widened(flat[at : at + _CHUNK], plain).data)

    return _HEADER + array.size * plain.itemsize, write


def _write_header(file: BinaryIO, dims: tuple[int, ...], dtype: np.dtype) -> None:
    descr = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": descr, "fortran_order": False, "shape": dims}
    np.lib.format.write_array_header_1_0(file, header)


def _as_bin(values: _Values) -> tuple[int, _Write]:
    array, kind = values.array, values.kind

    def write(file: BinaryIO) -> None:
        flat = np.asarray(array, order="C").reshape(-1)
        if kind is not None and kind.bits != 8 * flat.itemsize:
            file.write(encode(flat, kind))
        else:
            file.write(flat.view(np.uint8).data)

    return array.nbytes if kind is None else kind.nbytes(array.size), write


def _as_text(values: _Values) -> tuple[int, _Write]:
    name = values.dtype if values.dtype in BY_NAME else values.plain.name

    def write(file: BinaryIO) -> None:
        write_text(file, _widened(values.array, values.plain), values.array.shape, name)

    return values.array.size * _TEXT_BYTES.get(values.plain.name, 50), write


_TEXT_BYTES = {"bool": 2, "int8": 5, "uint8": 4, "int16": 7, "int32": 12, "float32": 16}
"""Of a number at most, where it is little."""


def _as_torch(values: _Values) -> tuple[int, _Write]:
    torch = import_torch()
    native = getattr(torch, _TORCH.get(values.array.dtype, ""), None)
    if native is None:
        array = np.array(_widened(values.array, values.plain), order="C")
        tensor = torch.from_numpy(array)
    else:
        bits = np.array(values.array.view(f"i{values.array.itemsize}"), order="C")
        tensor = torch.from_numpy(bits).view(native)
    return 2048 + tensor.nbytes, lambda file: torch.save(tensor, file)


_WRITERS = {"npy": _as_npy, "bin": _as_bin, "txt": _as_text, "pt": _as_torch}
"""By suffix: how many bytes, and a function that writes them."""


def import_torch(
    what: str = "pt files need torch",
    where: str = "-t pt",
    todo: str = "install torch, or choose another -t",
) -> object:
    """torch, which little here needs. Raises DumpError of these three where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise DumpError(f"{what} ({error})", where, todo) from None
    return torch
