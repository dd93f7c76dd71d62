"""`dumper(check_overflow=True)` beside others who read the same: scalers, the register, ranks."""

from __future__ import annotations

import warnings

import pytest
import torch
from overflowing import HALF, LINE, check, product
from torch import nn

import npu_core
from dumper import dumper


def test_a_scaler_reads_the_register_all_the_same(tmp_path):
    """The dynamic loss scale of 910A skips the step as it would without the check, and is named."""

    def run():
        torch.manual_seed(0)
        model = nn.Linear(4, 4).to("npu")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("npu", init_scale=2.0**16)
        scales = []
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("npu", HALF):
                loss = model(torch.ones(2, 4, device="npu")).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales, model.weight.detach().cpu()

    with npu_core.use("910A"):
        plain, weights = run()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with dumper(check_overflow=True, dump_path=tmp_path / "o.h5") as dump:
                checked, again = run()
    assert checked == plain and len(set(plain)) > 1
    assert torch.equal(weights, again)
    assert any("status itself" in str(w.message) for w in caught)
    skipped = [e for e in dump.overflows if e.begins]
    assert skipped and all(e.skipped and e.scale for e in skipped)
    assert not any(e.fault for e in dump.overflows)


def test_the_register_is_left_as_it_would_have_been(tmp_path):
    with npu_core.use("910A"):
        torch.ops.npu.npu_clear_float_status(torch.zeros(8, device="npu"))
        dump = check(tmp_path / "o.h5", lambda: product("npu"))
        assert dump.overflows and torch.npu.utils.get_npu_overflow_flag()
        torch.npu.utils.clear_npu_overflow_flag()
        check(tmp_path / "p.h5", lambda: torch.ones(2, device="npu") * 2)
        assert not torch.npu.utils.get_npu_overflow_flag()


def test_a_scale_that_is_one_is_a_fault(tmp_path):
    """The same overflow: skipped by a scaler at 65536, a fault without one."""
    x = torch.full((2, 2), 100.0, dtype=HALF)

    def step(scaler):
        weight = nn.Parameter(torch.ones(2, 2))
        optimizer = torch.optim.SGD([weight], 0.1)
        y = (x @ weight.half()).float().sum() * 1000
        scaler.scale(y).backward()
        scaler.step(optimizer)
        scaler.update()

    for initial, fault in ((2.0**16, False), (1.0, True)):
        scaler = torch.amp.GradScaler("cpu", init_scale=initial, enabled=initial > 1)
        dump = check(tmp_path / f"{initial}.h5", lambda s=scaler: step(s))
        begins = [e for e in dump.overflows if e.begins]
        assert begins and begins[0].phase == "backward"
        assert dump.overflows[0].fault is fault
        assert ("no fault" in dump.report()) is not fault


@pytest.mark.parametrize("world", [1, 2])
def test_several_ranks_are_named(world, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", str(world))
    monkeypatch.setenv("RANK", str(world - 1))
    dump = check(tmp_path / "o_{rank}.h5", lambda: product("cpu"))
    (event,) = dump.overflows
    assert event.rank == world - 1
    suffix = " (rank 1)" if world == 2 else ""
    assert capsys.readouterr().out == LINE.format("mm", event.seqid)[:-1] + suffix + "\n"
    assert (tmp_path / f"o_{world - 1}.h5").exists()


def test_more_ranks_on_a_saturating_device_are_warned_of(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with npu_core.use("910A"), pytest.warns(RuntimeWarning, match="of one device"):
        check(tmp_path / "o_{rank}.h5", lambda: product("npu"))


def test_combined_gradients_are_warned_of(tmp_path):
    flat = torch.zeros(8)
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    for i, parameter in enumerate(model.parameters()):
        parameter.grad = flat[4 * i : 4 * i + 4].view(2, 2)

    def run():
        model(torch.ones(1, 2)).sum().backward()
        flat.mul_(2)

    with pytest.warns(RuntimeWarning, match="combined tensor"):
        check(tmp_path / "o.h5", run)
