"""An exception in backward on npu is the caller's, as on every device: no abort, none lost.

In processes of their own, since what failed before was an abort.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parent.parent)

THREADS = """
import gc, threading, torch, npu_core

class Mine(Exception):
    pass

def fail(grad, who):
    raise Mine(who)

def work(who):
    for _ in range(30):
        y = torch.ones(3, device="npu", requires_grad=True) * 2
        y.register_hook(lambda grad: fail(grad, who))
        try:
            y.sum().backward()
        except Mine as error:
            caught.append(error.args == (who,))

caught = []
threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
gc.collect()
print(len(caught), all(caught), sum(type(thing) is Mine for thing in gc.get_objects()))
"""

SCRIPT = """
import contextlib, itertools, torch, dumper, npu_core
from torch.utils.checkpoint import checkpoint

npu_core.use("exact")

def fail(*_):
    raise error("mine")

def tensor_hook(x):
    y = x * 2
    y.register_hook(fail)
    y.sum().backward()

def leaf_hook(x):
    x.register_post_accumulate_grad_hook(fail)
    (x * 2).sum().backward()

def autograd_grad(x):
    y = x * 2
    y.register_hook(fail)
    torch.autograd.grad(y.sum(), x)

class Custom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a * 1

    @staticmethod
    def backward(ctx, g):
        fail()

def custom_function(x):
    Custom.apply(x).sum().backward()

def kernel(x):
    with npu_core.fault("threshold_backward", fail):
        x.relu().sum().backward()

def checkpointed(x):
    def block(a):
        y = a.exp()
        if y.requires_grad:  # the second time, inside backward
            y.register_hook(fail)
        return y * 2
    checkpoint(block, x, use_reentrant=True).sum().backward()

attempts = tensor_hook, leaf_hook, autograd_grad, custom_function, kernel, checkpointed
for error, dumped in itertools.product((ValueError, KeyboardInterrupt), (False, True)):
    for attempt, i in itertools.product(attempts, range(2)):
        context, path = contextlib.nullcontext(), f"{attempt.__name__}_{error.__name__}_{i}.h5"
        if dumped:
            context = torch.utils.dumper(use_dump=True, dump_path=path)
        try:
            with context:
                attempt(torch.ones(3, device="npu", requires_grad=True))
        except BaseException as caught:
            assert caught.__traceback__ is not None
            print(attempt.__name__, type(caught).__name__, caught, dumped)
        if dumped:
            with dumper.open_dump(path) as dump:
                assert dump.finished and dump.records
x = torch.ones(3, device="npu", requires_grad=True)
(x * 2).sum().backward()
print(x.grad.tolist())
"""


def test_an_error_in_backward_reaches_the_caller(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    attempts = "tensor_hook leaf_hook autograd_grad custom_function kernel checkpointed".split()
    expected = [
        f"{attempt} {error} mine {dumped}"
        for error in ("ValueError", "KeyboardInterrupt")
        for dumped in (False, True)
        for attempt in attempts
        for _ in range(2)
    ]
    assert done.stdout.splitlines() == [*expected, "[2.0, 2.0, 2.0]"]


def test_threads_get_their_own_errors_and_nothing_keeps_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREADS],
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "120 True 0\n"), done.stderr
