"""The float status register of an npu in saturation mode, through the ops that torch_npu has.

There no infinity is left to see, so the register is cleared before each op and read after it, as
the original did. Whoever else reads it (a dynamic loss scale) would see what we left: nothing. So
what was seen since the program last cleared it is put back before the program reads it, in the one
way that a device offers: by an overflow. The emulated device has the same ops, so this is one
path.

AI Core only: what atomic adds overflow has a status of its own, which is not counted.
"""

from __future__ import annotations

import torch

READERS = ("npu::npu_get_float_status", "aten::_amp_foreach_non_finite_check_and_unscale_")
"""Ops by which a program reads the register."""

CLEARER = "npu::npu_clear_float_status"

_LARGEST = 65504.0  # of float16


def register() -> Register | None:
    """The register of this process's npu; None where there is none, or it is not used (INF_NAN)."""
    if not (hasattr(torch, "npu") and torch.npu.is_available()):
        return None
    if torch.npu.utils.is_support_inf_nan():
        return None
    found = Register()
    found.read()  # what was there before the context is the program's
    return found


class Register:
    """Clears and reads the register around ops; remembers what the program is to find in it."""

    def __init__(self) -> None:
        self._buffer: torch.Tensor | None = None
        self._owed = 0  # bits seen since the program last cleared the register

    def clear(self) -> None:
        """Before an op."""
        torch.ops.npu.npu_clear_float_status(self._status())

    def read(self) -> int:
        """After an op: the bits it set."""
        found = self.peek()
        self._owed |= found
        return found

    def peek(self) -> int:
        """The bits set by what was run on trial, which the program is not to find."""
        return int(torch.ops.npu.npu_get_float_status(self._status())[0].item())

    def before_reader(self) -> None:
        """The program is about to read the register: let it find what there was."""
        self.clear()
        if self._owed:
            torch.full((1,), _LARGEST, dtype=torch.float16, device="npu").mul(2)

    def after_reader(self) -> None:
        """The program has read the register, and may have cleared it."""
        if not self.peek():
            self._owed = 0

    def cleared(self) -> None:
        """The program has cleared the register."""
        self._owed = 0

    def put_back(self) -> None:
        """The checking ends: leave the register as the program would find it without it."""
        self.before_reader()

    def _status(self) -> torch.Tensor:
        if self._buffer is None:
            any_tensor = torch.zeros(1, device="npu")
            self._buffer = torch.ops.npu.npu_alloc_float_status(any_tensor)
        return self._buffer
