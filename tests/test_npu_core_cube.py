"""The cube unit: what it makes of operands, and how results leave it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import npu_core
from npu_core import options, status

HALF, FLOAT, INF, NAN = torch.float16, torch.float32, math.inf, math.nan
CAST, CUBE, VECTOR = status.CAST, status.CUBE, status.VECTOR


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    saved = options.snapshot()
    with npu_core.use("exact"):
        status.clear()
        yield
        status.clear()
    options.restore(saved)


def half(x: torch.Tensor) -> torch.Tensor:
    """fp16 by saturation: clip to the largest, NaN is 0, then round."""
    values = np.nan_to_num(x.numpy().astype(np.float64), nan=0.0)
    return torch.from_numpy(np.clip(values, -65504, 65504).astype(np.float16))


def hf32(x: torch.Tensor) -> torch.Tensor:
    """1 + 8 + 11 bits by scaling: 12 significant bits with the hidden one, halves to even."""
    mantissa, exponent = np.frexp(x.numpy().astype(np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = np.ldexp(np.rint(mantissa * 2**12), exponent - 12)
        return torch.from_numpy(rounded.astype(np.float32))


def randn(*shape: int) -> torch.Tensor:
    """fp32 numbers that fp16 does not hold, of which one is too large for it."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    x.view(-1)[-1] = 7e4
    return x


def error_bound(terms: int, magnitude: torch.Tensor) -> torch.Tensor:
    """Of a sum of fp32 products in any order, each product rounded too (Higham, gamma_n).

    magnitude: the sum of the absolute values, in float64.
    """
    n = (terms + 1) * 2.0**-24
    return n / (1 - n) * magnitude


# op, shapes of its tensors, which of them the cube reads, number of terms of a sum
MATRIX = [
    (torch.mm, [(5, 37), (37, 6)], {0, 1}, 37),
    (torch.bmm, [(2, 5, 37), (2, 37, 6)], {0, 1}, 37),
    (torch.mv, [(5, 37), (37,)], {0, 1}, 37),
    (torch.addmm, [(6,), (5, 37), (37, 6)], {1, 2}, 38),
    (torch.addmv, [(5,), (5, 37), (37,)], {1, 2}, 38),
    (torch.baddbmm, [(2, 5, 6), (2, 5, 37), (2, 37, 6)], {1, 2}, 38),
    (torch.addbmm, [(5, 6), (2, 5, 37), (2, 37, 6)], {1, 2}, 75),
    (F.conv1d, [(2, 19, 9), (4, 19, 3), (4,)], {0, 1}, 58),
    (F.conv2d, [(2, 3, 9, 9), (4, 3, 3, 3), (4,)], {0, 1}, 28),
    (F.conv3d, [(1, 2, 5, 5, 5), (3, 2, 3, 3, 3), (3,)], {0, 1}, 55),
    (F.conv_transpose2d, [(2, 3, 5, 5), (3, 4, 3, 3), (4,)], {0, 1}, 28),
    (F.linear, [(2, 5, 37), (6, 37), (6,)], {0, 1}, 38),
]
IDS = [op.__name__ for op, *_ in MATRIX]
every_op = pytest.mark.parametrize(("op", "shapes", "cube", "terms"), MATRIX, ids=IDS)


def assert_computed_from(
    op: Callable, args: list[torch.Tensor], terms: int, result: torch.Tensor
) -> None:
    """The result is the op on just these fp32 numbers, up to the rounding of fp32 sums."""
    wide = [a.double() for a in args]
    bound = error_bound(terms, op(*(w.abs() for w in wide)))
    assert result.dtype is FLOAT
    assert bool(((result.double() - op(*wide)).abs() <= bound).all())


@every_op
def test_910a_narrows_fp32_operands_only(
    op: Callable, shapes: list, cube: set[int], terms: int
) -> None:
    args = [randn(*shape) for shape in shapes]
    narrowed = [half(a).float() if i in cube else a for i, a in enumerate(args)]
    with npu_core.use("910A"):
        result = op(*(a.npu() for a in args)).cpu()
    assert_computed_from(op, narrowed, terms, result)
    with pytest.raises(AssertionError):
        assert_computed_from(op, args, terms, result)
    assert torch.equal(op(*(a.npu() for a in args)).cpu(), op(*args))  # exact again


