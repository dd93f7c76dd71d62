"""Every number against a slow oracle over whatever bits a dtype can hold, in whatever order.

Arrays are drawn as bits, so that NaN with payloads, infinities, subnormals, signed zeros and huge
values are as likely as any other, and several blocks long, so that blocks join.
"""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare import rooms, streams
from compare.engine import compare_dumps
from compare.metrics import compare_arrays
from dumper.reader import open_dump

L = np.longdouble
FLOATS = ["float16", "bfloat16", "float32", "float64"]
SMALL = [
    "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu",
]  # fmt: skip
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
COMPLEX = ["complex64", "complex128"]
ALL = [*FLOATS, *SMALL, *INTEGERS, *COMPLEX]
BLOCK = 2048


def kind(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


@st.composite
def arrays(draw, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of one shape: random bits, mostly alike or not at all, and any stride."""
    dtype = kind(name)
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    size = draw(st.sampled_from([1, 2, 3, 7, 64, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5]))
    rare = draw(st.sampled_from([0.0, 0.001, 0.3, 1.0]))
    tame = random.integers(-50, 50, (2, size)) / 8 * draw(st.sampled_from([1e-3, 1.0, 1e3]))
    with np.errstate(invalid="ignore", over="ignore"):
        if dtype.kind in "iub":
            tame = abs(tame) if dtype.kind in "ub" else tame
            x, y = (side.astype(np.int64).astype(dtype) for side in tame)
        elif dtype.kind == "c":
            x, y = ((side + 1j * side[::-1]).astype(dtype) for side in tame)
        else:
            x, y = (side.astype(np.float32).astype(dtype) for side in tame)
    wild = random.random(size) < rare
    for side in (x, y):
        bits = random.integers(0, 256, size * dtype.itemsize, np.uint8).view(dtype)
        if dtype.kind == "b":
            bits = random.integers(0, 2, size, np.uint8).view(bool)
        side[wild] = bits[wild]
    alike = random.random(size) < draw(st.sampled_from([0.0, 0.5, 0.999]))
    y[alike] = x[alike]
    return x, y


@st.composite
def strided(draw, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The same in a shape and an order of its own."""
    x, y = draw(arrays(name))
    how = draw(st.sampled_from(["flat", "turned", "backwards", "every second"]))
    if how == "turned" and x.size % 3 == 0:
        return x.reshape(3, -1).T, np.asfortranarray(y.reshape(3, -1).T)
    if how == "backwards":
        return x[::-1], y[::-1]
    if how == "every second":
        return x[::2], y[::2]
    return x, y


def wide(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "c":
        return values.astype(np.clongdouble)
    return values.astype(values.dtype if values.dtype.kind in "iu" else np.float64).astype(L)


def bits_equal(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "c":
        part = x.real.dtype
        return bits_equal(x.view(part), y.view(part)).reshape(-1, 2).all(axis=1)
    raw = np.dtype(f"u{x.dtype.itemsize}")
    return (x.view(raw) == y.view(raw)) | (np.isnan(wide(x)) & np.isnan(wide(y)))


def ranks(values: np.ndarray, name: str) -> list[int]:
    """Where each number stands among all of its dtype; Python integers."""
    width = values.dtype.itemsize * 8
    bits = [int(b) for b in values.view(f"u{values.dtype.itemsize}")]
    if name == "float8_e8m0fnu":
        return bits
    return [-(b & (2 ** (width - 1) - 1)) if b >> (width - 1) else b for b in bits]


def three(a: np.ndarray, b: np.ndarray) -> tuple[int, int, int]:
    return int((a & ~b).sum()), int((b & ~a).sum()), int((a & b).sum())


def about(value, expected, scale=0.0) -> None:
    """Equal to float64's rounding; what is beyond float64 is inf. scale: of what cancelled."""
    with np.errstate(over="ignore"):
        expected = float(expected)
    assert value == pytest.approx(
        expected, rel=1e-9, abs=1e-12 * float(scale) + 5e-324, nan_ok=True
    )


@np.errstate(invalid="ignore", over="ignore")
def check(x: np.ndarray, y: np.ndarray, name: str) -> None:
    with np.errstate(all="raise", under="ignore", divide="ignore", invalid="warn"):
        found = compare_arrays(x, y)
    shape, x, y = x.shape, np.ascontiguousarray(x).ravel(), np.ascontiguousarray(y).ravel()
    a, b = wide(x), wide(y)
    nan, infinite = (np.isnan(a), np.isnan(b)), (np.isinf(a), np.isinf(b))
    infinite = tuple(inf & ~no for inf, no in zip(infinite, nan, strict=True))
    assert (found.nan, found.infinite) == (three(*nan), three(*infinite))
    bad = tuple(map(np.logical_or, nan, infinite))
    agreed = bad[0] & bad[1] & ((x == y) | (nan[0] & nan[1]))
    odd = (bad[0] | bad[1]) & ~agreed
    assert found.same_nonfinite == agreed.sum()
    counts = found.mine_nonfinite, found.golden_nonfinite, found.other_nonfinite
    assert counts == three(bad[0] & ~agreed, bad[1] & ~agreed)
    equal = bits_equal(x, y)
    assert found.exact == equal.sum() / x.size
    finite = ~bad[0] & ~bad[1]
    with np.errstate(over="ignore", invalid="ignore"):
        d = np.where(finite, abs(np.where(finite, a, 0) - np.where(finite, b, 0)), 0)
    worst = found.worst
    if odd.any():
        assert worst.index == np.unravel_index(odd.argmax(), shape)
        expected = math.nan if (nan[0] | nan[1])[odd].any() else math.inf
        for value in (found.max_absolute, found.mean_absolute, found.max_relative):
            assert value == expected or (math.isnan(value) and math.isnan(expected))
        assert math.isnan(found.cosine) and math.isnan(found.kullback_leibler)
    else:
        about(found.max_absolute, d.max())
        about(found.mean_absolute, d.sum() / max(finite.sum(), 1))
        size = abs(b)
        relative = np.where(size > 0, d / np.where(size > 0, size, 1), d > 0)[finite]
        about(found.max_relative, relative.max() if relative.size else 0)
        about(found.accumulated_relative, relative.sum())
        about(found.mean_relative, relative.sum() / max(relative.size, 1))
        if d.max() == 0 and equal.all():
            assert worst is None
        elif d.max() == 0:  # zeros of another sign
            assert not equal[np.ravel_multi_index(worst.index, shape)]
        else:
            at = np.ravel_multi_index(worst.index, shape)
            about(float(d[at]), d.max())
    if worst is not None:
        at = np.ravel_multi_index(worst.index, shape)
        for value, side in ((worst.mine, x), (worst.golden, y)):
            expected = side[at].item() if side.dtype.kind in "biufc" else float(side[at])
            assert value == expected or (value != value and expected != expected)
    for reach, side, inf, no in zip(found.reach, (a, b), infinite, nan, strict=True):
        sizes = abs(side[~no])
        with np.errstate(over="ignore"):
            about(reach, math.inf if inf.any() else sizes.max() if sizes.size else 0)
    if name in FLOATS + SMALL:
        apart = [
            abs(p - q) for p, q in zip(ranks(x[finite], name), ranks(y[finite], name), strict=True)
        ]
        n = max(len(apart), 1)
        assert found.ulp.greatest == max(apart, default=0)
        assert found.ulp.above_one == sum(each > 1 for each in apart) / n
        about(found.ulp.mean, L(sum(apart)) / n)
    elif name in INTEGERS:
        assert found.ulp is None
    for (mean, deviation), side in ((found.mine, a), (found.golden, b)):
        kept = abs(side[~agreed]) if side.dtype.kind == "c" else side[~agreed]
        if not kept.size:
            assert math.isnan(mean) and math.isnan(deviation)
        elif np.isfinite(kept).all():
            with np.errstate(over="ignore"):
                about(mean, kept.mean(), abs(kept).max())
                cancelled = 0 if name in INTEGERS else abs(kept).max()
                about(deviation, kept.std(), cancelled if kept.size > 1 else 0)
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                about(mean, kept.mean())
            assert math.isnan(deviation)


@pytest.mark.parametrize("name", ALL)
@given(data=st.data())
def test_every_bit_pattern(name, data):
    check(*data.draw(strided(name)), name)


@pytest.mark.parametrize("name", ["float32", "float16", "float64", "int64", "int8", "bool"])
@given(data=st.data())
def test_pieces_of_a_file_are_as_the_whole(tmp_path_factory, name, data):
    """What is read in pieces, kept or read twice, and in parts, has the numbers of the array."""
    from dumps import dump

    x, y = data.draw(arrays(name))
    folder = tmp_path_factory.mktemp("pieces")
    paths = [
        dump(folder / file, {"op/1/output/x": side}) for file, side in (("m.h5", x), ("g.h5", y))
    ]
    whole = compare_arrays(x, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rooms, "PIECE", data.draw(st.sampled_from([800, 8 * BLOCK, 40_000])))
        patch.setattr(streams, "PART", 5000)
        patch.setattr("compare.engine.PART", 5000)
        patch.setattr(rooms, "KEPT", data.draw(st.sampled_from([0, 100, 1 << 20])))
        patch.setattr(rooms, "own", rooms.Rooms())
        with open_dump(paths[0]) as mine, open_dump(paths[1]) as golden:
            (row,) = compare_dumps(mine, golden)
    for field in whole._fields:
        assert flat(getattr(row.metrics, field)) == pytest.approx(
            flat(getattr(whole, field)), rel=1e-9, nan_ok=True
        ), field


def flat(value) -> list:
    if not isinstance(value, tuple):
        return [0.0 if value is None else value]
    return [number for item in value for number in flat(item)]


def rounded(values: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        if name == "bfloat16":
            values = values.astype(np.float32)
        return values.astype(kind(name))


@pytest.mark.parametrize(
    ("mine", "golden"),
    [(one, other) for one in FLOATS for other in FLOATS if one != other],
)
@given(data=st.data())
def test_two_float_dtypes_are_compared_by_value(mine, golden, data):
    """As both would be in a dtype that holds them, but for units, which are the coarser one's."""
    x, _ = data.draw(arrays(mine))
    y = rounded(x, golden) if data.draw(st.booleans()) else data.draw(arrays(golden))[1]
    y = np.resize(y, x.shape)
    holds = "f8" if "float64" in (mine, golden) else "f4"
    with np.errstate(invalid="ignore"):
        a, b = x.astype(holds), y.astype(holds)
    found, expected = compare_arrays(x, y), compare_arrays(a, b)
    own = ("ulp", "exact", "worst")
    for name in set(found._fields) - set(own):
        ours, value = getattr(found, name), getattr(expected, name)
        assert ours == pytest.approx(value, nan_ok=True) if value is not None else ours is None, (
            name
        )
    assert found.exact == ((a == b) | (np.isnan(a) & np.isnan(b))).mean()
    coarse = min(mine, golden, key=["bfloat16", "float16", "float32", "float64"].index)
    finite = np.isfinite(a) & np.isfinite(b)
    ours, theirs = (ranks(rounded(side[finite], coarse), coarse) for side in (a, b))
    apart = [abs(one - other) for one, other in zip(ours, theirs, strict=True)]
    assert found.ulp.greatest == max(apart, default=0)
    assert found.ulp.mean == pytest.approx(sum(apart) / max(1, len(apart)))
    assert found.ulp.above_one == sum(each > 1 for each in apart) / max(1, len(apart))
