"""Which value a tensor holds now, and where it is stored, so that one value is stored once.

Nothing torch keeps can answer this: version counters are bumped late, and by some ops never;
addresses are used again. So every storage is known here by a weak reference that dies with it, and
bears a number that changes with every write (every argument an op's schema marks as written, and
batch norm's running statistics). That number names the value: what one op makes and another uses
bears the same number, through any view, and by that records are linked from producer to consumer.
A stored dataset is shared only by a tensor with the same number and everything a hard link shares:
place, shape, stride, dtype, device.

numpy writes without an op. torch marks the memory that a numpy array shares, since `.numpy()` and
`from_numpy` forbid a storage to be resized: such memory is volatile, and its key holds a digest of
the bytes as they are now (weights that safetensors maps from a file are of this kind, and must not
be stored at each use). What C extensions write is not seen; docs/capture.md says so.

Memory that `empty` left is blank until written: a list of the byte ranges that no op has written.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import torch

_VIEWS = 1024
"""Places of one storage that are remembered; windows sliding over a long tensor have no end."""


class Storage:
    """What is known of one live storage. value: number of what it holds now. maker: what wrote it.

    blank: byte ranges, [start, end), that were never written. volatile: written behind our back.
    """

    __slots__ = ("ref", "address", "value", "maker", "paths", "blank", "volatile", "waiting")

    def __init__(self, ref: weakref.ref, address: int, value: int) -> None:
        self.ref = ref
        self.address = address
        self.value = value
        self.maker: Any = None
        self.paths: dict[tuple, str] = {}
        self.blank: list[tuple[int, int]] | None = None
        self.volatile = False
        self.waiting: list[tuple[tuple, str]] = []  # outputs to be stored at their first use


class StoredValues:
    """Remembers, for every live storage, its value's number and where that is stored."""

    def __init__(self) -> None:
        self._storages: dict[int, Storage] = {}
        self._last = 0

    def of(self, tensor: torch.Tensor) -> Storage | None:
        """The entry of the tensor's storage; None for a tensor that has none (sparse)."""
        if tensor.layout is not torch.strided:
            return None
        try:
            live = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None
        storage = self._storages.get(live._cdata)
        if storage is None:
            # Not a Python function: one that Ctrl-C interrupts here would swallow it.
            forget = partial(self._storages.pop, live._cdata)
            self._last += 1
            known = Storage(weakref.ref(live, forget), live._cdata, self._last)
            storage = self._storages[live._cdata] = known
        if tensor.is_cpu and not live.resizable():
            storage.volatile = True
        return storage

    def written(self, tensor: torch.Tensor, maker: Any = None) -> Storage | None:
        """Note that an op wrote `tensor`: what is stored of its storage is past values now."""
        storage = self.of(tensor)
        if storage is not None:
            self._last += 1
            storage.value = self._last
            storage.maker = maker
            storage.paths = {}
            storage.waiting = []
            if storage.blank is not None:
                storage.blank = _without(storage.blank, *_span(tensor)) or None
        return storage

    def find(self, storage: Storage | None, key: tuple) -> str | None:
        """The dataset that holds this very value with these very attributes, if any."""
        return None if storage is None else storage.paths.get(key)

    def stored(self, storage: Storage | None, key: tuple, path: str) -> None:
        """Note that the present value of `storage`, seen as `key`, lies at `path`."""
        if storage is None:
            return
        if len(storage.paths) >= _VIEWS:
            storage.paths.clear()
        storage.paths[key] = path


def is_blank(storage: Storage | None, tensor: torch.Tensor) -> bool:
    """Whether any of the tensor's memory was never written."""
    if storage is None or storage.blank is None:
        return False
    start, end = _span(tensor)
    return any(first < end and start < last for first, last in storage.blank)


def key_of(
    tensor: torch.Tensor, npu_format: int, blank: bool = False, digest: bytes | None = None
) -> tuple:
    """All that two tensors of one value must share to share one dataset."""
    return (
        npu_format,
        tensor.storage_offset(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.device,
        tensor.is_conj(),
        tensor.is_neg(),
        blank,
        digest,
    )


def seen_again(tensor: torch.Tensor, key: tuple) -> torch.Tensor:
    """The tensor of the same storage that `key` was made of."""
    _, offset, shape, stride, dtype, device, conjugate, negative, *_ = key
    again = torch.empty(0, dtype=dtype, device=device)
    again.set_(tensor.untyped_storage(), offset, shape, stride)
    again = again.conj() if conjugate else again
    return again._neg_view() if negative else again


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes of its storage from a tensor's first element to its last."""
    size = tensor.element_size()
    start = tensor.storage_offset() * size
    if tensor.numel() == 0:
        return start, start
    reach = sum(
        (count - 1) * step for count, step in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return start, start + (reach + 1) * size


def _without(ranges: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    left = []
    for first, last in ranges:
        if first < min(last, start):
            left.append((first, min(last, start)))
        if max(first, end) < last:
            left.append((max(first, end), last))
    return left


def made_blank(storage: Storage | None, tensor: torch.Tensor) -> None:
    """Note that an op left the tensor's memory as it found it."""
    if storage is not None and tensor.numel():
        storage.blank = [_span(tensor)]
