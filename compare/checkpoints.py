"""Files that hold many tensors by name: safetensors, and what torch.save wrote.

safetensors is read by its published layout, without a package of its own: 8 bytes of length, a JSON
header, then the values, without gap or overlap. A pt file needs torch, which is imported only then,
and is loaded with `weights_only`, so that nothing in it runs.
"""

from __future__ import annotations

import json
import math
import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from dumper.dtypes import BY_NAME
from dumper.errors import DumpError, first_line

from .files import LONE, FileTensor, mapped, opened, size_of, values_of

if TYPE_CHECKING:
    import torch

_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64",
}
_MOST_HEADER = 100_000_000  # bytes, as the format has it
_COPY = "copy it again, completely"
_NO_TENSORS = "name a file that torch.save wrote of a tensor, or of dicts and lists of tensors"
_OBJECT = re.compile(r"GLOBAL (\S{1,200})")
"""What torch says of a class or a function that `weights_only` does not load."""

_MOST_DEEP, _MOST_VALUES = 64, 1_000_000
_MOST_DIMENSIONS = 64  # numpy's own limit

_BAD_PICKLE = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a damaged or hostile pickle makes torch.load raise; which one depends on the damage."""


def safetensors(path: Path) -> dict[str, FileTensor]:
    """The tensors of a safetensors file. Raises DumpError for one that is not whole.

    A tensor of a dtype that is not read is there, and its `read` raises.
    """
    with opened(path) as file:
        size = size_of(file)
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if len(head) < 8 or length > min(size - 8, _MOST_HEADER):
            what = "this file is empty" if not size else "this is no whole safetensors file"
            raise DumpError(f"{what} ({size} bytes)", path, _COPY)
        header = file.read(length)
    start = 8 + length
    try:
        entries = json.loads(header.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _no_header(path, first_line(error)) from None
    if not isinstance(entries, dict):
        raise _no_header(path, "it is no JSON object")
    entries.pop("__metadata__", None)
    parts = {name: _entry(path, name, entry) for name, entry in entries.items()}
    end = 0
    for name, (_, _, first, last) in sorted(parts.items(), key=lambda part: part[1][2:]):
        if first != end:
            raise _no_header(path, f"{name!r} begins at byte {first} where byte {end} is due")
        end = last
    if start + end != size:
        raise DumpError(f"the header claims {end} bytes and {size - start} follow it", path, _COPY)
    return {
        name: FileTensor(
            name, dtype, shape, f"{path}: {name}",
            partial(_safetensor_values, path, dtype, shape, start + first),
        )
        for name, (dtype, shape, first, _) in parts.items()
    }  # fmt: skip


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_header(path: Path, what: str) -> DumpError:
    return DumpError(f"the header of this safetensors file is damaged ({what})", path, _COPY)


def _entry(path: Path, name: str, entry: object) -> tuple[str, tuple[int, ...], int, int]:
    """dtype, shape, first byte and end of one tensor, checked by themselves."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _no_header(path, f"{name!r} has not dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    numbers = [shape, offsets]
    if not isinstance(dtype, str) or not all(isinstance(one, list) for one in numbers):
        raise _no_header(path, f"{name!r} has not dtype, shape and data_offsets")
    if not all(type(n) is int and 0 <= n < 1 << 63 for one in numbers for n in one):
        raise _no_header(path, f"{name!r} has a size or an offset that is no number of bytes")
    if len(offsets) != 2 or offsets[1] < offsets[0] or len(shape) > _MOST_DIMENSIONS:
        raise _no_header(path, f"{name!r} has not a shape and two offsets")
    known = _DTYPES.get(dtype)
    if known is not None:
        claimed = math.prod(shape) * BY_NAME[known].bits.itemsize
        if claimed != offsets[1] - offsets[0]:
            raise _no_header(
                path, f"{name!r} claims {claimed} bytes and has {offsets[1] - offsets[0]}"
            )
    return known or dtype, tuple(shape), *offsets


def _safetensor_values(path: Path, dtype: str, shape: tuple[int, ...], at: int) -> np.ndarray:
    if dtype not in BY_NAME:
        raise DumpError(
            f"tensors of dtype {dtype} are not compared", path, "save it as another dtype"
        )
    return values_of(mapped(path, at, BY_NAME[dtype].bits, shape), dtype)


