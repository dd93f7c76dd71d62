"""Pinned host memory: `pin_memory()` and DataLoader(pin_memory=True), as on a real device.

Where there is an accelerator torch asks it for page-locked memory, through C++ that no backend in
Python can provide. The emulator's memory is the host's anyway: to pin is to copy, and to remember
which storages say they are pinned. Factories (`torch.empty(2, pin_memory=True)`) ask the missing
C++ directly and fail.
"""

from __future__ import annotations

import weakref

import torch

_pinned: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()


def register(library: torch.library.Library) -> None:
    """Take over the two ops behind pinning; library: aten under the key CPU."""
    library.impl("_pin_memory", _pin_memory)
    library.impl("is_pinned", _is_pinned)


def _pin_memory(self: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    with torch._C.DisableTorchFunction():
        copied = torch.empty_like(self).copy_(self)
        _pinned.add(copied.untyped_storage())
    return copied


def _is_pinned(self: torch.Tensor, device: torch.device | None = None) -> bool:
    with torch._C.DisableTorchFunction():
        return self.untyped_storage() in _pinned
