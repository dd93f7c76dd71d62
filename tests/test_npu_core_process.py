"""What holds for a whole process with the emulated device: registration, forks, a clean exit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest
import torch
from forked import ROOT, Forked


def python(code: str, *, path: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that finds our packages in `path` and the checkout."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{path}:{ROOT}", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def with_npu() -> Iterator[Forked]:
    """Runs scripts in processes that have the device registered."""
    process = Forked("torch, npu_core")
    yield process
    process.close()


@pytest.mark.parametrize(
    ("tail", "code"),
    [
        ("", 0),
        ("raise ValueError('uncaught')", 1),
        ("import sys; sys.exit(3)", 3),
        ("import threading; t = threading.Thread(target=lambda: step()); t.start()", 0),
        (
            # one that computes at exit aborts plain CPU torch too (GIL taken in a noexcept frame)
            "import threading, time; computed = threading.Event()\n"
            "def wait():\n  kept = layer(torch.ones(1, 4, device='npu')); computed.set()\n"
            "  time.sleep(60)\n"
            "threading.Thread(target=wait, daemon=True).start(); computed.wait()",
            0,
        ),
        ("x = torch.ones(3, device='npu'); x.me = x; import builtins; builtins.kept = x, step", 0),
        ("import atexit; atexit.register(step)", 0),
        (
            "x = layer(torch.ones(1, 4, device='npu')); x.register_hook(lambda g: 1 / 0)\n"
            "x.sum().backward()",
            1,
        ),
        (
            "import sys; x = layer(torch.ones(1, 4, device='npu'))\n"
            "x.register_hook(lambda g: sys.exit(5)); x.sum().backward()",
            5,
        ),
        (
            "import sys, threading\n"
            "def work():\n  for _ in range(100): step()\n  sys.exit(3)\n"
            "threading.Thread(target=work).start()",
            0,
        ),
        (
            "from torch.utils.data import DataLoader, TensorDataset\n"
            "data = TensorDataset(torch.ones(8, 2))\n"
            "options = dict(num_workers=2, persistent_workers=True, pin_memory=True)\n"
            "batches = iter(DataLoader(data, 1, **options)); x = next(batches)[0].npu()",
            0,
        ),
        (
            "class Twice(torch.autograd.Function):\n"
            "  forward = staticmethod(lambda ctx, x: (ctx.save_for_backward(x), x * 2)[1])\n"
            "  backward = staticmethod(lambda ctx, g: g * 2)\n"
            "g = torch.Generator(device='npu'); g.me = g\n"
            "y = Twice.apply(layer(torch.rand(1, 4, device='npu', generator=g))).exp()\n"
            "y.register_hook(lambda g: g); import builtins; builtins.kept = y, g",
            0,
        ),
    ],
    ids=[
        "end",
        "exception",
        "exit",
        "thread",
        "daemon",
        "alive",
        "atexit",
        "hook fails",
        "hook exits",
        "thread exits",
        "workers",
        "graph alive",
    ],
)
def test_the_process_exits_cleanly(tail: str, code: int, with_npu: Forked) -> None:
    done = with_npu.run(
        "import torch, npu_core\n"
        "layer = torch.nn.Linear(4, 4).npu()\n"
        "def step(): layer(torch.randn(2, 4, device='npu')).sum().backward()\n"
        f"step()\n{tail}\n"
    )
    assert done.returncode == code, done.stderr


def test_the_profile_is_announced_once_and_at_first_use() -> None:
    done = python(
        "import sys, torch, npu_core\nprint('before', file=sys.stderr)\n"
        "torch.ones(2).npu(); torch.ones(2, device='npu')",
        NPU_CORE="910B",
    )
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "before",
        "emulated Ascend NPU, profile 910B; not real hardware",
    ]


def test_importing_the_package_costs_no_torch() -> None:
    done = python("import sys, npu_core\nprint('torch' in sys.modules)")
    assert (done.returncode, done.stdout) == (0, "False\n")


def test_registering_imports_torch_and_is_idempotent() -> None:
    done = python(
        "import npu_core\nnpu_core.register('exact'); npu_core.register()\n"
        "print(npu_core.profile()); npu_core.register('910B'); print(npu_core.profile())\n"
        "import torch; print(torch.ones(2, device='npu').is_npu)"
    )
    assert (done.stdout, done.stderr.count("emulated")) == ("exact\n910B\nTrue\n", 1)


def test_an_unknown_profile_names_the_valid_ones() -> None:
    done = python(
        "import npu_core, os\n"
        "for argument in None, '310':\n"  # then not asked of the environment
        "  try: npu_core.register(argument)\n"
        "  except ValueError as error: print(error)\n"
        "  os.environ['NPU_CORE'] = ''",
        NPU_CORE="310",
    )
    line = "unknown npu_core profile '310': choose one of 910A, 910B, exact"
    assert done.stdout.splitlines() == [line] * 2, done.stderr


def test_what_came_through_a_queue_registers_the_device_in_a_fresh_process() -> None:
    pickled = bytes(ForkingPickler.dumps(torch.ones(2, device="npu")))
    done = python(f"import pickle\nprint(pickle.loads({pickled!r}))")
    assert done.stdout == "tensor([1., 1.], device='npu:0')\n", done.stderr


def test_an_old_torch_is_refused_in_words() -> None:
    done = python(
        "import torch.utils.backend_registration as b\n"
        "del b._setup_privateuseone_for_python_backend\nimport npu_core"
    )
    assert done.stderr.splitlines()[-1].startswith("RuntimeError: npu_core needs torch >= 2.10")


def test_a_real_torch_npu_wins(tmp_path: Path) -> None:
    (tmp_path / "torch_npu").mkdir()
    (tmp_path / "torch_npu" / "__init__.py").write_text("raise SystemExit('not to be imported')")
    done = python(
        "import torch, npu_core\nnpu_core.register(); npu_core.register('exact')\n"
        "print(hasattr(torch, 'npu'), hasattr(torch.Tensor, 'npu'))",
        path=tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "False False\n")
    assert done.stderr.count("torch_npu is installed: it is used") == 1


def test_a_second_copy_of_the_package_steers_the_same_device(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(ROOT, target_is_directory=True)
    (tmp_path / "elsewhere_copy.py").write_text(
        f"__path__ = [{str(tmp_path / 'elsewhere')!r}]\nfrom elsewhere_copy import npu_core\n"
    )
    done = python(
        "import torch, npu_core, elsewhere_copy as other\n"
        "assert other.npu_core is not npu_core\nother.npu_core.use('exact')\n"
        "print(npu_core.profile(), torch.npu.get_device_name())",
        path=tmp_path,
    )
    assert done.stdout == "exact Ascend exact CPU numerics (emulated by npu_core)\n", done.stderr


def test_a_device_registered_after_a_backward_runs_on_the_callers_thread() -> None:
    done = python(
        "import threading, torch\n"
        "torch.ones(2, requires_grad=True).sum().backward()\n"
        "import npu_core\nfrom torch.utils.checkpoint import checkpoint\n"
        "npu_core.use('exact')\n"
        "x = torch.ones(2, device='npu', requires_grad=True)\n"
        "x.register_hook(lambda g: print(threading.current_thread().name))\n"
        "y = checkpoint(lambda a: a * 2, x, use_reentrant=True).sum()\n"
        "(y.cpu() + (x * 3).sum().cpu()).backward()\n"
        "print(x.grad.tolist(), torch.autograd.is_multithreading_enabled())"
    )
    last = "[5.0, 5.0] True"
    assert done.stdout.splitlines()[-2:] == ["MainThread", last], done.stderr


def test_a_device_registered_before_has_a_thread_of_autograds_own() -> None:
    done = python(
        "import threading, torch, npu_core\n"
        "x = torch.ones(2, device='npu', requires_grad=True)\n"
        "x.register_hook(lambda g: print(threading.current_thread().name))\n"
        "(x * 2).sum().backward()"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Dummy")


def test_a_forked_child_computes_and_is_told_when_it_cannot_run_backward() -> None:
    done = python(
        "import os, torch, npu_core\n"
        "def child(run):\n"
        "  pid = os.fork()\n"
        "  if pid == 0:\n"
        "    try: run(); print('done', flush=True)\n"
        "    except RuntimeError as error: print(error, flush=True)\n"
        "    finally: os._exit(0)\n"
        "  os.waitpid(pid, 0)\n"
        "def backward(): torch.ones(2, device='npu', requires_grad=True).sum().backward()\n"
        "child(backward); backward()\n"
        "child(lambda: torch.ones(2, device='npu') + 1); child(backward)"
    )
    assert done.returncode == 0, done.stderr
    *fine, refused = done.stdout.splitlines()
    assert fine == ["done", "done"]
    assert "autograd's threading in combination with fork-based multiprocessing" in refused


def test_the_environment_breaks_the_chip_for_good() -> None:
    code = """
import torch, npu_core
x = torch.ones(1, 1).npu()
print([torch.mm(x, x).item() for _ in range(3)], [(-x).item(), torch.exp(x * 0).item()])
"""
    done = python(code, NPU_CORE_FAULT="mm:sign_flip:2; exp:sign_flip")
    assert done.stdout.strip() == "[1.0, -1.0, 1.0] [-1.0, -1.0]", done.stderr


@pytest.mark.parametrize("text", ["mm", "mm:", ":sign_flip", "mm:sign_flop", "mm:sign_flip:x"])
def test_a_fault_in_the_environment_that_is_none_is_refused(text: str) -> None:
    done = python("import torch, npu_core", NPU_CORE_FAULT=text)
    assert done.returncode == 1 and f"ValueError: NPU_CORE_FAULT={text!r}" in done.stderr
