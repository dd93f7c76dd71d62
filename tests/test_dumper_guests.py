"""What the step brings along (modes, threads, signals, deep and short-lived modules) stays its own.

Each was found by an attack; each is a kind of thing that users do.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dumper import dumper, open_dump


class Functions(TorchFunctionMode):
    """Counts the functions it sees."""

    seen = 0

    def __torch_function__(
        self, func: object, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        self.seen += 1
        return func(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    """Counts the ops it sees."""

    seen = 0

    def __torch_dispatch__(
        self, func: object, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        self.seen += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [Functions, Dispatches])
@pytest.mark.parametrize("end", ["step", "stop"])
def test_a_step_that_ends_inside_a_mode_of_the_users(kind: type, end: str, tmp_path: Path) -> None:
    def modes() -> tuple[int, int]:
        return (
            torch.utils._python_dispatch._len_torch_dispatch_stack(),
            torch._C._len_torch_function_stack(),
        )

    before = modes()
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5", steps="0,2") as dump:
        for _ in range(4):
            with kind() as mode:
                torch.ones(2).exp()
                getattr(dump, end)()
                seen = mode.seen
                torch.ones(2).sin()
                assert mode.seen == seen + 2
            torch.ones(2).cos()
    assert modes() == before
    with open_dump(tmp_path / "x.h5") as found:
        steps = [r.entry.step for r in found.by_ir["exp"]]
        assert steps == ([0, 2] if end == "step" else [0])
        assert found.finished


def test_an_optimizer_that_raises(tmp_path: Path) -> None:
    class Broken(torch.optim.SGD):
        def step(self, closure: object = None) -> None:
            raise ValueError("no step")

    net = nn.Linear(2, 1)
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        net(torch.ones(1, 2)).sum().backward()
        with pytest.raises(ValueError, match="no step"):
            Broken(net.parameters(), lr=0.1).step()
        net(torch.ones(1, 2)).sum().backward()
    with open_dump(tmp_path / "x.h5") as found:
        products = found.by_ir["addmm"]
        assert [r.phase for r in products] == ["forward"] * 2
        assert [r.entry.api[-1] for r in products] == ["0", "1"]


def test_a_closure_is_forward_and_backward(tmp_path: Path) -> None:
    net = nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(torch.ones(1, 2)).square().sum()
        loss.backward()
        return loss

    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        optimizer.step(closure)
    with open_dump(tmp_path / "x.h5") as found:
        products = found.by_ir["addmm"]
        assert products and {r.phase for r in products} == {"forward"}
        assert {r.entry.module for r in products} == {""}
        assert {"forward", "backward", "optimizer"} <= {r.phase for r in found.records}


@pytest.mark.parametrize("level", ["op", "call", "module"])
def test_no_tensor_is_kept_alive(level: str, tmp_path: Path) -> None:
    kept = []
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5", level=level):
        t = torch.ones(3)
        for _ in range(20):
            t = t * 0.9
            kept.append(weakref.ref(t))
        gc.collect()
        assert sum(ref() is not None for ref in kept) == 1


def test_no_module_is_kept_alive(tmp_path: Path) -> None:
    kept = []
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5") as dump:
        for _ in range(5):
            net = nn.Linear(2, 2)
            net(torch.ones(1, 2))
            kept.append(weakref.ref(net))
        del net
        gc.collect()
        assert [ref() for ref in kept] == [None] * 5
        net = nn.Linear(2, 2)
        net(torch.ones(1, 2))
    last = weakref.ref(net)
    del net
    gc.collect()
    assert last() is None and dump.path


def test_a_graph_that_another_thread_made(tmp_path: Path) -> None:
    """Threads number their nodes alike; what cannot be told is not told wrongly."""
    made = []

    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(x)

    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        outer = nn.Linear(2, 2)
        for _ in range(3):
            outer(torch.ones(1, 2))
        x = torch.ones(2, requires_grad=True)
        thread = threading.Thread(target=lambda: made.append(Inner()(x * 1).sum()))
        thread.start()
        thread.join()
        made[0].backward()
    with open_dump(tmp_path / "x.h5") as found:
        (inner,) = found.by_ir["sigmoid_backward"]
        assert inner.entry.api in (None, "torch.sigmoid.0")
        assert inner.entry.module in (None, "Inner")


@pytest.mark.parametrize("path", ["x.h5", "x{step}.h5"])
def test_a_thread_that_outlives_a_step(path: str, tmp_path: Path) -> None:
    go, done = threading.Semaphore(0), threading.Semaphore(0)

    def work() -> None:
        for _ in range(3):
            go.acquire()
            torch.full((2,), 5.0)
            done.release()

    with dumper(use_dump=True, dump_path=tmp_path / path, steps="0,2") as dump:
        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(3):
            torch.ones(2)
            go.release()
            done.acquire()
            dump.step()
        thread.join()
    found = []
    for file in sorted(tmp_path.iterdir()):
        with open_dump(file) as part:
            found += [(r.ir, r.entry.step, r.entry.thread) for r in part.records]
    assert found == [("ones", 0, 0), ("full", 0, 1), ("ones", 2, 0), ("full", 2, 1)]


def test_a_step_that_ends_is_none_of_a_threads_business(tmp_path: Path) -> None:
    """Its nodes are numbered by itself, however many the thread that counts steps has made."""
    go, done = threading.Semaphore(0), threading.Semaphore(0)

    def work() -> None:
        x = torch.ones(2, requires_grad=True)
        y = x.exp()
        done.release()
        go.acquire()
        y.sin().sum().backward()

    for _ in range(1000):  # the numbers here are past those of the thread
        torch.ones(2, requires_grad=True).cos()
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5") as dump:
        thread = threading.Thread(target=work)
        thread.start()
        done.acquire()
        torch.ones(2, requires_grad=True).cos()
        dump.step()
        go.release()
        thread.join()
    with open_dump(tmp_path / "x.h5") as found:
        inner = [r for r in found.records if r.entry.thread and r.entry.node == "SinBackward0"]
        assert inner and {r.entry.api for r in inner} == {"torch.Tensor.sin.0"}


class Timeout(Exception):
    """A user's."""


