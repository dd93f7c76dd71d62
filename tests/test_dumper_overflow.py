"""`dumper(check_overflow=True)`: the original's contract, the file, what a step keeps."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings

import pytest
import torch
from overflowing import HALF, LINE, check, product
from torch import nn

import npu_core
from dumper import dumper, open_dump
from dumper.overflow.events import events_of, facts_of


@pytest.fixture(params=["cpu", "910A", "910B"])
def chip(request: pytest.FixtureRequest):
    """Each place in turn: yields the device's name."""
    if request.param == "cpu":
        yield "cpu"
    else:
        with npu_core.use(request.param):
            yield "npu"


def test_the_original_line_and_the_op_in_the_file(chip, tmp_path, capsys):
    path = tmp_path / "o.h5"
    dump = check(path, lambda: product(chip))
    (event,) = [e for e in dump.overflows if e.begins]
    assert capsys.readouterr().out == LINE.format(event.ir, event.seqid)
    assert (event.ir, event.index, event.value) == ("mm", (1, 1), 66246.0)
    assert event.stored == (65504.0 if event.kind == "saturated" else math.inf)
    assert event.inputs["self"].values[0] == 181.0 and event.inputs["mat2"].values[0] == 366.0
    with open_dump(path) as file:
        (record,) = file.records
        assert (record.ir, record.seqid) == (event.ir, event.seqid)
        assert file.environment["mode"] == "overflow" and file.finished
        inputs = {t.name: t.bits() for t in record.inputs}
        assert inputs["self"][1].tolist() == [181.0, 1.0, 0.0]
        (result,) = record.outputs
        assert result.bits()[1, 1] == event.stored
        assert events_of(file.lines("overflows")) == dump.overflows


def test_no_overflow_no_file_and_nothing_said(chip, tmp_path, capsys):
    def run():
        x = torch.randn(4, 4, device=chip, requires_grad=True)
        nn.functional.softmax(x @ x, -1).sum().backward()

    dump = check(tmp_path / "o.h5", run)
    assert dump.overflows == [] and not (tmp_path / "o.h5").exists()
    assert capsys.readouterr().out == ""
    assert {found.ir for found in dump.ranges} >= {"mm", "_softmax"}


def test_inputs_are_dumped_as_they_were_before_the_op(chip, tmp_path):
    path = tmp_path / "o.h5"
    x = torch.tensor([300.0, 2.0], dtype=HALF, device=chip)
    dump = check(path, lambda: x.mul_(x))
    (event,) = [e for e in dump.overflows if e.begins]
    assert event.value == 90000.0 and event.inputs["self"].values == (300.0,)
    with open_dump(path) as file:
        (record,) = file.records
        before = {t.name: t.bits().tolist() for t in record.inputs}
        assert before["self"] == [300.0, 2.0]
        assert [t.bits()[1] for t in record.outputs] == [4.0]


def test_in_lists_the_member_is_named(chip, tmp_path):
    ones = [torch.full((2,), 2.0 * i, dtype=HALF, device=chip) for i in range(4)]
    dump = check(tmp_path / "o.h5", lambda: torch._foreach_mul_(ones, 20000.0))
    (event,) = [e for e in dump.overflows if e.begins]
    assert event.output == "self/self_2" and event.value == 80000.0


@pytest.mark.parametrize("together", [False, True])
def test_with_a_dump(together, tmp_path, capsys):
    path = tmp_path / "o.h5"

    def run():
        y = product("cpu")
        (y * 2).sum()

    with dumper(check_overflow=True, use_dump=together, dump_path=path) as dump:
        run()
    with open_dump(path) as file:
        recorded = [record.ir for record in file.records]
        assert [e.kind for e in events_of(file.lines("overflows"))] == [
            "created", "propagated", "propagated",
        ]  # fmt: skip
        assert file.environment["mode"] == ("dump" if together else "overflow")
    created = dump.overflows[0]
    assert ("mul_Tensor" in recorded) is together and "mm" in recorded
    assert capsys.readouterr().out == LINE.format("mm", created.seqid)
    if together:
        with open_dump(path) as file:
            assert [r.seqid for r in file.records if r.ir == "mm"] == [created.seqid]


