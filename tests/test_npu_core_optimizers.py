"""`torch_npu.optim` against the optimizers' formulas in numpy."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from formulas import close, random
from torch import nn

from npu_core.ascend import torch_npu

pytestmark = pytest.mark.usefixtures("exact")


# Three steps of each against its formula


class Sgd:
    def __call__(self, t: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        g = g + 0.1 * w
        self.b = g if t == 1 else 0.9 * self.b + g
        return w - 0.05 * self.b


class Moments:
    def mean(self, g: np.ndarray, b1: float = 0.9, b2: float = 0.999) -> tuple:
        self.m = (1 - b1) * g + b1 * getattr(self, "m", 0.0)
        self.v = (1 - b2) * g**2 + b2 * getattr(self, "v", 0.0)
        return self.m, self.v


class Adam(Moments):
    decoupled = False

    def __call__(self, t: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        m, v = self.mean(g if self.decoupled else g + 0.1 * w)
        w = w * (1 - 0.05 * 0.1) if self.decoupled else w
        return w - 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)


class AdamW(Adam):
    decoupled = True


class Adadelta:
    s = d = 0.0

    def __call__(self, t: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        g = g + 0.1 * w
        self.s = 0.9 * self.s + 0.1 * g**2
        step = np.sqrt(self.d + 1e-6) / np.sqrt(self.s + 1e-6) * g
        self.d = 0.9 * self.d + 0.1 * step**2
        return w - 0.05 * step


class RmsProp:
    s = b = 0.0

    def __call__(self, t: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        g = g + 0.1 * w
        self.s = 0.99 * self.s + 0.01 * g**2
        self.b = 0.9 * self.b + g / (np.sqrt(self.s) + 1e-8)
        return w - 0.05 * self.b


class Lamb(Moments):
    adam = False

    def __call__(self, t: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        m, v = self.mean(g)
        step = m / (np.sqrt(v) + 1e-6) + 0.1 * w
        norms = min(np.linalg.norm(w), 10), np.linalg.norm(step)
        trust = 1 if self.adam or 0 in norms else norms[0] / norms[1]
        return w - 0.05 * trust * step


class LambAsAdam(Lamb):
    adam = True


class BertAdam(Moments):
    def __call__(self, t: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        m, v = self.mean(g)
        x = (t - 1) / 4
        rate = x / 0.3 if x < 0.3 else (x - 1) / (0.3 - 1)
        return w - 0.05 * rate * (m / (np.sqrt(v) + 1e-6) + 0.1 * w)


OPTIMIZERS = {
    "NpuFusedSGD": (Sgd, {"momentum": 0.9}),
    "NpuFusedAdam": (Adam, {}),
    "NpuFusedAdamW": (AdamW, {}),
    "NpuFusedAdadelta": (Adadelta, {}),
    "NpuFusedRMSprop": (RmsProp, {"momentum": 0.9}),
    "NpuFusedLamb": (Lamb, {}),
    "NpuFusedLamb adam": (LambAsAdam, {"adam": True}),
    "NpuFusedBertAdam": (BertAdam, {"warmup": 0.3, "t_total": 4, "max_grad_norm": -1}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_three_steps_of_an_optimizer(name: str) -> None:
    formula, options = OPTIMIZERS[name]
    weights = [nn.Parameter(random(3, 4)), nn.Parameter(20 * random(5, seed=1)),
               nn.Parameter(torch.zeros(2, dtype=torch.float64, device="npu"))]  # fmt: skip
    expected = [w.detach().cpu().numpy().copy() for w in weights]
    formulas = [formula() for _ in weights]
    kind = getattr(torch_npu.optim, name.partition(" ")[0])
    optimizer = kind(weights, lr=0.05, weight_decay=0.1, **options)
    for t in range(1, 4):
        for i, w in enumerate(weights):
            w.grad = random(*w.shape, seed=10 * t + i)
            expected[i] = formulas[i](t, expected[i], w.grad.cpu().numpy())
        assert optimizer.step(lambda: "loss") == "loss"
    assert all(close(w, e, 1e-10) for w, e in zip(weights, expected, strict=True))
    before = [w.clone() for w in weights]
    optimizer.zero_grad()
    optimizer.step()
    assert all(torch.equal(w, b) for w, b in zip(weights, before, strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_resumes_from_its_state(name: str) -> None:
    _, options = OPTIMIZERS[name]
    kind = getattr(torch_npu.optim, name.partition(" ")[0])

    def run(resume: bool) -> torch.Tensor:
        weight = nn.Parameter(random(3, 4))
        optimizer = kind([weight], lr=0.05, **options)
        for t in range(4):
            if resume and t == 2:
                state = optimizer.state_dict()
                optimizer = kind([weight], lr=1.0, **options)
                optimizer.load_state_dict(state)
            weight.grad = random(3, 4, seed=t)
            optimizer.step()
        return weight.detach()

    assert torch.equal(run(resume=True), run(resume=False))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_a_copied_optimizer_steps_as_the_first(name: str, copied: Callable) -> None:
    kind = getattr(torch_npu.optim, name.partition(" ")[0])
    weight = nn.Parameter(random(3, 4))
    first = kind([weight], lr=0.05, **OPTIMIZERS[name][1])
    second = copied(first)
    (other,) = second.param_groups[0]["params"]
    for w, optimizer in ((weight, first), (other, second)):
        w.grad = random(3, 4, seed=1)
        optimizer.step()
    assert torch.equal(weight, other)


def test_lambs_norms_of_half_weights_do_not_overflow() -> None:
    weights = [nn.Parameter(torch.full((300, 300), 2.0, dtype=dtype, device="npu"))
               for dtype in (torch.half, torch.float)]  # fmt: skip
    for w in weights:
        w.grad = torch.ones_like(w)
        torch_npu.optim.NpuFusedLamb([w], lr=0.5).step()
    assert weights[1].amax().item() < 1.99
    assert torch.allclose(weights[0].float(), weights[1], atol=2e-3)


@pytest.mark.parametrize("size", [0.01, 10.0])
def test_norms_that_clip(size: float) -> None:
    grads = [size * random(3), size * random(4, seed=1)]
    norm = math.sqrt(sum(g.pow(2).sum().item() for g in grads))

    def after(kind: type, scale: float, **options: float) -> list[torch.Tensor]:
        weights = [nn.Parameter(random(*g.shape, seed=5)) for g in grads]
        for w, g in zip(weights, grads, strict=True):
            w.grad = g * scale
        optimizer = kind(weights, **options)
        optimizer.step()
        return [t.cpu() for w in weights for t in (optimizer.state[w]["exp_avg"], w.detach())]

    bert, lamb = torch_npu.optim.NpuFusedBertAdam, torch_npu.optim.NpuFusedLamb
    clipped = after(bert, 1.0, max_grad_norm=1.0)
    by_hand = after(bert, min(1.0, 1 / (norm + 1e-6)), max_grad_norm=-1)
    divided = after(lamb, 1.0, use_global_grad_norm=True)
    lamb_by_hand = after(lamb, 1 / max(1.0, norm))
    for ours, theirs in zip(clipped + divided, by_hand + lamb_by_hand, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=0)


def test_the_fused_clipping_of_gradients() -> None:
    weights = [nn.Parameter(random(3)), nn.Parameter(random(4, seed=1))]
    for i, w in enumerate(weights):
        w.grad = random(*w.shape, seed=i + 5)
    norm = torch.cat([w.grad for w in weights]).norm().item()
    optimizer = torch_npu.optim.NpuFusedSGD(weights, lr=0.1)
    assert optimizer.clip_grad_norm_fused_(0.5).item() == pytest.approx(norm)
    assert torch.cat([w.grad for w in weights]).norm().item() == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("NpuFusedLamb", {"lr": -1.0}, ValueError),
        ("NpuFusedLamb", {"betas": (1.0, 0.9)}, ValueError),
        ("NpuFusedLamb", {"eps": -1e-9}, ValueError),
        ("NpuFusedBertAdam", {"lr": -1.0}, ValueError),
        ("NpuFusedBertAdam", {"b2": 1.0}, ValueError),
        ("NpuFusedBertAdam", {"warmup": 1.0}, ValueError),
        ("NpuFusedBertAdam", {"warmup": -0.5}, ValueError),
        ("NpuFusedBertAdam", {"t_total": 0}, ValueError),
        ("NpuFusedBertAdam", {"t_total": -2}, ValueError),
        ("NpuFusedBertAdam", {"schedule": "none"}, ValueError),
        ("NpuFusedSGD", {"lr": -1.0}, ValueError),
        ("NpuFusedAdam", {"eps": -1.0}, ValueError),
        ("NpuFusedSGD", {"lr": 0.1, "nesterov": True}, TypeError),
        ("NpuFusedSGD", {}, TypeError),
    ],
)
def test_optimizers_refuse_what_their_documents_exclude(
    name: str, options: dict, error: type
) -> None:
    with pytest.raises(error):
        getattr(torch_npu.optim, name)([nn.Parameter(random(2))], **options)


@pytest.mark.parametrize("schedule", ["cosine", "constant", "linear", "poly"])
def test_schedules_rise_to_the_rate_and_end_at_theirs(schedule: str) -> None:
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64, device="npu"))
    optimizer = torch_npu.optim.NpuFusedBertAdam(
        [weight], lr=1.0, warmup=0.5, t_total=8, schedule=f"warmup_{schedule}", weight_decay=0,
        b1=0.0, b2=0.0, e=0.0, max_grad_norm=-1,
    )  # fmt: skip
    steps = []
    for _ in range(10):  # one more than the schedule is long
        weight.grad = torch.ones_like(weight)
        before = weight.item()
        optimizer.step()
        steps.append(before - weight.item())
    assert steps[:4] == pytest.approx([0, 0.25, 0.5, 0.75])
    ends = {"cosine": (0.5, 0.0), "constant": (1, 1), "linear": (1, 0), "poly": (0.5**0.5, 0)}
    assert (steps[4], steps[8]) == pytest.approx(ends[schedule], abs=1e-12)
