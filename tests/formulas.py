"""What the tests of documented formulas share: seeded inputs on npu, and numpy to compare with."""

from __future__ import annotations

import numpy as np
import torch


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Normal numbers on npu, the same at every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).npu()


def close(ours: torch.Tensor, theirs: np.ndarray, tolerance: float = 1e-12) -> bool:
    """Whether a tensor has the shape and, within a relative and absolute tolerance, the values."""
    values = ours.detach().cpu().double().numpy()
    return values.shape == theirs.shape and np.allclose(values, theirs, tolerance, tolerance)


def softmax(x: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)
