"""Loss scaling on npu: by the register in saturation mode, by sums in INF_NAN mode, PyTorch's else.

Gradients are made by a parameter and a factor: the loss `(parameter * factor).sum()` has `factor`
as its gradient, and in fp16 a factor times the scale overflows where a test wants it.
"""

from __future__ import annotations

import copy
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import npu_core
from npu_core import amp, status

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = "Gradient overflow. Skipping step"


@pytest.fixture(autouse=True)
def saturating() -> Iterator[None]:
    with npu_core.use("910A"):
        torch.npu.init()  # says once that it emulates, which is no message of the scaler's
        status.clear()
        yield
        status.clear()


class Trainee:
    """One fp32 parameter whose gradient passes through fp16, and its optimizer."""

    def __init__(self, device: str = "npu") -> None:
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0], device=device))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.5)

    def loss(self, factor: float) -> torch.Tensor:
        return (self.weight.half() * factor).float().sum()

    def values(self) -> list[float]:
        return self.weight.detach().tolist()


def step(scaler: torch.amp.GradScaler, trainee: Trainee, factor: float) -> None:
    """A step whose gradient is `factor`; with the scale on it, it may overflow fp16."""
    trainee.optimizer.zero_grad()
    scaler.scale(trainee.loss(factor)).backward()
    scaler.step(trainee.optimizer)
    scaler.update()


def make(kind: str, scale: float = 1024.0, **options: object) -> torch.amp.GradScaler:
    if kind == "torch":
        return torch.amp.GradScaler("npu", init_scale=scale, **options)
    return amp.GradScaler(init_scale=scale, **options)


kinds = pytest.mark.parametrize("kind", ["torch", "torch_npu"])


# Saturation mode


