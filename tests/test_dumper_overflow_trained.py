"""What an overflow check says of loss scales, against a search, and that it changes no step."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from overflows import CPU_HALF, NPU_A, NPU_B, Setting, Training, placed
from torch import nn
from torch.nn import functional as F

from dumper import dumper
from dumper.tensors import bits_of
from npu_core import status


class Positive(nn.Module):
    """Computed in float16 or float32. All numbers are positive, so that no sum cancels; one
    gradient is 6, the others are tiny.

    size: of the inputs. The gradients of weights are smaller than those of what lies between the
    layers where it is small, and larger where it is 1.
    """

    def __init__(self, size: float) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)

        def drawn(*shape: int) -> torch.Tensor:
            return torch.rand(*shape, generator=generator) / 2 + 0.5

        self.first, self.second = nn.Parameter(drawn(16, 32)), nn.Parameter(drawn(32, 8))
        self.large = nn.Parameter(drawn(1))
        self.x, self.weights = drawn(8, 16) * size, drawn(8, 8) * 2.0**-22

    def forward(self, numbers: torch.dtype) -> torch.Tensor:
        first, second, large, x = (
            each.to(numbers) for each in (self.first, self.second, self.large, self.x)
        )
        made = F.relu(x @ first) @ second
        return (made.float() * self.weights).mean() + large.float().sum() * 6


SMALL, ONE = 2.0**-8, 1.0


def gradients(
    numbers: torch.dtype, scale: float, path: Path | None = None, size: float = SMALL
) -> tuple[list[torch.Tensor], dumper]:
    """The gradients of a step, with the scale, and what the check says of it."""
    model = Positive(size)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    with dumper(enabled=path is not None, check_overflow=True, dump_path=path) as dump:
        scaler.scale(model(numbers)).backward()
        found = [parameter.grad.clone() for parameter in model.parameters()]
        scaler.step(optimizer)
    return found, dump


def kept_by_running(scale: float, size: float) -> float:
    """Share of the gradients other than 0 that a step in float16 does not make 0."""
    truth, _ = gradients(torch.float32, 1.0, size=size)
    found, _ = gradients(torch.float16, scale, size=size)
    return sum(int((g != 0).sum()) for g in found) / sum(int((g != 0).sum()) for g in truth)


@pytest.fixture(scope="module")
def searched() -> tuple[dict[float, float], list[float]]:
    """By running in float16 at every power of two: the share of gradients that do not vanish by
    scale, and the scales at which none overflows."""
    kept, safe = {}, []
    for power in range(20):
        scale = 2.0**power
        kept[scale] = kept_by_running(scale, SMALL)
        if all(g.isfinite().all() for g in gradients(torch.float16, scale)[0]):
            safe.append(scale)
    return kept, safe


def test_the_scales_are_those_that_a_search_finds(
    searched: tuple[dict[float, float], list[float]], tmp_path: Path
) -> None:
    kept, safe = searched
    smallest = min(scale for scale, share in kept.items() if share >= 0.999)
    largest = max(safe)
    assert 1 < smallest <= 1024 < largest < 2**19 and kept[1] < 0.1 and kept[1024] == 1
    found = gradients(torch.float32, 1.0, tmp_path / "fp32.h5")[1].loss_scale
    assert (found.smallest, found.at_least) == (smallest, False)
    assert (found.largest, found.at_most, found.conflict) == (largest, False, False)
    for scale, share in kept.items():
        assert (found.kept_at(scale) >= 0.999) == (share >= 0.999)
        assert found.overflows_at(scale) == (scale not in safe)


def test_vanishing_at_scale_1_is_told_and_at_1024_that_it_is_right(
    searched: tuple[dict[float, float], list[float]], tmp_path: Path
) -> None:
    kept, safe = searched
    smallest = min(scale for scale, share in kept.items() if share >= 0.999)
    _, before = gradients(torch.float16, 1.0, tmp_path / "1.h5")
    found = before.loss_scale
    assert found.current == 1 and found.at_least and found.smallest <= smallest
    assert found.vanished > 0.1
    assert "of what backward computed became 0 already" in before.report()
    _, after = gradients(torch.float16, 1024.0, tmp_path / "1024.h5")
    found = after.loss_scale
    assert (found.current, found.at_least, found.vanished, found.kept) == (1024, False, 0, 1)
    assert (found.smallest, found.largest) == (smallest, max(safe))
    assert "the loss scale is right" in after.report()
    assert "the loss scale is right" not in before.report()


def test_gradients_that_vanish_on_their_way_are_told(tmp_path: Path) -> None:
    """Weights' gradients are sums here: none is too small, but what they are sums of is."""
    kept = {scale: kept_by_running(scale, ONE) for scale in (1.0, 16.0)}
    assert kept[1] < 0.1 and kept[16] == 1
    _, dump = gradients(torch.float32, 1.0, tmp_path / "o.h5", ONE)
    assert "the loss scale is right" not in dump.report()
    assert dump.loss_scale.smallest == 16


