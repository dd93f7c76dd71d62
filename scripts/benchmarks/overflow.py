"""What looking for overflow costs, each case beside what it may cost: ratio 1 is the limit.

1. On the CPU, a GPT step of width 512, forward and backward: 1.2 times the plain step. With AdamW
   besides, without a limit: its many small ops cost what ops cost to be seen at all.
2. On a GPU, where there is one: a step of GPT-2-small's shape under bfloat16 autocast: 3 times.

Beside those, without a limit, what others take for the same step: a dispatch mode that does
nothing, one that asks every result `.isfinite().all()` and waits for the answer, torch's DebugMode.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode

import dumper
from benchmarks import Case
from benchmarks.gpt_step import make

_CPU, _GPU = 1.2, 3.0
_STEPS = 5  # of which one run is the median

Context = Callable[[], AbstractContextManager]


class _Nothing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class _Asking(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            if tensor.is_floating_point():
                tensor.isfinite().all().item()
        return result


def cases(folder: Path, quick: bool) -> list[Case]:
    """All cases, small ones when quick."""
    path = folder / "never.h5"

    def check() -> AbstractContextManager:
        return dumper.dumper(check_overflow=True, dump_path=path)

    others = {
        "a mode that does nothing": _Nothing,
        "isfinite().all().item()": _Asking,
        "torch DebugMode": DebugMode,
    }
    layers, width = (1, 64) if quick else (6, 512)
    found = []
    size = f"{layers} layers, d {width}, batch 4 x 64, cpu"
    found += _beside(make(layers, width)[1], size, check, _CPU, others, "cpu")
    step = _with_optimizer(layers, width)
    plain = {"plain step": nullcontext}
    found += _beside(step, f"{size}, with AdamW", check, None, plain, "cpu")
    if torch.cuda.is_available():
        shape = (2, 128) if quick else (12, 768)
        step = _autocast(make(*shape, device="cuda", batch=(4, 512))[1])
        size = f"{shape[0]} layers, d {shape[1]}, batch 4 x 512, bfloat16, cuda"
        found += _beside(step, size, check, _GPU, others, "cuda")
    return found


def _beside(
    step: Callable[[], None],
    size: str,
    check: Context,
    limit: float | None,
    others: dict[str, Context],
    device: str,
) -> list[Case]:
    def taken(context: Context) -> float:
        return _seconds(step, context, device)

    cases = []
    if limit is not None:
        cases.append(
            Case("overflow check", size, f"plain step x {limit}", lambda: taken(check),
                 lambda: taken(nullcontext) * limit)
        )  # fmt: skip
    for name, other in others.items():
        cases.append(
            Case("overflow check", size, name, lambda: taken(check),
                 lambda other=other: taken(other), limit=False)
        )  # fmt: skip
    return cases


def _seconds(step: Callable[[], None], context: Context, device: str) -> float:
    """Median time of a step in a context, which is entered and left for each."""
    times = []
    for _ in range(_STEPS):
        with context():
            start = time.perf_counter()
            step()
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def _with_optimizer(layers: int, width: int) -> Callable[[], None]:
    model, step = make(layers, width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def whole() -> None:
        step()
        optimizer.step()

    return whole


def _autocast(step: Callable[[], None]) -> Callable[[], None]:
    def narrow() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            step()

    return narrow


def _tensors(result: object) -> Iterator[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (list, tuple)):
        for one in result:
            yield from _tensors(one)
