"""Every metric against a slow oracle in long doubles, and every edge in a table."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from compare import metrics
from compare.kinds import comparable
from compare.metrics import Metrics, compare_arrays

L = np.longdouble
NAN, INF = math.nan, math.inf
NUMBERS = (
    "cosine",
    "max_absolute",
    "accumulated_relative",
    "relative_euclidean",
    "kullback_leibler",
    "mean_absolute",
    "root_mean_square",
    "max_relative",
    "mean_relative",
    "exact",
)


def oracle(mine: np.ndarray, golden: np.ndarray) -> dict:
    """docs/metrics.md, word by word, for finite values without complex ones."""
    x, y = mine.astype(L).ravel(), golden.astype(L).ravel()
    d = np.abs(x - y)
    safe = np.where(y == 0, 1, y)
    relative = np.where(y == 0, np.where(x == 0, L(0), L(1)), d / np.abs(safe))
    xx, yy, dd = (np.sqrt(np.sum(v * v)) for v in (x, y, d))
    cosine = np.sum(x * y) / (xx * yy) if xx and yy else (None if xx or yy else 1.0)

    def shares(v):
        span = v.max() - v.min()
        u = np.maximum((v - v.min()) / span, L(1.1920928955078125e-07)) if span else np.ones_like(v)
        return u / u.sum()

    p, q = shares(x), shares(y)
    return {
        "cosine": cosine,
        "max_absolute": d.max(),
        "accumulated_relative": relative.sum(),
        "relative_euclidean": dd / yy if yy else float(dd > 0),
        "kullback_leibler": np.sum(p * np.log(p / q)),
        "mean_absolute": d.mean(),
        "root_mean_square": np.sqrt(np.mean(d * d)),
        "max_relative": relative.max(),
        "mean_relative": relative.mean(),
        "mine": (x.mean(), x.std()),
        "golden": (y.mean(), y.std()),
    }


def check(found: Metrics, expected: dict, x: np.ndarray, y: np.ndarray) -> None:
    """Agreement to 1e-12 of what each metric could lose by cancellation in float64."""
    for name, value in expected.items():
        ours = getattr(found, name)
        if name in ("mine", "golden"):
            size = float(np.abs((x if name == "mine" else y).astype(L)).max())
            for one, other in zip(ours, value, strict=True):
                assert one == pytest.approx(float(other), rel=1e-12, abs=size * 1e-12), name
        elif value is None:
            assert ours is None, name
        else:
            # Cosine and divergence are differences of numbers of size 1.
            slack = {"cosine": 1e-12, "kullback_leibler": 1e-9}.get(name, 0.0)
            assert ours == pytest.approx(float(value), rel=1e-12, abs=slack), name


def pairs_of(elements, dtype):
    shapes = st.integers(1, 70)
    return shapes.flatmap(
        lambda n: st.tuples(
            hnp.arrays(dtype, n, elements=elements), hnp.arrays(dtype, n, elements=elements)
        )
    )


def floats(dtype, width):
    return pairs_of(st.floats(allow_nan=False, allow_infinity=False, width=width), dtype)


@given(floats(np.float32, 32))
def test_float32(pair):
    check(compare_arrays(*pair), oracle(*pair), *pair)


@given(floats(np.float64, 64))
def test_float64(pair):
    """The whole range: squares that overflow, denormals that vanish."""
    x, y = pair
    with np.errstate(over="ignore"):
        # A difference or ratio beyond float64 is inf in any float64 report.
        assume(np.isfinite(x - y).all() and np.abs(x).sum() < 1e308 and np.abs(y).sum() < 1e308)
        expected = oracle(x, y)
    assume(all(v is None or np.all(np.abs(v) < 1e308) for v in expected.values()))
    assume(min(float(expected[k]) for k in ("mean_absolute",)) > 1e-300 or (x == y).all())
    smallest = [np.abs(v[v != 0]).min(initial=1.0) for v in (x, y)]
    assume(min(smallest) > 1e-290)  # below it float64 itself has lost digits of a quotient
    check(compare_arrays(x, y), expected, x, y)


@given(pairs_of(st.integers(-(2**63), 2**63 - 1), np.int64))
@example((np.array([0, 0]), np.array([2**63 - 512, 2**63 - 511])))
@example((np.array([-(2**63), 2**63 - 1]), np.array([2**63 - 2, 2**63 - 1])))
def test_int64_is_exact(pair):
    x, y = pair
    found = compare_arrays(x, y)
    distances = [abs(int(a) - int(b)) for a, b in zip(x, y, strict=True)]
    assert found.max_absolute == float(max(distances))
    assert found.mean_absolute == pytest.approx(sum(distances) / len(distances), rel=1e-14)
    check(found, oracle(x, y), x, y)


@pytest.mark.parametrize(
    "dtype", ["int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64", "bool"]
)
@given(data=st.data())
def test_integers(dtype, data):
    x, y = data.draw(pairs_of(None, np.dtype(dtype)))
    check(compare_arrays(x, y), oracle(x, y), x, y)


@pytest.mark.parametrize(
    "dtype",
    [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn],
)
@given(data=st.data())
def test_small_floats(dtype, data):
    dtype = np.dtype(dtype)
    raw = data.draw(pairs_of(None, np.dtype(f"u{dtype.itemsize}")))
    x, y = (
        np.where(np.isfinite(bits.view(dtype)), bits.view(dtype), dtype.type(1)) for bits in raw
    )
    check(
        compare_arrays(x, y), oracle(x.astype("f4"), y.astype("f4")), x.astype("f4"), y.astype("f4")
    )


@given(floats(np.float32, 32), st.data())
def test_agreed_nonfinite_positions_leave_the_rest_as_it_is(pair, data):
    x, y = pair
    extra = data.draw(st.lists(st.sampled_from([NAN, INF, -INF]), min_size=1, max_size=5))
    extra = np.array(extra, np.float32)
    at = data.draw(st.integers(0, len(x)))
    found = compare_arrays(np.insert(x, at, extra), np.insert(y, at, extra))
    check(found, oracle(x, y), x, y)
    assert found.same_nonfinite == len(extra)
    assert found.size == len(x) + len(extra)


@given(floats(np.float32, 32), st.data())
def test_a_nonfinite_value_on_one_side_never_looks_good(pair, data):
    x, y = pair
    bad = data.draw(st.sampled_from([NAN, INF, -INF]))
    at = data.draw(st.integers(0, len(x) - 1))
    swapped = data.draw(st.booleans())
    x[at] = bad
    found = compare_arrays(*((y, x) if swapped else (x, y)))
    worst = NAN if math.isnan(bad) else INF
    for name in NUMBERS[1:4] + NUMBERS[5:9]:
        value = getattr(found, name)
        assert value == worst or (math.isnan(worst) and math.isnan(value)), name
    assert math.isnan(found.cosine) and math.isnan(found.kullback_leibler)
    assert (found.mine_nonfinite, found.golden_nonfinite) == ((0, 1) if swapped else (1, 0))
    assert found.exact < 1


@pytest.mark.parametrize("size", [2047, 2048, 2049, 10_000])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_blocks_join(size, dtype):
    random = np.random.default_rng(size)
    x = (random.standard_normal(size) * 1000).astype(dtype)
    y = x + (random.standard_normal(size) * 10).astype(dtype)
    check(compare_arrays(x, y), oracle(x, y), x, y)


@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("dtype", ["f2", ml_dtypes.bfloat16], ids=["half", "bfloat16"])
@pytest.mark.filterwarnings("ignore:invalid value")  # numpy of a signalling NaN
def test_all_numbers_of_16_bits(dtype, finite):
    """Each means in its own dtype what it means in float64."""
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    if finite:
        x = x[np.isfinite(x)]
    y = np.roll(x, 5)
    found, wide = compare_arrays(x, y), compare_arrays(x.astype("f8"), y.astype("f8"))
    for name in wide._fields:
        if name not in ("ulp", "worst", "exact"):
            ours, value = (_flat(getattr(each, name)) for each in (found, wide))
            assert ours == pytest.approx(value, rel=1e-12, nan_ok=True), name
    assert found.worst.index == wide.worst.index


def _steady(random, size):
    return 1e4 + 1e-2 * random.standard_normal(size)


MOVING = {
    "far from zero": _steady,
    "constant": lambda random, size: np.full(size, 0.1),
    "rises": lambda random, size: np.arange(size) + random.standard_normal(size),
    "first apart": lambda random, size: np.append(-3e4, _steady(random, size - 1)),
    "jumps after a block": lambda random, size: np.append(
        random.standard_normal(2048), _steady(random, size - 2048)
    ),
    "jumps in a block": lambda random, size: np.append(
        _steady(random, 1000), -_steady(random, size - 1000)
    ),
    "hardly any before": lambda random, size: np.append(
        np.where(np.arange(2048) == 9, 1.0, np.nan), _steady(random, size - 2048)
    ),
}


@pytest.mark.parametrize("size", [2049, 4096, 9000])
@pytest.mark.parametrize(
    "dtype", ["f2", "f4", "f8", ml_dtypes.bfloat16], ids=lambda dtype: np.dtype(dtype).name
)
@pytest.mark.parametrize("make", MOVING.values(), ids=list(MOVING))
def test_a_spread_keeps_its_digits(make, dtype, size):
    """Wherever the mean is, and however it moves from block to block."""
    random = np.random.default_rng(size)
    x, y = (make(random, size).astype(dtype) for _ in range(2))
    found = compare_arrays(x, y, divergence=False)
    for ours, stored in ((found.mine, x), (found.golden, y)):
        finite = stored[np.isfinite(stored.astype(float))].astype(L)
        exact = tuple(map(float, (finite.mean(), finite.std())))
        assert ours == pytest.approx(exact, rel=1e-12, abs=1e-16)


FEW_ULPS = {
    "in turn": lambda i: i % 2,
    "in fours": lambda i: i % 4,
    "after a block": lambda i: i >= 2048,
    "rising": lambda i: i // 4096,
    "random": lambda i: np.random.default_rng(0).integers(0, 3, i.size),
}


@pytest.mark.parametrize("size", [4096, 5000, 1 << 19])
@pytest.mark.parametrize("base", [1.0, 1e4, -1e-300])
@pytest.mark.parametrize("steps", FEW_ULPS.values(), ids=list(FEW_ULPS))
def test_a_spread_of_a_few_ulps(steps, base, size):
    """What a mean is rounded by is as much as the spread, and the mean moves by less than that."""
    steps, ulp = steps(np.arange(size)).astype(float), abs(np.spacing(base))
    x = base + steps * ulp
    found = compare_arrays(x, x, divergence=False)
    assert found.mine == found.golden
    assert found.mine[1] / ulp == pytest.approx(steps.std(), rel=1e-6)


def test_distances_as_great_as_float64():
    x, y = np.full(3, np.finfo(float).max), np.full(3, 5e-324)
    assert compare_arrays(x, y).root_mean_square == np.finfo(float).max


@given(
    pairs_of(st.complex_numbers(allow_nan=False, allow_infinity=False, max_magnitude=1e100), "c16")
)
def test_complex(pair):
    x, y = pair
    assume(all(np.abs(v[v != 0]).min(initial=1.0) > 1e-100 for v in pair))
    found = compare_arrays(x, y)
    real = oracle(x.view(float), y.view(float))
    d, size = np.abs(x - y), np.abs(y)
    relative = np.where(size > 0, d / np.where(size > 0, size, 1), np.abs(x) > 0)
    expected = {
        "cosine": real["cosine"],
        "relative_euclidean": real["relative_euclidean"],
        "max_absolute": d.max(),
        "mean_absolute": d.mean(),
        "accumulated_relative": relative.sum(),
        "max_relative": relative.max(),
        "mean_relative": relative.mean(),
        "mine": (np.abs(x).mean(), np.abs(x).std()),
        "golden": (size.mean(), size.std()),
    }
    check(found, expected, np.abs(x), size)
    assert found.root_mean_square == pytest.approx(float(np.sqrt(np.mean(np.square(d.astype(L))))))


# x, y, then the metrics in the order of NUMBERS; each row is an edge that docs/metrics.md names.
F = np.float32
EDGES = {
    "both zero": ([0, 0], [0, 0], [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    "golden zero": ([1, 2], [0, 0], [None, 2, 2, 1, ..., 1.5, math.sqrt(2.5), 1, 1, 0]),
    "mine zero": ([0, 0], [1, 2], [None, 2, 2, 1, ..., 1.5, math.sqrt(2.5), 1, 1, 0]),
    "opposite": ([-1, -2], [1, 2], [-1, 4, 4, 2, ..., 3, math.sqrt(10), 2, 2, 0]),
    "one element": ([2], [3], [1, 1, 1 / 3, 1 / 3, 0, 1, 1, 1 / 3, 1 / 3, 0]),
    "one element, other sign": ([2], [-2], [-1, 4, 2, 2, 0, 4, 4, 2, 2, 0]),
    "empty": ([], [], [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    "only agreed NaN": ([NAN], [NAN], [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    "agreed infinity": ([INF, 2], [INF, 2], [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    "other infinity": ([INF], [-INF], [NAN, INF, INF, INF, NAN, INF, INF, INF, INF, 0]),
    "infinity and its opposite": (
        [-INF, 1], [INF, 1], [NAN, INF, INF, INF, NAN, INF, INF, INF, INF, 0.5],
    ),
    "infinity in golden only": (
        [1, 2], [INF, 2], [NAN, INF, INF, INF, NAN, INF, INF, INF, INF, 0.5],
    ),
    "infinity against NaN": ([INF], [NAN], [NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0]),
    "golden NaN": ([1, 2], [NAN, 2], [NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0.5]),
    "constants": ([1, 1], [2, 2], [1, 1, 1, 0.5, 0, 1, 1, 0.5, 0.5, 0]),
    "huge and equal": ([1e25] * 3, [1e25] * 3, [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    "huge": ([1e38], [-1e38], [-1, 2e38, 2, 2, 0, 2e38, 2e38, 2, 2, 0]),
    "tiny": ([1e-30], [3e-30], [1, 2e-30, 2 / 3, 2 / 3, 0, 2e-30, 2e-30, 2 / 3, 2 / 3, 0]),
    "signed zeros": ([0.0], [-0.0], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize(("x", "y", "expected"), EDGES.values(), ids=list(EDGES))
def test_edges(x, y, expected):
    found = compare_arrays(np.array(x, F), np.array(y, F))
    for name, value in zip(NUMBERS, expected, strict=True):
        if value is not ...:
            ours = getattr(found, name)
            if value is None:
                assert ours is None, name
            else:
                assert ours == pytest.approx(value, rel=1e-6, nan_ok=True), name


def test_edges_of_float64():
    most = np.finfo(np.float64).max
    found = compare_arrays(np.array([most, 1.0]), np.array([-most, 1.0]))
    assert found.max_absolute == INF  # twice the greatest float64 is no float64
    assert found.relative_euclidean == pytest.approx(2.0)
    assert found.max_relative == pytest.approx(2.0)
    assert found.cosine == pytest.approx(-1.0)
    found = compare_arrays(np.array([1e300, -1e300]), np.array([1e300, -1e300]))
    assert (found.cosine, found.relative_euclidean, found.exact) == (1.0, 0.0, 1.0)
    found = compare_arrays(np.array([5e-324, 1.0]), np.array([0.0, 1.0]))
    assert found.root_mean_square > 0 and found.max_absolute == 5e-324


@pytest.mark.parametrize(
    ("x", "y", "share"),
    [
        (np.array([1, 2, 3], "i4"), np.array([1, 2, 4], "i8"), 2 / 3),
        (np.array([1.5, -0.0], "f2"), np.array([1.5, 0.0], "f4"), 1.0),
        (np.array([NAN, 1], "f2"), np.array([NAN, 1], "f4"), 1.0),
        (np.array([0x7FC00000, 0xFFC00001], "u4").view("f4"), np.full(2, NAN, "f4"), 1.0),
        (np.array([1 + 1j, 2], "c8"), np.array([1 + 1j, 3], "c8"), 0.5),
        (np.array([-0.0], "f8"), np.array([0.0], "f8"), 0.0),
        (np.array([True, False]), np.array([True, True]), 0.5),
    ],
)
def test_exact_match(x, y, share):
    assert compare_arrays(x, y).exact == share


def test_bool_is_0_and_1():
    x, y = np.array([True, True, False, True]), np.array([True, False, False, True])
    found = compare_arrays(x, y)
    check(found, oracle(x.astype(float), y.astype(float)), x, y)
    assert found.mean_absolute == 0.25


def test_non_contiguous_views():
    x = np.arange(12, dtype="f4").reshape(3, 4)
    y = (np.arange(12, dtype="f4").reshape(4, 3) + 1).T
    check(compare_arrays(x, y), oracle(x, y), x, y)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="shapes differ"):
        compare_arrays(np.zeros((2, 3)), np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("mine", "golden", "together"),
    [
        ("float32", "float32", True),
        ("int32", "int64", True),
        ("int64", "int32", True),
        ("float16", "float32", True),
        ("float32", "float64", True),
        ("bfloat16", "float32", True),
        ("bfloat16", "float16", True),
        ("float8_e5m2", "float16", False),
        ("int32", "float32", False),
        ("bool", "int8", False),
        ("int16", "int32", False),
    ],
)
def test_dtypes_that_are_compared(mine, golden, together):
    assert comparable(mine, golden) is together


BLOCKED = ["f2", "f4", "f8", "?", "i1", "u2", "i4", "i8", "u8", "c8", "c16", ml_dtypes.bfloat16]


@pytest.mark.parametrize("odd", [None, "same", "mine"])
@pytest.mark.parametrize("dtype", BLOCKED, ids=lambda dtype: np.dtype(dtype).name)
def test_blocks_do_not_show(monkeypatch, dtype, odd):
    """An array of many blocks has the numbers that it has as one block."""
    random = np.random.default_rng(1)
    x, y = (random.normal(0, 3, 9000) for _ in range(2))
    if np.dtype(dtype).kind in "c":
        x, y = x + 1j * y[::-1], y - 2j * x
    elif np.dtype(dtype).kind in "u?":
        x, y = np.abs(x) * 9, np.abs(y) * 9
    x, y = x.astype(dtype), y.astype(dtype)
    y[5000:7000] = x[5000:7000]
    if odd and np.dtype(dtype).kind not in "iub":
        x[[3, 4500, 8999]] = np.nan, np.inf, np.nan
        if odd == "same":
            y[[3, 4500, 8999]] = x[[3, 4500, 8999]]
    whole = compare_arrays(x, y)
    monkeypatch.setattr(metrics, "_BLOCK", 2048)
    parts = compare_arrays(x, y)
    for name in whole._fields:
        ours, value = (_flat(getattr(found, name)) for found in (parts, whole))
        assert ours == pytest.approx(value, rel=1e-12, nan_ok=True), name


def _flat(value) -> list:
    if not isinstance(value, tuple):
        return [0.0 if value is None else value]
    return [number for item in value for number in _flat(item)]


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_the_spread_of_large_integers(dtype):
    """Neighbours that float64 cannot tell apart have a deviation all the same."""
    x = np.array([2**53 + 1, 2**53 - 1, 2**53 + 1, 2**53 - 1], dtype)
    found = compare_arrays(x, np.array([2**53, 2**53 + 1] * 2, dtype), divergence=False)
    assert found.mine == (2.0**53, 1.0)
    assert found.golden[1] == 0.5


@pytest.mark.parametrize(
    "dtype", ["f2", "f4", "f8", "c8", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
)
def test_a_zero_of_another_sign_is_the_element_that_differs(dtype):
    x, y = np.zeros((2, 3), dtype), np.zeros((2, 3), dtype)
    y[1, 2] = complex(-0.0, 0.0) if np.dtype(dtype).kind == "c" else -0.0
    found = compare_arrays(x, y)
    assert (found.exact, found.max_absolute) == (5 / 6, 0.0)
    assert found.worst.index == (1, 2)
    assert math.copysign(1, np.real(found.worst.golden)) == -1


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_means_where_sums_are_beyond_float64(dtype):
    x, y = np.full(5, 1e158, dtype), np.full(5, 1e-150, dtype)
    found = compare_arrays(x, y)
    assert found.accumulated_relative == INF
    assert found.mean_relative == pytest.approx(1e308, rel=1e-12)
    far = compare_arrays(np.full(5, 1e308, dtype), np.zeros(5, dtype))
    assert far.mean_absolute == pytest.approx(1e308, rel=1e-12)
    one = compare_arrays(np.array([1e300, 1] * 4, dtype), np.array([1e-10, 1] * 4, dtype))
    assert (one.max_relative, one.mean_relative) == (INF, INF)
    many = np.ones(4096, dtype)
    many[7] = 1e300
    golden = np.ones(4096, dtype)
    golden[7] = 1e-11
    found = compare_arrays(many, golden)
    assert (found.max_relative, found.accumulated_relative) == (INF, INF)
    assert found.mean_relative == pytest.approx(1e308 / 4096 * 1e3, rel=1e-12)