def test_the_head_room_of_backward_is_what_a_search_finds(
    searched: tuple[dict[float, float], list[float]], tmp_path: Path
) -> None:
    _, safe = searched
    _, dump = gradients(torch.float16, 1024.0, tmp_path / "o.h5")
    bits = [
        one.headroom for one in dump.ranges if one.phase == "backward" and one.dtype == "float16"
    ]
    assert 1024 * 2.0 ** math.floor(min(bits)) == max(safe)


# What is checked is as it was


def _assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert bits_of(tensor.detach().cpu()).tobytes() == bits_of(other[name].cpu()).tobytes(), (
            name
        )


@pytest.mark.parametrize(
    ("family", "scale"), [("resnet", 1.0), ("bert", 1.0), ("bert", 2.0**24), ("lstm", 2.0**24)]
)
@pytest.mark.parametrize("setting", [CPU_HALF, NPU_A, NPU_B], ids=["cpu", "910A", "910B"])
def test_a_step_is_bit_equal_under_the_check(
    family: str, setting: Setting, scale: float, tmp_path: Path
) -> None:
    def trained(**options: bool) -> tuple[dict[str, torch.Tensor], int]:
        with placed(setting):
            training = Training(family, setting)
            training.scale = scale
            path = tmp_path / f"{len(options)}.h5"
            with dumper(enabled=bool(options), dump_path=path, **options) as dump:
                for _ in range(2):
                    training()
                    dump.step()
            found = training.state()
            register = status.read() if setting.saturates else 0
        return found, register, dump

    plain, register, _ = trained()
    for options in ({"check_overflow": True}, {"check_overflow": True, "use_dump": True}):
        checked, left, dump = trained(**options)
        _assert_equal(plain, checked)
        assert bool(left) == bool(register)
        assert scale == 1 or any(event.begins for event in dump.overflows)


@pytest.mark.parametrize("setting", [NPU_A, NPU_B], ids=["910A", "910B"])
def test_a_loss_scaler_skips_the_same_steps_under_the_check(
    setting: Setting, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    def trained(check: bool) -> tuple[list[float], dict[str, torch.Tensor], dumper]:
        with placed(setting):
            training = Training("mlp", setting)
            scaler = torch.amp.GradScaler("npu", init_scale=2.0**21, growth_interval=2)
            scales = []
            with dumper(enabled=check, check_overflow=True, dump_path=tmp_path / "o.h5") as dump:
                for _ in range(8):
                    training.backward(scaler)
                    scaler.step(training.optimizer)
                    scaler.update()
                    scales.append(scaler.get_scale())
                    dump.step()
            return scales, training.state(), dump

    scales, state, _ = trained(check=False)
    seen, checked, dump = trained(check=True)
    assert seen == scales and {2.0**20} < set(scales)  # it shrinks, and grows again
    _assert_equal(state, checked)
    said = [str(one.message) for one in recwarn if "torch.utils.dumper" in str(one.message)]
    assert len(said) == setting.saturates and all("reads the device's" in one for one in said)
    begun = [event for event in dump.overflows if event.begins]
    steps = [step for step, scale in enumerate(scales) if scale < ([2.0**21] + scales)[step]]
    assert sorted({event.step for event in begun}) == steps
    assert all(event.skipped and not event.fault for event in begun)
    assert [event.scale for event in begun] == [([2.0**21] + scales)[e.step] for e in begun]
