"""Overflow in a dump that was made without a check: told from the recorded values."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from dumps import dump
from overflow_steps import HALF, recorded, scanned, t5

from dumper.overflow.events import Operand, Overflow
from dumper.overflow.ranges import COUNTED

INF, NAN = math.inf, math.nan


@pytest.fixture
def found(tmp_path: Path) -> Callable[..., list[Overflow]]:
    """Events of a step, by its dump alone."""

    def run(step: Callable[[], object], **options: object) -> list[Overflow]:
        said = scanned(recorded(tmp_path / "step.h5", step, **options))
        assert said.unreadable == []
        return said.events

    return run


def kinds(events: list[Overflow]) -> list[tuple[str, str]]:
    return [(event.ir, event.kind) for event in events]


# planted overflows


def test_a_product_that_does_not_fit_is_named_and_what_follows_is_not_blamed(found):
    events = found(t5)
    assert kinds(events) == [
        ("mm", "created"), ("native_layer_norm", "propagated"), ("sum", "propagated"),
    ]  # fmt: skip
    first, norm, total = events
    assert first.index == (0, 1) and first.value == 66246.0 and first.stored == INF
    assert first.inputs["self"] == Operand((0, None), (181.0, 181.0, 1.0, 0.0), 4, 0.0, 181.0)
    assert first.inputs["mat2"] == Operand((None, 1), (183.0, 183.0, 0.0, 0.0), 4, 0.0, 183.0)
    assert (first.count, first.size) == (1, 6)
    assert [way.ir for way in first.trail][-1] == "mm" and first.trail[-2].magnitude == 183.0
    assert norm.producer == first.seqid and total.producer == norm.seqid


def hidden() -> None:
    x = torch.tensor([1.0, 100.0], requires_grad=True)
    masked = x.exp() * torch.tensor([1.0, 0.0])
    torch.where(x < 50, masked, 0.0).sum().backward()


def test_what_a_mask_hides_is_told_of_and_is_created_again_by_backward(found):
    events = found(hidden)
    assert kinds(events) == [
        ("exp", "created"), ("mul_Tensor", "propagated"), ("where_self", "masked"),
        ("mul_Tensor", "created"),
    ]  # fmt: skip
    first, product, where, again = events
    assert first.value == pytest.approx(math.exp(100)) and first.masked_by == where.seqid
    assert product.producer == first.seqid and where.producer == product.seqid
    assert again.phase == "backward" and again.again == first.seqid and math.isnan(again.value)
    assert again.producer == first.seqid


def test_what_is_used_again_before_a_mask_ended_it_is_propagated(found):
    def step() -> None:
        x = torch.tensor([100.0], requires_grad=True)
        x.exp().sum().backward()

    assert [kind for _, kind in kinds(found(step))] == ["created", "propagated", "propagated"]


def attend(masked: list[int]) -> Callable[[], None]:
    def step() -> None:
        scores = torch.arange(12.0).reshape(3, 4)
        mask = torch.zeros(3, 4, dtype=torch.bool)
        mask[1, masked] = True
        scores.masked_fill(mask, -INF).softmax(-1).sum()

    return step


def test_a_row_that_is_masked_whole_is_the_softmax_s(found):
    events = found(attend([0, 1, 2, 3]))
    assert kinds(events) == [
        ("masked_fill_Scalar", "intended"), ("_softmax", "created"), ("sum", "propagated"),
    ]  # fmt: skip
    assert events[1].index == (1, 0) and math.isnan(events[1].value)
    assert events[1].inputs["self"].high == -INF


def test_a_row_that_is_masked_but_for_one_place_is_nobody_s(found):
    assert kinds(found(attend([0, 1, 2]))) == [("masked_fill_Scalar", "intended")]


def causal() -> None:
    mask = torch.full((4, 4), -INF).triu(1)
    (torch.ones(4, 4) + mask).softmax(-1).sum()


def lowest() -> None:
    lowest = torch.finfo(HALF).min
    mask = torch.zeros(4, 4, dtype=HALF).masked_fill(torch.ones(4, 4).triu(1).bool(), lowest)
    (torch.full((4, 4), -40.0, dtype=HALF) + mask).softmax(-1).sum()


def fits() -> None:
    torch.tensor([255.875, 1.0], dtype=HALF) * 256  # 65504, the largest number
    torch.tensor([448.0, 463.0]).to(torch.float8_e4m3fn)
    torch.empty(64, dtype=HALF)
    torch.full((3,), NAN).fill_(1.0)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (causal, [("full", "intended")]),
        (lowest, [("masked_fill_Scalar", "intended")]),
        (fits, [("full", "intended")]),
    ],
)
def test_what_the_program_asked_for_is_no_overflow(found, step, expected):
    assert kinds(found(step)) == expected


def cast(value: float, dtype: torch.dtype) -> Callable[[], None]:
    return lambda: torch.tensor([1.0, value]).to(dtype)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (463.0, torch.float8_e4m3fn, None),
        (500.0, torch.float8_e4m3fn, "saturated"),
        (-500.0, torch.float8_e4m3fn, "saturated"),
        (57344.0, torch.float8_e5m2, None),
        (1e5, torch.float8_e5m2, "created"),
        (65519.0, HALF, None),
        (65520.0, HALF, "created"),
        (3.4e38, torch.bfloat16, "created"),
    ],
)
def test_casts_at_the_end_of_a_dtype(found, value, dtype, expected):
    events = found(cast(value, dtype))
    if expected is None:
        assert events == []
        return
    (event,) = events
    assert event.kind == expected and event.value == np.float32(value) and event.index == (1,)


def test_the_largest_number_flows_on_where_a_device_saturates(tmp_path):
    """As the original's device leaves it: no infinity anywhere."""
    twice = np.array([60000, 2], "f2")
    full = np.array([65504, 4], "f2")
    path = dump(
        tmp_path / "npu.h5",
        {
            "add/1/input/self": twice, "add/1/input/other": twice, "add/1/output/result": full,
            "relu/2/input/self": full, "relu/2/output/result": full,
            "mul/3/input/self": full, "mul/3/output/result": full / 2,
        },
        10,
    )  # fmt: skip
    events = scanned(path).events
    assert kinds(events) == [("add", "saturated"), ("relu", "propagated")]
    assert events[0].value == 120000.0 and events[0].stored == 65504.0
    assert events[1].producer == 1


