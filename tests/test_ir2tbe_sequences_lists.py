"""Fused optimizers and copies of lists as TBE operators."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tbe_calls import DEVICES, aten, called, check, drawn
from torch import Tensor


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("found", [0.0, 1.0])
def test_a_fused_optimizer_divides_by_the_scale_and_skips(found, device):
    def lists() -> list[Tensor]:
        return [torch.rand(3, 4).to(device) + 0.5, torch.rand(5).to(device) + 0.5]

    one = partial(torch.tensor, device=device)
    scaled = {"grad_scale": one(4.0), "found_inf": one(found)}
    adam = called(aten._fused_adam_.default, lists(), lists(), lists(), lists(), [],
                  [one(3.0), one(3.0)], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8,
                  amsgrad=False, maximize=True, **scaled)  # fmt: skip
    check(adam)
    sgd = called(aten._fused_sgd_.default, lists(), lists(), lists(), weight_decay=0.1,
                 momentum=0.9, lr=0.1, dampening=0.1, nesterov=False, maximize=False,
                 is_first_step=False, **scaled)  # fmt: skip
    check(sgd)
    for call in (adam, sgd):
        assert call.types[:1] == (() if found else ("RealDiv",))


def test_copies_of_lists_are_casts():
    call = called(aten._foreach_copy_.default, [drawn(3), drawn(2)], [drawn(3).half(), drawn(2)])
    assert call.types == ("Cast",) and call.ran.steps[0].outputs[0].result == 0
