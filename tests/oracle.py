"""The CPU as the oracle of the emulated npu: the same bits, in the same layout."""

from __future__ import annotations

from collections.abc import Callable

import torch

Tensors = torch.Tensor | tuple[torch.Tensor, ...] | list[torch.Tensor]


def each(result: Tensors) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def assert_same(on_npu: Tensors, on_cpu: Tensors) -> None:
    """Bit-equal, in the same layout, and on npu."""
    for mine, other in zip(each(on_npu), each(on_cpu), strict=True):
        assert (mine.device.type, other.device.type) == ("npu", "cpu")
        assert (mine.dtype, mine.shape, mine.stride()) == (other.dtype, other.shape, other.stride())
        torch.testing.assert_close(mine.cpu(), other, rtol=0, atol=0, equal_nan=True)


def on_both(run: Callable[[str], Tensors]) -> None:
    """`run(device)` from one seed gives the same on both devices."""
    results = []
    for device in ("npu", "cpu"):
        torch.manual_seed(0)
        results.append(run(device))
    assert_same(*results)


def gradient(view: Callable[[torch.Tensor], Tensors], x: torch.Tensor) -> torch.Tensor:
    x.requires_grad_()
    sum((part * part).abs().sum() for part in each(view(x * 1))).backward()
    return x.grad
