"""What a format holds: against ml_dtypes' casts of any bits, and beside each threshold."""

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dumper.overflow.formats import FORMATS, Format, Share, fits, headroom, lost

SMALL = [name for name in FORMATS if name not in ("float32", "float64")]
NUMPY = ("float16", "float32", "float64")
SOURCES = ["float16", "bfloat16", "float32", "float64"]


def kind(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def info(name: str):
    return np.finfo(name) if name in NUMPY else ml_dtypes.finfo(name)


def beside(mark: float, name: str) -> np.ndarray:
    """A threshold between its neighbours, in a dtype from which a cast rounds once."""
    wide = np.dtype(np.float64 if name in NUMPY else np.float32).type
    at = wide(mark)
    with np.errstate(over="ignore"):
        return np.array([np.nextafter(at, wide(0)), at, np.nextafter(at, wide(np.inf))])


def cast(values: np.ndarray, name: str) -> np.ndarray:
    """What a cast makes of values, in float64. ml_dtypes rounds float64 twice: not for its own."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return values.astype(kind(name)).astype(np.float64)


def counts(values: np.ndarray, made: np.ndarray, name: str) -> tuple[int, ...]:
    """Nonzero, zero, subnormal, overflow, not finite, all: by looking at every element."""
    found = [0] * 5
    for value, result in zip(values.tolist(), made.tolist(), strict=True):
        if not math.isfinite(value):
            found[4] += 1
        elif value != 0:
            found[0] += 1
            found[1] += result == 0
            found[2] += 0 < abs(result) < float(info(name).smallest_normal)
            found[3] += not math.isfinite(result)
    return (*found, values.size)


@pytest.mark.parametrize("name", FORMATS)
def test_what_a_format_holds(name):
    fmt, known = FORMATS[name], torch.finfo(getattr(torch, name))
    assert (fmt.name, fmt.largest, fmt.smallest_normal) == (name, known.max, known.smallest_normal)
    assert fmt.smallest == float(info(name).smallest_subnormal)


@pytest.mark.parametrize(
    ("name", "beyond"),
    [
        ("float16", 65520.0),
        ("bfloat16", 2.0**128 - 2.0**119),
        ("float32", 2.0**128 - 2.0**103),
        ("float64", math.inf),
        ("float8_e4m3fn", math.nextafter(464.0, math.inf)),  # 464 is a tie and goes to 448
        ("float8_e5m2", 61440.0),
        ("float8_e4m3fnuz", 248.0),
        ("float8_e5m2fnuz", 61440.0),
    ],
)
def test_where_it_overflows(name, beyond):
    fmt = FORMATS[name]
    assert fmt.overflows_from == beyond
    assert fits(math.nextafter(beyond, 0), fmt) and not fits(beyond, fmt)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("sign", [1, -1])
def test_both_sides_of_every_threshold(name, sign):
    fmt = FORMATS[name]
    marks = [fmt.zero_to, fmt.smallest, fmt.normal_from, fmt.smallest_normal, fmt.largest]
    values = np.concatenate([beside(mark, name) for mark in [*marks, fmt.overflows_from]]) * sign
    made = cast(values, name)
    for i in range(values.size):
        one, result = values[i : i + 1], made[i : i + 1]
        assert tuple(lost(one, fmt)) == counts(one, result, name), one
    assert {0, math.inf} < set(np.nan_to_num(abs(made), nan=math.inf, posinf=math.inf).tolist())


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("source", SOURCES)
@given(seed=st.integers(0, 2**32 - 1))
def test_counts_are_those_of_a_cast(name, source, seed):
    dtype = kind(source)
    random = np.random.default_rng(seed)
    bits = random.integers(0, 256, 64 * dtype.itemsize, dtype=np.uint8)
    exponents = random.integers(-30, 20, 64)
    with np.errstate(over="ignore"):
        near = np.ldexp(random.integers(-4096, 4096, 64) / 4096, exponents).astype(dtype)
    for values in (bits.view(dtype), near):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            made = values.astype(kind(name)).astype(np.float64)
            wide = values.astype(np.float64)
        assert tuple(lost(values, FORMATS[name])) == counts(wide, made, name)


@pytest.mark.parametrize("name", SMALL)
@given(st.lists(st.floats(width=32), max_size=20), st.integers(-40, 40))
def test_a_scale_multiplies_first(name, given_values, power):
    values = np.array(given_values, np.float32)
    with np.errstate(invalid="ignore"):
        scaled = np.ldexp(values.astype(np.float64), power)
    expected = counts(scaled, cast(scaled, name), name)
    assert tuple(lost(values, FORMATS[name], 2.0**power)) == expected


def test_scales_that_leave_float64():
    values = np.array([1e-300, 1e300, 0.0, np.inf])
    assert tuple(lost(values, FORMATS["float64"], 1e-200)) == (2, 1, 0, 0, 1, 4)
    assert tuple(lost(values, FORMATS["float64"], 1e200)) == (2, 0, 0, 1, 1, 4)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_scale(scale):
    with pytest.raises(ValueError, match="not a positive finite number"):
        lost(np.ones(1), FORMATS["float16"], scale)
    assert lost(np.ones(1), FORMATS["float16"], 5e-324).zero == 1


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_any_shape(shape):
    found = lost(np.full(shape, 1e-9, np.float32), FORMATS["float16"])
    assert found.looked == found.nonzero == found.zero == math.prod(shape)
    assert found.share == Share(min(1.0, math.prod(shape)), 0.0, 0.0)


def test_shares_are_of_what_is_finite_and_not_zero():
    values = np.array([0, 0, np.nan, np.inf, 2.0**-25, 2.0**-24, 1, 65520])
    assert lost(values, FORMATS["float16"]).share == Share(0.25, 0.25, 0.25)


@pytest.mark.parametrize(
    ("magnitude", "bits"),
    [
        (0.0, math.inf),
        (65504.0, 0.0),
        (65519.0, 0.0),  # rounds to 65504
        (32752.0, 1.0),
        (65504 / 2**20, 20.0),
        (131008.0, -1.0),
        (math.inf, -math.inf),
    ],
)
def test_headroom(magnitude, bits):
    assert headroom(magnitude, FORMATS["float16"]) == bits


@pytest.mark.parametrize("name", FORMATS)
@given(magnitude=st.floats(0, math.inf))
def test_headroom_is_below_0_where_it_does_not_fit(name, magnitude):
    fmt: Format = FORMATS[name]
    found = headroom(magnitude, fmt)
    assert (found >= 0) is fits(magnitude, fmt)
    if 0 < found < 50 and magnitude * 2.0**found < math.inf:
        assert math.isclose(magnitude * 2.0**found, fmt.largest, rel_tol=1e-11)


def test_nan_neither_fits_nor_has_headroom():
    fmt = FORMATS["float16"]
    assert not fits(math.nan, fmt) and math.isnan(headroom(math.nan, fmt))


def test_what_torch_casts_beyond_the_end():
    """What docs/overflow.md says of fp8: e4m3fn has no infinity, and torch's cast ends at 448."""
    values = torch.tensor([464.0, 465.0, math.inf, -500.0])
    assert values.to(torch.float8_e4m3fn).float().tolist() == [448, 448, 448, -448]
    assert values.mul(132).to(torch.float8_e5m2).float().tolist() == [
        57344,
        57344,
        math.inf,
        -math.inf,
    ]