@every_op
@pytest.mark.parametrize(("profile", "dtype"), [("910A", HALF), ("910B", torch.bfloat16)])
def test_short_results_are_the_fp32_sums_rounded_once(
    profile: str, dtype: torch.dtype, op: Callable, shapes: list, cube: set[int], terms: int
) -> None:
    args = [randn(*shape).clamp(-9, 9).to(dtype).npu() for shape in shapes]
    options.conv.allow_hf32 = False
    with npu_core.use(profile):
        result, sums = op(*args).cpu(), op(*(a.float() for a in args)).cpu()
    assert result.dtype is dtype
    assert torch.equal(result, sums.to(dtype))
    assert not torch.equal(result.float(), sums)


@pytest.mark.parametrize("profile", ["910A", "910B"])
def test_short_gradients_of_a_convolution_are_rounded_once(profile: str) -> None:
    shapes = [(2, 4, 4, 4), (2, 3, 6, 6), (4, 3, 3, 3)]
    args = [randn(*s).clamp(-9, 9).half().npu() for s in shapes]
    numbers = ([4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True])
    backward = torch.ops.aten.convolution_backward
    options.conv.allow_hf32 = False
    with npu_core.use(profile):
        results = backward(*args, *numbers)
        sums = backward(*(a.float() for a in args), *numbers)
    for result, total in zip(results, sums, strict=True):
        assert torch.equal(result.cpu(), total.cpu().half())


def test_910a_narrows_all_three_operands_of_a_convolutions_backward() -> None:
    x, weight, bias, grad = randn(2, 3, 6, 6), randn(4, 3, 3, 3), randn(4), randn(2, 4, 4, 4)
    leaves = [t.npu().requires_grad_() for t in (x, weight, bias)]
    with npu_core.use("910A"):
        F.conv2d(*leaves).backward(grad.npu())
    x, weight, g = (half(t).float() for t in (x, weight, grad))
    for mine, of, args, terms in (
        (leaves[0], torch.nn.grad.conv2d_input, (x.shape, weight, g), 36),
        (leaves[1], torch.nn.grad.conv2d_weight, (x, weight.shape, g), 32),
    ):
        places = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
        tensors = [args[i] for i in places]

        def run(*given: torch.Tensor, of=of, args=args, places=places) -> torch.Tensor:
            new = dict(zip(places, given, strict=True))
            return of(*(new.get(i, a) for i, a in enumerate(args)))

        assert_computed_from(run, tensors, terms, mine.grad.cpu())
    assert torch.equal(leaves[2].grad.cpu(), grad.sum((0, 2, 3)))  # a reduction, no cube op


