"""Calls whose results are still being looked at by a device that must not be waited for.

Results are held until there are enough of them, then reduced by a few kernels for all, and the
numbers are copied to the host while the program goes on; an event says when they are there. So
neither the device nor the program ever waits for one op. What is held costs memory, so it is
bounded, and whoever is about to overwrite held memory has it copied on the device before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from .extent import largest_of
from .seen import Look

_BATCH = 64  # calls that are looked at together
_BATCH_BYTES = 1 << 28
_HELD_BYTES = 1 << 31


def is_immediate(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be looked at at once: in the host's memory, also as an emulated npu."""
    if tensor.is_cpu:
        return True
    return tensor.device.type == "npu" and hasattr(torch.npu, "_npu_core_device")


@contextmanager
def may_wait(device: torch.device) -> Iterator[None]:
    """A close look reads numbers off the device, also where the program has forbidden itself to
    (`torch.cuda.set_sync_debug_mode`). Only calls that are suspicious get one."""
    before = torch.cuda.get_sync_debug_mode() if device.type == "cuda" else 0
    if before:
        torch.cuda.set_sync_debug_mode(0)
    try:
        yield
    finally:
        if before:
            torch.cuda.set_sync_debug_mode(before)


class _Batch(NamedTuple):
    looks: list[Look]
    device: torch.device
    found: torch.Tensor  # on the host, filled when `ready` says so
    ready: torch.Event | None


class Pending:
    """Holds calls in order until their extents are there. settle: is given each then."""

    def __init__(self, settle: Callable[[Look], None]) -> None:
        self._settle = settle
        self._waiting: list[Look] = []
        self._sent: deque[_Batch] = deque()
        self._bytes = 0  # of results in `_waiting`
        self._held = 0  # and in all

    def add(self, look: Look) -> None:
        """A call is to be looked at."""
        look.hold()
        self._waiting.append(look)
        size = _bytes(look)
        self._bytes += size
        self._held += size
        if len(self._waiting) >= _BATCH or self._bytes >= _BATCH_BYTES:
            self._send()
        self._collect()

    def about_to_write(self, tensors: Iterable[torch.Tensor]) -> None:
        """Memory is about to be overwritten: held calls keep what is in it."""
        if not (self._waiting or self._sent):
            return
        tensors = list(tensors)
        for look in (*(look for batch in self._sent for look in batch.looks), *self._waiting):
            look.keep(tensors)

    def finish(self) -> None:
        """Wait for all that is held."""
        self._send()
        while self._sent:
            self._take(self._sent.popleft())

    def _send(self) -> None:
        """Start looking at what waits."""
        looks, self._waiting, self._bytes = self._waiting, [], 0
        if not looks:
            return
        tensors = [tensor for look in looks for _, tensor in look.results]
        found = largest_of(tensors).to("cpu", non_blocking=True)
        device, ready = tensors[0].device, None
        if device.type != "cpu":
            ready = torch.Event(device.type)
            ready.record()
        self._sent.append(_Batch(looks, device, found, ready))

    def _collect(self) -> None:
        """Take what is there; wait only where too much is held."""
        while self._sent:
            batch = self._sent[0]
            if batch.ready is not None and not batch.ready.query():
                if self._held < _HELD_BYTES:
                    return
                batch.ready.synchronize()
            self._take(self._sent.popleft())

    def _take(self, batch: _Batch) -> None:
        if batch.ready is not None:
            batch.ready.synchronize()
        found = iter(batch.found.tolist())
        for look in batch.looks:
            self._held -= _bytes(look)
            largest = [next(found) for _ in look.results]
            look.ranges = [(-one, one) for one in largest]
            look.ask_sources()
            with may_wait(batch.device):
                self._settle(look)


def _bytes(look: Look) -> int:
    return sum(tensor.numel() * tensor.element_size() for _, tensor in look.results)
