"""What the profiles do to matrix operands, against narrowing written again in numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

import npu_core


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    with npu_core.use("exact"):
        yield


def half(x: torch.Tensor) -> np.ndarray:
    """fp16 by saturation: clip to the largest, NaN is 0, then round."""
    values = np.nan_to_num(x.numpy().astype(np.float64), nan=0.0)
    return np.clip(values, -65504, 65504).astype(np.float16)


def narrow(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(half(x).astype(np.float32))


def wide(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy().astype(np.float32))


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers of which some saturate fp16."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    x.view(-1)[0] = 7e4
    return x.to(dtype) if dtype is torch.float32 else x.clamp(-9, 9).to(dtype)


# op, shapes of its tensors, which of them the cube reads
MATRIX = [
    (torch.mm, [(5, 7), (7, 6)], {0, 1}),
    (torch.bmm, [(2, 5, 7), (2, 7, 6)], {0, 1}),
    (torch.mv, [(5, 7), (7,)], {0, 1}),
    (torch.addmm, [(6,), (5, 7), (7, 6)], {1, 2}),
    (torch.addmv, [(5,), (5, 7), (7,)], {1, 2}),
    (torch.baddbmm, [(2, 5, 6), (2, 5, 7), (2, 7, 6)], {1, 2}),
    (torch.addbmm, [(5, 6), (2, 5, 7), (2, 7, 6)], {1, 2}),
    (F.conv1d, [(2, 3, 9), (4, 3, 3), (4,)], {0, 1}),
    (F.conv2d, [(2, 3, 9, 9), (4, 3, 3, 3), (4,)], {0, 1}),
    (F.conv3d, [(1, 2, 5, 5, 5), (3, 2, 3, 3, 3), (3,)], {0, 1}),
    (F.conv_transpose2d, [(2, 3, 5, 5), (3, 4, 3, 3), (4,)], {0, 1}),
    (F.linear, [(5, 7), (6, 7), (6,)], {0, 1}),
]
IDS = [op.__name__ for op, _, _ in MATRIX]


@pytest.mark.parametrize(("op", "shapes", "cube"), MATRIX, ids=IDS)
def test_910a_narrows_fp32_operands_only(op: Callable, shapes: list, cube: set[int]) -> None:
    args = [randn(*shape) for shape in shapes]
    expected = op(*(narrow(a) if i in cube else a for i, a in enumerate(args)))
    with npu_core.use("910A"):
        result = op(*(a.npu() for a in args)).cpu()
    assert result.dtype is torch.float32
    assert torch.equal(result, expected)
    assert not torch.equal(result, op(*args))
    assert torch.equal(op(*(a.npu() for a in args)).cpu(), op(*args))  # exact again


@pytest.mark.parametrize(("op", "shapes", "cube"), MATRIX, ids=IDS)
def test_910a_rounds_fp16_once(op: Callable, shapes: list, cube: set[int]) -> None:
    args = [randn(*shape, dtype=torch.float16) for shape in shapes]
    expected = torch.from_numpy(half(op(*map(wide, args))))
    with npu_core.use("910A"):
        result = op(*(a.npu() for a in args)).cpu()
    assert result.dtype is torch.float16
    assert torch.equal(result, expected)


def test_910a_saturates_what_leaves_the_cube() -> None:
    x = torch.full((2, 2), 300.0, dtype=torch.float16)
    assert (x @ x)[0, 0] == torch.inf
    with npu_core.use("910A"):
        assert (x.npu() @ -x.npu()).tolist() == [[-65504.0] * 2] * 2
    with npu_core.use("910B"):
        assert (x.npu() @ x.npu()).tolist() == [[torch.inf] * 2] * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("form", ["in place", "out", "empty out"])
def test_910a_writes_the_same_into_given_tensors(dtype: torch.dtype, form: str) -> None:
    a, b, c = (randn(4, 4, dtype=dtype).npu() * k for k in (1, 2, 3))
    with npu_core.use("910A"):
        expected = torch.addmm(c, a, b)
        if form == "in place":
            result = c.clone()
            assert result.addmm_(a, b) is result
        else:
            shape = (4, 4) if form == "out" else (0,)
            result = torch.empty(shape, dtype=dtype, device="npu")
            assert torch.addmm(c, a, b, out=result) is result
    assert torch.equal(result.cpu(), expected.cpu())


def test_910a_narrows_all_three_operands_of_a_convolutions_backward() -> None:
    x, weight, bias, grad = randn(2, 3, 6, 6), randn(4, 3, 3, 3), randn(4), randn(2, 4, 4, 4)
    leaves = [t.npu().requires_grad_() for t in (x, weight, bias)]
    with npu_core.use("910A"):
        F.conv2d(*leaves).backward(grad.npu())
    g = narrow(grad)
    assert torch.equal(leaves[0].grad.cpu(), torch.nn.grad.conv2d_input(x.shape, narrow(weight), g))
    assert torch.equal(
        leaves[1].grad.cpu(), torch.nn.grad.conv2d_weight(narrow(x), weight.shape, g)
    )
    assert torch.equal(leaves[2].grad.cpu(), grad.sum((0, 2, 3)))  # a reduction, no cube op


def test_910a_rounds_the_gradients_of_an_fp16_convolution_once() -> None:
    given = [randn(*s, dtype=torch.float16) for s in ((2, 3, 6, 6), (4, 3, 3, 3), (4,))]
    grad = randn(2, 4, 4, 4, dtype=torch.float16)
    leaves = [t.npu().requires_grad_() for t in given]
    reference = [wide(t).requires_grad_() for t in given]
    with npu_core.use("910A"):
        F.conv2d(*leaves).backward(grad.npu())
    F.conv2d(*reference).backward(wide(grad))
    for mine, theirs in zip(leaves, reference, strict=True):
        assert torch.equal(mine.grad.cpu(), torch.from_numpy(half(theirs.grad)))


def test_910b_keeps_fp32_in_matrix_products_and_not_in_convolutions() -> None:
    a, b = randn(5, 7), randn(7, 6)
    x, weight = randn(2, 3, 5, 5), randn(4, 3, 3, 3)
    with npu_core.use("910B"):
        assert torch.equal((a.npu() @ b.npu()).cpu(), a @ b)
        result = F.conv2d(x.npu(), weight.npu()).cpu()
    assert torch.equal(result, F.conv2d(hf32(x), hf32(weight)))
    assert not torch.equal(result, F.conv2d(x, weight))


def test_910b_rounds_bfloat16_once() -> None:
    a, b = randn(5, 70, dtype=torch.bfloat16), randn(70, 6, dtype=torch.bfloat16)
    with npu_core.use("910B"):
        result = (a.npu() @ b.npu()).cpu()
    assert torch.equal(result, (a.float() @ b.float()).bfloat16())


def hf32(x: torch.Tensor) -> torch.Tensor:
    """1 + 8 + 11 bits by scaling: 12 significant bits with the hidden one, halves to even."""
    mantissa, exponent = np.frexp(x.numpy().astype(np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = np.ldexp(np.rint(mantissa * 2**12), exponent - 12)
        return torch.from_numpy(rounded.astype(np.float32))


def through_cube(op: str, values: list[float]) -> torch.Tensor:
    """What the cube makes of numbers: they are multiplied by one."""
    x = torch.tensor(values, dtype=torch.float32)
    if op == "mm":
        return (x.view(-1, 1).npu() @ torch.ones(1, 1, device="npu")).view(-1).cpu()
    return F.conv1d(x.view(-1, 1, 1).npu(), torch.ones(1, 1, 1, device="npu")).view(-1).cpu()


@pytest.mark.parametrize("op", ["mm", "convolution"])
@given(values=st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_910a_narrowing_is_rounding_with_saturation(op: str, values: list[float]) -> None:
    with npu_core.use("910A"):
        assert torch.equal(through_cube(op, values), narrow(torch.tensor(values)))


@given(values=st.lists(st.floats(width=32, allow_subnormal=False, allow_nan=False), min_size=1))
def test_hf32_is_rounding_to_nearest_even(values: list[float]) -> None:
    with npu_core.use("910B"):
        assert torch.equal(through_cube("convolution", values), hf32(torch.tensor(values)))


@pytest.mark.parametrize("profile", ["910A", "910B"])
def test_other_dtypes_are_left_alone(profile: str) -> None:
    a = randn(5, 5).double() / 3
    with npu_core.use(profile):
        assert torch.equal((a.npu() @ a.npu()).cpu(), a @ a)
        assert torch.equal((a.npu() + 1e-9).cpu(), a + 1e-9)  # and other ops


def test_use_switches_for_good_or_for_a_block() -> None:
    npu_core.use("910B")
    assert npu_core.profile() == "910B"
    with pytest.raises(KeyError), npu_core.use("910A"):
        assert npu_core.profile() == "910A"
        raise KeyError
    assert npu_core.profile() == "910B"


def test_an_unknown_profile_changes_nothing() -> None:
    with pytest.raises(ValueError, match="unknown npu_core profile '910C'.*910A, 910B, exact"):
        npu_core.use("910C")
    assert npu_core.profile() == "exact"