def test_modes_that_contradict(tmp_path):
    step = lambda: torch.ones(2) * 2  # noqa: E731
    with dumper(use_dump=True, dump_path=tmp_path / "d.h5"):
        step()
    for arguments in (
        {"use_load": True, "load_file_path": tmp_path / "d.h5"},
        {"load_file_path": tmp_path / "d.h5"},
        {"estimate": True},
    ):
        context = dumper(check_overflow=True, dump_path=tmp_path / "x.h5", **arguments)
        with pytest.raises(RuntimeError, match="check overflow mode"), context:
            pass


def test_anomaly_detection_raises_in_backward_only(chip, tmp_path):
    x = torch.tensor([1.0, 300.0], dtype=HALF, device=chip, requires_grad=True)

    def forward():
        return (x * 300).sum()  # overflows: forward never raises

    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        dump = check(tmp_path / "f.h5", forward)
        assert [e.ir for e in dump.overflows if e.begins] == ["mul_Tensor"]

        def backward():
            y = x * 200
            y.backward(torch.tensor([1.0, 400.0], dtype=HALF, device=chip))

        with pytest.raises(RuntimeError, match="^Function 'MulBackward0' has overflow.$"):
            check(tmp_path / "b.h5", backward)
    with open_dump(tmp_path / "b.h5") as file:
        assert events_of(file.lines("overflows"))[0].phase == "backward"
        assert file.finished
    check(tmp_path / "c.h5", backward)  # without it nothing raises


def test_a_filter_says_what_is_printed_and_stored(tmp_path, capsys):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Identity(), nn.Linear(2, 2, dtype=HALF)

        def forward(self, x):
            return self.second(torch.exp(x)) * 0

    model = Two()
    x = torch.full((2, 2), 12.0, dtype=HALF)
    whole = check(tmp_path / "a.h5", lambda: model(x))
    assert capsys.readouterr().out == LINE.format("exp", whole.overflows[0].seqid)
    part = check(tmp_path / "b.h5", lambda: model(x), modules="second")
    assert repr(part.overflows) == repr(whole.overflows)  # why is told all the same
    assert capsys.readouterr().out == "" and not (tmp_path / "b.h5").exists()


def test_a_second_context_on_a_path_still_says_what_overflows(tmp_path, capsys):
    path = tmp_path / "o.h5"
    first = check(path, lambda: product("cpu"))
    kept = path.read_bytes()
    with pytest.warns(RuntimeWarning, match="is kept"):
        second = check(path, lambda: product("cpu"))
    assert len(first.overflows) == len(second.overflows) == 1
    assert capsys.readouterr().out.count("is overflow!") == 2
    assert path.read_bytes() == kept


def test_what_is_read_inside_of_the_context_is_no_work_of_the_program(tmp_path):
    with dumper(check_overflow=True, use_dump=True, dump_path=tmp_path / "o.h5") as dump:
        product("cpu")
        before = len(dump.ranges), dump.report()
        assert (len(dump.ranges), dump.report()) == before
        torch.ones(2)
    with open_dump(tmp_path / "o.h5") as file:
        assert [r.ir for r in file.records if r.ir != "full"][-1] == "ones"


def test_what_nobody_looked_at_is_not_called_sound(tmp_path):
    with dumper(use_dump=True, dump_path=tmp_path / "o.h5") as dump:
        product("cpu")
    assert "nothing was checked" in dump.report() and "没有检查" in dump.report("zh")
    with pytest.raises(ValueError, match="choose en or zh"):
        dump.report("fr")


def test_the_last_step_is_told_of_after_it_ended(tmp_path):
    model = nn.Linear(3, 2)
    with dumper(check_overflow=True, dump_path=tmp_path / "o.h5") as dump:
        for _ in range(2):
            model(torch.ones(2, 3)).sum().backward()
            dump.step()
    assert {found.step for found in dump.ranges} == {1}
    assert dump.loss_scale is not None


def test_where_no_sample_is_left_the_report_goes_on(tmp_path, monkeypatch):
    from dumper.overflow import samples

    monkeypatch.setattr(samples, "_BYTES", 0)
    weight = nn.Parameter(torch.ones(3))
    dump = check(tmp_path / "o.h5", lambda: (weight * 2).sum().backward())
    assert dump.ranges and "no overflow" in dump.report()


