"""Which stored dataset holds a tensor's present value, so that one value is stored once.

Nothing torch keeps can answer this: version counters are bumped late, and by some ops never;
addresses are used again. So every storage has its own count of writes here (every argument an op's
schema marks as written, and batch norm's running statistics), on a weak reference that dies with
the storage. A value is known by its storage, the count, and everything a hard link shares: place,
shape, stride, dtype, device.

numpy writes without an op: memory that a numpy array shares is never taken for unchanged. torch
marks it, since `.numpy()` and `from_numpy` forbid a storage to be resized. What other threads or C
extensions write is not seen; docs/dumper.md says so.
"""

from __future__ import annotations

import weakref
from functools import partial

import torch

_VIEWS = 1024
"""Places of one storage that are remembered; windows sliding over a long tensor have no end."""


class _Storage:
    __slots__ = ("ref", "paths")

    def __init__(self, ref: weakref.ref) -> None:
        self.ref = ref
        self.paths: dict[tuple, str] = {}


class StoredValues:
    """Remembers, for every live storage, where its values since the last write are stored."""

    def __init__(self) -> None:
        self._storages: dict[int, _Storage] = {}

    def find(self, tensor: torch.Tensor, npu_format: int) -> str | None:
        """The dataset that holds this very value with these very attributes, if any."""
        live = tensor.untyped_storage()
        storage = self._storages.get(live._cdata)
        if storage is None or (tensor.is_cpu and not live.resizable()):
            return None
        return storage.paths.get(_key(tensor, npu_format))

    def stored(self, tensor: torch.Tensor, npu_format: int, path: str) -> None:
        """Note that the present value of `tensor` lies at `path`."""
        live = tensor.untyped_storage()
        storage = self._storages.get(live._cdata)
        if storage is None:
            # Not a Python function: one that Ctrl-C interrupts here would swallow it.
            forget = partial(self._storages.pop, live._cdata)
            storage = self._storages[live._cdata] = _Storage(weakref.ref(live, forget))
        elif len(storage.paths) >= _VIEWS:
            storage.paths.clear()
        storage.paths[_key(tensor, npu_format)] = path

    def written(self, tensor: torch.Tensor) -> None:
        """Note that an op wrote `tensor`: what is stored of its storage is past values now."""
        if tensor.layout is torch.strided:
            self._storages.pop(tensor.untyped_storage()._cdata, None)


def _key(tensor: torch.Tensor, npu_format: int) -> tuple:
    return (
        npu_format,
        tensor.storage_offset(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.device,
        tensor.is_conj(),
        tensor.is_neg(),
    )
