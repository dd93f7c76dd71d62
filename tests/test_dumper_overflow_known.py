"""Overflows that are known to the number: the op, the element, its inputs, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from overflows import CPU_FP32, CPU_HALF, NPU_A, NPU_B, Setting, assert_same, check
from torch import nn
from torch.nn import functional as F

from dumper.overflow.events import Operand, Overflow
from npu_core import status


class T5Layer(nn.Module):
    """The end of T5's feed-forward layer and the norm after it, in float16 and float32."""

    def __init__(self) -> None:
        super().__init__()
        self.wo = nn.Linear(3, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.wo(x)
        variance = hidden.float().pow(2).mean(-1, keepdim=True)
        return hidden.float() * torch.rsqrt(variance + 1e-6) + F.layer_norm(hidden, (2,))


@pytest.mark.parametrize("setting", [CPU_HALF, NPU_B, NPU_A], ids=["cpu", "910B", "910A"])
def test_t5_overflows_in_its_product(
    setting: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = T5Layer().half()
    model.wo.weight.data = torch.tensor([[0, 0, 0.5], [250, 48, 1]], dtype=torch.float16)
    model.to(setting.device)
    x = torch.tensor([[1, 1, 1], [256, 46, 38]], dtype=torch.float16, device=setting.device)
    made: list[torch.Tensor] = []
    dump = check(setting, tmp_path, lambda: made.append(model(x)), model=model)
    first, *rest = dump.overflows
    assert (first.ir, first.output, first.index) == ("mm", "result", (1, 1))
    assert (first.value, first.count, first.size) == (66246.0, 1, 4)
    assert (first.module, first.phase, first.dtype) == ("wo", "forward", "float16")
    assert first.source.startswith(f"{Path(__file__).name}:")
    assert first.api == "torch.nn.functional.linear.0"
    assert first.inputs == {
        "self": Operand((1, None), (256.0, 46.0, 38.0), 3, 38.0, 256.0),
        "mat2": Operand((None, 1), (250.0, 48.0, 1.0), 3, 1.0, 250.0),
    }
    assert f"IR: mm SeqId: {first.seqid} is overflow!\n" == capsys.readouterr().out
    assert "66246" in dump.report() and "66246" in dump.report(lang="zh")
    if setting.saturates:
        assert (first.kind, first.stored, first.bits) == ("saturated", 65504.0, status.CAST)
        assert made[0].isfinite().all() and rest == []
        return
    assert (first.kind, first.stored, first.bits) == ("created", math.inf, 0)
    assert not made[0].isfinite().all()
    assert {event.kind for event in rest} == {"propagated", "masked"}
    nans = [event for event in rest if event.stored is not None and event.stored != event.stored]
    assert {"mul_Tensor", "native_layer_norm"} <= {event.ir for event in nans}
    for event in nans:
        assert event.kind == "propagated" and way_back(event, dump.overflows)[-1] is first
    assert [event.ir for event in rest if event.kind == "masked"] == ["rsqrt"]  # of infinity is 0


@pytest.mark.parametrize(
    ("function", "given", "stored"),
    [(torch.exp, [0.0, 12.0, 1.0], 65504.0), (torch.sqrt, [0.0, 4.0, -1.0], 0.0)],
    ids=["exp", "sqrt"],
)
def test_the_register_tells_what_saturation_hides(
    function: Callable[[torch.Tensor], torch.Tensor],
    given: list[float],
    stored: float,
    tmp_path: Path,
) -> None:
    x = torch.tensor(given, dtype=torch.float16).npu()
    dump = check(NPU_A, tmp_path, lambda: function(x) + 1)
    place = max(range(3), key=lambda i: abs(given[i])) if stored else 2
    first = dump.overflows[0]
    assert (first.ir, first.kind, first.index) == (function.__name__, "saturated", (place,))
    assert (first.stored, first.bits) == (stored, status.VECTOR)
    assert_same(first.value, float(function(torch.tensor(given[place], dtype=torch.float64))))


@pytest.mark.parametrize("setting", [CPU_FP32, NPU_B], ids=["cpu", "910B"])
def test_what_where_hides_comes_again_in_backward(setting: Setting, tmp_path: Path) -> None:
    x = torch.tensor([100.0, 1.0], device=setting.device, requires_grad=True)

    def step() -> None:
        y = torch.exp(x) * 0
        torch.where(x < 50, y, 0.0).sum().backward()

    dump = check(setting, tmp_path, step)
    made, zeroed, hidden, again = dump.overflows
    assert x.grad.isnan().tolist() == [True, False]
    assert [event.seqid for event in dump.overflows] == sorted(e.seqid for e in dump.overflows)
    assert (made.ir, made.kind, made.stored, made.index) == ("exp", "created", math.inf, (0,))
    assert made.value == pytest.approx(math.exp(100), rel=1e-12)
    assert (zeroed.ir, zeroed.kind, zeroed.producer) == ("mul_Tensor", "propagated", made.seqid)
    assert math.isnan(zeroed.stored)
    assert (hidden.ir, hidden.kind, hidden.producer) == ("where_self", "masked", zeroed.seqid)
    assert made.masked_by == hidden.seqid
    assert (again.ir, again.kind, again.phase) == ("mul_Tensor", "created", "backward")
    assert (again.again, again.index) == (made.seqid, (0,)) and math.isnan(again.stored)
    assert again.inputs["other"].values == (math.inf,)


def _rows(setting: Setting) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores, and which of them may be seen: of the second row none."""
    scores = torch.tensor([[0.5, 1.0, -2.0], [1.0, 0.0, 3.0]], device=setting.device)
    seen = torch.tensor([[True, False, True], [False] * 3], device=setting.device)
    return scores, seen


@pytest.mark.parametrize("setting", [CPU_FP32, NPU_B], ids=["cpu", "910B"])
@pytest.mark.parametrize("how", ["filled", "added", "where"])
def test_a_row_that_is_all_masked_is_softmaxs_fault(
    how: str, setting: Setting, tmp_path: Path
) -> None:
    scores, seen = _rows(setting)
    mask = torch.zeros(2, 3).masked_fill(~seen.cpu(), -math.inf).to(setting.device)

    def step() -> None:
        hidden = {
            "filled": lambda: scores.masked_fill(~seen, -math.inf),
            "added": lambda: scores + mask,
            "where": lambda: torch.where(seen, scores, -math.inf),
        }[how]()
        F.softmax(hidden, -1)

    *masks, last = check(setting, tmp_path, step).overflows
    assert masks and {event.kind for event in masks} == {"intended"}
    assert (last.ir, last.kind, last.index, last.count) == ("_softmax", "created", (1, 0), 3)
    assert math.isnan(last.stored) and math.isnan(last.value)
    assert last.inputs["self"].values == (-math.inf,) * 3


@pytest.mark.parametrize("setting", [CPU_FP32, NPU_B], ids=["cpu", "910B"])
def test_attention_to_nothing_is_no_overflow_where_torch_makes_it_0(
    setting: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, seen = _rows(setting)
    query, key = torch.randn(2, 1, 2, 3, 4).to(setting.device)
    made: list[torch.Tensor] = []
    dump = check(
        setting,
        tmp_path,
        lambda: made.append(F.scaled_dot_product_attention(query[..., :2, :], key, key, seen)),
    )
    assert made[0][..., 1, :].eq(0).all() and made[0].isfinite().all()
    assert {event.kind for event in dump.overflows} == {"intended"}
    assert capsys.readouterr().out == ""


def way_back(event: Overflow, events: list[Overflow]) -> list[Overflow]:
    """The events that one came from, by their producers."""
    by_seqid = {one.seqid: one for one in events}
    found = []
    while event.producer is not None:
        event = by_seqid[event.producer]
        found.append(event)
    return found
