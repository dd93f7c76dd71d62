"""Saturation mode: what computing makes of infinity and NaN, and what moving data leaves alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

import npu_core
from npu_core import status

INF, NAN = math.inf, math.nan
HALF, FLOAT = torch.float16, torch.float32


@pytest.fixture(autouse=True)
def saturating() -> Iterator[None]:
    with npu_core.use("910A"):
        status.clear()
        yield
        status.clear()


def npu(*values: float, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype).npu()


def saturated(x: torch.Tensor) -> torch.Tensor:
    """The rule written in numpy: infinity is the largest number, NaN is 0."""
    largest = torch.finfo(x.dtype).max
    values = x.numpy()
    values = np.where(np.isnan(values), np.zeros_like(values), values)
    return torch.from_numpy(np.asarray(np.clip(values, -largest, largest), x.numpy().dtype))


def test_the_documents_examples() -> None:
    assert npu(12.0).exp().item() == 65504
    assert npu(-1.0).sqrt().item() == 0
    assert status.read() == status.VECTOR


# Each is one op, so that what it makes of infinity and NaN is saturated once.
COMPUTING: list[tuple[str, Callable[[torch.Tensor, torch.Tensor], object]]] = [
    ("add", lambda a, b: a + b),
    ("number", lambda a, b: a * 3e4),
    ("in place", lambda a, b: a.clone().mul_(b)),
    ("out", lambda a, b: torch.sub(a, b, out=torch.empty(0, dtype=a.dtype, device=a.device))),
    ("div", lambda a, b: a / b),
    ("exp", lambda a, b: a.exp()),
    ("log", lambda a, b: a.log()),
    ("pow", lambda a, b: a.pow(3)),
    ("sum", lambda a, b: a.sum()),
    ("max", lambda a, b: a.max()),
    ("cumsum", lambda a, b: a.cumsum(0)),
    ("relu", lambda a, b: a.relu()),
    ("foreach", lambda a, b: torch._foreach_mul([a, b], [b, a])[0]),
    ("addcdiv", lambda a, b: torch.addcdiv(a, a, b)),
    ("var_mean", lambda a, b: torch.var_mean(a)[0]),
]


# By bits: hypothesis makes half floats by throwing most of its floats away.
HALVES = st.sampled_from([0.0, -0.0, 1.0, 65504.0, INF, -INF, NAN, 2.0**-24]) | st.integers(
    0, 2**16 - 1
).map(lambda bits: float(np.uint16(bits).view(np.float16)))
NUMBERS = {HALF: HALVES, FLOAT: st.floats(width=32)}


@pytest.mark.parametrize("dtype", [HALF, FLOAT], ids=str)
@pytest.mark.parametrize("compute", [c for _, c in COMPUTING], ids=[n for n, _ in COMPUTING])
@given(data=st.data())
def test_computing_saturates(compute: Callable, dtype: torch.dtype, data: st.DataObject) -> None:
    numbers = st.lists(NUMBERS[dtype], min_size=4, max_size=4)
    a, b = (torch.tensor(data.draw(numbers), dtype=dtype) for _ in range(2))
    status.clear()
    expected = compute(a, b)
    assert torch.equal(compute(a.npu(), b.npu()).cpu(), saturated(expected))
    if a.isfinite().all() and b.isfinite().all():
        assert status.read() == (0 if expected.isfinite().all() else status.VECTOR)


BITS = [1.0, INF, -INF, NAN, -0.0, 2.0]
MOVING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "clone": lambda x: x.clone(),
    "copy_": lambda x: torch.zeros_like(x).copy_(x),
    "contiguous": lambda x: x.view(2, 3).t().contiguous(),
    "view": lambda x: x.view(3, 2),
    "slice": lambda x: x[1:4],
    "fill_": lambda x: torch.zeros_like(x).fill_(INF),
    "full": lambda x: torch.full((2,), -INF, dtype=x.dtype, device=x.device),
    "full_like": lambda x: torch.full_like(x, NAN),
    "where": lambda x: torch.where(x > 0, x, torch.full_like(x, -INF)),
    "masked_fill": lambda x: x.masked_fill(x > 1, -INF),
    "masked_fill_": lambda x: x.clone().masked_fill_(x > 1, -INF),
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x]),
    "gather": lambda x: x.gather(0, torch.tensor([1, 3, 2], device=x.device)),
    "index": lambda x: x[torch.tensor([3, 1], device=x.device)],
    "mask index": lambda x: x[torch.tensor([True, False, True] * 2, device=x.device)],
    "index_select": lambda x: x.index_select(0, torch.tensor([3, 1], device=x.device)),
    "index_put": lambda x: torch.zeros_like(x).index_put_(
        (torch.tensor([2], device=x.device),), x[1:2]
    ),
    "setitem": lambda x: torch.zeros_like(x).__setitem__(slice(0, 3), x[1:4]) or x,
    "index_fill": lambda x: x.index_fill(0, torch.tensor([0], device=x.device), INF),
    "index_copy": lambda x: x.index_copy(0, torch.tensor([0], device=x.device), x[1:2]),
    "scatter": lambda x: x.scatter(0, torch.tensor([0], device=x.device), x[3:4]),
    "take": lambda x: x.take(torch.tensor([3, 1], device=x.device)),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(2),
    "repeat": lambda x: x.repeat(2),
    "tril": lambda x: x.view(2, 3).tril(),
    "pad": lambda x: F.pad(x, (1, 1), value=INF),
    "embedding": lambda x: F.embedding(torch.tensor([1, 0], device=x.device), x.view(2, 3)),
    "foreach clone": lambda x: torch._foreach_clone([x])[0],
    "channel shuffle": lambda x: torch.native_channel_shuffle(x.view(1, 6, 1, 1), 2),
    "to the host and back": lambda x: x.cpu().to(x.device),
}


@pytest.mark.parametrize("dtype", [HALF, FLOAT], ids=str)
@pytest.mark.parametrize("move", MOVING.values(), ids=MOVING)
def test_moving_keeps_bits_and_notes_nothing(move: Callable, dtype: torch.dtype) -> None:
    x = torch.tensor(BITS, dtype=dtype)
    moved = move(x.npu()).cpu()
    bits = {HALF: torch.int16, FLOAT: torch.int32}[dtype]
    assert torch.equal(moved.contiguous().view(bits), move(x).contiguous().view(bits))
    assert (status.read(), status.read_atomic()) == (0, 0)


def test_factories_that_compute_saturate() -> None:
    assert torch.logspace(0, 100, 2, device="npu").tolist() == [1, torch.finfo(FLOAT).max]
    assert torch.arange(0, 2e5, 1e5, dtype=HALF, device="npu").tolist() == [0, 65504]
    assert status.read() == status.VECTOR


def test_uninitialised_memory_is_no_overflow() -> None:
    for _ in range(50):  # freed memory of many bit patterns
        torch.full((1000,), NAN, device="npu")
        torch.empty(1000, device="npu"), torch.empty_like(npu(1.0))
    assert status.read() == 0


@pytest.mark.parametrize("dtype", [HALF, FLOAT, torch.bfloat16, torch.int64], ids=str)
def test_printing_computes_nothing_on_the_device(dtype: torch.dtype) -> None:
    values = [1, 2] if dtype is torch.int64 else BITS
    x = torch.tensor(values, dtype=dtype)
    shown = repr(x.npu())
    assert shown.partition("]")[0] == repr(x).partition("]")[0]
    assert "device='npu:0'" in shown
    assert status.read() == 0


# What overflows, and the nearest thing that does not.


@pytest.mark.parametrize(
    ("compute", "bits"),
    [
        (lambda: npu(60000.0) + 5504, 0),
        (lambda: npu(60000.0) + 5536, status.VECTOR),
        (lambda: npu(60000.0).mul_(1), 0),
        (lambda: npu(60000.0).mul_(2), status.VECTOR),
        (lambda: npu(65504.0, dtype=FLOAT).half(), 0),
        (lambda: npu(65520.0, dtype=FLOAT).half(), status.CAST),
        (lambda: npu(65504, dtype=torch.int32).half(), 0),
        (lambda: npu(70000, dtype=torch.int32).half(), status.CAST),
        (
            lambda: torch.zeros(1, dtype=HALF, device="npu").copy_(npu(7e4, dtype=FLOAT)),
            status.CAST,
        ),
        (lambda: torch._foreach_copy_([npu(0.0)], [npu(65504.0, dtype=FLOAT)]), 0),
        (lambda: torch._foreach_copy_([npu(0.0)], [npu(7e4, dtype=FLOAT)]), status.CAST),
        (lambda: torch.ops.aten.copy(npu(0.0), npu(7e4, dtype=FLOAT)), status.CAST),
        (lambda: npu(0.0, dtype=FLOAT).to(torch.uint8), 0),
        (lambda: npu(-1.0, dtype=FLOAT).to(torch.uint8), status.UNSIGNED),
        (lambda: npu(-1.0, dtype=FLOAT).to(torch.int8), 0),
        (lambda: -npu(-127, dtype=torch.int8), 0),
        (lambda: -npu(-128, dtype=torch.int8), status.NEGATE),
        (lambda: -npu(-(2**63), dtype=torch.int64), status.NEGATE),
        (lambda: npu(2**31 - 2, dtype=torch.int32) + 1, 0),
        (lambda: npu(2**31 - 1, dtype=torch.int32) + 1, status.INTEGER),
        (lambda: npu(-(2**31), dtype=torch.int32).sub_(1), status.INTEGER),
        (lambda: npu(2**40, dtype=torch.int64) * 2**22, 0),
        (lambda: npu(2**40, dtype=torch.int64) * 2**23, status.INTEGER),
        (lambda: npu(200, dtype=torch.uint8) * 2, 0),
        (lambda: npu(1e300, dtype=torch.float64) * 1e300, 0),
        (lambda: npu(NAN) + 1, status.VECTOR),
    ],
)
def test_what_the_register_shows(compute: Callable, bits: int) -> None:
    compute()
    assert status.read() == bits
    assert status.read_atomic() == 0


SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
INTEGER_OPS: dict[str, tuple[Callable, Callable[[int, int], int]]] = {  # on npu, in Python
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "alpha": (lambda a, b: torch.add(a, b, alpha=3), lambda a, b: a + 3 * b),
    "number": (lambda a, b: 7 + a, lambda a, b: 7 + a),
    "sub_": (lambda a, b: a.clone().sub_(b), lambda a, b: a - b),
    "rsub": (lambda a, b: 5 - a, lambda a, b: 5 - a),
    "mul out": (lambda a, b: torch.mul(a, b, out=torch.empty_like(a)), lambda a, b: a * b),
    "with itself": (lambda a, b: (x := a.clone()).mul_(x), lambda a, b: a * a),
    "out itself": (lambda a, b: torch.add(x := a.clone(), x, out=x), lambda a, b: a + a),
    "addcmul": (lambda a, b: torch.addcmul(a, a, b), lambda a, b: a + a * b),
    "neg": (lambda a, b: -a, lambda a, b: -a),
    "foreach": (lambda a, b: torch._foreach_mul([a, b], [b, a])[1], lambda a, b: a * b),
    "foreach_": (lambda a, b: torch._foreach_add_([a.clone()], [b])[0], lambda a, b: a + b),
}


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
@pytest.mark.parametrize("op", INTEGER_OPS)
@given(data=st.data())
def test_integers_are_noted_exactly_when_they_wrap(
    op: str, dtype: torch.dtype, data: st.DataObject
) -> None:
    info = torch.iinfo(dtype)
    edges = st.integers(-2, 2).flatmap(
        lambda i: st.sampled_from([i, info.max - abs(i), info.min + abs(i), math.isqrt(info.max)])
    )
    a, b = (data.draw(edges | st.integers(info.min, info.max)) for _ in range(2))
    on_npu, in_python = INTEGER_OPS[op]
    status.clear()
    result, exact = on_npu(npu(a, dtype=dtype), npu(b, dtype=dtype)).item(), in_python(a, b)
    assert (result - exact) % 2**info.bits == 0
    bit = status.NEGATE if op == "neg" else status.INTEGER
    assert status.read() == (bit if result != exact else 0)


@pytest.mark.parametrize(
    "square",
    [
        lambda x: x.mul_(x),
        lambda x: torch.mul(x, x, out=x),
        lambda x: torch.exp(x, out=x),
        lambda x: torch._foreach_mul_([x], [x]),
    ],
    ids=["in place", "out", "out of one operand", "foreach"],
)
def test_an_operand_that_the_op_overwrites_hides_no_overflow(square: Callable) -> None:
    square(x := npu(6e4, 1.0))
    assert x[0].item() == 65504
    assert status.read() == status.VECTOR


def test_an_infinite_operand_is_no_overflow_of_the_op() -> None:
    mask, scores = npu(0.0, -INF), npu(-50.0, -50.0)
    assert (scores + mask).tolist() == [-50, -65504]
    assert scores.add_(mask).tolist() == [-50, -65504]
    assert torch.softmax(mask, 0).tolist() == [1, 0]
    q = torch.randn(1, 2, 4, 8).to(HALF).npu()
    F.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert status.read() == 0
    (npu(6e4, 0.0) * 2).add_(mask)
    assert status.read() == status.VECTOR


def test_an_overflow_beside_an_infinite_operand_is_noted() -> None:
    assert (npu(6e4, 1.0) + npu(6e4, INF)).tolist() == [65504, 65504]
    assert status.read() == status.VECTOR


@pytest.mark.parametrize(
    ("add", "overflows"),
    [
        (lambda x, i: torch.zeros(2, dtype=HALF, device="npu").index_add_(0, i, x), True),
        (lambda x, i: torch.zeros(2, dtype=HALF, device="npu").scatter_add_(0, i, x), True),
        (
            lambda x, i: torch.zeros(2, dtype=HALF, device="npu").index_put_(
                (i,), x, accumulate=True
            ),
            True,
        ),
        (lambda x, i: torch.zeros(2, dtype=HALF, device="npu").index_put_((i,), x), False),
    ],
    ids=["index_add_", "scatter_add_", "index_put_ accumulating", "index_put_"],
)
def test_atomic_adds_raise_only_their_own_status(add: Callable, overflows: bool) -> None:
    result = add(npu(6e4, 6e4), torch.zeros(2, dtype=torch.int64, device="npu"))
    assert result[0].item() == (65504 if overflows else np.float16(6e4))
    assert (status.read(), status.read_atomic()) == (0, int(overflows))


def test_running_statistics_saturate_too() -> None:
    norm = torch.nn.BatchNorm1d(1).npu()
    norm(torch.tensor([[3e38], [-3e38]]).npu())
    assert norm.running_var.item() == torch.finfo(FLOAT).max  # its share of an infinite variance
    assert norm.running_mean.isfinite().all()
    assert status.read() == status.VECTOR


def test_running_statistics_that_are_only_read_keep_their_bits() -> None:
    norm = torch.nn.BatchNorm1d(1).npu().eval()
    norm.running_var.fill_(INF)
    assert norm(torch.ones(2, 1).npu()).tolist() == [[0], [0]]
    assert norm.running_var.item() == INF


def test_gradients_saturate_and_are_noted() -> None:
    x = npu(1e-4).requires_grad_()
    (x.log() * 60000).backward()
    assert x.grad.item() == 65504
    assert status.read() == status.VECTOR


# Other modes and dtypes


@pytest.mark.parametrize("profile", ["exact", "910B"])
def test_in_inf_nan_mode_nothing_saturates_and_nothing_is_noted(profile: str) -> None:
    with npu_core.use(profile):
        assert npu(12.0).exp().item() == INF
        assert npu(-1.0).sqrt().isnan().item()
        assert npu(1e5, dtype=FLOAT).half().item() == INF
        assert (npu(300.0, 300.0) @ npu(300.0, 300.0)).item() == INF
    assert status.read() == 0


def test_910b_saturates_where_the_environment_forces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INF_NAN_MODE_ENABLE", "0")
    monkeypatch.setenv("INF_NAN_MODE_FORCE_DISABLE", "1")
    with npu_core.use("910B"):
        assert npu(12.0).exp().item() == 65504
        largest = torch.finfo(torch.bfloat16).max
        assert (npu(largest, dtype=torch.bfloat16) * 2).item() == largest
    assert status.read() == status.VECTOR


def test_910a_computes_no_bfloat16_and_moves_it() -> None:
    x = npu(1.0, 2.0, dtype=torch.bfloat16)
    assert x.clone().flip(0).cpu().tolist() == [2, 1]
    assert not x.is_pinned()
    for compute in (lambda: x + 1, lambda: x @ x, lambda: x.float(), lambda: npu(1.0).bfloat16()):
        with pytest.raises(RuntimeError, match=r"aten::\w+.*: 910A has no bfloat16; use float16"):
            compute()
    with npu_core.use("910B"):
        assert (x + 1).tolist() == [2, 3]


def test_an_op_that_draws_is_drawn_once() -> None:
    x = npu(INF, 1.0, 1.0, 1.0)
    torch.manual_seed(0)
    first = F.dropout(x, 0.5), torch.randn(3, device="npu")
    torch.manual_seed(0)
    again = F.dropout(x.nan_to_num(), 0.5), torch.randn(3, device="npu")
    assert torch.equal(first[1].cpu(), again[1].cpu())
