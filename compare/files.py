"""Files of tensors that are no dumps, as named tensors: npy, txt, pt and safetensors.

A file says what it holds before values are read, and nothing that it says is believed before its
size bears it out. Values are mapped where the format allows it, so that a file may be larger than
memory. What each format is, is told in arrays.py (one array) and checkpoints.py (many).
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dumper.dtypes import BY_NAME, as_values
from dumper.errors import DumpError

KINDS = (".npy", ".txt", ".pt", ".pth", ".safetensors")
"""Endings of the files that can be read, whatever their case."""

LONE = "tensor"
"""What a tensor is called that its file gives no name."""


@dataclass(frozen=True, slots=True)
class FileTensor:
    """One tensor of a file.

    name: within the file; LONE where that gives it none. dtype: torch's name, or the
    format's own for one that is not read. path: what to call it in messages. read: its values,
    ml_dtypes' for the small floats; raises DumpError. bare: the file is a text that says neither
    dtype nor shape, which are then what its lines look like.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: str
    read: Callable[[], np.ndarray] = field(repr=False, compare=False)
    bare: bool = False

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def tensors_in(path: Path) -> dict[str, FileTensor]:
    """The tensors of a file by name, in its order; the ending says which format it is.

    Raises DumpError for an unknown ending and for a file that is not what it ends in.
    """
    kind = path.suffix.lower()
    if kind == ".npy":
        from .arrays import npy

        return {LONE: npy(path)}
    if kind == ".txt":
        from .arrays import text

        return {LONE: text(path)}
    if kind in (".pt", ".pth"):
        from .checkpoints import pt

        return pt(path)
    if kind == ".safetensors":
        from .checkpoints import safetensors

        return safetensors(path)
    raise DumpError(
        f"files that end in {kind!r} are not compared",
        path,
        f"name one that ends in {', '.join(KINDS)}, or a directory of npy files; "
        "two dumps are compared by msaccucmp compare",
    )


def opened(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises DumpError for all else; a pipe is not waited for."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DumpError(
            f"this file cannot be read ({reason})", path, "check the path and its mode"
        ) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise DumpError("this is not a regular file", path, "name a file")
    return open(number, "rb")


def size_of(file: BinaryIO) -> int:
    """Bytes of an open file."""
    return os.fstat(file.fileno()).st_size


def mapped(
    path: Path, at: int, dtype: np.dtype, shape: tuple[int, ...], order: str = "C"
) -> np.ndarray:
    """Map an array that lies in a file from byte `at` on; one at an odd address is copied.

    Raises DumpError when the file has become shorter than that.
    """
    if 0 in shape:
        return np.empty(shape, dtype)
    with opened(path) as file:
        if at + math.prod(shape) * dtype.itemsize > size_of(file):
            raise DumpError(
                "this file has become shorter while it was read", path, "compare it again"
            )
        try:
            array = np.memmap(file, dtype, "r", at, shape, order)
        except (OSError, ValueError, OverflowError) as error:
            raise DumpError(f"this file cannot be mapped ({error})", path, "check it") from None
    return np.require(array.view(np.ndarray), requirements=["A"])


def values_of(bits: np.ndarray, name: str) -> np.ndarray:
    """Stored bits as the numbers of the dtype `name`; a byte of bool is true unless it is 0."""
    if name == "bool":
        return bits != 0
    return as_values(bits.view(BY_NAME[name].bits), name)
