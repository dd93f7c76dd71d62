"""Faults planted on purpose: the chosen call of the chosen op, on npu only."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
from recorders import Calls, Ops

import npu_core

pytestmark = pytest.mark.usefixtures("exact")


EYE = torch.eye(2)


def products(n: int = 3, device: str = "npu") -> list[float]:
    x = EYE.to(device)
    return [(x @ x).sum().item() for _ in range(n)]


@pytest.mark.parametrize(
    ("nth", "applied"), [(None, [1, 2, 3]), (1, [1]), (2, [2]), ({3, 1}, [1, 3]), ([2], [2])]
)
@pytest.mark.parametrize("op", ["mm", "mm.default", "aten::mm"])
def test_the_chosen_calls_are_changed(op: str, nth: object, applied: list[int]) -> None:
    with npu_core.fault(op, lambda out: out + 1, nth=nth) as fault:
        assert products() == [6 if n in applied else 2 for n in (1, 2, 3)]
        assert products(device="cpu") == [2, 2, 2]
    assert (fault.calls, fault.applied) == (3, applied)
    assert products() == [2, 2, 2]


def test_when_chooses_by_the_arguments_and_nth_counts_what_it_chose() -> None:
    def wide(self: torch.Tensor, mat2: torch.Tensor) -> bool:
        return mat2.shape[1] > 2

    small, large = torch.ones(2, 2, device="npu"), torch.ones(2, 3, device="npu")
    with npu_core.fault("mm", "sign_flip", nth=2, when=wide) as fault:
        signs = [(small @ other).sum().sign().item() for other in (large, small, large, large)]
    assert signs == [1, 1, -1, 1]
    assert (fault.seen, fault.calls, fault.applied) == (4, 3, [2])


def test_when_gets_defaults_too_and_sees_what_an_op_is_about_to_overwrite() -> None:
    met = []

    def when(self: torch.Tensor, other: float, *, alpha: float) -> bool:
        met.append((self.tolist(), other, alpha))
        return True

    x = torch.ones(2, device="npu")
    with npu_core.fault("add_.Tensor", "sign_flip", when=when):
        x.add_(torch.ones(2, device="npu"))
    assert [(values, alpha) for values, _, alpha in met] == [([1, 1], 1)]
    assert x.tolist() == [-2, -2]


@pytest.mark.parametrize("nth", [4, [3, 4]])
def test_a_chosen_call_that_never_came_is_warned_of(nth: object) -> None:
    with (
        pytest.warns(UserWarning, match=r"sign_flip on mm: calls \[4\] were not.*3 calls of mm"),
        npu_core.fault("mm", "sign_flip", nth=nth),
    ):
        products()


@pytest.mark.parametrize(
    ("when", "message"),
    [(None, "no call was changed; 0 calls"), (lambda *_: False, "2 calls .*held for 0")],
)
def test_a_fault_that_never_fired_is_warned_of(when: object, message: str) -> None:
    with pytest.warns(UserWarning, match=message) as warned, npu_core.fault("mm", abs, when=when):
        products(2 if when else 0)
    assert [w.filename for w in warned] == [__file__]


def test_leaving_by_an_exception_warns_of_nothing() -> None:
    with (
        warnings.catch_warnings(),
        pytest.raises(KeyError),
        npu_core.fault("mm", "sign_flip", nth=3),
    ):
        warnings.simplefilter("error")
        raise KeyError


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
    with pytest.raises(RuntimeError, match="fault on mm.default"), npu_core.fault("mm", change):
        products()


def test_a_when_that_takes_other_arguments_is_told_the_ops_own() -> None:
    with (
        pytest.raises(RuntimeError, match="fault on mm.default: when raised .*self, mat2"),
        npu_core.fault("mm", "sign_flip", when=lambda x: True),
    ):
        products()


@pytest.mark.parametrize("op", ["linear", "no_such_op", "view", "mm.no_overload"])
def test_an_op_without_a_kernel_is_refused(op: str) -> None:
    with pytest.raises(ValueError, match=f"no kernel on npu is named '{op}'"):
        npu_core.fault(op, lambda out: out)


@pytest.mark.parametrize("nth", [0, -1, [1, 0], []])
def test_calls_are_counted_from_one(nth: object) -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        npu_core.fault("mm", abs, nth=nth)


def test_an_unknown_kind_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'sign flip'.*sign_flip.*saturate"):
        npu_core.fault("mm", "sign flip")
    with pytest.raises(TypeError, match="neither callable nor the name of a kind"):
        npu_core.fault("mm", 1.01)


def test_threads_share_one_count() -> None:
    x = EYE.npu()

    def work() -> None:
        for _ in range(25):
            x @ x

    with npu_core.fault("mm", "sign_flip", nth=range(1, 101, 7)) as fault:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (fault.calls, fault.applied) == (100, list(range(1, 101, 7)))


@pytest.mark.parametrize("kind", ["fp16_accumulation", "one_row_swapped", "saturate"])
def test_what_a_fault_calls_is_seen_by_no_mode_of_the_user(kind: str) -> None:
    def seen() -> tuple[list[str], list[str]]:
        x = torch.arange(4.0, device="npu").reshape(2, 2)
        with Ops() as ops, Calls() as calls:
            torch.mm(x, x)
        return ops.seen, calls.seen

    sound = seen()
    with npu_core.fault("mm", kind) as fault:
        assert seen() == sound
    assert fault.applied == [1]