def pt(path: Path) -> dict[str, FileTensor]:
    """The tensors of what torch.save wrote, by their path: `model/conv.weight`, `optimizer/0/exp`.

    A tensor that was saved by itself is LONE. What is no tensor is passed over. A sparse or
    quantized one is its parts. Raises DumpError where torch is missing and for what `weights_only`
    does not load.
    """
    try:
        import torch
    except ImportError:
        raise DumpError(
            "reading this file needs torch", path, "install torch, or save it as safetensors"
        ) from None
    with opened(path) as file:
        size = size_of(file)
        if not size:
            raise DumpError("this file is empty", path, _COPY)
        is_zip = _is_sound_zip(path, file, size)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            root = torch.load(path, "cpu", weights_only=True, mmap=is_zip)
    except _BAD_PICKLE as error:
        raise _not_loaded(path, error) from None
    found: dict[str, FileTensor] = {}
    for name, tensor in list(_tensors(path, root)):  # all are counted before any is looked at
        for part, dtype, held in _parts(name, tensor):
            if part in found:
                raise DumpError(f"two tensors are called {part!r}", path, "rename one")
            shape = tuple(held.shape)
            read = partial(_torch_values, f"{path}: {part}", held, size)
            found[part] = FileTensor(part, dtype, shape, f"{path}: {part}", read)
    if not found:
        raise DumpError("there is no tensor in this file", path, _NO_TENSORS)
    return found


def _not_loaded(path: Path, error: Exception) -> DumpError:
    """What to say of an error of torch.load, whose own text advises to load the file unsafely."""
    if not isinstance(error, pickle.UnpicklingError):
        return DumpError(f"torch cannot load this file ({first_line(error)})", path, _NO_TENSORS)
    if found := _OBJECT.search(str(error)):
        return DumpError(
            f"this file holds objects other than tensors, such as {found[1]}, which are not loaded",
            path,
            "save the tensors alone: torch.save(model.state_dict(), ...)",
        )
    return DumpError("this file is damaged, or not as torch.save writes one", path, _NO_TENSORS)


def _is_sound_zip(path: Path, file: BinaryIO, size: int) -> bool:
    """Whether torch wrote a zip, or in its older way; what is packed could unpack to any size."""
    try:
        if not zipfile.is_zipfile(file):
            return False
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except _BAD_PICKLE as error:
        raise DumpError(f"this file is damaged ({first_line(error)})", path, _COPY) from None
    stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
    if not stored or sum(member.file_size for member in members) > size:
        raise DumpError("this is not as torch.save writes a file", path, _NO_TENSORS)
    return True


def _tensors(path: Path, root: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors in nested dicts and lists; a pickle can nest without end, or share without end."""
    import torch

    waiting: list[tuple[str, object, int]] = [("", root, 0)]
    for _ in range(_MOST_VALUES):
        if not waiting:
            return
        name, value, depth = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield name or LONE, value
        elif isinstance(value, dict | list | tuple):
            if depth == _MOST_DEEP or len(waiting) + len(value) > _MOST_VALUES:
                break
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            below = [(f"{name}/{key}" if name else str(key), one, depth + 1) for key, one in inner]
            waiting += reversed(below)
    raise DumpError(
        f"this holds more than {_MOST_VALUES} values, or {_MOST_DEEP} levels of them",
        path,
        _NO_TENSORS,
    )


def _parts(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, str, torch.Tensor | np.ndarray]]:
    """(name, dtype, values) of a plain tensor itself; else of its parts and the numbers of it."""
    from dumper.parts import is_plain, parts_of
    from dumper.tensors import dtype_name

    tensor = tensor.detach()
    if is_plain(tensor):
        yield name, dtype_name(tensor.dtype), tensor
        return
    if str(tensor.layout) == "torch.sparse_coo":
        tensor = tensor.coalesce()
    parts = parts_of(tensor)
    if parts is None:
        yield name, f"opaque {type(tensor).__name__}", tensor
        return
    for fact in ("shape", "scale", "zero_point", "axis"):
        if parts.facts.get(fact) is not None:
            number = np.asarray(parts.facts[fact])
            yield f"{name}/{fact}", number.dtype.name, number
    for part, held in parts.tensors.items():
        yield f"{name}/{part}", dtype_name(held.dtype), held


def _torch_values(where: str, held: torch.Tensor | np.ndarray, file_size: int) -> np.ndarray:
    from dumper.tensors import Unstorable, bits_of, row_of

    if isinstance(held, np.ndarray):
        return held
    claimed = held.numel() * held.element_size()
    if claimed > file_size:  # expanded: a few bytes that stand for any number
        raise DumpError(f"this tensor claims {claimed} bytes of {file_size}", where, _COPY)
    try:
        name = row_of(held).name
        return values_of(bits_of(held), name)
    except Unstorable as error:
        raise DumpError(f"this tensor has no values ({error})", where, "save another") from None
    except RuntimeError as error:
        raise DumpError(f"this tensor cannot be read ({first_line(error)})", where, _COPY) from None
