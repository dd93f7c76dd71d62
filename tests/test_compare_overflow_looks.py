"""What a look at a tensor's bits finds, against numpy on its values."""

from __future__ import annotations

import math

import h5py
import numpy as np
import pytest
import torch
from dumps import put
from overflow_steps import recorded

from compare.overflow.looks import index_of, is_float, look_at
from dumper.reader import open_dump

INF, NAN = math.inf, math.nan


def patterns(dtype: torch.dtype) -> torch.Tensor:
    """All codes of a small dtype; of larger ones some, and those at the ends."""
    size = dtype.itemsize
    if size <= 2:
        codes = np.arange(256**size, dtype=f"u{size}")
    else:
        codes = np.random.default_rng(0).integers(0, 256**size, 5000, dtype=f"u{size}")
    return torch.from_numpy(codes.view(f"i{size}")).view(dtype)


DTYPES = [
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("only", ["all", "positive", "negative", "finite"])
def test_a_look_is_what_numpy_says(tmp_path, dtype, only):
    bits = patterns(dtype)
    wide = bits.to(torch.float64)
    keep = {
        "all": torch.ones_like(wide, dtype=torch.bool),
        "positive": wide > 0,
        "negative": wide < 0,
        "finite": wide.isfinite() & (wide.abs() < torch.finfo(dtype).max),
    }[only]
    bits = bits.view(getattr(torch, f"int{8 * dtype.itemsize}"))[keep].view(dtype)
    values = bits.to(torch.float64).numpy()
    with open_dump(recorded(tmp_path / "bits.h5", lambda: bits.clone())) as opened:
        (tensor,) = opened.by_ir["clone"][0].outputs
        look = look_at(tensor, 100)
        sound, top = values[np.isfinite(values)], torch.finfo(dtype).max
        expected = {
            "nan": np.isnan(values), "above": values == INF, "below": values == -INF,
            "full": np.abs(values) == top,
        }  # fmt: skip
        for name, where in expected.items():
            mark = getattr(look, name)
            assert mark.count == where.sum()
            assert mark.first == (where.argmax() if where.any() else -1)
        assert look.magnitude == np.abs(sound).max(initial=0)
        ends = (NAN, NAN) if np.isnan(values).any() else (values.min(), values.max())
        np.testing.assert_array_equal((look.low, look.high), ends)
        stride = next(s for s in range(1, 10**6) if np.array_equal(
            look.sample.astype(float), values[::s], equal_nan=True))  # fmt: skip
        assert stride * 100 >= values.size


def test_complex_numbers_are_their_parts(tmp_path):
    values = torch.tensor([1 + 1j, complex(2, INF), complex(NAN, 0)])
    with open_dump(recorded(tmp_path / "complex.h5", lambda: values.clone())) as opened:
        (tensor,) = opened.by_ir["clone"][0].outputs
        look = look_at(tensor)
    assert is_float(tensor) and (look.above, look.nan) == ((1, 1), (1, 2)) and look.magnitude == 2


def test_elements_that_lie_in_another_order_are_named_by_their_index(tmp_path):
    values = np.arange(6, dtype="f4").reshape(2, 3)
    stored = np.ascontiguousarray(values.T).reshape(2, 3)  # as it lay in memory
    with h5py.File(tmp_path / "old.h5", "w") as file:
        put(file, "t/1/input/self", stored, stride=(1, 2))
    with open_dump(tmp_path / "old.h5") as opened:
        (tensor,) = opened.records[0].inputs
        assert tensor.needs_order
        flat = tensor.raw().reshape(-1)
        for place in range(6):
            assert tensor.read()[index_of(tensor, place)] == flat[place]
