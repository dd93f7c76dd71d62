"""What one CANN dump file holds, as data: tensors, buffers, workspaces and what is said of them.

Of a file that was read, bytes are mapped when they are asked for; of what is to be written they are
there. Sizes were checked when the file was opened. Whether a tensor's own claims fit its bytes is
said when its values are asked for, so that one odd tensor costs no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dumper.errors import DumpError

from .formats import CODES
from .types import TYPES, DataType, decode, encode

MOST_DIMENSIONS = 32
"""What numpy of every supported version can have."""

_MOST_ELEMENTS = 1 << 58
"""As many of the widest dtype numpy can address."""

_L1 = 0
"""Type of a buffer."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes that are no tensor: a buffer (type 0 is L1) or a workspace (type 0 is a log)."""

    type: int
    size: int
    read: Callable[[], np.ndarray] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Origin:
    """Which op of the original network an output belongs to."""

    name: str
    output_index: int = 0
    data_type: int = 0
    format: int = 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output.

    data_type, format: CANN's codes. shape: as stored, () too where the file says none.
    original_shape: before the format's padding. size: bytes. sub_format: number of groups.
    dim_ranges, origin: of outputs only. read: the bytes, uint8. where: for messages. fault: why it
    has no values, None where nothing is known against them.
    """

    data_type: int
    format: int
    shape: tuple[int, ...]
    size: int
    read: Callable[[], np.ndarray] = field(repr=False, compare=False)
    original_shape: tuple[int, ...] = ()
    sub_format: int = 0
    address: int = 0
    offset: int = 0
    origin: Origin | None = None
    dim_ranges: tuple[tuple[int, int], ...] = ()
    where: str = field(default="this tensor", compare=False)
    fault: DumpError | None = field(default=None, compare=False)

    @property
    def kind(self) -> DataType:
        """The data type. Raises DumpError for a code that nobody knows."""
        if self.data_type not in TYPES:
            raise DumpError(
                f"its data type has code {self.data_type}, which is not known",
                self.where,
                "a later CANN may have written it: read it with that CANN's tool",
            )
        return TYPES[self.data_type]

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape that values have: that of the file, and where it says none a scalar, or the row
        of all elements that the bytes hold. Raises DumpError for a type or shape that cannot be."""
        if self.fault is not None:
            raise self.fault
        kind = self.kind
        if not kind.by_shape:
            return (self.size,)
        if not self.shape:
            count = self.size * 8 // kind.bits
            return () if count == 1 else (count,)
        if len(self.shape) > MOST_DIMENSIONS:
            what = f"its shape has {len(self.shape)} dimensions"
            raise DumpError(what, self.where, "the file is damaged: copy it again, or dump again")
        if math.prod(filter(None, self.shape)) > _MOST_ELEMENTS:  # of an empty one too
            what = f"its shape {list(self.shape)} is of no tensor"
            raise DumpError(what, self.where, "the file is damaged: copy it again, or dump again")
        count = math.prod(self.shape)
        if kind.nbytes(count) > self.size:
            raise DumpError(
                f"its shape {list(self.shape)} takes {kind.nbytes(count)} bytes of {kind.name} and "
                f"there are {self.size}",
                self.where,
                "the file is damaged: copy it again, or dump again",
            )
        return self.shape

    def values(self) -> np.ndarray:
        """The elements, dtype `kind.values`; bytes past the last are left out.

        Raises DumpError for what is no tensor, or is gone.
        """
        dims = self.dims
        if 0 in dims:
            return np.empty(dims, self.kind.values)
        return decode(self.read(), self.kind, math.prod(dims)).reshape(dims)


@dataclass(frozen=True, slots=True)
class Dump:
    """One file. op_name: with the slashes that a file's name has not. dump_time: as CANN counts it.
    attributes: (name, value). trailing: bytes of the file that belong to nothing."""

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    buffers: tuple[Blob, ...] = ()
    workspaces: tuple[Blob, ...] = ()
    op_name: str = ""
    version: str = "2.0"
    dump_time: int = 0
    attributes: tuple[tuple[str, str], ...] = ()
    trailing: int = field(default=0, compare=False)

    @property
    def parts(self) -> tuple[Tensor | Blob, ...]:
        """All that has bytes, in the order of the file."""
        return (*self.inputs, *self.outputs, *self.buffers, *self.workspaces)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Inputs and outputs by what the original calls their files: `input.0`."""
        for side, tensors in (("input", self.inputs), ("output", self.outputs)):
            for i, tensor in enumerate(tensors):
                yield f"{side}.{i}", tensor

    def blobs(self) -> Iterator[tuple[str, Blob]]:
        """Buffers and workspaces likewise: `l1buffer.0`, `space.0`."""
        for i, blob in enumerate(self.buffers):
            yield f"{'l1buffer' if blob.type == _L1 else 'buffer'}.{i}", blob
        for i, blob in enumerate(self.workspaces):
            yield f"space.{i}", blob


def tensor_of(
    values: np.ndarray,
    kind: DataType,
    format: str = "ND",
    original_shape: Sequence[int] = (),
    origin: Origin | None = None,
) -> Tensor:
    """A tensor to be written. values: dtype `kind.values`. Raises DumpError as `encode` does."""
    data = np.frombuffer(encode(values, kind), np.uint8)
    tensor = Tensor(kind.code, CODES[format], values.shape, data.size, lambda: data)
    return replace(tensor, original_shape=tuple(original_shape), origin=origin)


def blob_of(data: bytes, type: int = 0) -> Blob:
    """A buffer or workspace to be written."""
    array = np.frombuffer(data, np.uint8)
    return Blob(type, array.size, lambda: array)
