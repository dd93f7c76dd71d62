"""Load mode: every op computes on recorded inputs, on any device, from any device's file."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path
from typing import Any

import dumps
import families
import h5py
import models
import numpy as np
import pytest
import torch
from test_dumper_replay import UNINITIALISED, made
from torch import nn

import npu_core
from dumper import dumper, open_dump
from dumper.reader import Dump, Record
from dumper.tensors import bits_of

DIRECTIONS = pytest.mark.parametrize(
    ("golden", "mine"), [("cpu", "npu"), ("npu", "cpu"), ("cpu", "cpu"), ("npu", "npu")]
)


pytestmark = pytest.mark.usefixtures("exact")


def dump(path: Path, step: Any, views: str = "skip") -> Path:
    with dumper(use_dump=True, dump_path=path, views=views):
        step()
    return path


def load(path: Path, source: Path, step: Any) -> dumper:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context = dumper(use_load=True, dump_path=path, load_file_path=source)
        with context:
            step()
    return context


def ops(recorded: Dump) -> list[Record]:
    return [record for record in recorded.records if record.phase not in ("grad", "update")]


@DIRECTIONS
@pytest.mark.parametrize("family", models.FAMILIES)
def test_outputs_follow_from_recorded_inputs_alone(
    family: str, golden: str, mine: str, tmp_path: Path
) -> None:
    source = dump(tmp_path / "golden.h5", models.make(family, golden), views="dump")
    context = load(tmp_path / "mine.h5", source, models.make(family, mine))
    with open_dump(source) as recorded, open_dump(tmp_path / "mine.h5") as loaded:
        assert loaded.load_mode and loaded.finished
        assert not any(record.has_inputs for record in loaded.records)
        assert len(ops(loaded)) == context.matched > 100
        if golden == mine or family == "resnet":
            assert context.unmatched == []
            assert len(loaded.records) == len(recorded.records)
        counterpart = {(r.ir, r.seqid): r for r in recorded.records}
        for record in ops(loaded):
            if record.ir.startswith(("empty", "new_empty")):
                continue
            alone = made(counterpart[record.ir, record.seqid], mine)
            stored = {tensor.name: tensor.bits() for tensor in record.outputs}
            assert alone.keys() - record.results.keys() == stored.keys()
            for name, bits in stored.items():
                if (record.ir, name) not in UNINITIALISED:
                    np.testing.assert_array_equal(bits, alone[name], err_msg=record.path)


PAIRS = [
    pytest.param(name, golden, mine, id=f"{name}-{golden}-{mine}")
    for name, golden, mine in (
        ("gpt", "cpu", "cpu"), ("gpt", "cpu", "npu"), ("gpt", "npu", "cpu"), ("t5", "cpu", "npu"),
        ("transformer", "npu", "cpu"), ("embedding", "cpu", "cpu"), ("unet", "npu", "npu"),
        ("lstm", "cpu", "npu"), ("gan", "cpu", "cpu"),
    )
]  # fmt: skip


@pytest.mark.parametrize(("family", "golden", "mine"), PAIRS)
def test_every_op_is_fed_by_its_own_counterpart(
    family: str, golden: str, mine: str, tmp_path: Path
) -> None:
    """Of the same call, in the same module; and so it gives the same bits, exactly emulated."""
    source = dump(tmp_path / "golden.h5", families.make(family, golden))
    context = load(tmp_path / "mine.h5", source, families.make(family, mine))
    with open_dump(source) as recorded, open_dump(tmp_path / "mine.h5") as loaded:
        counterpart = {(r.ir, r.seqid): r for r in recorded.records}
        for record in ops(loaded):
            theirs = counterpart[record.ir, record.seqid]
            place = [(r.phase, r.entry.api, r.entry.module) for r in (record, theirs)]
            assert place[0] == place[1]
            stored = {tensor.name: tensor.bits() for tensor in theirs.outputs}
            for tensor in record.outputs:
                known = (record.ir, tensor.name) in UNINITIALISED or "empty" in record.ir
                if not known:
                    assert tensor.bits().tobytes() == stored[tensor.name].tobytes(), tensor.path
        if golden == mine:
            assert context.unmatched == []
            assert context.matched == len(ops(recorded))


@DIRECTIONS
def test_the_live_step_takes_the_recorded_values(golden: str, mine: str, tmp_path: Path) -> None:
    """Other weights, other data: fed with the golden run they end where that ended."""
    first = models.make("resnet", golden)
    source = dump(tmp_path / "golden.h5", first)
    other = models.make("resnet", mine)
    with torch.no_grad():
        for parameter in other.model.parameters():
            parameter.add_(0.5)
    load(tmp_path / "mine.h5", source, other)
    before, after = first.state(), other.state()
    updated = [n for n in before if n in dict(first.model.named_parameters()) or "running" in n]
    assert len(updated) > 20
    assert [n for n in updated if not torch.equal(before[n].cpu(), after[n].cpu())] == []


@DIRECTIONS
def test_what_a_step_leaves_behind_is_recorded_as_it_is(
    golden: str, mine: str, tmp_path: Path
) -> None:
    """Also where the live tensor was an op's result, and was then changed in place: by an op that
    is fed (clipping) and by one that has no counterpart."""

    def step(device: str, extra: bool) -> nn.Module:
        torch.manual_seed(0)
        layer = nn.LayerNorm(6).to(device)
        layer(torch.randn(3, 6).to(device)).pow(2).sum().backward()
        with torch.no_grad():
            layer.weight.grad.mul_(0.5)
            if extra:
                layer.bias.grad.atan2_(layer.weight.grad)
        kept.append(layer)
        return layer

    kept: list[nn.Module] = []
    source = dump(tmp_path / "1.h5", lambda: step(golden, False))
    context = load(tmp_path / "2.h5", source, lambda: step(mine, True))
    assert "atan2_" in context.unmatched and "mul__Tensor" not in context.unmatched
    with open_dump(tmp_path / "2.h5") as loaded:
        stored = {r.outputs[0].name: r.outputs[0].bits() for r in loaded.by_ir["grad"]}
    for name, parameter in kept[1].named_parameters():
        np.testing.assert_array_equal(stored[name], bits_of(parameter.grad))


def bad_records(one: Path, other: Path) -> list[str]:
    with open_dump(one) as first, open_dump(other) as second:
        found = {(r.ir, r.seqid): r for r in second.records}
        return [
            r.ir
            for r in first.records
            if any(
                not np.array_equal(a.bits(), b.bits())
                for a in r.outputs
                for b in found[r.ir, r.seqid].outputs
                if a.name == b.name
            )
        ]


def plant() -> Any:
    """One wrong op on npu: the second convolution is off by 1 %."""
    return npu_core.fault("aten::convolution", lambda output: output * 1.01, nth=2)


def test_a_planted_fault_is_one_row_when_npu_loads_cpu(tmp_path: Path) -> None:
    source = dump(tmp_path / "cpu.h5", models.make("resnet", "cpu"))
    with plant():
        dump(tmp_path / "free.h5", models.make("resnet", "npu"))
    with plant():
        load(tmp_path / "load.h5", source, models.make("resnet", "npu"))
    assert len(bad_records(tmp_path / "free.h5", source)) > 50
    assert bad_records(tmp_path / "load.h5", source) == ["convolution"]


def test_a_planted_fault_is_one_row_where_the_devices_expand_calls_otherwise(
    tmp_path: Path,
) -> None:
    """Attention and dropout are other ops on npu; whatever is wrong before them stays one row."""
    source = dump(tmp_path / "cpu.h5", families.make("gpt", "cpu"))
    with npu_core.fault("aten::addmm", lambda output: output * 1.01, nth=2):
        context = load(tmp_path / "load.h5", source, families.make("gpt", "npu"))
    assert len(context.unmatched) > 100
    wrong = [ir for ir in bad_records(tmp_path / "load.h5", source) if "empty" not in ir]
    assert wrong == ["addmm"]


def test_a_planted_fault_is_one_row_when_cpu_loads_npu(tmp_path: Path) -> None:
    with plant():
        source = dump(tmp_path / "npu.h5", models.make("resnet", "npu"))
    dump(tmp_path / "free.h5", models.make("resnet", "cpu"))
    load(tmp_path / "load.h5", source, models.make("resnet", "cpu"))
    assert len(bad_records(tmp_path / "free.h5", source)) > 50
    assert bad_records(tmp_path / "load.h5", source) == ["convolution"]


def test_views_stay_live(device: str, tmp_path: Path) -> None:
    def step() -> torch.Tensor:
        x = torch.zeros(4, device=device)
        x[1:3].add_(5)  # lost if the view did not alias x
        return x * 2

    source = dump(tmp_path / "1.h5", step)
    results = []
    load(tmp_path / "2.h5", source, lambda: results.append(step()))
    assert results[0].tolist() == [0, 10, 10, 0]


def test_in_place_results_are_the_callers_own_tensor(device: str, tmp_path: Path) -> None:
    def step() -> None:
        x, out = torch.ones(3, device=device), torch.empty(0, device=device)
        assert x.add_(1) is x
        assert torch.exp(x, out=out) is out
        assert out.shape == (3,)
        values = [x, torch.ones(3, device=device)]
        torch._foreach_add_(values, 2.0)
        assert values[1].tolist() == [3, 3, 3]

    source = dump(tmp_path / "1.h5", step)
    context = load(tmp_path / "2.h5", source, step)
    assert context.unmatched == []


def test_recorded_scalars_replace_live_ones(tmp_path: Path) -> None:
    x = torch.ones(2)
    source = dump(tmp_path / "1.h5", lambda: x * 3.0)
    results = []
    load(tmp_path / "2.h5", source, lambda: results.append(x * 5.0))
    assert results[0].tolist() == [3, 3]


NEAREST = {
    "shape": (
        lambda: torch.ones(2, 3).sum(1),
        lambda: torch.ones(3, 2).sum(1),
        r"shape of self: recorded \(2, 3\), live \(3, 2\)",
    ),
    "dtype": (
        lambda: torch.ones(2).exp(),
        lambda: torch.ones(2).double().exp(),
        "dtype of self: recorded float32, live float64",
    ),
    "int list": (
        lambda: torch.ones(2, 3).sum(1),
        lambda: torch.ones(2, 3).sum(0),
        r"dim: recorded \[1\], live \[0\]",
    ),
    "bool": (
        lambda: torch.ones(2, 2).sum(1),
        lambda: torch.ones(2, 2).sum(1, keepdim=True),
        "keepdim: recorded False, live True",
    ),
    "list length": (
        lambda: torch.cat([torch.ones(2)] * 2),
        lambda: torch.cat([torch.ones(2)] * 3),
        "tensors/tensors_2: recorded nothing, live a tensor",
    ),
    "op": (
        lambda: torch.ones(2).exp(),
        lambda: torch.ones(2).sin(),
        "sin: the recording has no such op",
    ),
}


@pytest.mark.parametrize("name", NEAREST)
def test_what_differs_runs_on_its_own_and_is_listed(name: str, tmp_path: Path) -> None:
    recorded = lambda: (torch.zeros(1), NEAREST[name][0]())  # noqa: E731 - zeros find each other
    live = NEAREST[name][1]
    source = dump(tmp_path / "1.h5", recorded)
    same = load(tmp_path / "same.h5", source, recorded)
    assert same.unmatched == []
    results = []
    with pytest.warns(RuntimeWarning, match=NEAREST[name][2]):
        context = dumper(use_load=True, dump_path=tmp_path / "2.h5", load_file_path=source)
        with context:
            torch.zeros(1)
            results.append(live())
    assert torch.equal(results[0], live())
    assert context.unmatched
    with open_dump(tmp_path / "2.h5") as loaded:
        assert [line["ir"] for line in loaded.lines("unmatched")] == context.unmatched
        assert not set(context.unmatched[-1:]) & {r.ir for r in loaded.records}


def test_int32_meets_int64(tmp_path: Path) -> None:
    """Migration scripts turn targets into int32, which the fork let match."""
    source = dump(tmp_path / "1.h5", lambda: torch.arange(4).reshape(2, 2).cumsum(0))
    x = torch.arange(4, dtype=torch.int32).reshape(2, 2) + 9
    results = []
    load(tmp_path / "2.h5", source, lambda: results.append(x.neg()))
    source = dump(tmp_path / "3.h5", lambda: torch.arange(4).reshape(2, 2).neg())
    load(tmp_path / "4.h5", source, lambda: results.append(x.neg()))
    assert results[0].tolist() == [[-9, -10], [-11, -12]]
    assert results[1].tolist() == [[0, -1], [-2, -3]]
    assert results[1].dtype == torch.int32


def test_an_extract_of_one_op_loads(
    tmp_path: Path, hdf5_tools: dict[str, str], device: str
) -> None:
    source = dump(tmp_path / "1.h5", models.make("resnet", "cpu"))
    with open_dump(source) as recorded:
        record = recorded.by_ir["convolution_backward"][1]
        expected = {t.name: t.bits() for t in record.outputs}
    command = [hdf5_tools["h5copy"], "-pv", "-i", source, "-o", tmp_path / "one.h5"]
    subprocess.run([*command, "-s", record.path, "-d", record.path], check=True)
    with h5py.File(tmp_path / "one.h5") as file:
        assert list(file) == ["convolution_backward"]
    context = load(tmp_path / "2.h5", tmp_path / "one.h5", models.make("resnet", device))
    assert context.matched == 1
    with open_dump(tmp_path / "2.h5") as loaded:
        (only,) = loaded.records
        assert only.path == record.path
        for tensor in only.outputs:
            np.testing.assert_array_equal(tensor.bits(), expected[tensor.name])


IN_PLACE_VIEWS = {
    "t_": lambda x: x.t_(),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "transpose_": lambda x: x.transpose_(0, 1),
    "as_strided_": lambda x: x.as_strided_((3,), (1,), 1),
    "set_": lambda x: x.set_(torch.ones(4, device=x.device)[1:]),
    "resize_": lambda x: x.resize_(2),
}


@pytest.mark.parametrize("name", IN_PLACE_VIEWS)
def test_in_place_views_stay_live(name: str, device: str, tmp_path: Path) -> None:
    def step() -> list:
        x = torch.arange(6.0).to(device).view(2, 3)
        y = x.view(6)
        IN_PLACE_VIEWS[name](x)
        x.view(-1)[:1].fill_(100) if x.is_contiguous() else x[0].fill_(100)
        return [x.stride(), x.tolist(), y.tolist()]

    free = step()
    results = []
    source = dump(tmp_path / "1.h5", step)
    load(tmp_path / "2.h5", source, lambda: results.append(step()))
    assert results == [free]


def test_the_originals_files_load(tmp_path: Path) -> None:
    """Its layout, written by plain h5py: no index, half widened, nodes of backward by class."""
    x = np.linspace(-2, 2, 6, dtype="f4").reshape(2, 3)
    with h5py.File(tmp_path / "fork.h5", "w") as file:
        for seqid, factor in ((2, 1), (10, 2), (1, 3)):
            dumps.put(file, f"relu/{seqid}/input/self", x * factor, device=1)
            dumps.put(file, f"relu/{seqid}/output/result", np.maximum(x * factor, 0), device=1)
        dumps.put(file, "sum_dim_IntList/3/input/self", x, code=10)  # half is stored as float32
        dumps.put(file, "sum_dim_IntList/3/input/dim", np.array([1], "i8"), kind=2)
        dumps.put(file, "sum_dim_IntList/3/input/keepdim", np.int8(0), kind=4)
        dumps.put(file, "sum_dim_IntList/3/output/result", x.sum(1), code=10)
        dumps.put(file, "add_Tensor/4/input/self", x)
        dumps.put(file, "add_Tensor/4/input/other", x)
        dumps.put(file, "add_Tensor/4/input/alpha", np.int64(1), kind=7)
        dumps.put(file, "add_Tensor/4/output/result", x + x)
        for seqid in (5, 6, 7, 8, 9):
            dumps.put(file, f"MmBackward/{seqid}/input/grads/grads_0", x)
    results: list[torch.Tensor] = []
    inputs = [torch.zeros(2, 3) for _ in range(3)]
    half = torch.zeros(2, 3, dtype=torch.float16)

    def step() -> None:
        results.extend(torch.relu(value) for value in inputs)
        results.append(half.sum(1))
        results.append(inputs[0] + inputs[1])
        results.append(torch.mm(inputs[0], inputs[1].t()))

    context = load(tmp_path / "2.h5", tmp_path / "fork.h5", step)
    assert context.matched == 5
    assert context.unmatched == ["t", "mm"]
    expected = [x * 3, x, x * 2]  # by number, not by name
    for result, value in zip(results[:3], expected, strict=True):
        np.testing.assert_array_equal(result.numpy(), np.maximum(value, 0))
    assert results[3].dtype == torch.float16
    torch.testing.assert_close(results[3], torch.from_numpy(x).half().sum(1))
    np.testing.assert_array_equal(results[4].numpy(), x + x)
    with open_dump(tmp_path / "2.h5") as loaded:
        assert sorted(r.path for r in loaded.records) == [
            "/add_Tensor/4", "/relu/1", "/relu/10", "/relu/2", "/sum_dim_IntList/3",
        ]  # fmt: skip
