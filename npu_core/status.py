"""The float status register: what overflowed since it was last cleared.

A kernel that overflows sets a bit and computes on; the bits stay until they are cleared. Loss
scaling in saturation mode, where no infinity is left to see, reads this register instead of the
gradients. Atomic adds have a status of their own that the AI Core register does not show. In
INF_NAN mode nothing is noted (inferred: documents only say that nobody reads it there).

Bits: hiascend atlasaccuracy_16_0052. Calls: torch_npu FloatStatusKernelNpu, npu_sys_ctrl.
"""

from __future__ import annotations

import math
import warnings

import torch

from . import options

NEGATE = 0x8  # the most negative integer was negated
INTEGER = 0x10  # integer add, sub, mul, mul-add
VECTOR = 0x20  # floating-point compute
UNSIGNED = 0x80  # a negative float was cast to an unsigned type
CAST = 0x100  # fp32 or int32 cast to fp16
CUBE = 0x400  # accumulation in the cube

_SIZE = 8
_core = 0
_atomic = 0
_recent = 0


def note(bits: int) -> None:
    """Set bits of the AI Core status."""
    global _core, _recent
    _core |= bits
    _recent |= bits


def take_recent() -> int:
    """The AI Core bits noted since this was asked last, also those that were set before.

    For who watches op by op: the register itself is the program's, which may read it in any op.
    """
    global _recent
    bits, _recent = _recent, 0
    return bits


def note_atomic() -> None:
    """Note an overflow in an atomic add, which the AI Core status does not show."""
    global _atomic
    _atomic = 1


def read() -> int:
    """The AI Core bits set since the last `clear`."""
    return _core


def read_atomic() -> int:
    """1 if an atomic add overflowed since the last `clear`, else 0."""
    return _atomic


def clear() -> None:
    """Forget what was noted."""
    global _core, _atomic
    _core = _atomic = 0


def alloc_float_status(tensor: torch.Tensor) -> torch.Tensor:
    """A buffer for `get_float_status`: float32[8] zeros on the device of any npu tensor."""
    return torch.ops.npu.npu_alloc_float_status(tensor)


def get_float_status(tensor: torch.Tensor, mode: int = 0) -> torch.Tensor:
    """The register: 8 numbers, of which [0] holds the bits.

    910A and exact: written into `tensor` (float32[8]), which is returned. 910B, and mode 1
    everywhere: a new int32[8]. Raises ValueError for another mode or another kind of tensor.
    """
    return torch.ops.npu.npu_get_float_status(tensor, mode)


def clear_float_status(tensor: torch.Tensor, mode: int = 0) -> torch.Tensor:
    """Clear the register; returns float32[8] zeros. Raises ValueError for another mode."""
    return torch.ops.npu.npu_clear_float_status(tensor, mode)


def get_overflow_flag() -> bool:
    """Whether anything overflowed since the last clear. Raises RuntimeError in INF_NAN mode."""
    if options.is_support_inf_nan():
        raise RuntimeError(
            "get_npu_overflow_flag is of saturation mode; this device computes with infinity and "
            "NaN (INF_NAN mode): look for them in the gradients, or use npu_check_overflow"
        )
    return bool(get_float_status(torch.zeros(_SIZE, device="npu"))[0].item() != 0)


def clear_overflow_flag() -> None:
    """Clear the register; in INF_NAN mode there is nothing to clear, and a warning says so."""
    if options.is_support_inf_nan():
        warnings.warn(
            "clear_npu_overflow_flag does nothing in INF_NAN mode: the register is not used",
            stacklevel=2,
        )
        return
    clear_float_status(torch.zeros(_SIZE, device="npu"))


def check_overflow(grad: torch.Tensor | float) -> bool:
    """Whether a gradient (or the float sum of one) overflowed, by the rule of the mode in force.

    INF_NAN mode: its sum is not finite. Saturation mode: the register, which is cleared if set.
    """
    if options.is_support_inf_nan():
        total = grad if isinstance(grad, float) else float(grad.float().sum())
        return not math.isfinite(total)
    overflowed = get_overflow_flag()
    if overflowed:
        clear_overflow_flag()
    return overflowed


def _alloc(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros(_SIZE, device="npu")


def _get(tensor: torch.Tensor, mode: int = 0) -> torch.Tensor:
    _check(tensor, mode)
    with torch._C.DisableTorchFunction():
        if mode == 1 or options.profile() == "910B":
            tensor = torch.zeros(_SIZE, dtype=torch.int32, device="npu")
        tensor.zero_()
        tensor[0] = _core
    return tensor


def _clear(tensor: torch.Tensor, mode: int = 0) -> torch.Tensor:
    _check(tensor, mode)
    clear()
    with torch._C.DisableTorchFunction():
        return torch.zeros(_SIZE, device="npu")


def _check(tensor: torch.Tensor, mode: int) -> None:
    if mode not in (0, 1):
        raise ValueError(f"mode={mode}: 0 is the status register, 1 the debug status")
    if tensor.dtype is not torch.float32 or tensor.shape != (_SIZE,):
        raise ValueError(
            f"a float status is float32[{_SIZE}] on npu, as npu_alloc_float_status makes it; got "
            f"{tensor.dtype} of shape {list(tensor.shape)}"
        )


def register(library: torch.library.Library) -> None:
    """Make the three calls ops of namespace `npu`, as they are on the device: dumps show them."""
    for name, schema, kernel in (
        ("npu_alloc_float_status", "(Tensor self) -> Tensor", _alloc),
        ("npu_get_float_status", "(Tensor(a!) self, int mode=0) -> Tensor", _get),
        ("npu_clear_float_status", "(Tensor self, int mode=0) -> Tensor", _clear),
    ):
        library.define(name + schema)
        library.impl(name, kernel, "PrivateUse1")
