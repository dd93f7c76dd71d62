"""`torch.npu.utils`: how overflow shows on the chip, under the names scripts import from there."""

from __future__ import annotations

from ..options import is_support_inf_nan
from ..status import check_overflow as npu_check_overflow
from ..status import clear_overflow_flag as clear_npu_overflow_flag
from ..status import get_overflow_flag as get_npu_overflow_flag

__all__ = [
    "clear_npu_overflow_flag",
    "get_npu_overflow_flag",
    "is_support_inf_nan",
    "npu_check_overflow",
]
