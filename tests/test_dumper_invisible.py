"""The dumper is invisible: what a program computes has the same bits with it and without.

Compared are values, strides, version counters, gradient functions, random states, texts of errors,
warnings, and what torch is left with afterwards. The programs are whole training steps of real
model families, and `scenarios`, each a way in which tools of this kind have changed results.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import families
import pytest
import scenarios
import scenarios_autograd  # noqa: F401 - as the two below: adds its own to SCENARIOS
import scenarios_tensors  # noqa: F401
import scenarios_torch  # noqa: F401
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from dumper import dumper, open_dump
from dumper.tensors import bits_of

TRACED = "ops that torch.jit.trace runs are not recorded"
NOT_STORED = "values could not be stored"
"""The one warning a dump may add: some kinds of tensors are listed instead of stored."""


def facts(value: Any) -> Any:
    """All that can be compared about a result, as plain values: nested as the result is."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, dict):
        return {str(key): facts(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [facts(member) for member in value]
    assert value is None or isinstance(value, (str, int, float, bool)), type(value)
    return repr(value)  # NaN differs from itself, its text does not


def _tensor(tensor: torch.Tensor) -> dict[str, Any]:
    plain = tensor.detach()
    found = {
        "dtype": str(tensor.dtype),
        "device": str(tensor.device),
        "shape": tuple(tensor.shape),
        "layout": str(tensor.layout),
        "requires_grad": tensor.requires_grad,
        "grad_fn": type(tensor.grad_fn).__name__,
    }
    if tensor.is_leaf and tensor.requires_grad:
        # Of what others may have saved. Under any dispatch mode torch itself makes some sums and
        # biased outputs anew instead of in place, and their own counters start lower.
        found["version"] = tensor._version
    if tensor.layout is torch.sparse_coo:
        # Whether it is marked coalesced is left out: autograd loses the mark when it takes a
        # gradient over, and under any dispatch mode it copies instead, mark and all.
        return found | {"parts": facts([plain._indices(), plain._values()])}
    return found | {
        "stride": tensor.stride(),
        "offset": tensor.storage_offset(),
        "lazy": (tensor.is_conj(), tensor.is_neg()),
        "bits": bits_of(plain).tobytes(),
    }


def differing(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two results of `facts` differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [d for key in one for d in differing(one[key], other[key], f"{path}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [d for i, (a, b) in pairs for d in differing(a, b, f"{path}[{i}]")]
    if one == other:
        return []
    return [path if isinstance(one, bytes) else f"{path}: {one!r} became {other!r}"]


def random_states() -> list[torch.Tensor]:
    """Of every device there is."""
    modules = [torch.get_device_module(name) for name in ("npu", "cuda")]
    return [torch.get_rng_state()] + [m.get_rng_state() for m in modules if m.is_available()]


def torchs_own_state() -> dict[str, Any]:
    """What a tool that watches torch switches or replaces, and has to put back."""
    return {
        "dispatch modes": _get_current_dispatch_mode_stack(),
        "function modes": _get_current_function_mode_stack(),
        "module call": nn.Module.__call__,
        "engine": torch.autograd.graph._engine_run_backward,
        "engine of autograd": torch.autograd._engine_run_backward,
        "multithreading": torch._C._is_multithreading_enabled(),
        "grad mode": torch.is_grad_enabled(),
        "stance": torch._dynamo.eval_frame._stance.stance,
        "optimizer hooks": (len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "module hooks": (
            len(nn.modules.module._global_forward_hooks),
            len(nn.modules.module._global_forward_pre_hooks),
            len(nn.modules.module._global_backward_hooks),
        ),
    }


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = torchs_own_state()
    yield
    assert torchs_own_state() == before


@pytest.fixture
def dump_path(tmp_path: Path) -> Iterator[Path]:
    """A file that goes when the test ends: pytest keeps the folders of three runs."""
    path = tmp_path / "x.h5"
    yield path
    path.unlink(missing_ok=True)


def watched(run: Callable[[], Any]) -> tuple[Any, set[str]]:
    """The facts of what `run` returns, the random states after it, and the warnings it gave."""
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        result = run()
    # The first line: those of anomaly detection go on with the stack of calls, which is ours too.
    texts = {str(w.message).partition("\n")[0] for w in given}
    return facts({"result": result, "random": random_states()}), texts


def assert_invisible(
    path: Path, plain: Callable[[], Any], dumped: Callable[[], Any], phases: tuple[str, ...]
) -> None:
    """`dumped` under the dumper gives what `plain` gives; the file is whole and has the phases."""

    def under_the_dumper() -> Any:
        with dumper(use_dump=True, dump_path=path):
            return dumped()

    expected, expected_warnings = watched(plain)
    found, found_warnings = watched(under_the_dumper)
    assert differing(expected, found) == []
    added = found_warnings - expected_warnings
    assert {w for w in added if NOT_STORED not in w and TRACED not in w} == set()
    with open_dump(path) as dump:
        assert dump.skipped == []
        assert {record.phase for record in dump.records} >= set(phases)


# Families


def _on(devices: Callable[[str], tuple[str, ...]], names: Any) -> Any:
    """Parameters (device, name), for the devices that each name has."""
    pairs = [(d, name) for name in names for d in devices(name)]
    ids = [f"{name}-{d}" for d, name in pairs]
    return pytest.mark.parametrize(("device", "name"), pairs, ids=ids, indirect=["device"])


@_on(lambda name: families.FAMILIES[name].devices, families.FAMILIES)
def test_family(name: str, device: str, dump_path: Path) -> None:
    def two_steps(step: families.Step) -> dict[str, Any]:
        seen = [(step(), step.outputs()) for _ in range(2)]
        return {"seen": seen, "state": step.state()}

    plain, dumped = (families.make(name, device) for _ in range(2))
    phases = ("forward", "backward", "optimizer")
    assert_invisible(dump_path, lambda: two_steps(plain), lambda: two_steps(dumped), phases)


# Scenarios


def _one_thread() -> Any:
    return torch.autograd.set_multithreading_enabled(False)


NAMED = {
    ("order_of_sums_in_double_backward", "npu"): _one_thread,
}
"""The named exceptions of docs/capture.md: what else than the dumper changes them just so."""


@_on(lambda name: scenarios.SCENARIOS[name].devices, scenarios.SCENARIOS)
def test_scenario(name: str, device: str, dump_path: Path) -> None:
    scenario = scenarios.SCENARIOS[name]

    def plain() -> Any:
        with NAMED.get((name, device), nullcontext)():
            return scenario.run(device)

    assert_invisible(dump_path, plain, lambda: scenario.run(device), scenario.phases)


def test_the_gradient_of_a_branch_needs_compilation(device: str, dump_path: Path) -> None:
    """A named exception too: `torch.cond` learns its backward only where it may compile itself."""

    def branch() -> tuple[torch.Tensor, torch.Tensor]:
        x = scenarios.batch(device, 5).requires_grad_()
        y = torch.cond(x.sum() < 1e9, lambda x: x.sin() * 2, lambda x: x.cos(), (x,))
        y.sum().backward()
        return y, x.grad

    assert branch()[1] is not None
    with pytest.raises(TypeError) as eager, torch.compiler.set_stance("force_eager"):
        branch()
    with pytest.raises(TypeError) as dumped, dumper(use_dump=True, dump_path=dump_path):
        branch()
    assert str(eager.value) == str(dumped.value)


@pytest.mark.parametrize("part", ["forward", "backward", "optimizer"])
def test_part_of_a_step(part: str, device: str, dump_path: Path) -> None:
    """A context may begin and end anywhere in a step."""

    def run(path: Path | None) -> Any:
        def context(now: str) -> dumper:
            enabled = path is not None and now == part
            return dumper(enabled=enabled, use_dump=True, dump_path=path)

        model = scenarios.mlp(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with context("forward"):
            loss = model(scenarios.batch(device)).square().mean()
        with context("backward"):
            loss.backward()
        with context("optimizer"):
            optimizer.step()
        return scenarios.learned(model, loss, optimizer.state_dict())

    assert differing(watched(lambda: run(None))[0], watched(lambda: run(dump_path))[0]) == []
    with open_dump(dump_path) as dump:
        assert dump.skipped == []
        assert part in {record.phase for record in dump.records}


def test_an_error_that_leaves_the_context(device: str, dump_path: Path) -> None:
    """It is the model's own, and the step that follows is as if nothing had been."""

    class Faulty(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.mm(x, x)
            return x

    def run(enabled: bool) -> Any:
        model, faulty = scenarios.mlp(device), Faulty()
        with (
            pytest.raises(RuntimeError) as error,
            dumper(enabled=enabled, use_dump=True, dump_path=dump_path),
        ):
            faulty(model(scenarios.batch(device)))
        frames = [entry.name for entry in error.traceback]
        assert "forward" in frames
        after = model(scenarios.batch(device))
        after.sum().backward()
        return scenarios.learned(model, after, str(error.value))

    assert differing(watched(lambda: run(False))[0], watched(lambda: run(True))[0]) == []
    with open_dump(dump_path) as dump:
        assert dump.skipped == []
        assert [r.ir for r in dump.records if r.phase == "forward"][-1] == "mm"


# Compiled functions


class Counting:
    """A backend of torch.compile that counts what it compiles and how often that is run."""

    def __init__(self) -> None:
        self.compiled = self.ran = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable:
        self.compiled += 1

        def run(*args: Any) -> Any:
            self.ran += 1
            return graph.forward(*args)

        return run


@pytest.fixture
def dynamo() -> Iterator[None]:
    """Without what earlier tests had compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled_steps(device: str, compiling: Callable[[nn.Module], Any]) -> dict[str, Any]:
    model = scenarios.mlp(device)
    called = compiling(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        y = called(scenarios.batch(device))
        y.square().mean().backward()
        optimizer.step()
    return scenarios.learned(model, y)


@pytest.mark.usefixtures("dynamo")
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")
@pytest.mark.parametrize("options", [{}, {"fullgraph": True}, {"dynamic": True}], ids=str)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_is_as_eager(
    backend: str, options: dict[str, bool], device: str, dump_path: Path
) -> None:
    def compiling(model: nn.Module) -> Any:
        return torch.compile(model, backend=backend, **options)

    compiling(nn.Linear(1, 1))  # imports the backend, and inductor's import warns
    assert_invisible(
        dump_path,
        lambda: compiled_steps(device, lambda model: model),
        lambda: compiled_steps(device, compiling),
        ("forward", "backward", "optimizer"),
    )


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("kind", ["function", "module", "module.compile"])
def test_what_first_ran_under_the_dumper_is_compiled_afterwards(
    kind: str, fullgraph: bool, device: str, dump_path: Path
) -> None:
    backend = Counting()
    called = _compiled(kind, device, backend, fullgraph)
    x = scenarios.batch(device)
    with dumper(use_dump=True, dump_path=dump_path):
        under = called(x)
    assert (backend.compiled, backend.ran) == (0, 0)
    after = [called(x), called(x)]
    assert (backend.compiled, backend.ran) == (1, 2)
    assert [differing(facts(under.detach()), facts(y.detach())) for y in after] == [[], []]
    with open_dump(dump_path) as dump:
        assert dump.skipped == []
        assert "addmm" in {record.ir for record in dump.records}


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("kind", ["function", "module", "module.compile"])
def test_what_was_compiled_before_stays_compiled(kind: str, device: str, dump_path: Path) -> None:
    backend = Counting()
    called = _compiled(kind, device, backend, True)
    x = scenarios.batch(device)
    before = called(x)
    with dumper(use_dump=True, dump_path=dump_path):
        under = called(x)
    assert (backend.compiled, backend.ran) == (1, 1)
    after = called(x)
    assert (backend.compiled, backend.ran) == (1, 2)
    assert differing(facts(before.detach()), facts(under.detach())) == []
    assert differing(facts(before), facts(after)) == []


class Block(nn.Module):
    """Of a user's own file: torch.compile passes over the frames of torch's own modules."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


def _compiled(kind: str, device: str, backend: Counting, fullgraph: bool) -> Callable:
    model = Block().to(device)
    if kind == "module.compile":
        model.compile(backend=backend, fullgraph=fullgraph)
        return model
    given = model if kind == "module" else lambda x: model(x)
    return torch.compile(given, backend=backend, fullgraph=fullgraph)


# The comparison itself


def test_what_is_compared_can_differ() -> None:
    """The comparison itself: one bit, one stride, one write, one random number are seen."""
    x = torch.ones(2, 3)
    flipped = x.clone()
    flipped.view(torch.int32)[1, 2] += 1
    assert differing(facts([x]), facts([flipped])) == ["[0].bits"]
    assert differing(facts(x), facts(x.neg().neg())) == []
    assert "stride" in differing(facts(x), facts(x.t().contiguous().t()))[0]
    one, other = (torch.ones(2, requires_grad=True) for _ in range(2))
    torch.autograd.graph.increment_version(other)
    assert differing(facts({"w": one}), facts({"w": other})) == [".w.version: 0 became 1"]
    drawn = [watched(lambda: None), watched(lambda: torch.rand(1))]
    assert ".random[0].bits" in differing(drawn[0][0], drawn[1][0])
    assert differing(facts([math.nan]), facts([math.nan])) == []
    assert differing(facts({"a": x}), facts({"b": x})) != []