@settings(max_examples=60)
@given(data=st.data())
def test_every_geometry_agrees_with_the_cpu_within_rounding(data: st.DataObject) -> None:
    rank, groups = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    transposed = data.draw(st.booleans())

    def numbers(low: int, high: int) -> list[int]:
        return [data.draw(st.integers(low, high)) for _ in range(rank)]

    ci, co = (groups * data.draw(st.integers(1, 18 // groups)) for _ in range(2))
    kernel, stride, padding, dilation = numbers(1, 3), numbers(1, 3), numbers(0, 2), numbers(1, 2)
    extra = [max(s, d) - 1 if transposed else 0 for s, d in zip(stride, dilation, strict=True)]
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).half().double().requires_grad_()

    x = draw(2, ci, *numbers(5, 7))
    weight = draw(*((ci, co // groups) if transposed else (co, ci // groups)), *kernel)
    rest = (None, stride, padding, dilation, transposed, extra, groups)
    out = torch.convolution(x, weight, *rest)
    grad = draw(*out.shape).detach()
    expected = [out, *torch.autograd.grad(out, (x, weight), grad)]
    x1, w1 = (t.detach().abs().requires_grad_() for t in (x, weight))
    out = torch.convolution(x1, w1, *rest)
    magnitude = [out, *torch.autograd.grad(out, (x1, w1), grad.abs())]
    x2, w2 = (t.detach().float().npu().requires_grad_() for t in (x, weight))
    with npu_core.use("910A"):
        out = torch.convolution(x2, w2, *rest)
        results = [out, *torch.autograd.grad(out, (x2, w2), grad.float().npu())]
    terms = max(ci, co) * math.prod(kernel) + grad[:, 0].numel()
    for mine, theirs, size in zip(results, expected, magnitude, strict=True):
        assert bool(((mine.cpu().double() - theirs).abs() <= error_bound(terms, size)).all())


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0, 1), (0.5, 1), (1, 2.5), (0.5, -3), (0, 2)])
@pytest.mark.parametrize(("op", "shapes"), [(o, s) for o, s, *_ in MATRIX if "add" in o.__name__])
def test_beta_and_alpha(op: Callable, shapes: list, beta: float, alpha: float) -> None:
    args = [randn(*s).clamp(-9, 9).half().float() for s in shapes]
    if beta == 0:
        args[0].fill_(NAN)  # must not be looked at
    with npu_core.use("910A"):
        result = op(*(a.npu() for a in args), beta=beta, alpha=alpha).cpu()
    wide = [a.double() for a in args]
    size = op(*(w.abs() for w in wide), beta=abs(beta), alpha=abs(alpha))
    error = (result.double() - op(*wide, beta=beta, alpha=alpha)).abs()
    assert bool((error <= error_bound(80, size)).all())


@pytest.mark.parametrize("use_gelu", [False, True])
def test_the_activation_of_addmm_comes_before_the_rounding(use_gelu: bool) -> None:
    bias, a, b = (randn(*s).clamp(-2, 2).half().npu() for s in [(6,), (5, 37), (37, 6)])
    with npu_core.use("910A"):
        result = torch._addmm_activation(bias, a, b, use_gelu=use_gelu).cpu()
        sums = torch.addmm(bias.float(), a.float(), b.float()).cpu()
    assert torch.equal(result, (F.gelu(sums) if use_gelu else sums.relu()).half())


@pytest.mark.parametrize("dtype", [FLOAT, HALF], ids=str)
@pytest.mark.parametrize("form", ["in place", "out", "empty out"])
def test_910a_writes_the_same_into_given_tensors(dtype: torch.dtype, form: str) -> None:
    a, b, c = (randn(20, 20).clamp(-9, 9).to(dtype).npu() * k for k in (1, 2, 3))
    with npu_core.use("910A"):
        expected = torch.addmm(c, a, b)
        if form == "in place":
            result = c.clone()
            assert result.addmm_(a, b) is result
        else:
            shape = (20, 20) if form == "out" else (0,)
            result = torch.empty(shape, dtype=dtype, device="npu")
            assert torch.addmm(c, a, b, out=result) is result
    assert torch.equal(result.cpu(), expected.cpu())


REFUSED: list[tuple[Callable, list[tuple]]] = [
    (torch.mm, [(5, 20), (40, 6)]),
    (torch.mm, [(5, 20, 1), (20, 6)]),
    (torch.bmm, [(2, 5, 20), (3, 20, 6)]),
    (torch.mv, [(5, 20), (21,)]),
    (torch.addmm, [(5,), (5, 20), (21, 6)]),
    (F.conv2d, [(2, 3, 9, 9), (4, 2, 3, 3)]),
    (F.conv2d, [(2, 3, 9, 9), (4, 3, 30, 3)]),
    (F.conv_transpose2d, [(2, 3, 5, 5), (4, 3, 3, 3)]),
]


@pytest.mark.parametrize(("op", "shapes"), REFUSED)
def test_what_the_cpu_refuses_is_refused_alike(op: Callable, shapes: list) -> None:
    args = [torch.ones(s) for s in shapes]
    with pytest.raises(RuntimeError) as on_cpu:
        op(*args)
    with npu_core.use("910A"), pytest.raises(RuntimeError) as on_npu:
        op(*(a.npu() for a in args))
    assert str(on_npu.value) == str(on_cpu.value)


def test_dtypes_are_not_mixed() -> None:
    a = torch.ones(4, 4).npu()
    with npu_core.use("910A"):
        with pytest.raises(RuntimeError, match="dtype"):
            a @ a.half()
        with pytest.raises(RuntimeError, match="dtype|type"):
            torch.mm(a, a, out=torch.empty(4, 4, dtype=HALF, device="npu"))


@pytest.mark.parametrize("profile", ["910A", "910B"])
@pytest.mark.parametrize("shapes", [((3, 0), (0, 4)), ((0, 40), (40, 4)), ((3, 40), (40, 0))])
def test_nothing_to_sum(profile: str, shapes: tuple) -> None:
    a, b = (torch.ones(s) for s in shapes)
    with npu_core.use(profile):
        assert torch.equal((a.npu() @ b.npu()).cpu(), a @ b)
        assert torch.equal((a[None].npu() @ b[None].npu()).cpu(), (a @ b)[None])


def test_a_start_to_which_nothing_is_added_saturates() -> None:
    start = torch.tensor([[6e4, math.inf, 1]], dtype=HALF).npu()
    a, b = torch.ones(1, 0, dtype=HALF).npu(), torch.ones(0, 3, dtype=HALF).npu()
    with npu_core.use("910A"):
        assert torch.addmm(start, a, b, beta=2).tolist() == [[65504, 65504, 2]]
    assert status.read() == CAST


def test_autocast_of_the_cpu_does_not_reach_the_cube() -> None:
    a, b = randn(5, 37), randn(37, 6)
    with npu_core.use("910A"):
        expected = (a.npu() @ b.npu()).cpu()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal((a.npu() @ b.npu()).cpu(), expected)


@pytest.mark.parametrize("profile", ["910A", "910B"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.complex64], ids=str)
def test_other_dtypes_are_left_alone(profile: str, dtype: torch.dtype) -> None:
    a = (randn(5, 5).double() / 3).to(dtype)
    with npu_core.use(profile):
        assert torch.equal((a.npu() @ a.npu()).cpu(), a @ a)


def encoder_layer(x: torch.Tensor, device: str) -> torch.Tensor:
    """In eval mode without gradients: the fused kernel of PyTorch."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval().to(device)
    with torch.no_grad():
        return layer(x)


COMPOSITE: list[Callable] = [
    encoder_layer,
    lambda x, device: torch.conv_tbc(x, torch.ones(1, 8, 8).to(device), torch.ones(8).to(device)),
    lambda x, device: torch.cdist(x, x),  # by products from 26 rows on
    lambda x, device: F.grouped_mm(x, torch.ones(2, 8, 8).to(device)),
    lambda x, device: torch.stack(torch._foreach_mm([*x], [torch.ones(8, 8).to(device)] * 2)),
]


@pytest.mark.parametrize(
    "op", COMPOSITE, ids=["encoder layer", "conv_tbc", "cdist", "grouped", "foreach"]
)
def test_ops_made_of_products_reach_the_cube(op: Callable) -> None:
    x = randn(2, 30, 8)
    assert torch.equal(op(x.npu(), "npu").cpu(), op(x, "cpu"))
    with npu_core.use("910A"):
        op(x.npu(), "npu")
    assert status.read() & CAST


# Narrowing


def through(op: str, values: list[float]) -> torch.Tensor:
    """What the cube makes of fp32 numbers: they are multiplied by one."""
    x = torch.tensor(values, dtype=FLOAT)
    if op == "mm":
        return (x.view(-1, 1).npu() @ torch.ones(1, 1, device="npu")).view(-1).cpu()
    return F.conv1d(x.view(-1, 1, 1).npu(), torch.ones(1, 1, 1, device="npu")).view(-1).cpu()


both = pytest.mark.parametrize("op", ["mm", "convolution"])
floats = st.lists(st.floats(width=32), min_size=1, max_size=20)


@both
@given(values=floats)
def test_910a_narrowing_is_rounding_with_saturation(op: str, values: list[float]) -> None:
    status.clear()
    with npu_core.use("910A"):
        x = torch.tensor(values)
        assert torch.equal(through(op, values), half(x).float())
    lost = [v for v in values if math.isnan(v) or (65520 <= abs(v) < INF)]
    assert status.read() == (CAST if lost else 0)


@pytest.mark.parametrize("op", ["mm", "convolution"])
@given(values=st.lists(st.floats(width=32, allow_subnormal=False, allow_nan=False), min_size=1))
def test_hf32_is_rounding_to_nearest_even(op: str, values: list[float]) -> None:
    options.matmul.allow_hf32 = True
    with npu_core.use("910B"):
        assert torch.equal(through(op, values), hf32(torch.tensor(values)))


@pytest.mark.parametrize(
    ("profile", "mode", "allowed", "becomes"),
    [
        ("910A", "allow_fp32_to_fp16", False, half),
        ("910A", "allow_fp32_to_fp16", True, half),
        ("910B", "must_keep_origin_dtype", False, torch.clone),
        ("910B", "must_keep_origin_dtype", True, hf32),
        ("910B", "allow_fp32_to_fp16", False, half),
        ("910B", "allow_fp32_to_fp16", True, hf32),
    ],
)
@both
def test_the_switches_choose_the_narrowing(
    op: str, profile: str, mode: str, allowed: bool, becomes: Callable
) -> None:
    options.set_option({"ACL_PRECISION_MODE": mode})
    options.matmul.allow_hf32 = options.conv.allow_hf32 = allowed
    values = [1 / 3, 1e-3, -2.0001]
    with npu_core.use(profile):
        assert torch.equal(through(op, values), becomes(torch.tensor(values)).float())


@both
def test_910a_cannot_keep_fp32(op: str) -> None:
    options.set_option({"ACL_PRECISION_MODE": "must_keep_origin_dtype"})
    x = torch.ones(2, 2, 2).half().npu()
    with npu_core.use("910A"):
        with pytest.raises(RuntimeError, match="must_keep_origin_dtype.*float16"):
            through(op, [1.0])
        assert F.conv1d(x, x).dtype is torch.bmm(x, x).dtype is HALF


# Leaving the accumulator in saturation mode


def dot(a: list[float], b: list[float], dtype: torch.dtype, start: float = 0.0) -> float:
    x, y = torch.tensor([a], dtype=dtype).npu(), torch.tensor([b], dtype=dtype).npu()
    return torch.addmm(torch.tensor([start], dtype=dtype).npu(), x, y.t()).item()


LARGEST = torch.finfo(FLOAT).max


@pytest.mark.parametrize(
    ("a", "b", "start", "result", "bits"),
    [
        ([256.0], [255.875], 0.0, 65504.0, 0),
        ([256.0], [256.0], 0.0, 65504.0, CAST),
        ([256.0], [-256.0], 0.0, -65504.0, CAST),
        ([65504.0] * 40, [65504.0] * 20 + [-65504.0] * 20, 0.0, 0.0, 0),  # the sum is fp32
        ([INF], [1.0], 0.0, 65504.0, 0),  # the infinity came with an operand
        ([INF], [0.0], 0.0, 0.0, 0),
        ([INF, 65504.0], [1.0, 65504.0], 0.0, 65504.0, 0),
        ([1.0], [1.0], -INF, -65504.0, 0),
        ([NAN], [1.0], 0.0, 0.0, CUBE),
        ([NAN, INF], [1.0, 1.0], 0.0, 0.0, CUBE),
        ([1.0], [1.0], NAN, 0.0, CUBE),
    ],
)
def test_910a_saturates_what_leaves_as_fp16(
    a: list[float], b: list[float], start: float, result: float, bits: int
) -> None:
    with npu_core.use("910A"):
        assert dot(a, b, HALF, start) == result
    assert status.read() == bits


@pytest.mark.parametrize(
    ("a", "b", "start", "result", "bits"),
    [
        ([1e19], [1e19], 0.0, float(np.float32(1e19) * np.float32(1e19)), 0),
        ([1e20], [1e20], 0.0, LARGEST, CUBE),
        ([1e20, 1e20], [-1e20, -1e20], 0.0, -LARGEST, CUBE),
        ([1.0], [1.0], INF, LARGEST, 0),
        ([INF], [1.0], 0.0, LARGEST, 0),
        ([NAN], [1.0], 0.0, 0.0, CUBE),
    ],
)
def test_910b_forced_to_saturate(
    monkeypatch: pytest.MonkeyPatch, a: list, b: list, start: float, result: float, bits: int
) -> None:
    monkeypatch.setenv("INF_NAN_MODE_ENABLE", "0")
    monkeypatch.setenv("INF_NAN_MODE_FORCE_DISABLE", "1")
    with npu_core.use("910B"):
        assert dot(a, b, FLOAT, start) == result
    assert status.read() == bits


@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, FLOAT], ids=str)
def test_910b_keeps_infinity_and_nan_and_notes_nothing(dtype: torch.dtype) -> None:
    most = torch.finfo(dtype).max
    with npu_core.use("910B"):
        assert dot([most, most], [most, most], dtype) == INF
        assert dot([INF], [-1.0], dtype) == -INF
        assert math.isnan(dot([NAN], [1.0], dtype))
    assert status.read() == 0


def test_a_convolutions_backward_notes_where_it_overflows() -> None:
    def run(value: float, mask: list[bool]) -> list[float]:
        one = torch.full((2, 1, 1), value, dtype=HALF).npu()
        x, weight = torch.full_like(one, 300.0), torch.full((1, 1, 1), 300.0, dtype=HALF).npu()
        status.clear()
        with npu_core.use("910A"):
            results = torch.ops.aten.convolution_backward(
                one, x, weight, [1], [1], [0], [1], False, [0], 1, mask
            )
        return [r.flatten()[0].item() for r in results if r is not None]

    assert run(100.0, [True, True, True]) == [30000.0, 60000.0, 200.0]
    assert status.read() == 0
    assert run(300.0, [True, False, False]) == [65504.0]
    assert status.read() == CAST
    assert run(110.0, [False, True, False]) == [65504.0]
    assert status.read() == CAST
    assert run(60000.0, [False, False, True]) == [65504.0]
    assert status.read() == VECTOR
    assert run(INF, [True, True, True]) == [65504.0] * 3
    assert status.read() == 0
    assert run(NAN, [True, False, True]) == [0.0, 0.0]
    assert status.read() == CUBE | VECTOR