@pytest.fixture
def alarms() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Timeout

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_users_timeout_ends_the_users_step(alarms: None, tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / f"{number}.h5"
        with pytest.raises(Timeout), dumper(use_dump=True, dump_path=path):
            # again and again: one that a finalizer of another test's garbage meets is lost
            signal.setitimer(signal.ITIMER_REAL, 0.01 + number * 0.003, 1.0)
            while True:
                torch.ones(50) * 2
        signal.setitimer(signal.ITIMER_REAL, 0)
        with open_dump(path) as found:
            assert found.finished and (found.skipped, found.omitted) == ([], ())


def test_as_deep_as_without(tmp_path: Path) -> None:
    class Nested(nn.Module):
        def __init__(self, inner: nn.Module | None) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if self.inner is None else self.inner(x)

    net = None
    for _ in range(230):
        net = Nested(net)
    plain = net(torch.ones(2))
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        assert torch.equal(net(torch.ones(2)), plain)


def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sys.path", [None, b"bytes", *__import__("sys").path])
    gone.rmdir()
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        exec(compile("import torch; torch.ones(2)", str(tmp_path / "n.py"), "exec"), {})
    with open_dump(tmp_path / "x.h5") as found:
        assert [r.entry.source for r in found.records] == ["n.py:1"]
    os.chdir(tmp_path)


def test_lazy_modules_and_replaced_parameters(tmp_path: Path) -> None:
    net = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2))
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5") as dump:
        net(torch.ones(1, 3))
        dump.step()
        net(torch.ones(1, 3))
        net.double()
        net(torch.ones(1, 3, dtype=torch.float64))
    with open_dump(tmp_path / "x.h5") as found:
        assert found.omitted == ()
        names = [sorted(r.entry.names.values()) for r in found.by_ir["addmm"]]
        # in its first call a lazy layer is named after its own forward only
        assert names[1:] == [[f"{i}.bias", f"{i}.weight"] for i in (1, 0, 1, 0, 1)]
        updated = {name for r in found.by_ir["update"] for name in r.entry.names.values()}
        assert updated == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_meta_tensors_draw_nothing(tmp_path: Path) -> None:
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        torch.empty(3, device="meta").uniform_()
    with open_dump(tmp_path / "x.h5") as found:
        assert found.omitted == () and len(found.records) == 2


def test_a_gradient_is_the_one_that_a_closure_left(tmp_path: Path) -> None:
    net = nn.Linear(2, 1)
    net.weight.grad = torch.full((1, 2), 99.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(torch.ones(1, 2)).sum()
        loss.backward()
        return loss

    with dumper(use_dump=True, dump_path=tmp_path / "x.h5", model=net):
        optimizer.step(closure)
    with open_dump(tmp_path / "x.h5") as found:
        (grad,) = (r for r in found.by_ir["grad"] if "weight" in r.entry.names.values())
        assert grad.outputs[0].read().tolist() == [[1.0, 1.0]]


def test_a_handler_that_the_step_saved(tmp_path: Path) -> None:
    """It is ours, and works after the context as the one before."""
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        torch.ones(2)
        saved = signal.signal(signal.SIGINT, lambda *_: None)
    before = signal.signal(signal.SIGINT, saved)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert callable(before)


@pytest.mark.parametrize("model", [5, [nn.Linear(1, 1)], {"a": 5}, {1: nn.Linear(1, 1)}])
def test_what_is_no_model(model: object, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="model: .* is no module"):
        dumper(use_dump=True, dump_path=tmp_path / "x.h5", model=model)


def test_a_traced_module_is_the_one_traced_outside(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, x, y = nn.Conv1d(1, 2, 3), torch.randn(1, 1, 8), torch.randn(1, 1, 8)
    with (
        pytest.warns(RuntimeWarning, match="torch.jit.trace"),
        dumper(use_dump=True, dump_path=tmp_path / "x.h5"),
    ):
        traced = torch.jit.trace(net, x)
        net(x)
    assert torch.equal(traced(y), net(y))
    with open_dump(tmp_path / "x.h5") as found:
        assert [r.ir for r in found.records if r.phase == "forward"] == ["convolution"]


def test_modules_that_torch_does_not_find(tmp_path: Path) -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(2, 2), nn.Linear(2, 2)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    net = nn.Sequential(Hidden(), nn.Linear(2, 1))
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        net(torch.ones(1, 2)).sum().backward()
    with open_dump(tmp_path / "x.h5") as found:
        modules = [r.entry.module for r in found.by_ir["addmm"]]
        assert modules == ["0.Linear", "0.Linear_2", "1"]
        grads = {name for r in found.by_ir["grad"] for name in r.entry.names.values()}
        assert grads >= {"0.Linear.weight", "0.Linear_2.bias", "1.weight"}


def test_a_load_run_without_a_match_has_its_list(tmp_path: Path) -> None:
    for path, run in (("x.h5", torch.exp), ("y.h5", torch.sin)):
        t = torch.ones(3)
        source = {"load_file_path": tmp_path / "x.h5"} if path == "y.h5" else {}
        mode = {"use_load": True} if source else {"use_dump": True}
        with dumper(dump_path=tmp_path / path, **mode, **source) as dump:
            run(t)
    assert dump.matched == 0
    with open_dump(tmp_path / "y.h5") as found:
        assert [line["ir"] for line in found.lines("unmatched")] == ["sin"]
