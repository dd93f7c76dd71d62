"""Load mode where the two runs differ: calls more or less, expanded otherwise, drawn otherwise."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from test_dumper_load import dump, load, ops
from torch import nn
from torch.nn import functional as F

import npu_core
from dumper import dumper, open_dump
from dumper.tensors import bits_of

pytestmark = pytest.mark.usefixtures("exact")


def reasons(path: Path) -> list[tuple[str, str]]:
    with open_dump(path) as loaded:
        return [(line["ir"], line["reason"]) for line in loaded.lines("unmatched")]


class Layers(nn.Module):
    """Calls of one shape, again and again. changes: what one run does and the other does not."""

    def __init__(self, device: str, *changes: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.changes = changes
        self.x = torch.randn(3, 8)
        self.to(device)
        self.x = self.x.to(device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if f"without relu {i}" not in self.changes:
                x = torch.relu(x)
            x = x * 2.0
            if f"with relu {i}" in self.changes:
                x = torch.relu(x)
            if f"with exp {i}" in self.changes:
                torch.exp(x)
            if f"with mul {i}" in self.changes:
                x = x * 1.5
            x = x + 1.0
        if "with hook" in self.changes:
            x.register_hook(lambda grad: grad * 1.0)
        return torch.tanh(x)

    def step(self) -> None:
        self(self.x).pow(2).sum().backward()


CHANGES = {
    "with exp 1": ({"exp"}, 0),
    "with relu 0": ({"relu", "detach", "threshold_backward"}, 0),
    "with relu 2": ({"relu", "detach", "threshold_backward"}, 0),
    "with mul 1": ({"mul_Tensor"}, 0),
    "with hook": ({"mul_Tensor"}, 0),
    "without relu 0": (set(), 4),
    "without relu 2": (set(), 4),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("changed", ["live", "recorded"])
def test_a_call_more_or_less_costs_no_other_op(change: str, changed: str, tmp_path: Path) -> None:
    """An extra call and its backward find no counterpart; everything else finds its own."""
    plain, other = Layers("cpu"), Layers("cpu", change)
    golden, mine = (plain, other) if changed == "live" else (other, plain)
    source = dump(tmp_path / "1.h5", golden.step)
    context = load(tmp_path / "2.h5", source, mine.step)
    extra, missing = CHANGES[change]
    with open_dump(source) as recorded, open_dump(tmp_path / "2.h5") as loaded:
        counterpart = {(r.ir, r.seqid): r for r in recorded.records}
        for record in ops(loaded):
            theirs = counterpart[record.ir, record.seqid]
            # lines, not call numbers: those behind the change are others
            for fact in ("phase", "module", "source"):
                assert getattr(record.entry, fact) == getattr(theirs.entry, fact), record.path
        total = len(ops(recorded))
    if changed == "recorded":  # what was extra is missing, and the other way round
        extra, missing = (set(), len(extra) + 1) if extra else ({"relu", "detach"}, 0)
        if not missing:
            extra = extra | {"threshold_backward"}
    assert set(context.unmatched) <= extra | {"detach"}
    assert context.matched >= total - missing


def test_a_call_that_this_device_expands_otherwise_is_fed_at_its_boundary(tmp_path: Path) -> None:
    """scaled_dot_product_attention: one op on cpu, many on npu. Its result follows from what was
    recorded to enter it, whatever the live run made of that; the caller's tensors stay."""

    def attend(device: str, scale: float) -> Any:
        torch.manual_seed(0)
        parts = [torch.randn(2, 4, 5, 8).to(device) for _ in range(3)]

        def step() -> torch.Tensor:
            q, k, v = (part * scale for part in parts)
            result = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            kept.append(q.cpu())
            return result

        kept: list[torch.Tensor] = []
        step.kept = kept
        return step

    recorded = attend("cpu", 1.0)
    results: list[torch.Tensor] = []
    source = dump(tmp_path / "1.h5", lambda: results.append(recorded()))
    live = attend("npu", 1.0)
    with pytest.warns(RuntimeWarning, match="1 calls that this device expands into other ops"):
        context = dumper(use_load=True, dump_path=tmp_path / "2.h5", load_file_path=source)
        with context, npu_core.fault("aten::mul", lambda output: output * 3, nth=1):
            results.append(live())
    assert "_safe_softmax" in context.unmatched
    # the first op, which is wrong, made q; attention has taken the recorded one
    torch.testing.assert_close(results[1].cpu(), results[0])
    torch.testing.assert_close(live.kept[0], recorded.kept[0] * 3)
    said = {ir for ir, reason in reasons(tmp_path / "2.h5") if "fed with what enters" in reason}
    assert said


