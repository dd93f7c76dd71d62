"""Files that hold one array: npy, and text as np.savetxt and `convert` write it.

An npy is never unpickled. A text of `convert` says its shape and dtype in its first two lines; any
other is lines of numbers, which say neither.
"""

from __future__ import annotations

import ast
import io
import math
import os
import re
import tokenize
import warnings
from functools import partial
from pathlib import Path
from typing import TextIO

import numpy as np

from dumper.dtypes import BY_NAME, as_values
from dumper.errors import DumpError, first_line

from .files import LONE, FileTensor, mapped, opened, size_of

_MAGIC = b"\x93NUMPY"
_HEADER = 10_004
"""Bytes of an npy's header that are looked at: numpy's own limit, and its length."""

_NO_NPY = "write it again with numpy.save"
_NO_TEXT = "write it with numpy.savetxt, or with msaccucmp convert -t txt"
_CLAIM = re.compile(r"#\s*(shape|dtype):\s*(.*?)\s*$")
_HEAD_LINES = 100
_MOST_DIMENSIONS = 64  # numpy's own limit
_BAD_LITERAL = (
    ValueError,
    SyntaxError,
    TypeError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,  # where numpy takes a header for one of Python 2
)


def npy(path: Path) -> FileTensor:
    """The array of an npy file. Raises DumpError for what is no whole, plain npy."""
    with opened(path) as file:
        size, head = size_of(file), file.read(8)
        rest = io.BytesIO(file.read(_HEADER))
    if len(head) < 8 or not head.startswith(_MAGIC):
        what = "this file is empty" if not size else "this is not an npy file"
        raise DumpError(what, path, _NO_NPY)
    read_header = {
        1: np.lib.format.read_array_header_1_0,
        2: np.lib.format.read_array_header_2_0,
        3: np.lib.format.read_array_header_2_0,  # differs in the names of fields, which are refused
    }.get(head[6])
    if read_header is None:
        raise DumpError(f"this npy has the unknown version {head[6]}.{head[7]}", path, _NO_NPY)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers that Python 2 wrote
            shape, in_columns, stored = read_header(rest)
    except _BAD_LITERAL as error:
        raise DumpError(f"the header is damaged ({first_line(error)})", path, _NO_NPY) from None
    at = 8 + rest.tell()
    name = stored.name
    if stored.names or stored.kind not in "biufc" or name not in BY_NAME:
        raise DumpError(
            f"elements of type {stored.str if not stored.names else 'record'} are not compared",
            path,
            "save numbers; bfloat16 and float8 as float32, which holds them exactly",
        )
    if min(shape, default=0) < 0 or len(shape) > _MOST_DIMENSIONS:
        raise DumpError(f"this is no shape: {list(shape)[:70]}", path, _NO_NPY)
    claimed = math.prod(shape) * stored.itemsize
    if claimed != size - at:
        raise DumpError(
            f"the header claims {claimed} bytes and {size - at} follow it",
            path,
            "copy it again, completely; save one array a file",
        )
    return FileTensor(LONE, name, shape, str(path), partial(_npy_values, path, at, stored, shape,
                      "F" if in_columns else "C"))  # fmt: skip


def _npy_values(
    path: Path, at: int, stored: np.dtype, shape: tuple[int, ...], order: str
) -> np.ndarray:
    array = mapped(path, at, stored, shape, order)
    if stored.kind == "b":
        return array.view(np.uint8) != 0
    return array.astype(stored.newbyteorder("="), copy=False)


def text(path: Path) -> FileTensor:
    """The array of a text file. Raises DumpError for what is no text of numbers."""
    claims, first = _head(path)
    if not claims:
        if first is None:
            raise DumpError("there are no numbers in this file", path, _NO_TEXT)
        array = _numbers(path, "float64")
        return FileTensor(LONE, "float64", array.shape, str(path), lambda: array, bare=True)
    name, shape = claims.get("dtype", ""), _shape(claims.get("shape", ""))
    if name not in BY_NAME or shape is None:
        raise DumpError(
            "the first lines do not say a dtype and a shape that there is: "
            f"{claims.get('dtype')}, {claims.get('shape')}",
            path,
            _NO_TEXT,
        )
    if first is None and 0 not in shape:
        raise DumpError("there are no numbers in this file", path, _NO_TEXT)
    size = os.stat(path).st_size
    if 2 * math.prod(shape) - 1 > size:  # a digit and what parts it from the next
        raise DumpError(
            f"the first lines claim {math.prod(shape)} elements, which {size} bytes cannot hold",
            path,
            "copy it again, completely",
        )
    return FileTensor(LONE, name, shape, str(path), partial(_text_values, path, name, shape))


def in_place_of(tensor: FileTensor, other: FileTensor) -> FileTensor | None:
    """A bare text as an array of another's dtype and shape; None where its lines are not those.

    Its lines are the other's last dimension, or it is one column or one line of as many numbers.
    """
    lines = tensor.shape
    last = other.shape[-1] if other.shape else 1
    alike = 1 in lines or lines[-1] == last
    if tensor.size != other.size or not alike or other.dtype not in BY_NAME:
        return None
    read = partial(_text_values, Path(tensor.path), other.dtype, other.shape)
    return FileTensor(tensor.name, other.dtype, other.shape, tensor.path, read)


def _head(path: Path) -> tuple[dict[str, str], str | None]:
    """What the comments at the top claim, and the first line that is none."""
    claims: dict[str, str] = {}
    with _text_of(path) as file:
        try:
            for _ in range(_HEAD_LINES):
                line = file.readline(4096)
                if not line:
                    return claims, None
                found = _CLAIM.match(line)
                if found:
                    claims.setdefault(*found.groups())
                elif line.strip() and not line.startswith("#"):
                    return claims, line
        except ValueError:
            raise DumpError("this is not a text file", path, _NO_TEXT) from None
    raise DumpError(f"there are no numbers in the first {_HEAD_LINES} lines", path, _NO_TEXT)


def _text_of(path: Path) -> TextIO:
    # editors of Windows begin a text with a byte order mark
    return io.TextIOWrapper(opened(path), encoding="utf-8-sig")


def _shape(claim: str) -> tuple[int, ...] | None:
    try:
        shape = ast.literal_eval(claim)
    except _BAD_LITERAL:
        return None
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS:
        return None
    return tuple(shape) if all(type(n) is int and n >= 0 for n in shape) else None


def _text_values(path: Path, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if 0 in shape:
        return as_values(np.empty(shape, BY_NAME[name].bits), name)
    array = _numbers(path, name)
    if array.size != math.prod(shape):
        raise DumpError(
            f"{math.prod(shape)} elements are claimed and there are {array.size}",
            path,
            "copy it again, completely",
        )
    return array.reshape(shape)


def _numbers(path: Path, name: str) -> np.ndarray:
    """The numbers of a text, by line and column, in the dtype `name`; 0.5 is no integer."""
    final = as_values(np.empty(0, BY_NAME[name].bits), name).dtype
    wide = {"f": np.float64, "V": np.float64, "b": np.int8}.get(final.kind, final)
    with _text_of(path) as file:
        try:
            # The open file, never its name, by which loadtxt would unpack and download.
            array = np.loadtxt(file, wide, ndmin=2)
        except (ValueError, OverflowError) as error:
            raise DumpError(
                f"these are not numbers of dtype {name} ({first_line(error)})", path, _NO_TEXT
            ) from None
    with np.errstate(over="ignore"):
        return array.astype(final, copy=False)
