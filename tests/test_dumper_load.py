"""Load mode: every op computes on recorded inputs, on any device, from any device's file."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path
from typing import Any

import h5py
import models
import numpy as np
import pytest
import torch

import npu_core
from dumper import dumper, open_dump, run
from dumper.ops import op_of, overload_named
from dumper.tensors import bits_of

DIRECTIONS = pytest.mark.parametrize(
    ("golden", "mine"), [("cpu", "npu"), ("npu", "cpu"), ("cpu", "cpu"), ("npu", "npu")]
)


@pytest.fixture(autouse=True)
def exact() -> Any:
    with npu_core.use("exact"):
        yield


def dump(path: Path, step: Any) -> Path:
    with dumper(use_dump=True, dump_path=path):
        step()
    return path


def load(path: Path, source: Path, step: Any) -> dumper:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context = dumper(use_load=True, dump_path=path, load_file_path=source)
        with context:
            step()
    return context


def named(ir: str, result: Any) -> dict[str, np.ndarray]:
    """What an op returned, by the names its record gives them."""
    keys = op_of(overload_named(ir)).returns
    found = {}
    for key, value in zip(keys, [result] if len(keys) == 1 else result or (), strict=True):
        if isinstance(value, list):
            found |= {f"{key}/{key}_{i}": bits_of(member) for i, member in enumerate(value)}
        elif isinstance(value, torch.Tensor):
            found[key] = bits_of(value)
    return found


UNINITIALISED = {("mkldnn_rnn_layer", "result3")}
"""A workspace of which the op fills a part."""


@DIRECTIONS
@pytest.mark.parametrize("family", models.FAMILIES)
def test_outputs_follow_from_recorded_inputs_alone(
    family: str, golden: str, mine: str, tmp_path: Path
) -> None:
    source = dump(tmp_path / "golden.h5", models.make(family, golden))
    context = load(tmp_path / "mine.h5", source, models.make(family, mine))
    with open_dump(source) as recorded, open_dump(tmp_path / "mine.h5") as loaded:
        assert loaded.load_mode and loaded.finished
        assert len(loaded.records) == context.matched
        if golden == mine or family == "resnet":
            assert context.unmatched == []
            assert len(loaded.records) == len(recorded.records)
        counterpart = {(r.ir, r.seqid): r for r in recorded.records}
        for record in loaded.records:
            if record.ir.startswith(("empty", "new_empty")):
                continue
            alone = named(record.ir, run(counterpart[record.ir, record.seqid], mine))
            stored = {tensor.name: tensor.bits() for tensor in record.outputs}
            assert alone.keys() <= stored.keys()  # the rest: written arguments, not returned
            for name, bits in alone.items():
                if (record.ir, name) not in UNINITIALISED:
                    np.testing.assert_array_equal(bits, stored[name], err_msg=record.path)


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


def bad_records(one: Path, other: Path) -> list[str]:
    with open_dump(one) as first, open_dump(other) as second:
        found = {(r.ir, r.seqid): r for r in second.records}
        return [
            r.ir
            for r in first.records
            if any(
                not np.array_equal(a.bits(), b.bits())
                for a, b in zip(r.outputs, found[r.ir, r.seqid].outputs, strict=True)
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
    assert [name for name in context.unmatched if name != "_local_scalar_dense"] == []


def test_recorded_scalars_replace_live_ones(tmp_path: Path) -> None:
    x = torch.ones(2)
    source = dump(tmp_path / "1.h5", lambda: x * 3.0)
    results = []
    load(tmp_path / "2.h5", source, lambda: results.append(x * 5.0))
    assert results[0].tolist() == [3, 3]


NEAREST = {
    "shape": (lambda: torch.ones(2, 3).sum(1), lambda: torch.ones(3, 2).sum(1)),
    "dtype": (lambda: torch.ones(2).exp(), lambda: torch.ones(2).double().exp()),
    "int list": (lambda: torch.ones(2, 3).sum(1), lambda: torch.ones(2, 3).sum(0)),
    "bool": (lambda: torch.ones(2, 2).sum(1), lambda: torch.ones(2, 2).sum(1, keepdim=True)),
    "list length": (
        lambda: torch.cat([torch.ones(2)] * 2),
        lambda: torch.cat([torch.ones(2)] * 3),
    ),
    "op": (lambda: torch.ones(2).exp(), lambda: torch.ones(2).sin()),
}


@pytest.mark.parametrize("name", NEAREST)
def test_what_differs_runs_on_its_own_and_is_listed(name: str, tmp_path: Path) -> None:
    recorded = lambda: (torch.zeros(1), NEAREST[name][0]())  # noqa: E731 - zeros find each other
    live = NEAREST[name][1]
    source = dump(tmp_path / "1.h5", recorded)
    same = load(tmp_path / "same.h5", source, recorded)
    assert same.unmatched == []
    results = []
    with pytest.warns(RuntimeWarning, match="found no counterpart"):
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
