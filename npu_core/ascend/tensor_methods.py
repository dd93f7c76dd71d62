"""What Ascend's scripts expect on torch's own classes beyond `.npu()`, which PyTorch generates.

Methods of the 1.5 fork on tensors, `use_npu` of the old profiler, `record_stream`, printing, and
npu types as default tensor type.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from .. import storage
from . import tensor_types


def claim(aten: torch.library.Library) -> None:
    """Add the methods, and the one aten kernel they need; called once, at registration."""
    torch.Tensor.npu_format_cast = _npu_format_cast
    torch.Tensor.npu_format_cast_ = _npu_format_cast_
    torch.Tensor.npu_dtype_cast = _npu_dtype_cast
    # Lazy parameters allow the methods that move a tensor, by this list.
    torch.nn.parameter.UninitializedTensorMixin._allowed_methods.append(torch.Tensor.npu)
    # The stream's work is done when a call returns: there is no memory to keep until later.
    aten.impl("record_stream", lambda tensor, stream: None)
    _accept_use_npu(torch.autograd.profiler.profile)
    _print_from_host()
    tensor_types.claim_default_type()


def _npu_format_cast(self: torch.Tensor, acl_format: int | torch.Tensor) -> torch.Tensor:
    """The tensor in another storage format; see `torch_npu.npu_format_cast`."""
    return storage.format_cast(self, acl_format)


def _npu_format_cast_(self: torch.Tensor, acl_format: int | torch.Tensor) -> torch.Tensor:
    """Change the storage format in place; see `torch_npu.npu_format_cast_`."""
    return storage.format_cast_(self, acl_format)


def _npu_dtype_cast(self: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor in another dtype."""
    return self.to(dtype)


def _accept_use_npu(profile: type) -> None:
    """Let the profiler take `use_npu`, which torch 2 has no more: npu ops show as CPU ops."""
    init = profile.__init__

    @functools.wraps(init)
    def accepting(self: Any, *args: Any, use_npu: bool = False, **kwargs: Any) -> None:
        init(self, *args, **kwargs)

    profile.__init__ = accepting


def _print_from_host() -> None:
    """Let printing look at a copy on the host, as torch_npu does: computing on the device notes
    overflow, and 910A computes no bfloat16.
    """
    text = torch._tensor_str._tensor_str

    @functools.wraps(text)
    def from_host(self: torch.Tensor, indent: int) -> str:
        return text(self.cpu() if self.device.type == "npu" else self, indent)

    torch._tensor_str._tensor_str = from_host