def test_a_file_without_numbers_of_values_is_followed_by_equal_values(tmp_path):
    """The original's: nothing but the values says who made what."""
    big, one = np.array([3e38, 1], "f4"), np.array([INF, 2], "f4")
    with np.errstate(invalid="ignore"):
        none = np.array([NAN, 2], "f4")
    path = dump(
        tmp_path / "fork.h5",
        {
            "add/1/input/self": big, "add/1/input/other": big, "add/1/output/result": one,
            "mul/2/input/self": one, "mul/2/input/other": np.zeros(2, "f4"),
            "mul/2/output/result": none,
            "relu/3/input/self": none, "relu/3/output/result": none,
        },
    )  # fmt: skip
    events = scanned(path).events
    assert kinds(events) == [("add", "created"), ("mul", "propagated"), ("relu", "propagated")]
    assert [event.producer for event in events] == [None, 1, 2]
    assert events[0].value == pytest.approx(6e38)


def test_what_comes_from_outside_is_said_to(found):
    weight = torch.nn.Parameter(torch.tensor([1.0, NAN]))
    events = found(lambda: (weight * 2).sum())
    assert [kind for _, kind in kinds(events)] == ["propagated", "propagated"]
    assert events[0].producer is None and events[0].origin is not None
    assert events[1].producer == events[0].seqid


def test_a_mask_from_outside_is_intended(found):
    mask = torch.tensor([0.0, -INF])
    events = found(lambda: (torch.ones(2) + mask).softmax(-1))
    assert [(event.kind, event.origin) for event in events] == [("intended", "other")]


def test_only_the_member_of_a_list_that_overflows_is_computed(found):
    def step() -> None:
        torch._foreach_mul_([torch.ones(3), torch.full((2,), 1e38)], 10.0)

    (event,) = found(step)
    assert event.output == "self/self_1" and event.value == pytest.approx(1e39)
    assert event.inputs["self/self_1"].values[0] == np.float32(1e38)


def test_memory_that_is_written_in_part_still_holds_the_rest(found):
    def step() -> None:
        values = torch.full((4,), 200.0).exp()
        values[0] = 1.0
        values * 1

    events = found(step)
    assert kinds(events) == [("exp", "created"), ("mul_Tensor", "propagated")]


@pytest.mark.parametrize("like", [torch.ones_like, torch.zeros_like])
def test_an_op_that_takes_a_shape_only_masks_nothing(found, like):
    assert kinds(found(lambda: like(torch.tensor([200.0]).exp()))) == [("exp", "created")]


@pytest.mark.parametrize(("power", "skipped"), [(127, True), (10, None)])
def test_gradients_scaled_too_far_are_the_scaler_s_affair(tmp_path, power, skipped):
    net = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(net.weight, 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**power)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step() -> None:
        scaler.scale(net(torch.full((1, 2), 100.0)).sum() * 0.1).backward()
        scaler.step(optimizer)
        scaler.update()

    said = scanned(recorded(tmp_path / "amp.h5", step))
    begun = [event for event in said.events if event.begins]
    if skipped is None:
        assert begun == []
        assert said.loss_scale.current == 2.0**power
    else:
        assert begun and {(event.scale, event.skipped) for event in begun} == {(2.0**127, True)}


def test_a_place_far_into_a_large_tensor(found):
    def step() -> None:
        values = torch.zeros(600, 1000)
        values[513, 77] = 100.0
        values.exp()

    (event,) = found(step)
    assert event.index == (513, 77) and event.count == 1 and event.inputs["self"].values == (100.0,)


# ranges


def test_ranges_and_loss_scale_of_the_last_step(tmp_path):
    layer = torch.nn.Linear(4, 3)

    def step() -> None:
        (layer(torch.ones(2, 4)).sum() * 2.0**-28).backward()

    path = tmp_path / "steps.h5"
    with torch.utils.dumper(use_dump=True, dump_path=str(path), steps="0-1") as steps:
        for _ in range(2):
            step()
            steps.step()
            layer.zero_grad()
    said = scanned(path)
    assert {each.step for each in said.ranges} == {1}
    names = {each.name for each in said.ranges if each.ir == "grad"}
    assert names == {"weight", "bias"}
    weight = next(each for each in said.ranges if each.name == "weight")
    assert weight.low == weight.high == 2.0**-27 and weight.share("float16").zero == 1.0
    assert said.loss_scale.smallest == 8.0 and said.loss_scale.kept == 0.0
    assert all(set(each.counted) == set(COUNTED) and each.sample is None for each in said.ranges)