def test_a_file_that_cannot_grow_does_not_end_the_check(tmp_path, monkeypatch, capsys):
    from dumper.writer import Writer

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Writer, "tensor", full)
    monkeypatch.setattr(Writer, "failed", True)
    with pytest.warns(RuntimeWarning, match="recording stopped"):
        dump = check(tmp_path / "o.h5", lambda: [product("cpu") for _ in range(3)])
    assert len(dump.overflows) == 3 and capsys.readouterr().out.count("overflow!") == 3


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_a_cast_to_fp8_saturates(dtype, tmp_path):
    """pytorch#149002: fp8 has no isfinite; e4m3fn has no infinity either."""
    kind = getattr(torch, dtype)
    x = torch.tensor([1.0, 70000.0])
    with dumper(check_overflow=True, use_dump=True, dump_path=tmp_path / "o.h5") as dump:
        y = x.to(kind)
        y.float() * 2
    event = dump.overflows[0]
    assert event.ir == "_to_copy" and event.index == (1,) and event.value == 70000.0
    assert event.kind == ("saturated" if dtype == "float8_e4m3fn" else "created")
    assert event.stored == y.float()[1].item()


def test_a_number_that_is_just_the_largest_is_no_overflow(tmp_path):
    x = torch.tensor([65504.0, 1.0], dtype=HALF)
    fp8 = torch.tensor([448.0])
    dump = check(tmp_path / "o.h5", lambda: (x * 1, x.clone(), fp8.to(torch.float8_e4m3fn)))
    assert dump.overflows == []


def test_every_step_counts_its_own(tmp_path):
    with dumper(check_overflow=True, dump_path=tmp_path / "{step}.h5") as dump:
        for _ in range(3):
            product("cpu")
            dump.step()
    assert [e.step for e in dump.overflows if e.begins] == [0, 1, 2]
    for step in range(3):
        with open_dump(tmp_path / f"{step}.h5") as file:
            (event,) = events_of(file.lines("overflows"))
            assert event.step == step and len(file.records) == 1


