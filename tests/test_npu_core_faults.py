"""Faults planted on purpose: the chosen call of the chosen op, on npu only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import npu_core


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    with npu_core.use("exact"):
        yield


EYE = torch.eye(2)


def products(n: int = 3, device: str = "npu") -> list[float]:
    x = EYE.to(device)
    return [(x @ x).sum().item() for _ in range(n)]


@pytest.mark.parametrize(
    ("nth", "sums"), [(None, [6, 6, 6]), (1, [6, 2, 2]), (2, [2, 6, 2]), (4, [2, 2, 2])]
)
@pytest.mark.parametrize("op", ["mm", "mm.default", "aten::mm"])
def test_the_chosen_call_is_changed(op: str, nth: int | None, sums: list[float]) -> None:
    with npu_core.fault(op, lambda out: out + 1, nth=nth):
        assert products() == sums
        assert products(device="cpu") == [2, 2, 2]
    assert products() == [2, 2, 2]


def test_an_overload_is_told_from_another() -> None:
    x = torch.ones(2, device="npu")
    with npu_core.fault("sum.dim_IntList", lambda out: out * 0):
        assert x.sum().item() == 2
        assert x.sum(0).item() == 0


def test_gradients_can_be_changed_too() -> None:
    x = EYE.npu().requires_grad_()
    with npu_core.fault("mm", lambda out: out * 2, nth=2):  # the first is the forward
        (x @ EYE.npu()).sum().backward()
    assert x.grad.tolist() == [[2, 2], [2, 2]]


def test_results_written_in_place_are_overwritten() -> None:
    x, out = torch.ones(2, device="npu"), torch.empty(2, device="npu")
    with npu_core.fault("add_", lambda t: t * 0):
        assert x.add_(1) is x
    with npu_core.fault("add.out", lambda t: t * 0):
        torch.add(x, 1, out=out)
    with npu_core.fault("_foreach_mul_", lambda ts: [t + 7 for t in ts]):
        torch._foreach_mul_([x], 2)
    assert (x.tolist(), out.tolist()) == ([7, 7], [0, 0])


def test_an_op_with_several_results() -> None:
    x = torch.tensor([1.0, 3.0], device="npu")
    with npu_core.fault("max.dim", lambda out: (out[0] * 2, out[1])):
        values, indices = torch.max(x, 0)
    assert (values.item(), indices.item()) == (6, 1)


def test_faults_nest_and_the_ops_of_a_change_are_sound() -> None:
    with npu_core.fault("mm", lambda out: out @ (2 * EYE.npu())):
        with npu_core.fault("mm", lambda out: out + 1):
            assert products(1) == [8]  # (2 x EYE, then plus 1)
        assert products(1) == [4]


def test_a_fault_that_raises_leaves_nothing_planted() -> None:
    with pytest.raises(ZeroDivisionError), npu_core.fault("mm", lambda out: 1 / 0):
        products()
    assert products() == [2, 2, 2]
    with npu_core.fault("mm", lambda out: out + 1):
        assert products(1) == [6]


@pytest.mark.parametrize(
    "change",
    [lambda out: None, lambda out: out.cpu(), lambda out: (out,), lambda out: out + "1"],
)
def test_a_change_that_cannot_stand_for_the_result_is_an_error(change: object) -> None:
    with npu_core.fault("mm", change), pytest.raises(RuntimeError, match="fault on mm.default"):
        products()


@pytest.mark.parametrize("op", ["linear", "no_such_op", "view", "mm.no_overload"])
def test_an_op_without_a_kernel_is_refused(op: str) -> None:
    with pytest.raises(ValueError, match=f"no kernel on npu is named '{op}'"):
        npu_core.fault(op, lambda out: out)


def test_calls_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="counted from 1"), npu_core.fault("mm", abs, nth=0):
        pass
