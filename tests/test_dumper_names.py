"""Parameters and modules bear the names that users know, whatever they are wrapped in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from dumper import dumper, open_dump
from dumper.names import Names


class Block(nn.Module):
    """A layer, a norm, and a submodule that is itself called `module`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.module = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(self.norm(self.layer(x)))


class Wrapper(nn.Module):
    """What DataParallel and its like look like."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x)


class FSDPLike(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._fsdp_wrapped_module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._fsdp_wrapped_module(x)


WRAPPINGS = {
    "plain": lambda block: block,
    "module": Wrapper,
    "module twice": lambda block: Wrapper(Wrapper(block)),
    "compile": lambda block: torch.compile(block, backend="eager"),
    "module of compiled": lambda block: Wrapper(torch.compile(block, backend="eager")),
    "fsdp": FSDPLike,
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_wrappers_leave_no_trace(wrapping: str, tmp_path: Path) -> None:
    block = Block()
    model, expected = WRAPPINGS[wrapping](block), dict(block.named_parameters())
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        model(torch.randn(4, 3)).sum().backward()
    with open_dump(tmp_path / "x.h5") as dump:
        for phase in ("grad", "update"):
            found = {
                name: r.outputs[0].read()
                for r in dump.records
                if r.phase == phase
                for name in r.entry.names.values()
            }
            for name, parameter in expected.items():
                value = parameter.grad if phase == "grad" else parameter.detach()
                assert torch.equal(torch.from_numpy(found.pop(name)), value)
            statistics = {f"norm.{name}" for name, _ in block.norm.named_buffers()}
            assert found.keys() == (statistics if phase == "update" else set())
        modules = {r.entry.module for r in dump.records if r.ir in ("addmm", "native_batch_norm")}
        assert modules == {"layer", "norm", "module"}


def test_two_roots_are_told_apart() -> None:
    generator, critic = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))
    names = Names()
    assert [names.of_module(m) for m in (generator, critic)] == ["", "Sequential"]
    assert names.of_tensor(generator[0].weight) == "0.weight"
    assert names.of_tensor(critic[0].weight) == "Sequential.0.weight"
    assert len({name for name, _ in names.parameters()}) == 4


def test_given_names_come_first() -> None:
    generator, critic = nn.Linear(2, 2), nn.Linear(2, 2)
    names = Names({"G": generator, "D": critic})
    assert [name for name, _ in names.parameters()] == ["G.weight", "G.bias", "D.weight", "D.bias"]


def test_losses_and_modules_made_on_the_spot() -> None:
    names = Names()
    assert names.of_module(nn.CrossEntropyLoss()) == "CrossEntropyLoss"
    assert names.of_module(nn.ReLU(), "body.2") == "body.2.ReLU"
    assert list(names.parameters()) == []


@pytest.mark.parametrize(
    ("view", "name"),
    [
        (lambda w: w, "weight"),
        (lambda w: w.t(), "weight"),
        (lambda w: w.data, "weight"),
        (lambda w: w.view(-1), "weight"),
        (lambda w: w[:1], None),
        (lambda w: w.clone(), None),
    ],
)
def test_whole_views_are_the_parameter(view: object, name: str | None) -> None:
    layer, names = nn.Linear(2, 3), Names()
    names.of_module(layer)
    assert names.of_tensor(view(layer.weight)) == name
    assert names.of_tensor(torch.ones(2).to_sparse()) is None


def test_a_gradient_is_taken_before_it_is_zeroed(tmp_path: Path) -> None:
    layer = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        layer(torch.ones(1, 2)).sum().backward()
        taken = layer.weight.grad.clone()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    with open_dump(tmp_path / "x.h5") as dump:
        (grad,) = (r for r in dump.by_ir["grad"] if "weight" in r.entry.names.values())
        assert torch.equal(torch.from_numpy(grad.outputs[0].read()), taken)
        (update,) = (r for r in dump.by_ir["update"] if "weight" in r.entry.names.values())
        assert torch.equal(torch.from_numpy(update.outputs[0].read()), layer.weight.detach())
        assert grad.seqid < min(r.seqid for r in dump.records if r.phase == "optimizer")
