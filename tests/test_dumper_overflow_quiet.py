"""What is no fault although infinity or NaN is computed, and what is one although it is hidden."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import npu_core
from dumper import dumper, open_dump

HALF = torch.float16


def check(path: Path, run, **arguments):
    with dumper(check_overflow=True, dump_path=path, **arguments) as dump:
        run()
    return dump


def begins(dump) -> list:
    return [(e.ir, e.phase) for e in dump.overflows if e.begins]


def norm_of_zeros() -> None:
    torch.zeros(3, requires_grad=True).norm().backward()


def std_of_equal_numbers() -> None:
    torch.ones(3, requires_grad=True).std().backward()


def normalize_zeros() -> None:
    F.normalize(torch.zeros(2, 3, requires_grad=True)).sum().backward()


def ctc() -> None:
    logits = torch.randn(12, 2, 5, requires_grad=True)
    targets = torch.randint(1, 5, (2, 4))
    lengths = torch.full((2,), 12), torch.full((2,), 4)
    F.ctc_loss(logits.log_softmax(-1), targets, *lengths).backward()


def relative_positions() -> None:
    """T5's buckets: log(0) becomes an integer that `where` does not choose."""
    distance = torch.arange(6)
    large = 3 + (torch.log(distance.float() / 3) / math.log(4) * 5).to(torch.long)
    torch.where(distance < 3, distance, torch.min(large, torch.full_like(large, 7)))


def mask_of_a_product() -> None:
    keep = torch.tensor([[1, 1, 0, 0]], dtype=HALF)
    mask = (1.0 - keep) * torch.finfo(HALF).min
    scores = torch.full((2, 4), -30.0, dtype=HALF, requires_grad=True)
    torch.softmax((scores + mask).float(), -1).sum().backward()


def causal_mask() -> None:
    mask = torch.triu(torch.ones(3, 3) * float("-inf"), 1).nan_to_num(nan=0.0, neginf=-math.inf)
    torch.softmax(torch.randn(3, 3, requires_grad=True) + mask, -1).sum().backward()


def infinity_as_a_choice() -> None:
    torch.where(torch.tensor([True, False]), torch.ones(2), torch.tensor(math.inf)).min()


@pytest.mark.parametrize(
    "run",
    [norm_of_zeros, std_of_equal_numbers, normalize_zeros, ctc, relative_positions,
     mask_of_a_product, infinity_as_a_choice],
    ids=lambda run: run.__name__,
)  # fmt: skip
@pytest.mark.parametrize("anomaly", [False, True])
def test_nothing_is_said(run, anomaly, tmp_path, capsys):
    with torch.autograd.set_detect_anomaly(anomaly, check_nan=False):
        dump = check(tmp_path / "o.h5", run)
    assert begins(dump) == [] and capsys.readouterr().out == ""
    assert not (tmp_path / "o.h5").exists()
    assert "no overflow" in dump.report()


def test_what_autograd_does_not_mask_is_said(tmp_path, capsys):
    """sqrt at 0: 1/0 in backward, and nothing hides it."""
    path = tmp_path / "o.h5"
    dump = check(path, lambda: torch.zeros(2, requires_grad=True).sqrt().sum().backward())
    assert begins(dump) == [("div_Tensor", "backward")]
    assert capsys.readouterr().out.startswith("IR: div_Tensor SeqId: ")
    with open_dump(path) as file:
        assert [record.ir for record in file.records] == ["div_Tensor"]


def test_log_of_zero_that_reaches_a_gradient_is_said(tmp_path):
    weight = torch.ones(2, requires_grad=True)
    dump = check(tmp_path / "o.h5", lambda: (torch.log(torch.zeros(2)) * weight).sum())
    assert begins(dump) == [("log", "forward")]
    dump = check(tmp_path / "p.h5", lambda: torch.log(torch.zeros(2)))
    assert begins(dump) == [("log", "forward")]  # nothing became of it


@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("what", ["grad", "data"])
@pytest.mark.parametrize("foreach", [False, True])
def test_a_nan_in_an_optimizers_list_is_seen(bad, what, foreach, tmp_path):
    weights = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    for weight in weights:
        weight.grad = torch.ones(2)
    getattr(weights[bad], what)[0] = math.nan
    optimizer = torch.optim.AdamW(weights, foreach=foreach)
    dump = check(tmp_path / "o.h5", optimizer.step)
    assert dump.overflows and begins(dump) == []
    assert all(e.kind == "propagated" for e in dump.overflows)


