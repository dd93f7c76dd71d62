"""What the device refuses, each in one message instead of PyTorch's list of all backends.

Sparse, quantized and nested tensors have dispatch keys of their own, where npu has no kernels; nor
has it any for the ops of other libraries and of other accelerators. A kernel whose result is of
such a kind is refused where that should become an npu tensor (memory.py).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

_REASONS = {
    "SparsePrivateUse1": "sparse tensors are not emulated on npu",
    "SparseCsrPrivateUse1": "sparse tensors are not emulated on npu",
    "QuantizedPrivateUse1": "quantized tensors are not emulated on npu",
    "NestedTensorPrivateUse1": "nested tensors of strided layout are not emulated on npu",
    "PrivateUse1": "there is no kernel on npu, since aten has none for dense CPU tensors",
}


def libraries() -> list[torch.library.Library]:
    """Register the refusals; they stand as long as the returned objects live."""
    made = []
    for key, reason in _REASONS.items():
        library = torch.library.Library("_", "IMPL", key)
        library.fallback(_refuse(reason))
        made.append(library)
    return made


def _refuse(reason: str) -> Callable:
    def refuse(op: torch._ops.OpOverload, *args: object, **kwargs: object) -> None:
        raise NotImplementedError(f"{op.name()}: {reason}; compute this on the CPU")

    return refuse
