"""Exact values of single elements, and what the inputs hold there: known numbers, invariants."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from exact_calls import call
from recorders import Calls as FunctionCalls
from recorders import Ops

import npu_core
from dumper.overflow import exact
from dumper.overflow.events import Operand
from dumper.overflow.exact import elements
from npu_core import status

aten = torch.ops.aten
HALF, F8 = torch.float16, torch.float8_e4m3fn
INF, NAN = math.inf, math.nan


def half(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=HALF)


def t5() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and columns of which one pair's product is 66246, which float16 cannot hold."""
    x, w = torch.ones(3, 4, dtype=HALF), torch.ones(5, 4, dtype=HALF)
    x[1], w[2] = half(181, 1, 0, 2), half(366, 0, 7, 0)
    return x, w


@pytest.fixture
def saturating() -> Iterator[None]:
    with npu_core.use("910A"):
        status.clear()
        yield
        status.clear()


def test_a_product_that_float16_cannot_hold() -> None:
    x, w = t5()
    made = call(aten.mm.default, x, w.t())
    assert made.result[1, 2] == INF
    assert made.at("result", 1, 2) == (
        66246.0,
        {
            "self": Operand((1, None), (181, 1, 0, 2), 4, 0, 181),
            "mat2": Operand((None, 2), (366, 0, 7, 0), 4, 0, 366),
        },
        None,
    )


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_linear_of_any_batch(batch: tuple[int, ...]) -> None:
    x, w = t5()
    made = call(aten.linear.default, x.expand(*batch, 3, 4), w, half(0, 0, -2, 0, 0))
    found = made.at("result", *(0 for _ in batch), 1, 2)
    assert found.value == 66244.0
    assert found.inputs["input"].index == (*(0 for _ in batch), 1, None)
    assert found.inputs["bias"] == Operand((2,), (-2,), 1, -2, -2)


def test_beta_and_alpha_count_and_beta_0_ignores_what_is_added() -> None:
    x, w = t5()
    added = half(0, 0, 10, 0, 0)
    found = call(aten.addmm.default, added, x, w.t(), beta=3, alpha=0.5).at("result", 1, 2)
    assert found.value == 33123 + 30
    assert found.inputs["self"] == Operand((2,), (10,), 1, 10, 10)
    nothing = call(aten.addmm.default, added * NAN, x, w.t(), beta=0).at("result", 1, 2)
    assert nothing.value == 66246.0


def test_only_the_largest_values_of_a_long_input_are_kept_and_no_numbers_come_first() -> None:
    row = torch.arange(-10.0, 90.0)
    row[7], row[9] = -INF, NAN
    found = call(aten.sum.dim_IntList, row[None], [1]).at("result", 0).inputs["self"]
    assert math.isnan(found.values[0]) and found.values[1:] == (-INF, 89, 88, 87, 86, 85, 84)
    assert (found.size, found.low, found.high, found.index) == (100, -INF, 89, (0, None))


@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, torch.float32])
def test_exp(dtype: torch.dtype) -> None:
    found = call(aten.exp.default, torch.tensor([[1, 12]], dtype=dtype)).at("result", 0, 1)
    assert found == (math.exp(12), {"self": Operand((0, 1), (12,), 1, 12, 12)}, None)


def test_a_sum_that_overflows_and_its_mean_that_would_not() -> None:
    x = torch.full((2, 4), 3e4, dtype=HALF)
    assert call(aten.sum.dim_IntList, x, [1]).at("result", 1).value == 120000.0
    assert call(aten.sum.default, x).at("result").value == 240000.0
    assert call(aten.mean.dim, x, [0, 1]).at("result").value == 30000.0
    assert call(aten.cumsum.default, x, 1).at("result", 0, 2).value == 90000.0


def test_a_sum_may_be_asked_for_in_a_dtype() -> None:
    made = call(aten.sum.dim_IntList, torch.full((1, 3), 4e4), [1], dtype=HALF)
    assert made.result.item() == INF and made.at("result", 0).value == 120000.0


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (70000.0, HALF),
        (500.0, F8),
        (1e5, torch.float8_e5m2),
        (1e39, torch.float32),
        (-300.5, torch.int8),
    ],
)
def test_a_cast_that_does_not_fit(number: float, dtype: torch.dtype) -> None:
    x = torch.tensor([1, number], dtype=torch.float64)
    for made in (call(aten._to_copy.default, x, dtype=dtype),
                 call(aten.copy_.default, torch.zeros(2, dtype=dtype), x)):  # fmt: skip
        output = made.op.returns[0]
        found = made.at(output, 1)
        assert found.value == number
        assert list(found.inputs.values()) == [Operand((1,), (number,), 1, number, number)]


