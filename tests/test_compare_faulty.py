"""A wrong op is the first that differs, in load mode and in a free run, whatever is wrong with it.

Named faults of the emulated device (npu_core.fault) are planted in one call of a step of a real
model family: every kind in two families or more, in ops of every class. What the step computes
after it differs too, and is inherited.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import families
import pytest
from answers import Answer, answer, record

import npu_core
from compare.judging import Kind
from compare.row import Status
from dumper import open_dump
from npu_core.fault_kinds import KINDS


class Planted(NamedTuple):
    """A fault: in which family, kind, op and which of its calls."""

    family: str
    kind: str
    op: str
    nth: int


PLANTED = [
    Planted(*each)
    for each in (
        ("mobilenet", "bias_dropped", "convolution.default", 3),
        ("gru", "bias_dropped", "_thnn_fused_gru_cell.default", 5),
        ("gan", "wrong_epsilon", "native_batch_norm.default", 2),
        ("mobilenet", "wrong_epsilon", "native_batch_norm.default", 9),
        ("gru", "transposed_weight", "mm.default", 90),
        ("resnet", "transposed_weight", "convolution.default", 3),
        ("gru", "fp16_accumulation", "mm.default", 40),
        ("resnet", "fp16_accumulation", "convolution_backward.default", 4),
        ("mobilenet", "one_element_off", "hardswish_.default", 2),
        ("resnet", "one_element_off", "threshold_backward.default", 3),
        ("mobilenet", "one_row_swapped", "native_batch_norm_backward.default", 4),
        ("unet", "one_row_swapped", "max_pool2d_with_indices_backward.default", 1),
        ("resnet", "stale_buffer", "convolution.default", 6),
        ("gru", "stale_buffer", "sigmoid_backward.default", 1),
        ("mobilenet", "sign_flip", "_log_softmax.default", 1),
        ("gru", "sign_flip", "sqrt.default", 3),
        ("mobilenet", "wrong_dtype_cast", "mean.dim", 2),
        ("gan", "wrong_dtype_cast", "tanh.default", 1),
        ("resnet", "nan_in_one_element", "native_batch_norm.default", 4),
        ("mobilenet", "nan_in_one_element", "addmm.default", 1),
        ("gan", "saturate", "convolution_backward.default", 5),
        ("mobilenet", "saturate", "mul.Tensor", 2),
    )
]
