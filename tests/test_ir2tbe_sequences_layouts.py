"""In which formats the ports of TBE operators are."""

from __future__ import annotations

import pytest
import torch
from tbe_calls import FLOAT, HALF, PROFILES, aten, called, drawn, profile

from npu_core import options
from npu_core.formats import Format


def test_a_label_is_what_an_input_says_where_nobody_asks_for_another():
    x = torch.ops.npu.npu_format_cast(drawn(3, 4), int(Format.FRACTAL_NZ))
    (step,) = called(aten.relu.default, x).ran.steps
    assert [p.format for p in (*step.inputs, *step.outputs)] == [Format.FRACTAL_NZ] * 2
    (step,) = called(aten.relu.default, drawn(1, 2, 3, 4)).ran.steps
    assert step.inputs[0].format is Format.NCHW


@pytest.mark.parametrize("chip", PROFILES)
def test_a_label_stays_where_the_op_writes_in_place(chip):
    with profile(chip):
        labelled = [
            torch.ops.npu.npu_format_cast(drawn(3, 4), int(Format.FRACTAL_NZ)) for _ in "12"
        ]
        calls = [called(aten.relu_.default, labelled[0]),
                 called(aten._foreach_mul_.Scalar, [drawn(5), *labelled], 2)]  # fmt: skip
    for call in calls:
        for step in call.ran.steps:
            for port in (*step.inputs, *step.outputs):
                assert (port.format is Format.FRACTAL_NZ) == (port.value.dim() == 2)


def test_the_chips_own_formats_are_kept_where_it_has_them():
    def formats(chip: str, dtype: torch.dtype) -> list[Format]:
        with profile(chip):
            x, w = drawn(2, 3, 6, 6, dtype=dtype), drawn(4, 3, 3, 3, dtype=dtype)
            numbers = [1, 1], [0, 0], [1, 1], False, [0, 0], 1
            call = called(aten.convolution.default, x, w, None, *numbers)
        (step,) = call.ran.steps
        return [p.format for p in (*step.inputs[:2], *step.outputs)]

    assert formats("910A", HALF) == [Format.NC1HWC0, Format.FRACTAL_Z, Format.NC1HWC0]
    assert formats("910A", FLOAT) == [Format.NCHW, Format.FRACTAL_Z, Format.NCHW]
    assert formats("910B", HALF) == [Format.NCHW] * 3
    with profile("910A"):
        options.set_option({"MM_BMM_ND_ENABLE": "enable"})
        (step,) = called(aten.mm.default, drawn(2, 3), drawn(3, 4)).ran.steps
    assert step.outputs[0].format is Format.ND
