"""Every op knows its phase, its API call, its module and its line, also in backward."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import models
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dumper import dumper, open_dump
from dumper.reader import Record

VALUES = ("grad", "update")


def records(tmp_path: Path, run: Callable[[], object], **choice: object) -> list[Record]:
    """What running it recorded, values of gradients and parameters aside."""
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.h5"
    with dumper(use_dump=True, dump_path=path, **choice):
        run()
    with open_dump(path) as dump:
        assert dump.skipped == []
        return [record for record in dump.records if record.phase not in VALUES]


class Net(nn.Module):
    """Two linear layers and an activation, some of it checkpointed on request."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.reentrant is None:
            return self.rest(x)
        return checkpoint(self.rest, x, use_reentrant=self.reentrant)

    def rest(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.second(x)).tanh()


def of(found: list[Record], phase: str, ir: str) -> list[tuple[str | None, str | None]]:
    return [(r.entry.api, r.entry.module) for r in found if r.phase == phase and r.ir == ir]


def test_calls_and_modules_forward_and_backward(device: str, tmp_path: Path) -> None:
    net, x = Net().to(device), torch.ones(2, 4, device=device)
    found = records(tmp_path, lambda: net(x).sum().backward())
    linear = "torch.nn.functional.linear"
    assert of(found, "forward", "addmm") == [(f"{linear}.0", "first"), (f"{linear}.1", "second")]
    assert of(found, "forward", "relu") == [("torch.nn.functional.relu.0", "")]
    assert of(found, "forward", "tanh") == [("torch.Tensor.tanh.0", "")]
    assert of(found, "forward", "sum") == [("torch.Tensor.sum.0", None)]
    assert of(found, "backward", "tanh_backward") == [("torch.Tensor.tanh.0", "")]
    assert of(found, "backward", "threshold_backward") == [("torch.nn.functional.relu.0", "")]
    # the batch asks for no gradient, so the first layer makes one for its weight only
    assert of(found, "backward", "mm") == [
        (f"{linear}.1", "second"),
        (f"{linear}.1", "second"),
        (f"{linear}.0", "first"),
    ]
    assert {r.entry.node for r in found if r.ir == "tanh_backward"} == {"TanhBackward0"}


def test_the_line_is_the_users(tmp_path: Path) -> None:
    net = Net()
    found = records(tmp_path, lambda: net(torch.ones(2, 4)).sum().backward())
    here = Path(__file__)
    lines = here.read_text().splitlines()

    def line(record: Record) -> str:
        file, _, number = record.entry.source.rpartition(":")
        assert Path(file).name == here.name and not Path(file).is_absolute()
        return lines[int(number) - 1]

    for record in found:
        if record.ir in ("tanh", "tanh_backward", "relu", "threshold_backward"):
            assert "F.relu(self.second(x)).tanh()" in line(record)
        if record.ir in ("sum", "ones_like"):
            assert "net(torch.ones(2, 4)).sum().backward()" in line(record)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_bears_the_names_of_its_first_run(
    reentrant: bool, device: str, tmp_path: Path
) -> None:
    net, x = Net(reentrant).to(device), torch.ones(2, 4, device=device)
    found = records(tmp_path, lambda: net(x).sum().backward())
    for ir in ("addmm", "relu", "tanh"):
        again = of(found, "recompute", ir)
        assert again == of(found, "forward", ir)[-1:]
    assert of(found, "backward", "tanh_backward") == [("torch.Tensor.tanh.0", "")]
    assert of(found, "backward", "mm")[0] == ("torch.nn.functional.linear.1", "second")
    # and the same as without checkpointing, recomputation aside
    plain = records(tmp_path, lambda: Net().to(device)(x).sum().backward())
    for phase in ("forward", "backward"):
        for ir in ("addmm", "relu", "tanh", "mm", "threshold_backward", "tanh_backward"):
            assert of(found, phase, ir) == of(plain, phase, ir)


def test_double_backward_stays_with_the_call_that_began_it(device: str, tmp_path: Path) -> None:
    x = torch.ones(3, device=device, requires_grad=True)

    def penalty() -> None:
        (slope,) = torch.autograd.grad((x.exp() * 2).sum(), x, create_graph=True)
        slope.sin().sum().backward()

    found = records(tmp_path, penalty)
    exps = [r for r in found if r.entry.api == "torch.Tensor.exp.0"]
    assert [r.phase for r in exps].count("backward") >= 2
    assert of(found, "backward", "cos") == [("torch.Tensor.sin.0", None)]
    assert all(r.entry.api for r in found if "AccumulateGrad" not in (r.entry.node or ""))


