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

Memory that `empty` left is blank until written (`blank`).
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import torch

from .blank import Blank, span
from .tensors import storage_of

_VIEWS = 1024
"""Places of one storage that are remembered; windows sliding over a long tensor have no end."""


class Storage:
    """What is known of one live storage. value: number of what it holds now. maker: what wrote it.

    blank: what of it was never written. volatile: written behind our back, so `digests` tell by
    place what was seen last.
    """

    __slots__ = (
        "ref", "address", "nbytes", "value", "maker", "paths", "blank", "volatile", "digests",
        "waiting",
    )  # fmt: skip

    def __init__(self, live: torch.UntypedStorage, forget: Any, value: int) -> None:
        self.ref = weakref.ref(live, forget)
        self.address = live._cdata
        self.nbytes = live.nbytes()
        self.value = value
        self.maker: Any = None
        self.paths: dict[tuple, str] = {}
        self.blank: Blank | None = None
        self.volatile = False
        self.digests: dict[tuple, bytes] = {}
        self.waiting: list[tuple[tuple, str]] = []  # outputs to be stored at their first use


class StoredValues:
    """Remembers, for every live storage, its value's number and where that is stored."""

    def __init__(self) -> None:
        self._storages: dict[int, Storage] = {}
        self._last = 0

    def forget(self) -> None:
        """Ops went unseen: nothing is known of any storage. Numbers go on."""
        self._storages = {}

    def of(self, tensor: torch.Tensor) -> Storage | None:
        """The entry of the tensor's storage; None for a tensor that has none (sparse)."""
        live = storage_of(tensor)
        if live is None:
            return None
        storage = self._storages.get(live._cdata)
        if storage is None:
            # Not a Python function: one that Ctrl-C interrupts here would swallow it.
            forget = partial(self._storages.pop, live._cdata)
            self._last += 1
            storage = self._storages[live._cdata] = Storage(live, forget, self._last)
        if not storage.volatile and tensor.is_cpu and not live.resizable():
            storage.volatile = True
            if storage.paths:  # numpy came to share it since: what it holds now, nobody can tell
                self._renumber(storage)
                storage.paths = {}
        return storage

    def written(self, tensor: torch.Tensor, maker: Any = None) -> Storage | None:
        """Note that an op wrote `tensor`: what is stored of its storage is past values now."""
        storage = self.of(tensor)
        if storage is not None:
            self._renumber(storage)
            storage.maker = maker
            storage.paths = {}
            storage.digests = {}
            storage.waiting = []
            if storage.blank is not None and not storage.blank.written(tensor):
                storage.blank = None
        return storage

    def changed(self, storage: Storage, key: tuple, digest: bytes) -> None:
        """Note what bytes a volatile storage shows at `key`: others than before are a new value."""
        if storage.digests.setdefault(key, digest) != digest:
            self._renumber(storage)
            storage.digests = {key: digest}

    def _renumber(self, storage: Storage) -> None:
        """What the storage holds is another value than before."""
        self._last += 1
        storage.value = self._last

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
    return storage is not None and storage.blank is not None and storage.blank.over(tensor)


def made_blank(storage: Storage | None, tensor: torch.Tensor) -> None:
    """Note that an op left the tensor's memory as it found it."""
    if storage is not None and tensor.numel():
        storage.blank = Blank(*span(tensor))


def grown(storage: Storage | None, tensor: torch.Tensor) -> None:
    """Note that `resize_` may have lengthened the storage: what it added is blank."""
    if storage is not None and tensor.untyped_storage().nbytes() > storage.nbytes:
        start, storage.nbytes = storage.nbytes, tensor.untyped_storage().nbytes()
        if storage.blank is None:
            storage.blank = Blank(start, storage.nbytes)


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