@pytest.mark.parametrize(("golden", "mine"), [("cpu", "npu"), ("npu", "cpu"), ("cpu", "cpu")])
def test_dropout_drops_what_was_dropped(golden: str, mine: str, tmp_path: Path) -> None:
    """cpu draws a mask and multiplies, npu has one op; the states of their generators differ."""

    def step(device: str, seed: int, found: list) -> Any:
        def run() -> None:
            x = torch.ones(400, device=device, requires_grad=True)
            torch.manual_seed(seed)
            y = F.dropout(x, 0.3)
            y.sum().backward()
            found.extend((y.detach().cpu(), x.grad.cpu()))

        return run

    before: list[torch.Tensor] = []
    after: list[torch.Tensor] = []
    source = dump(tmp_path / "1.h5", step(golden, 1, before))
    load(tmp_path / "2.h5", source, step(mine, 2, after))
    for theirs, ours in zip(before, after, strict=True):
        assert 60 < (theirs == 0).sum() < 180
        assert torch.equal(theirs == 0, ours == 0)
        torch.testing.assert_close(theirs, ours)


def test_the_generator_goes_on_as_without_load_mode(device: str, tmp_path: Path) -> None:
    found: list[torch.Tensor] = []

    def step(seed: int) -> None:
        torch.manual_seed(seed)
        found.append(torch.rand(4, device=device))
        found.append(torch.empty(4, device=device).normal_())

    source = dump(tmp_path / "1.h5", lambda: step(1))
    load(tmp_path / "2.h5", source, lambda: step(2))
    goes_on = torch.rand(1, device=device)
    step(2)
    assert torch.equal(torch.rand(1, device=device), goes_on)
    assert torch.equal(found[0], found[2]) and torch.equal(found[1], found[3])
    assert not torch.equal(found[2], found[4])


def test_views_that_are_only_described_are_matched(device: str, tmp_path: Path) -> None:
    def step() -> torch.Tensor:
        return torch.ones(2, 3, device=device).t()[1:].sum(0)

    source = dump(tmp_path / "1.h5", step)
    context = load(tmp_path / "2.h5", source, step)
    assert context.unmatched == []
    with open_dump(tmp_path / "2.h5") as loaded:
        (view,) = loaded.by_ir["t"]
        assert view.outputs == ()
        assert view.entry.stubs["output/result"][1:] == ((3, 2), (1, 3), "view")