def test_an_op_that_draws_is_not_run_again(tmp_path):
    """910A: a dropout overflows; who drew from the generator afterwards must not see it."""
    with npu_core.use("910A"):
        x = torch.full((8,), 6e4, dtype=HALF).to("npu")
        torch.manual_seed(0)
        F.dropout(x, 0.5)
        plain = torch.rand(2)
        torch.manual_seed(0)
        dump = check(tmp_path / "o.h5", lambda: F.dropout(x, 0.5))
        assert torch.equal(torch.rand(2), plain)
    assert begins(dump) == [("native_dropout", "forward")]


def test_clipping_after_a_scaler_is_not_blamed(tmp_path):
    weight = nn.Parameter(torch.ones(4, 4))
    optimizer = torch.optim.SGD([weight], 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)

    def run():
        with torch.autocast("cpu", HALF):
            loss = (torch.full((2, 4), 100.0) @ weight).float().sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_([weight], 1.0)
        scaler.step(optimizer)
        scaler.update()

    dump = check(tmp_path / "o.h5", run)
    assert {phase for _, phase in begins(dump)} == {"backward"}
    assert all(e.skipped for e in dump.overflows if e.begins)
    assert not any(e.fault for e in dump.overflows)


def test_no_scale_helps_what_is_infinite_exactly(tmp_path):
    """A scaler skips it, and will for ever."""
    weight = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def run():
        scaler.scale(weight.sqrt().sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    dump = check(tmp_path / "o.h5", run)
    (event,) = [e for e in dump.overflows if e.begins]
    assert event.skipped and event.fault and "no fault" not in dump.report()


def test_scalers_of_several_passes_are_told_apart(tmp_path):
    """A loop without `step()`: each event has the scale of its own pass."""
    weight = nn.Parameter(torch.ones(4, 4))
    optimizer = torch.optim.SGD([weight], 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**18)

    def run():
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", HALF):
                loss = (torch.ones(2, 4) @ weight).float().sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    dump = check(tmp_path / "o.h5", run)
    scales = [e.scale for e in dump.overflows if e.begins]
    assert scales == sorted(scales, reverse=True) and len(set(scales)) == 3


@pytest.mark.parametrize(("fit", "over"), [(100, 1), (10, 3), (0, 2)])
def test_of_many_at_the_limit_those_that_exceed_it_are_counted(fit, over, tmp_path):
    x = torch.tensor([448.0] * fit + [500.0] * over)
    dump = check(tmp_path / "o.h5", lambda: x.to(torch.float8_e4m3fn))
    (event,) = dump.overflows
    assert (event.index, event.count) == ((fit,), over)


def test_a_sum_over_what_overflowed_before_is_propagated(tmp_path):
    x = torch.full((4,), 300.0, dtype=HALF)

    def run():
        x[1:3].mul_(300)
        x.sum()

    dump = check(tmp_path / "o.h5", run)
    assert [(e.ir, e.kind) for e in dump.overflows] == [
        ("mul__Tensor", "created"), ("sum", "propagated"),
    ]  # fmt: skip


def test_what_numpy_wrote_is_seen(tmp_path):
    x = torch.randn(4)

    def run():
        y = x * 1
        y.numpy()[1] = math.inf
        y * 2

    dump = check(tmp_path / "o.h5", run)
    assert begins(dump) == [] and dump.overflows[-1].kind == "propagated"


def test_a_flag_from_before_is_given_back(tmp_path):
    with npu_core.use("910A"):
        torch.npu.utils.clear_npu_overflow_flag()
        torch.full((1,), 6e4, dtype=HALF, device="npu") * 2
        check(tmp_path / "o.h5", lambda: torch.ones(2, device="npu") * 2)
        assert torch.npu.utils.get_npu_overflow_flag()
        torch.npu.utils.clear_npu_overflow_flag()


def test_a_step_without_a_scaler_has_scale_1_whatever_came_before(tmp_path):
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with dumper(check_overflow=True, dump_path=tmp_path / "o.h5") as dump:
        scaler.scale(model(torch.ones(2, 3)).sum()).backward()
        scaler.step(optimizer)
        dump.step()
        assert dump.loss_scale.current == 2.0**10  # told of until there is something of the next
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        dump.step()
    assert dump.loss_scale.current == 1.0
