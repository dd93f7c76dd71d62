"""torch.compile on npu computes what eager does, says so once, and leaves the CPU's to inductor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import npu_core

ROOT = str(Path(__file__).resolve().parent.parent)
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script"),
    pytest.mark.filterwarnings("ignore:.*RNN, GRU, or LSTM"),
]


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    torch.compiler.reset()
    with npu_core.use("exact"):
        yield
    torch.compiler.reset()


def trained(compiled: Callable[[nn.Module], Callable]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.3), nn.Linear(3, 2)
    ).npu()
    optimizer, x = torch.optim.AdamW(model.parameters(), foreach=True), torch.randn(5, 4).npu()
    run = compiled(model)
    for _ in range(3):
        optimizer.zero_grad()
        run(x).square().sum().backward()
        optimizer.step()
    return [t.cpu() for t in model.state_dict().values()]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fullgraph": True},
        {"mode": "reduce-overhead"},
        {"mode": "max-autotune", "dynamic": True},
        {"backend": "eager"},
        {"backend": "aot_eager"},
    ],
    ids=str,
)
def test_a_compiled_model_trains_to_the_same_bits(options: dict) -> None:
    results = trained(lambda model: torch.compile(model, **options)), trained(lambda model: model)
    assert all(map(torch.equal, *results))


def test_a_tensor_that_comes_to_npu_inside() -> None:
    @torch.compile(fullgraph=True)
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.npu() * 2 + torch.ones(2, device="npu")

    y = f(torch.ones(2))
    assert (y.device.type, y.tolist()) == ("npu", [3, 3])


def test_the_cpus_graphs_still_go_to_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import compile_fx

    compiled = []

    def in_place_of_inductor(graph: torch.fx.GraphModule, *_: object, **__: object) -> Callable:
        compiled.append(
            [t.meta["example_value"].device.type for t in graph.graph.find_nodes(op="placeholder")]
        )
        return graph.forward  # fmt: skip

    monkeypatch.setattr(compile_fx, "compile_fx", in_place_of_inductor)
    f = torch.compile(lambda x: x.exp() + 1)
    f(torch.ones(2, device="npu"))
    f(torch.ones(2))
    assert compiled == [["cpu"]]


@pytest.mark.parametrize("with_backward", [False, True])
def test_after_a_graph_break_nothing_of_ours_is_compiled(with_backward: bool) -> None:
    def frames(device: str) -> dict:
        torch.compiler.reset()
        counters.clear()
        lstm, x = nn.LSTM(3, 4).to(device), torch.ones(2, 2, 3, device=device)

        @torch.compile(backend="eager")
        def step() -> None:
            y = lstm(x)[0]
            torch._dynamo.graph_break()
            if with_backward:
                y.exp().sum().backward()

        step()
        return dict(counters["frames"])

    assert frames("npu") == frames("cpu")


def test_it_is_said_once_and_registering_imports_no_compiler() -> None:
    code = (
        "import sys, torch, npu_core\n"
        "print([m for m in sys.modules if m.startswith(('torch._dynamo.', 'torch._inductor.'))])\n"
        "for scale in 2.0, 3.0:\n"
        "    f = torch.compile(lambda x: x * scale, fullgraph=True)\n"
        "    print(f(torch.ones(1, device='npu')).item())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": ROOT, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "[]\n2.0\n3.0\n"), done.stderr
    assert done.stderr.count("torch.compile: inductor has no code for the emulated npu") == 1
