"""Masks of what overflowed, for every dtype, and the first place in one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import npu_core
from dumper.overflow.looks import at_limit, first, index_at, nonfinite
from npu_core import status

INF, NAN = float("inf"), float("nan")
WIDE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NARROW = [
    getattr(torch, name)
    for name in dir(torch)
    if name.startswith("float8_") and isinstance(getattr(torch, name), torch.dtype)
]


@pytest.mark.parametrize("dtype", WIDE)
def test_floats(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    x = torch.tensor([0.0, INF, -INF, NAN, largest, -largest, 1.0], dtype=dtype)
    below = x[4:5].nextafter(x[6:]) if dtype is not torch.float16 else x[4:5] - 32
    x = torch.cat([x, below])
    assert nonfinite(x).tolist() == [False, True, True, True, False, False, False, False]
    assert at_limit(x).tolist() == [False, False, False, False, True, True, False, False]


@pytest.mark.parametrize("dtype", NARROW)
def test_every_8_bit_number(dtype: torch.dtype) -> None:
    x = torch.arange(256, dtype=torch.uint8).view(dtype)
    numbers = x.float()
    assert torch.equal(nonfinite(x), ~numbers.isfinite())
    assert torch.equal(at_limit(x), numbers.abs() == torch.finfo(dtype).max)
    strided = x.view(16, 16).t()[1::2]
    assert torch.equal(nonfinite(strided), ~strided.float().isfinite())


def test_a_complex_number_is_where_either_part_is() -> None:
    x = torch.tensor([1 + 2j, complex(INF, 0), complex(0, NAN), 3.4028234663852886e38j])
    assert nonfinite(x.conj()).tolist() == [False, True, True, False]
    assert at_limit(x).tolist() == [False, False, False, True]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.uint8])
def test_integers_never_are(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 127], dtype=dtype)
    assert not nonfinite(x).any() and not at_limit(x).any() and nonfinite(x).dtype is torch.bool


@given(shape=st.lists(st.integers(1, 4), max_size=4), data=st.data())
def test_the_first_place(shape: list[int], data: st.DataObject) -> None:
    mask = torch.zeros(shape, dtype=torch.bool)
    count = mask.numel()
    numbers = data.draw(st.lists(st.integers(0, count - 1), min_size=1))
    mask.view(-1)[numbers] = True
    place = first(mask)
    assert place == index_at(tuple(shape), min(numbers)) and mask[place]
    assert torch.arange(count).view(shape)[place] == min(numbers)
    order = data.draw(st.permutations(range(len(shape))))
    turned = mask.permute(order)
    assert turned[first(turned)]
    assert first(torch.zeros(shape, dtype=torch.bool)) is None


def test_no_place_in_nothing() -> None:
    assert first(torch.zeros(3, 0, dtype=torch.bool)) is None


def test_on_the_emulated_npu_looking_sets_no_register_and_saturates_nothing() -> None:
    with npu_core.use("910A"):
        x = torch.tensor([1.0, INF, NAN, 65504.0], dtype=torch.float16).npu()
        status.clear()
        assert nonfinite(x).tolist() == [False, True, True, False]
        assert at_limit(x).tolist() == [False, False, False, True]
        assert first(nonfinite(x)) == (1,)
        assert status.read() == 0