def test_a_killed_run_keeps_its_events(tmp_path):
    path = tmp_path / "o.h5"
    code = (
        "import os, torch, dumper\n"
        f"d = dumper.dumper(check_overflow=True, dump_path={str(path)!r}); d.__enter__()\n"
        "torch.exp(torch.full((3,), 12.0, dtype=torch.float16))\n"
        "import time; time.sleep(0.6)\n"
        "torch.exp(torch.full((3,), 12.0, dtype=torch.float16))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True)
    with open_dump(path) as file:
        assert not file.finished
        assert [e.ir for e in events_of(file.lines("overflows"))][:1] == ["exp"]


def test_what_is_wrong_before_the_step_is_named(tmp_path):
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight[0, 1] = math.nan
    x = torch.ones(1, 2)
    dump = check(tmp_path / "o.h5", lambda: model(x).sum(), model=model)
    first = dump.overflows[0]
    assert (first.kind, first.origin, first.producer) == ("propagated", "weight", None)
    assert not any(e.begins for e in dump.overflows)


def test_events_survive_the_way_through_json(tmp_path):
    dump = check(tmp_path / "o.h5", lambda: torch.log(product("cpu") * 0 - 1))
    lines = [
        json.loads(json.dumps({"event": i, **facts_of(e)})) for i, e in enumerate(dump.overflows)
    ]
    again = events_of(lines)
    assert repr(again) == repr(dump.overflows)  # NaN is not equal to itself


@pytest.mark.parametrize(
    "line",
    [
        {}, {"event": 0}, {"event": True, "ir": "x"},
        {"event": 0, "ir": 1, "seqid": 1, "phase": "forward", "kind": "created", "dtype": "x"},
        {"event": 0, "ir": "x", "seqid": -1, "phase": "forward", "kind": "created", "dtype": "x"},
        {"event": 0, "ir": "x", "seqid": 1, "phase": "forward", "kind": "odd", "dtype": "x"},
    ],
)  # fmt: skip
def test_lines_that_are_not_as_expected_are_left_out(line):
    good = {"event": 1, "ir": "x", "seqid": 1, "phase": "forward", "kind": "created", "dtype": "x"}
    assert [e.seqid for e in events_of([line, good])] == [1]
    hostile = {**good, "index": [2**70], "inputs": {"a": [1], "b": {"index": 3}}, "trail": [[1]],
               "value": 10**400, "producer": "x", "module": 5}  # fmt: skip
    (event,) = events_of([hostile])
    assert (event.index, event.inputs, event.trail, event.value) == (None, {}, (), None)


def test_integers_that_wrap_around_are_named_by_the_register(tmp_path):
    with npu_core.use("910A"):
        x = torch.tensor([1, 2**31 - 1, 5], dtype=torch.int32, device="npu")
        dump = check(tmp_path / "o.h5", lambda: x + 3)
    (event,) = dump.overflows
    assert (event.index, event.value, event.stored) == ((1,), 2.0**31 + 2, -(2.0**31) + 2)
    assert (event.kind, event.bits) == ("created", 0x10)


def test_what_reads_no_values_masks_nothing(tmp_path):
    x = torch.tensor([12.0, 1.0], dtype=HALF)

    def run():
        y = torch.exp(x)
        return torch.ones_like(y), y.new_zeros(3), y.new_full((1,), 2.0)

    dump = check(tmp_path / "o.h5", run)
    assert [e.kind for e in dump.overflows] == ["created"]
    assert dump.overflows[0].masked_by is None


def test_sparse_tensors_are_looked_at_by_their_parts(tmp_path):
    def run():
        table = nn.Embedding(4, 2, sparse=True, dtype=HALF)
        table(torch.tensor([1, 1])).backward(torch.full((2, 2), 40000.0, dtype=HALF))
        table.weight.grad.coalesce().to_dense() * 2

    dump = check(tmp_path / "o.h5", run)
    first = next(e for e in dump.overflows if e.begins)
    assert first.phase == "forward" and first.stored == math.inf  # coalescing adds them up
    assert not any(e.begins for e in dump.overflows[1:])


def test_a_fault_of_ours_ends_the_check_and_not_the_step(tmp_path, monkeypatch):
    from dumper.overflow import watch

    def broken(*_):
        raise ValueError("planted")

    monkeypatch.setattr(watch, "extent_of", broken)
    with pytest.warns(RuntimeWarning, match="the overflow check stopped.*planted"):
        with dumper(check_overflow=True, use_dump=True, dump_path=tmp_path / "o.h5"):
            assert (torch.ones(2) * 2).tolist() == [2.0, 2.0]
            torch.ones(3)
    with open_dump(tmp_path / "o.h5") as file:
        assert file.finished and len(file.records) == 3


def test_a_loop_that_goes_on_with_nan_is_bounded(tmp_path, monkeypatch, capsys):
    from dumper.overflow import findings

    monkeypatch.setattr(findings, "MOST", 5)
    x = torch.tensor([12.0], dtype=HALF)

    def run():
        for _ in range(8):
            torch.exp(x)

    with pytest.warns(RuntimeWarning, match="overflow events"):
        dump = check(tmp_path / "o.h5", run)
    assert len(dump.overflows) == 5
    assert capsys.readouterr().out.count("is overflow!") == 8


def test_what_empty_left_is_nobodys_overflow(tmp_path):
    def run():
        x = torch.empty(1 << 16)
        torch.from_dlpack(x).view(torch.int32).numpy()[:] = 0x7FC00000  # NaN, without an op
        x + 1

    with dumper(check_overflow=True, dump_path=tmp_path / "o.h5") as dump:
        run()
    assert [(e.kind, e.origin) for e in dump.overflows][0] == ("propagated", "self")
    assert not any(e.begins for e in dump.overflows)


@pytest.mark.filterwarnings("ignore:.*nested tensors.*", "ignore:torch.quantize_per_tensor")
def test_tensors_made_of_others_beside_a_nan_do_not_end_the_check(tmp_path):
    """Their parts are looked at, each with what made it."""
    nested = torch.nested.nested_tensor([torch.full((2,), 12.0, dtype=HALF), torch.ones(3)])
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8)

    def run():
        bad = torch.log(torch.tensor([-1.0]))
        (nested * 10000.0) * 2
        torch.dequantize(quantized) + bad

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # "the overflow check stopped"
        dump = check(tmp_path / "o.h5", run)
    found = [(e.ir, e.kind) for e in dump.overflows]
    assert found == [
        ("log", "created"), ("mul_Tensor", "created"), ("mul_Tensor", "propagated"),
        ("add_Tensor", "propagated"),
    ]  # fmt: skip
