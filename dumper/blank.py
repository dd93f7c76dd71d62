"""Memory that no op has written yet: what `empty` made, until it is filled.

Mostly the next op writes all of it, so nothing but its place is kept. Only a part written brings a
mask of the bytes, by which a strided write and a strided read are both judged exactly. Memory too
large for a mask stays blank until one op writes all of it.
"""

from __future__ import annotations

import numpy as np
import torch

_LARGEST = 1 << 28  # bytes of memory that a mask is made for


class Blank:
    """The bytes [start, end) of a storage, or of them those that `mask` marks."""

    __slots__ = ("start", "end", "mask")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self.mask: np.ndarray | None = None

    def written(self, tensor: torch.Tensor) -> bool:
        """Note that an op wrote `tensor`; whether anything is left blank."""
        start, end = span(tensor)
        if start <= self.start and self.end <= end and _is_dense(tensor, start, end):
            return False
        if end <= self.start or self.end <= start:
            return True
        if self.mask is None:
            if self.end > _LARGEST:
                return True
            self.mask = np.zeros(self.end, bool)
            self.mask[self.start :] = True
        self._seen(tensor, end)[...] = False
        return bool(self.mask.any())

    def over(self, tensor: torch.Tensor) -> bool:
        """Whether any of the tensor's own elements is blank."""
        start, end = span(tensor)
        if start == end or end <= self.start or self.end <= start:
            return False
        if self.mask is not None:
            return bool(self._seen(tensor, end).any())
        return True

    def _seen(self, tensor: torch.Tensor, end: int) -> np.ndarray:
        """The mask of a tensor's bytes, a view of ours as far as ours reaches."""
        mask, size = self.mask, tensor.element_size()
        if end > len(mask):  # memory behind the blank part is not blank
            mask = self.mask = np.concatenate([mask, np.zeros(end - len(mask), bool)])
        steps = (*(step * size for step in tensor.stride()), 1)
        start = tensor.storage_offset() * size
        return np.lib.stride_tricks.as_strided(mask[start:], (*tensor.shape, size), steps)


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes of its storage from a tensor's first element to its last."""
    size = tensor.element_size()
    start = tensor.storage_offset() * size
    if tensor.numel() == 0:
        return start, start
    reach = sum(
        (count - 1) * step for count, step in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return start, start + (reach + 1) * size


def _is_dense(tensor: torch.Tensor, start: int, end: int) -> bool:
    return tensor.numel() * tensor.element_size() >= end - start and 0 not in (
        step for step, count in zip(tensor.stride(), tensor.shape, strict=True) if count > 1
    )
