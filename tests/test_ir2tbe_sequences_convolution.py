"""Convolutions as TBE operators, forward and backward, of every rank."""

from __future__ import annotations

import pytest
import torch
from tbe_calls import DEVICES, FLOAT, HALF, aten, called, check, drawn, drawn_like

from npu_core.formats import Format

CONVOLUTIONS = {
    "2d": ((2, 4, 6, 5), (6, 4, 3, 3), False, 1, "Conv2D"),
    "1d": ((2, 4, 6), (6, 4, 3), False, 1, "Conv2D"),
    "3d": ((2, 4, 4, 4, 5), (6, 4, 3, 3, 3), False, 1, "Conv3D"),
    "groups": ((2, 6, 6, 5), (4, 3, 3, 3), False, 2, "Conv2D"),
    "depthwise": ((2, 6, 6, 5), (12, 1, 3, 3), False, 6, "Conv2D"),
    "transposed": ((2, 4, 4, 3), (4, 3, 3, 3), True, 1, "Conv2DTranspose"),
    "transposed groups": ((2, 4, 4, 3), (4, 3, 3, 3), True, 2, "Conv2DTranspose"),
    "transposed 1d": ((2, 4, 4), (4, 3, 3), True, 1, "Conv2DTranspose"),
    "transposed 3d": ((2, 4, 3, 3, 4), (4, 3, 2, 2, 2), True, 1, "Conv3DTranspose"),
}


def convolved(name: str, dtype: torch.dtype, device: str) -> tuple:
    shape, weight, transposed, groups, _ = CONVOLUTIONS[name]
    rank = len(shape) - 2
    x, w = (drawn(*s, device=device, dtype=dtype) for s in (shape, weight))
    bias = drawn(weight[1] * groups if transposed else weight[0], device=device, dtype=dtype)
    return x, w, bias, [2] * rank, [1] * rank, [1] * rank, transposed, [0] * rank, groups


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name, dtype, device):
    given = convolved(name, dtype, device)
    call = called(aten.convolution.default, *given)
    check(call)
    (step,) = call.ran.steps
    assert step.op == CONVOLUTIONS[name][-1]
    assert all(port.value.dim() in (1, 4, 5) for port in (*step.inputs, *step.outputs))
    weight = next(p for p in step.inputs if p.value.numel() == given[1].numel())
    assert weight.groups == given[-1]
    assert weight.format is (Format.FRACTAL_Z_3D if "3D" in step.op else Format.FRACTAL_Z)
    attributes = dict(step.attributes)
    assert len(attributes["strides"]) == 2 + len(attributes["pads"]) // 2
    assert attributes["strides"][-1] == 2 and attributes["pads"][-1] == 1


@pytest.mark.parametrize("mask", [[True] * 3, [False, True, True], [True, False, False]])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_backward_is_one_operator_for_each_gradient(name, mask):
    for device, dtype in (("npu", HALF), ("npu", FLOAT), ("cpu", FLOAT)):
        x, w, bias, *numbers = convolved(name, dtype, device)
        grad = drawn_like(aten.convolution.default(x, w, bias, *numbers))
        sizes = list(bias.shape)
        call = called(aten.convolution_backward.default, grad, x, w, sizes, *numbers, mask)
        check(call)
        assert len(call.ran.steps) == sum(mask)
        if mask[0] and CONVOLUTIONS[name][2]:
            assert call.types[0] in ("Conv2D", "Conv3D")


@pytest.mark.parametrize("name", [n for n in CONVOLUTIONS if "1d" not in n])
def test_gradients_of_a_convolution_follow_from_the_operators_inputs(name):
    given = convolved(name, torch.float64, "cpu")
    rank, weight = given[0].dim() - 2, given[1]
    grad = drawn_like(aten.convolution.default(*given))
    call = called(aten.convolution_backward.default, grad, *given[:2], None, *given[3:],
                  [True, True, False])  # fmt: skip
    one, two = call.ran.steps
    how = {"stride": 2, "padding": 1, "groups": given[-1]}
    if CONVOLUTIONS[name][2]:
        x, filters = (port.value for port in one.inputs)
        computed = getattr(torch.nn.functional, f"conv{rank}d")(x, filters, **how)
    else:
        size, filters, back = (port.value for port in one.inputs)
        formula = getattr(torch.nn.grad, f"conv{rank}d_input")
        computed = formula(size.tolist(), filters, back, **how)
    assert torch.allclose(computed, one.outputs[0].value)
    x, size, back = (port.value for port in two.inputs)
    formula = getattr(torch.nn.grad, f"conv{rank}d_weight")
    assert torch.allclose(formula(x, size.tolist(), back, **how), two.outputs[0].value)
    assert two.outputs[0].value.shape == weight.shape
