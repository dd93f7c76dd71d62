"""Rows on their way from a forked process: what comes out is what went in."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.judging.verdict import Kind, Verdict
from compare.metrics import compare_arrays
from compare.packed import read_rows, write_rows
from compare.row import Row, Status

TEXTS = st.none() | st.text(max_size=5)
NUMBERS = st.none() | st.floats()
VALUES = st.lists(st.floats(width=32), min_size=1, max_size=4)
DTYPES = st.sampled_from(["f4", "f2", "f8", "i8", "?", "c8", "u1"])


@st.composite
def measured(draw: st.DrawFn) -> object:
    """Numbers of two tensors, as comparing makes them."""
    dtype, pair = draw(DTYPES), []
    size = draw(st.integers(0, 4))
    for _ in range(2):
        values = draw(st.lists(st.floats(-99, 99, width=16), min_size=size, max_size=size))
        pair.append(np.array(values).astype(dtype))
    return compare_arrays(*pair)


VERDICTS = st.builds(
    Verdict, st.sampled_from(Kind), st.text(max_size=3), st.text(max_size=3), NUMBERS, NUMBERS,
    NUMBERS, TEXTS, st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
ROWS = st.builds(
    Row, st.integers(), TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS,
    st.none() | st.lists(st.integers(0) | st.text(max_size=2)).map(tuple),
    st.sampled_from(Status), st.none() | measured(), st.lists(st.text(max_size=3)).map(tuple),
    TEXTS, st.lists(st.text(max_size=3)).map(tuple), TEXTS, TEXTS, st.booleans(),
    st.none() | VERDICTS,
)  # fmt: skip


Unit = list[tuple[Row, object]]


def through(units: list[Unit]) -> list[Unit]:
    file = io.BytesIO()
    write_rows(7, units, file)
    write_rows(None, [], file)
    file.seek(0)
    number, found = read_rows(file)
    assert number == 7 and read_rows(file) == (None, [])
    return found


WRITTEN = st.none() | st.tuples(st.text(), st.text())


@given(st.lists(st.lists(st.tuples(ROWS, WRITTEN), max_size=3), max_size=3))
def test_rows_come_out_as_they_went_in(units: list[Unit]) -> None:
    found = through(units)
    assert repr(found) == repr(units)  # NaN is itself there


def test_every_field_travels() -> None:
    """Each field has another value than its default."""
    metrics = compare_arrays(np.array([1.0, np.nan], "f4"), np.array([2.0, 1.0], "f4"))
    verdict = Verdict(Kind.DIFFERS, "c", "r", 1.0, 2.0, 3.0, "mine", True, True, True)
    row = Row(
        1, "add", "output", "/a", "/b", "/c", "float32", (2,), Status.DIFFERS, metrics, ("r",),
        "forward", ("x",), "w", "op", True, verdict,
    )  # fmt: skip
    (((found, written),),) = through([[(row, ("a", "b"))]])
    assert written == ("a", "b")
    for name in Row._fields:
        value = getattr(found, name)
        assert repr(value) == repr(getattr(row, name)) and value is not None, name
    assert type(found.metrics.ulp) is type(metrics.ulp) and found.metrics.ulp == metrics.ulp


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_what_is_cut_off_is_an_error(cut: int) -> None:
    file = io.BytesIO()
    row = Row(1, *[None] * 7, Status.EQUAL, None)
    write_rows(1, [[(row, None), (row._replace(index=2), None)]], file)
    with pytest.raises((EOFError, ValueError, TypeError)):
        read_rows(io.BytesIO(file.getvalue()[:cut]))