def test_integers_that_wrap_around() -> None:
    x = torch.tensor([100, -128], dtype=torch.int8)
    assert call(aten.add.Tensor, x, x).at("result", 0).value == 200
    assert call(aten.neg.default, x).at("result", 1).value == 128
    assert call(aten.mul_.Tensor, x.clone(), 3).at("self", 1).value == -384
    refused = call(aten.bitwise_and.Tensor, x, x).at("result", 0)
    assert refused.value is None and "not computed in float64" in refused.why
    assert refused.inputs["self"].values == (100,)


@pytest.mark.parametrize("dtype", [F8, torch.float8_e5m2, torch.float8_e4m3fnuz])
def test_8_bit_floats_are_read_without_loss(dtype: torch.dtype) -> None:
    x = torch.tensor([[2.0, 224.0], [1.5, -3.0]]).to(dtype)
    one = torch.ones(())
    made = call(aten._to_copy.default, x, dtype=HALF)
    assert made.at("result", 1, 1).value == -3.0
    if dtype is F8:
        made = call(aten._scaled_mm.default, x, x.t(), one * 4, one / 2, out_dtype=torch.float32)
        assert made.at("result", 0, 0).value == 2 * (2 * 2 + 224 * 224)


def test_a_masked_row_of_a_softmax_is_nan_and_the_row_shows_it() -> None:
    scores = torch.tensor([[1.0, 2.0], [-INF, -INF]], dtype=HALF)
    found = call(aten._softmax.default, scores, 1, False).at("result", 1, 0)
    assert math.isnan(found.value)
    assert found.inputs == {"self": Operand((1, None), (-INF, -INF), 2, -INF, -INF)}
    assert call(aten._softmax.default, scores, 1, False).at("result", 0, 0).value < 1


def test_a_member_of_a_list() -> None:
    lists = [torch.full((i + 1,), 200.0 * i, dtype=HALF) for i in range(5)]
    made = call(aten._foreach_mul_.List, lists, [t.clone() for t in lists])
    found = made.at("self/self_3", 2)
    assert found.value == 360000.0
    assert found.inputs == {
        "self/self_3": Operand((2,), (600,), 1, 600, 600),
        "other/other_3": Operand((2,), (600,), 1, 600, 600),
    }
    scaled = call(aten._foreach_mul_.ScalarList, lists, [1.0, 2.0, 3.0, 4.0, 5.0])
    scaled.values[0] = [torch.full_like(t, 2) for t in lists]
    assert scaled.at("self/self_4", 0).value == 10.0
    norms = call(aten._foreach_norm.Scalar, [torch.full((4,), 4e4, dtype=HALF)] * 2)
    assert norms.at("result/result_1").value == 80000.0


def test_an_in_place_op_is_computed_from_what_was_there_before_and_changes_nothing() -> None:
    x = torch.tensor([[3e4, 1.0]], dtype=torch.float64)
    before = x.clone()
    made = call(aten.mul_.Tensor, x, torch.tensor(3.0, dtype=torch.float64))
    kept = made.values[0].clone()
    assert made.at("self", 0, 0).value == 9e4
    assert torch.equal(made.values[0], kept) and torch.equal(kept, before)
    running = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    made = call(aten.native_batch_norm.default, torch.arange(12.0, dtype=torch.float64).view(4, 3),
                None, None, *running, True, 0.5, 0.0)  # fmt: skip
    assert made.at("running_mean", 2).value == 3.25
    assert made.values[3].tolist() == [0, 0, 0]


def test_several_elements_are_asked_for_at_once_and_a_whole_op_runs_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = call(aten.tril.default, torch.arange(6.0).view(2, 3))
    runs, original = [], made.op.call
    monkeypatch.setattr(made.op, "call", lambda values: runs.append(1) or original(values))
    found = elements(*made, "result", [(1, 0), (0, 2), (1, 1)])
    assert [one.value for one in found] == [3, 0, 4] and len(runs) == 1
    assert found[0].inputs["self"].index == (None, None)


def test_what_is_too_large_is_not_run_but_cut_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "LIMIT", 20)
    large, small = torch.ones(4, 5), torch.ones(2, 5)
    assert call(aten.tril.default, small).at("result", 1, 0).value == 1
    refused = call(aten.tril.default, large).at("result", 1, 0)
    assert refused == (None, {}, "40 elements are too many to compute in float64")
    assert call(aten.mm.default, large, large.t()).at("result", 3, 3).value == 5
    assert "too many" in call(aten.full.default, [5, 5], 1.0).at("result", 1, 1).why
    assert call(aten.full.default, [4, 5], 1.0).at("result", 1, 1).value == 1