class Doubled(torch.autograd.Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        return torch.mul(grad, 2)


def test_a_functions_own_backward(tmp_path: Path) -> None:
    net = Net()
    found = records(tmp_path, lambda: Doubled.apply(net(torch.ones(2, 4))).sum().backward())
    own = [r for r in found if r.entry.node == "DoubledBackward"]
    assert [(r.ir, r.entry.api) for r in own] == [("mul_Tensor", "backward:torch.mul.0")]


def test_a_module_used_twice_and_a_shared_weight(tmp_path: Path) -> None:
    net = Net()
    net.second.weight = net.first.weight

    def twice() -> None:
        net.first(net.first(torch.ones(2, 4))).sum().backward()

    found = records(tmp_path, twice, model=net)
    assert [api for api, _ in of(found, "forward", "addmm")] == [
        "torch.nn.functional.linear.0",
        "torch.nn.functional.linear.1",
    ]
    assert {module for _, module in of(found, "backward", "mm")} == {"first"}
    weights = {r.entry.names["mat2"] for r in found if r.ir == "addmm"}
    assert weights == {"first.weight"}


def test_the_optimizer_is_a_phase_with_calls_of_its_own(tmp_path: Path) -> None:
    step = models.make("gpt", "cpu")
    found = records(tmp_path, step)
    inside = [r for r in found if r.phase == "optimizer"]
    assert inside and all(r.entry.api.startswith("optimizer:") for r in inside)
    assert not any(r.entry.api.startswith("optimizer:") for r in found if r.phase == "forward")
    named = {name for r in inside for name in r.entry.names.values()}
    assert named == {name for name, _ in step.model.named_parameters()}


@pytest.mark.parametrize("steps", [1, 2])
def test_calls_are_counted_anew_in_each_step(steps: int, tmp_path: Path) -> None:
    net, path = Net(), tmp_path / "x.h5"
    with dumper(use_dump=True, dump_path=path) as dump:
        for _ in range(steps):
            net(torch.ones(2, 4)).sum().backward()
            dump.step()
    with open_dump(path) as opened:
        calls = [(r.entry.step, r.entry.api) for r in opened.records if r.ir == "addmm"]
    names = ["torch.nn.functional.linear.0", "torch.nn.functional.linear.1"]
    assert calls == list(itertools.product(range(steps), names))


def test_ops_of_a_thread_that_the_step_starts(tmp_path: Path) -> None:
    def step() -> None:
        thread = threading.Thread(target=lambda: torch.ones(2).exp())
        thread.start()
        thread.join()
        torch.ones(2).sin()

    found = records(tmp_path, step)
    assert [(r.ir, r.entry.thread) for r in found] == [
        ("ones", 1),
        ("exp", 1),
        ("ones", 0),
        ("sin", 0),
    ]
    assert threading.Thread._bootstrap_inner.__module__ == "threading"


def test_fast_paths_are_one_call(device: str, tmp_path: Path) -> None:
    """A TorchFunctionMode would switch them off; so around them there is none."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval().to(device)
    x = torch.ones(1, 3, 8, device=device)

    def step() -> None:
        with torch.no_grad():
            layer(x)

    found = records(tmp_path, step)
    assert {r.entry.api for r in found} == {"torch.nn.TransformerEncoderLayer.0"}


def test_torch_is_left_as_it_was(tmp_path: Path) -> None:
    def state() -> list[object]:
        return [
            nn.Module.__call__,
            torch.autograd._engine_run_backward,
            torch.utils.checkpoint.CheckpointFunction,
            torch.utils.checkpoint._checkpoint_without_reentrant_generator,
            threading.Thread._bootstrap_inner,
            torch.overrides._get_current_function_mode(),
        ]

    before = state()
    with pytest.raises(ZeroDivisionError):
        records(tmp_path, lambda: Net()(torch.ones(2, 4)) / (1 // 0))
    assert state() == before


def test_a_graph_that_outlives_its_step(tmp_path: Path) -> None:
    """A step knows the graph of the one before; of older ones it says nothing rather than a lie."""
    net, path, kept = Net(), tmp_path / "x.h5", []
    with dumper(use_dump=True, dump_path=path) as dump:
        for number in range(5):
            kept.append(net(torch.ones(2, 4)).sum())
            if number:
                kept[number - 1].backward()
            dump.step()
        kept[-1].backward()
    with open_dump(path) as opened:
        inner = [r for r in opened.records if r.ir == "tanh_backward"]
        assert [r.entry.api for r in inner] == ["torch.Tensor.tanh.0"] * 5
        assert [r.entry.step for r in inner] == [1, 2, 3, 4, 5]


def test_an_older_graph_belongs_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with dumper(use_dump=True, dump_path=path) as dump:
        old = torch.ones(2, requires_grad=True).exp().sum()
        for _ in range(3):
            dump.step()
            torch.ones(2, requires_grad=True).sin()
        old.backward()
    with open_dump(path) as opened:
        found = [r.entry.api for r in opened.records if r.entry.node == "ExpBackward0"]
        assert found and set(found) == {None}