@kinds
@pytest.mark.parametrize(("factor", "overflows"), [(63.0, False), (64.0, True)])
def test_overflow_skips_the_step_and_halves_the_scale(
    kind: str, factor: float, overflows: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scaler, trainee = make(kind), Trainee()  # 64 * 1024 is the first that fp16 does not hold
    trainee.optimizer.zero_grad()
    scaler.scale(trainee.loss(factor)).backward()
    assert trainee.weight.grad.isfinite().all()  # nothing to see in the gradients
    assert (status.read() != 0) is overflows
    scaler.step(trainee.optimizer)
    assert scaler._has_overflow is overflows
    scaler.update()
    assert scaler._has_overflow is False
    if overflows:
        assert trainee.values() == [1.0, 2.0] and scaler.get_scale() == 512.0
        assert trainee.weight.grad.tolist() == [65504.0, 65504.0]  # not unscaled
        assert caplog.messages == [SKIPPED, "Loss scaler reducing loss scale to 512.0"]
    else:
        assert trainee.values() == [1 - factor / 2, 2 - factor / 2]
        assert scaler.get_scale() == 1024.0 and caplog.messages == []
    assert status.read() == 0


@kinds
def test_overflow_before_the_first_scale_does_not_count(kind: str) -> None:
    scaler, trainee = make(kind), Trainee()
    torch.exp(torch.full((4,), 12.0, dtype=torch.float16, device="npu"))
    assert status.read() != 0
    step(scaler, trainee, 2.0)
    assert trainee.values() == [0.0, 1.0]


@kinds
def test_later_losses_of_a_step_clear_nothing(kind: str) -> None:
    scaler, trainee = make(kind), Trainee()
    scaler.scale(trainee.loss(64.0)).backward()
    scaler.scale(trainee.loss(1.0)).backward()
    scaler.step(trainee.optimizer)
    scaler.update()
    assert (trainee.values(), scaler.get_scale()) == ([1.0, 2.0], 512.0)
    scaled = scaler.scale([trainee.loss(1.0), (trainee.loss(2.0),)])
    assert [scaled[0].item(), scaled[1][0].item()] == [512 * 3.0, 512 * 6.0]


@kinds
@pytest.mark.parametrize("profile", ["910A", "910B", "exact"])
def test_optimizers_after_the_overflow(kind: str, profile: str) -> None:
    with npu_core.use(profile):
        scaler, first, second, third = make(kind), Trainee(), Trainee(), Trainee()
        third.weight.requires_grad_(False)
        scaler.scale(first.loss(64.0) + second.loss(1.0)).backward()
        for trainee in (first, second):
            scaler.step(trainee.optimizer)
        if profile == "exact":
            with pytest.raises(AssertionError, match="No inf checks"):
                scaler.step(third.optimizer)  # has no gradients
        else:
            scaler.step(third.optimizer)
        scaler.update()
        assert first.values() == [1.0, 2.0]
        assert second.values() == ([0.5, 1.5] if profile == "exact" else [1.0, 2.0])
        assert scaler.get_scale() == 512.0


@kinds
def test_clipping_between_unscale_and_step(kind: str) -> None:
    scaler, trainee = make(kind), Trainee()
    scaler.scale(trainee.loss(8.0)).backward()
    scaler.unscale_(trainee.optimizer)
    assert trainee.weight.grad.tolist() == [8.0, 8.0]
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(trainee.optimizer)
    norm = nn.utils.clip_grad_norm_([trainee.weight], 1.0)
    assert norm.item() == pytest.approx(8 * math.sqrt(2))
    scaler.step(trainee.optimizer)
    scaler.update()
    assert trainee.values() == pytest.approx([1 - math.sqrt(0.125), 2 - math.sqrt(0.125)])


@kinds
def test_overflow_is_read_once_by_an_early_unscale(kind: str) -> None:
    scaler, trainee = make(kind), Trainee()
    scaler.scale(trainee.loss(64.0)).backward()
    scaler.unscale_(trainee.optimizer)
    assert status.read() == 0 and scaler._has_overflow
    scaler.step(trainee.optimizer)
    scaler.update()
    assert (trainee.values(), scaler.get_scale()) == ([1.0, 2.0], 512.0)


def test_atomic_adds_do_not_count() -> None:
    scaler, trainee = make("torch"), Trainee()
    scaler.scale(trainee.loss(1.0)).backward()
    status.note_atomic()
    scaler.step(trainee.optimizer)
    assert trainee.values() == [0.5, 1.5]


def test_fused_optimizer_skips_too() -> None:
    def train(factor: float) -> list[float]:
        scaler, trainee = make("torch"), Trainee()
        trainee.optimizer = torch.optim.SGD([trainee.weight], lr=0.5, fused=True)
        step(scaler, trainee, factor)
        return trainee.values()

    assert (train(2.0), train(64.0)) == ([0.0, 1.0], [1.0, 2.0])


def test_saturation_forced_on_910b_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INF_NAN_MODE_ENABLE", "0")
    monkeypatch.setenv("INF_NAN_MODE_FORCE_DISABLE", "1")
    with npu_core.use("910B"):
        scaler, trainee = make("torch"), Trainee()
        scaler.scale(trainee.loss(64.0)).backward()
        assert trainee.weight.grad.isfinite().all()
        scaler.step(trainee.optimizer)
        assert trainee.values() == [1.0, 2.0]


# INF_NAN mode


@kinds
@pytest.mark.parametrize(("factor", "overflows"), [(63.0, False), (64.0, True)])
def test_infinity_in_a_gradient_counts_in_inf_nan_mode(
    kind: str, factor: float, overflows: bool
) -> None:
    with npu_core.use("910B"):
        scaler, trainee = make(kind), Trainee()
        status.note(status.VECTOR)  # nobody reads it here
        step(scaler, trainee, factor)
        assert trainee.values() == ([1.0, 2.0] if overflows else [1 - factor / 2, 2 - factor / 2])
        assert scaler.get_scale() == (512.0 if overflows else 1024.0)


@pytest.mark.parametrize(("profile", "skips"), [("910B", True), ("exact", False)])
def test_a_sum_that_overflows_counts_in_inf_nan_mode(profile: str, skips: bool) -> None:
    with npu_core.use(profile):
        trainee, scaler = Trainee(), make("torch", 2.0)
        scaler.scale(trainee.weight.sum()).backward()
        trainee.weight.grad.fill_(3e38)
        scaler.step(trainee.optimizer)
        assert (trainee.values() == [1.0, 2.0]) is skips


# exact


@pytest.mark.parametrize("interval", [2, 100])
def test_exact_has_pytorchs_bits(interval: int) -> None:
    def train(device: str) -> list[tuple]:
        scaler = torch.amp.GradScaler(device, init_scale=3e4, growth_interval=interval)
        trainee, seen = Trainee(device), []
        for factor in (1.0, 3.0, 0.1, math.inf, 2.0, 0.3, 0.7, math.nan, 1e-3):
            step(scaler, trainee, factor)
            seen.append((trainee.values(), trainee.weight.grad.tolist(), scaler.state_dict()))
        return seen

    with npu_core.use("exact"):
        on_cpu, on_npu = train("cpu"), train("npu")
    assert str(on_npu) == str(on_cpu)  # text: NaN equals nothing


@given(st.floats(2.0**-100, 2.0**100, width=32))
def test_reciprocal_in_float32_is_the_rounded_one_of_float64(scale: float) -> None:
    x = torch.tensor(scale)
    assert x.reciprocal().item() == x.double().reciprocal().float().item()


@given(
    st.lists(st.integers(-1600, 1600).map(lambda i: i / 16), min_size=1, max_size=5),
    st.floats(2.0**-10, 2.0**10, width=32),
    st.sampled_from(["910A", "910B", "exact"]),
)
def test_unscaled_gradients_are_the_product_with_the_reciprocal(
    values: list[float], scale: float, profile: str
) -> None:
    with npu_core.use(profile):
        weight = nn.Parameter(torch.zeros(len(values), device="npu"))
        optimizer, scaler = torch.optim.SGD([weight], lr=1.0), make("torch", scale)
        factor = torch.tensor(values)
        scaler.scale((weight * factor.npu()).sum()).backward()
        scaler.unscale_(optimizer)
        assert torch.equal(weight.grad.cpu(), factor * scale * torch.tensor(scale).reciprocal())


# The scale


@kinds
def test_grows_after_enough_steps_in_a_row(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    scaler, trainee = make(kind, growth_interval=3, growth_factor=4.0), Trainee()
    scales = []
    for factor in (1.0, 1.0, 64.0, 1.0, 1.0, 1.0, 1.0):
        step(scaler, trainee, factor)
        scales.append(scaler.get_scale())
    assert scales == [1024.0, 1024.0, 512.0, 512.0, 512.0, 2048.0, 2048.0]
    assert caplog.messages[2:] == ["Loss scaler increasing loss scale to 2048.0"]


@kinds
@pytest.mark.parametrize("tensor", [False, True])
def test_new_scale_by_hand(kind: str, tensor: bool, caplog: pytest.LogCaptureFixture) -> None:
    scaler, trainee = make(kind), Trainee()
    scaler.scale(trainee.loss(64.0)).backward()
    scaler.step(trainee.optimizer)
    scaler.update(torch.tensor(8.0, device="npu") if tensor else 8.0)
    assert scaler.get_scale() == 8.0 and caplog.messages == [SKIPPED]
    step(scaler, trainee, 64.0)  # holds now
    assert trainee.values() == [-31.0, -30.0]


@kinds
def test_update_before_any_scale_is_an_error(kind: str) -> None:
    with pytest.raises(AssertionError, match="_scale is None"):
        make(kind).update()


@pytest.mark.parametrize("profile", ["910A", "910B", "exact"])
def test_static_scale_looks_for_nothing(profile: str, caplog: pytest.LogCaptureFixture) -> None:
    with npu_core.use(profile):
        scaler, trainee = make("torch_npu", 1024.0, dynamic=False, growth_interval=1), Trainee()
        status.note(status.VECTOR)
        step(scaler, trainee, 2.0)
        assert (trainee.values(), scaler.get_scale()) == ([0.0, 1.0], 1024.0)
        step(scaler, trainee, 64.0)
        assert trainee.values() != [0.0, 1.0] and scaler.get_scale() == 1024.0
        assert caplog.messages == [] and status.read() & status.VECTOR
        scaler.update(4.0)
        assert scaler.get_scale() == 4.0


@pytest.mark.parametrize("dynamic", [False, True])
def test_fp16_gradients_are_refused(dynamic: bool) -> None:
    weight = nn.Parameter(torch.ones(2, dtype=torch.float16, device="npu"))
    optimizer, scaler = torch.optim.SGD([weight], lr=1.0), amp.GradScaler(8.0, dynamic=dynamic)
    scaler.scale(weight.sum()).backward()
    with pytest.raises(ValueError, match="unscale FP16 gradients"):
        scaler.step(optimizer)


@kinds
def test_not_enabled_it_does_nothing(kind: str) -> None:
    scaler, trainee = make(kind, enabled=False), Trainee()
    status.note(status.VECTOR)
    step(scaler, trainee, 2.0)
    assert trainee.values() == [0.0, 1.0] and scaler.state_dict() == {}
    assert status.read() == status.VECTOR and scaler.get_scale() == 1.0
    scaler.load_state_dict({})


# What it is


def test_torchs_name_makes_the_devices_class_for_npu_only() -> None:
    class Own(torch.amp.GradScaler):
        def __init__(self, mark: int, device: str) -> None:
            super().__init__(device)
            self.mark = mark

    for scaler in (torch.amp.GradScaler("npu"), torch.amp.GradScaler(device="npu:0")):
        assert type(scaler) is amp.NpuGradScaler and isinstance(scaler, torch.amp.GradScaler)
        assert scaler.get_scale() == 2.0**16
    assert type(torch.amp.GradScaler("cpu")) is torch.amp.GradScaler
    assert type(Own(3, device="npu")) is Own
    assert isinstance(amp.GradScaler(), amp.NpuGradScaler)


def test_torch_npus_order_of_arguments() -> None:
    scaler = amp.GradScaler(8.0, 3.0, 0.25, 7, False, True)
    assert scaler.state_dict() == {
        "scale": 8.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 7,
        "_growth_tracker": 0, "dynamic": False,
    }  # fmt: skip
    assert not amp.GradScaler(enabled=False).is_enabled()


@kinds
@pytest.mark.parametrize("copying", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_train_on_alike(kind: str, copying) -> None:  # noqa: ANN001
    scaler, trainee = make(kind, growth_interval=3), Trainee()
    step(scaler, trainee, 64.0)
    step(scaler, trainee, 1.0)
    other = copying(scaler)
    fresh = make(kind)
    fresh.load_state_dict(scaler.state_dict())
    assert type(other) is type(scaler)
    for same in (scaler, other, fresh):
        again = Trainee()
        for factor in (1.0, 1.0, 127.0):
            step(same, again, factor)
    assert scaler.state_dict() == other.state_dict() == fresh.state_dict()
    assert scaler.get_scale() == 512.0  # grown to 1024, and halved again


def test_state_of_another_devices_scaler_loads() -> None:
    state = torch.amp.GradScaler("cpu", init_scale=32.0).state_dict()
    scaler = amp.GradScaler(dynamic=False)
    scaler.load_state_dict(state)
    assert scaler.state_dict() == {**state, "dynamic": False}
    torch.amp.GradScaler("cpu").load_state_dict(scaler.state_dict())
    with pytest.raises(RuntimeError, match="state dict is empty"):
        scaler.load_state_dict({})


# Training


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """A separable problem of ten classes."""
    torch.manual_seed(0)
    centres, targets = torch.randn(10, 1, 8, 8), torch.randint(0, 10, (64,))
    return centres[targets] + 0.3 * torch.randn(64, 1, 8, 8), targets


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.conv(x).float()).to(x.dtype))
        return self.head(F.avg_pool2d(x, 2).flatten(1)).float()


@pytest.mark.parametrize("way", ["autocast", "half model"])
def test_trains_on_910a_after_backing_off(way: str, caplog: pytest.LogCaptureFixture) -> None:
    images, targets = (t.npu() for t in digits())
    model = Net().npu()
    if way == "half model":  # as apex's O2: fp16 weights, fp32 batch norm, fp32 master weights
        model.half().norm.float()
        images = images.half()
    masters = [p.detach().float().requires_grad_() for p in model.parameters()]
    trained = masters if way == "half model" else list(model.parameters())
    optimizer, scaler = torch.optim.SGD(trained, lr=0.1), torch.amp.GradScaler("npu")
    losses = []
    for _ in range(40):
        model.zero_grad()
        with torch.autocast("npu", enabled=way == "autocast"):
            loss = F.cross_entropy(model(images), targets) * 16  # too high for a scale of 2**16
        scaler.scale(loss).backward()
        if way == "half model":
            for master, p in zip(masters, model.parameters(), strict=True):
                master.grad = p.grad.float()
        scaler.step(optimizer)
        scaler.update()
        if way == "half model":
            with torch.no_grad():
                for master, p in zip(masters, model.parameters(), strict=True):
                    p.copy_(master)
        losses.append(loss.item() / 16)
    skipped = caplog.messages.count(SKIPPED)
    assert caplog.messages[0] == SKIPPED
    assert 0 < skipped < 20 and scaler.get_scale() == 2.0 ** (16 - skipped)
    assert losses[:skipped] == [losses[0]] * skipped  # nothing was learned
    assert losses[-1] < 0.1 * losses[0]


def test_without_a_scaler_saturated_gradients_are_taken_as_they_are() -> None:
    trainee = Trainee()
    trainee.loss(70000.0).backward()
    trainee.optimizer.step()
    assert trainee.values() == [1 - 65504 / 2, 2 - 65504 / 2] and status.read() != 0


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_overflow_on_one_rank_skips_the_step_on_all(tmp_path: Path) -> None:
    code = """
import sys, torch, npu_core
rank = int(sys.argv[1])
torch.distributed.init_process_group(
    "hccl", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
scaler = torch.amp.GradScaler("npu", init_scale=1024.0)
for factor in (64.0 if rank else 1.0, 1.0):
    weight = torch.nn.Parameter(torch.ones(1, device="npu"))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale((weight.half() * factor).float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    print(weight.item(), scaler.get_scale())
torch.distributed.destroy_process_group()
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NPU_CORE": "910A",
                   "OMP_NUM_THREADS": "1"}  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank), str(tmp_path / "store")],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = [rank.communicate(timeout=120) for rank in ranks]
    assert [out for out, _ in outputs] == ["1.0 512.0\n0.0 512.0\n"] * 2, outputs
