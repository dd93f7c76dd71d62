"""The named faults in whole models: all before the faulty call is as without the fault."""

from __future__ import annotations

from collections.abc import Iterator

import models
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import npu_core


@pytest.fixture(autouse=True, scope="module")
def exact() -> Iterator[None]:
    with npu_core.use("exact"):
        yield


class Trace(TorchDispatchMode):
    """The name and the result bits of every op."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[tuple[str, list[bytes]]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        results = out if isinstance(out, tuple | list) else [out]
        bits = [t.detach().cpu() for t in results if isinstance(t, torch.Tensor)]
        if not func.name().startswith(("profiler::", "aten::empty")):
            self.ops.append((func.name(), [t.numpy().tobytes() for t in bits]))
        return out


def trace(family: str, training: bool = True) -> list[tuple[str, list[bytes]]]:
    step = models.make(family, "npu")
    step.model.train(training)
    with torch.autograd.set_multithreading_enabled(False), Trace() as found:
        step()
    return found.ops


@pytest.fixture(scope="module")
def sound(exact: None) -> dict[tuple[str, bool], list]:
    """Traces without a fault, by family and whether it trains."""
    cases = [*((family, True) for family in models.FAMILIES), ("resnet", False)]
    return {case: trace(*case) for case in cases}


RESULT_KINDS = (
    "one_element_off", "one_row_swapped", "stale_buffer", "sign_flip", "wrong_dtype_cast",
    "nan_in_one_element", "saturate",
)  # fmt: skip
# family, forward op, backward op, each with a call that has an earlier one of its shape
OPS = [
    ("resnet", ("convolution", 3), ("convolution_backward", 2)),
    ("gpt", ("addmm", 4), ("mm", 5)),
    ("lstm", ("_thnn_fused_lstm_cell", 2), ("_thnn_fused_lstm_cell_backward_impl", 2)),
]
CASES = [
    *((kind, family, op, nth) for kind in RESULT_KINDS for family, *ops in OPS for op, nth in ops),
    ("bias_dropped", "gpt", "addmm", 1),
    ("bias_dropped", "resnet", "addmm", 1),
    ("bias_dropped", "lstm", "_thnn_fused_lstm_cell", 3),
    ("wrong_epsilon", "resnet", "native_batch_norm", 2),
    ("wrong_epsilon", "gpt", "native_layer_norm", 2),
    ("wrong_epsilon", "evaluated resnet", "native_batch_norm_backward", 1),
    ("transposed_weight", "resnet", "convolution", 2),
    ("transposed_weight", "resnet", "convolution_backward", 1),
    ("transposed_weight", "gpt", "addmm", 2),
    ("fp16_accumulation", "resnet", "convolution", 2),
    ("fp16_accumulation", "resnet", "convolution_backward", 1),
    ("fp16_accumulation", "gpt", "addmm", 3),
    ("fp16_accumulation", "gpt", "mm", 1),
    ("fp16_accumulation", "gpt", "sum.dim_IntList", 2),
    ("fp16_accumulation", "lstm", "mm", 60),
]


@pytest.mark.parametrize(("kind", "family", "op", "nth"), CASES)
def test_the_faulty_call_is_the_first_that_differs(
    kind: str, family: str, op: str, nth: int, sound: dict
) -> None:
    case = (family.split()[-1], not family.startswith("evaluated"))
    with npu_core.fault(op, kind, nth=nth) as fault:
        found = trace(*case)
    assert fault.applied == [nth]
    names = [name for name, _ in found]
    assert names == [name for name, _ in sound[case]]
    full = f"aten::{op}"
    calls = [i for i, name in enumerate(names) if name == full]
    pairs = zip(found, sound[case], strict=True)
    differing = [i for i, (mine, other) in enumerate(pairs) if mine != other]
    assert differing[0] == calls[nth - 1]


def test_square_weights_of_a_backward_are_found_by_when() -> None:
    def square(self: torch.Tensor, mat2: torch.Tensor) -> bool:
        return mat2.shape[0] == mat2.shape[1]

    before, after = models.make("gpt", "npu"), models.make("gpt", "npu")
    before()
    with npu_core.fault("mm", "transposed_weight", when=square) as fault:
        after()
    assert fault.seen > fault.calls == len(fault.applied) > 0
    differ = {
        name
        for name, value in before.state().items()
        if not torch.equal(value, after.state()[name])
    }
    assert "qkv.weight.grad" in differ  # behind the square output projection
    assert "head.weight.grad" not in differ  # before it
