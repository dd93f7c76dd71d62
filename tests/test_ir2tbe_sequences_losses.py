"""Losses and dropout as TBE operators, and what is prepared for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tbe_calls import DEVICES, FLOAT, HALF, aten, called, check, drawn, ones


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_nll_loss(reduction, weighted, device):
    x, target = drawn(4, 5, device=device), torch.tensor([0, 4, -100, 2]).to(device)
    weight = ones(5, device) if weighted else None
    given = x, target, weight, reduction, -100
    call = called(aten.nll_loss_forward.default, *given)
    check(call)
    assert call.types == ("OnesLike", "Cast", "NLLLoss")[weighted:]
    assert call.ran.steps[-1].inputs[1].value.dtype is torch.int32
    value, total = call.results
    back = called(aten.nll_loss_backward.default, torch.ones_like(value), *given, total)
    check(back)
    assert back.types == ("OnesLike", "Cast", "NLLLossGrad")[weighted:]


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize("device", DEVICES)
def test_dropout_uses_the_mask_that_was_drawn(device, dtype, p):
    x = drawn(7, 33, device=device, dtype=dtype)
    call = called(aten.native_dropout.default, x, p, True)
    check(call)
    bits = call.ran.steps[0].outputs[0].value.cpu().numpy()
    assert bits.size % 16 == 0
    mask = np.unpackbits(bits, bitorder="little")
    assert np.array_equal(mask[: x.numel()], call.results[1].cpu().numpy().ravel())
    assert not mask[x.numel() :].any()
    scale = 1 / (1 - p) if p < 1 else 0.0
    back = called(aten.native_dropout_backward.default, x, call.results[1], scale)
    check(back)
    assert back.types == (("DropOutDoMask",) if p < 1 else ("ZerosLike",))


def test_dropout_in_evaluation_keeps_all():
    call = called(aten.native_dropout.default, drawn(3, 4), 0.5, False)
    check(call)
    assert float(call.ran.steps[1].inputs[2].value) == 1.0