def test_the_live_layout_stays(tmp_path: Path) -> None:
    """The recorded value in the live strides: a later view must still be possible."""
    x = torch.randn(2, 3, 4, 4)
    source = dump(tmp_path / "1.h5", lambda: x.exp())
    results = []
    mine = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    load(tmp_path / "2.h5", source, lambda: results.append(mine.exp()))
    assert results[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(results[0], x.exp())


@pytest.mark.parametrize("kind", ["sparse", "csr", "quantized"])
def test_tensors_made_of_parts_are_fed(kind: str, tmp_path: Path) -> None:
    def make(scale: float) -> torch.Tensor:
        x = torch.eye(3) * scale
        if kind == "quantized":
            return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
        return x.to_sparse() if kind == "sparse" else x.to_sparse_csr()

    results: list[torch.Tensor] = []

    def step(x: torch.Tensor) -> None:
        results.append(x.dequantize() if kind == "quantized" else x.to_dense())

    one, two = make(1.0), make(2.0)
    source = dump(tmp_path / "1.h5", lambda: step(one))
    context = load(tmp_path / "2.h5", source, lambda: step(two))
    assert context.matched > 0 and context.unmatched == []
    assert torch.equal(results[1], results[0])


def test_the_summary_says_how_much_and_why(tmp_path: Path) -> None:
    source = dump(tmp_path / "1.h5", lambda: torch.ones(2, 3).exp().sin())
    with pytest.warns(RuntimeWarning, match=r"2 of 3 ops \(66 %\) ran on recorded inputs") as said:
        with dumper(use_load=True, dump_path=tmp_path / "2.h5", load_file_path=source):
            torch.ones(2, 3).exp().cos()
    assert "1 x cos: the recording has no such op" in str(said[0].message)
    assert "no load run" not in str(said[0].message)
    with open_dump(tmp_path / "2.h5") as loaded:
        assert list(loaded.lines("unmatched")) == [
            {
                "ir": "cos",
                "api": "torch.Tensor.cos.0",
                "module": None,
                "phase": "forward",
                "reason": "the recording has no such op",
            }
        ]


def test_under_half_is_no_load_run(tmp_path: Path) -> None:
    source = dump(tmp_path / "1.h5", lambda: torch.ones(2, 3).exp())
    with pytest.warns(RuntimeWarning, match=r"this is no load run: 1 of 4 ops \(25 %\)"):
        with dumper(use_load=True, dump_path=tmp_path / "2.h5", load_file_path=source):
            torch.ones(2, 3).cos().tan().sin()


def test_a_whole_match_is_one_plain_line(tmp_path: Path, capsys: Any) -> None:
    source = dump(tmp_path / "1.h5", lambda: torch.ones(2).exp())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with dumper(use_load=True, dump_path=tmp_path / "2.h5", load_file_path=source):
            torch.ones(2).exp()
    assert "2 of 2 ops (100 %) ran on recorded inputs" in capsys.readouterr().err


def test_an_op_that_refuses_recorded_inputs_runs_on_its_own(tmp_path: Path) -> None:
    table = torch.ones(5, 2)
    source = dump(tmp_path / "1.h5", lambda: F.embedding(torch.tensor([1, 4]), table))
    with h5py.File(source, "a") as file:
        (seqid,) = file["embedding"]
        file[f"embedding/{seqid}/input/indices"][:] = 77
    results = []
    context = load(
        tmp_path / "2.h5", source, lambda: results.append(F.embedding(torch.tensor([1, 4]), table))
    )
    assert "embedding" in context.unmatched
    assert results[0].shape == (2, 2)
    found = dict(reasons(tmp_path / "2.h5"))
    assert found["embedding"].startswith("it raised on recorded inputs")


@pytest.mark.parametrize("level", ["call", "module"])
def test_a_file_of_boundaries_loads(level: str, tmp_path: Path) -> None:
    """Tensors that no boundary crosses are not in the file; their ops run on their own."""
    golden = Layers("cpu")
    with dumper(use_dump=True, dump_path=tmp_path / "1.h5", level=level):
        golden.step()
    mine = Layers("cpu")
    context = load(tmp_path / "2.h5", tmp_path / "1.h5", mine.step)
    assert context.matched > 0
    assert torch.equal(mine.layers[0].weight.grad, golden.layers[0].weight.grad)


def test_an_extract_matches_the_call_it_came_from(
    tmp_path: Path, hdf5_tools: dict[str, str], device: str
) -> None:
    """Four relus of one shape: the third is the one that was cut out."""
    source = dump(tmp_path / "1.h5", Layers("cpu").step)
    with open_dump(source) as recorded:
        third = recorded.by_ir["relu"][2]
    command = [hdf5_tools["h5copy"], "-pv", "-i", source, "-o", tmp_path / "one.h5"]
    subprocess.run([*command, "-s", third.path, "-d", third.path], check=True)
    seen: list[torch.Tensor] = []
    mine = Layers(device)
    with torch.no_grad():
        for layer in mine.layers:
            layer.bias.add_(100.0)  # relu then changes nothing, unless it is fed
    relu = torch.relu

    def watched(x: torch.Tensor) -> torch.Tensor:
        seen.append(relu(x))
        return seen[-1]

    torch.relu, context = watched, None
    try:
        context = load(tmp_path / "2.h5", tmp_path / "one.h5", mine.step)
    finally:
        torch.relu = relu
    assert context.matched == 1
    with open_dump(source) as recorded:
        (output,) = recorded.by_ir["relu"][2].outputs
        fed = [np.array_equal(bits_of(x.detach()), output.bits()) for x in seen]
    assert fed == [False, False, True, False]