@pytest.mark.parametrize(
    ("func", "args", "why"),
    [
        (aten.bernoulli.p, (torch.ones(2), 0.5), "the op draws random numbers"),
        (aten.native_dropout.default, (torch.ones(2), 0.5, True), "the op draws random numbers"),
        (aten.empty_like.default, (torch.ones(2),), "the op leaves memory as it is"),
        (aten.nan_to_num.default, (torch.ones(2),), "the result hangs on the dtype itself"),
        (aten.resize_.default, (torch.ones(2), [2]), "the op changes its argument's memory"),
        (aten.exp.default, (torch.ones(2, device="meta"),), "no dense tensor with values"),
        (aten.neg.default, (torch.eye(2).to_sparse(),), "no dense tensor with values"),
        (aten.mul.Tensor, (torch.ones(2), 1j), "the result is complex"),
    ],
)
def test_what_cannot_be_known_says_why(func: object, args: tuple, why: str) -> None:
    made = call(func, *args)
    state = torch.get_rng_state()
    found = made.at(made.op.returns[0], 0)
    assert found.value is None and why in found.why
    assert torch.equal(torch.get_rng_state(), state)


def test_the_nearest_that_can_be_known() -> None:
    off = call(aten.native_dropout.default, torch.full((2,), 3.0), 0.5, False)
    assert off.at("result0", 1).value == 3
    angle = call(aten.abs.default, torch.tensor([3 + 4j]))
    assert angle.at("result", 0) == (5.0, {}, None)
    assert "no such tensor" in call(aten.exp.default, torch.ones(2)).at("result7", 0).why


@torch.library.custom_op("exacttest::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_an_op_of_another_library_is_not_run_again() -> None:
    found = call(torch.ops.exacttest.twice.default, torch.ones(2)).at("result", 0)
    assert found.value is None and "exacttest ops are not run again" in found.why


@pytest.mark.parametrize(
    ("view", "index", "place"),
    [
        (lambda x: (aten.t.default, x), (2, 1), (1, 2)),
        (lambda x: (aten.expand.default, x[:, :1], [2, 4]), (1, 3), (1, 0)),
        (lambda x: (aten.slice.Tensor, x.t()[1:], 0, 1, 2), (0, 1), (1, 1)),
        (lambda x: (aten.select.int, x, 1, 2), (1,), (1, 2)),
        (lambda x: (aten.view.default, x, [3, 2]), (2, 1), (1, 2)),
        (lambda x: (aten.as_strided.default, x, [2], [2], 1), (1,), (1, 0)),
    ],
)
def test_an_element_of_a_view_is_one_of_its_source(
    view: object, index: tuple[int, ...], place: tuple[int, ...]
) -> None:
    func, *args = view(torch.arange(6.0).view(2, 3))
    made = call(func, *args)
    found = made.at("result", *index)
    assert found.value == made.result[index].item() == args[0][place].item()
    assert found.inputs["self"].index == place


def test_a_view_of_other_bits_has_no_source_element() -> None:
    made = call(aten.view.dtype, torch.ones(2), torch.int32)
    assert made.at("result", 1) == (float(0x3F800000), {}, None)


@pytest.mark.usefixtures("saturating")
def test_on_the_emulated_npu_nothing_is_computed_and_the_register_stays() -> None:
    x, w = (t.npu() for t in t5())
    made = call(aten.mm.default, x, w.t())
    assert made.result[1, 2] == 65504
    status.clear()
    found = made.at("result", 1, 2)
    assert found.value == 66246.0 and found.inputs["self"].values == (181, 1, 0, 2)
    made = call(aten._foreach_mul_.Scalar, [half(1e4).npu()], 9.0)
    status.clear()
    assert made.at("self/self_0", 0).value == 9e4
    hidden = half(INF, NAN).npu()
    assert call(aten.where.self, hidden > 0, hidden, hidden).at("result", 0).value == INF
    weight = torch.full((1, 1, 3, 3), 100.0, dtype=HALF).npu()
    image = torch.full((1, 1, 4, 4), 100.0, dtype=HALF).npu()
    arguments = (None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    made = call(aten.convolution.default, image, weight, *arguments)
    status.clear()
    assert made.at("result", 0, 0, 1, 1).value == 9e4
    created = call(aten.full.default, [2], 7.0, device="npu")
    assert created.at("result", 1).value == 7.0
    assert status.read() == 0


def test_no_mode_sees_any_of_it() -> None:
    x = torch.ones(3, 3, requires_grad=True)
    made = [
        call(aten.mm.default, x, x), call(aten.tril.default, x),
        call(aten.exp_.default, torch.ones(2, 2)),
    ]  # fmt: skip
    with torch.device("meta"), torch.autocast("cpu"), Ops() as ops, FunctionCalls() as calls:
        found = [one.at(one.op.returns[0], 1, 0) for one in made]
    assert [one.value for one in found] == [3, 1, math.e]
    assert not ops.seen and not calls.seen
    assert x._version == 0


def test_inference_tensors_are_read_too() -> None:
    with torch.inference_mode():
        made = call(aten.mul_.Tensor, torch.full((2,), 3.0), 2.0)
    assert made.at("self", 1).value == 6
