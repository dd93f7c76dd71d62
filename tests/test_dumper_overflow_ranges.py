"""Ranges: what is computed of a sample, which elements it takes, and lines of a file, any lines."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumper.overflow.formats import FORMATS, Lost, Share, lost
from dumper.overflow.ranges import (
    COUNTED,
    GRADIENT_SAMPLE,
    SAMPLE,
    Range,
    facts_of,
    ranges_of,
    sample_places,
)


def a_range(values=(), **facts) -> Range:
    sample = np.asarray(values, np.float32)
    known = {"ir": "mm", "seqid": 3, "phase": "forward", "output": "result", "dtype": "float32"}
    with np.errstate(invalid="ignore"):
        low, high = (sample.min(), sample.max()) if sample.size else (0.0, 0.0)
    known |= {"low": float(low), "high": float(high), "size": sample.size, "sample": sample}
    return Range(**(known | facts))


def read_back(found: Range) -> Range:
    (again,) = ranges_of([json.loads(json.dumps(facts_of(found), allow_nan=False))])
    return again


# which elements


@pytest.mark.parametrize("columns", [*range(1, 40), 96, 143, 210, 768, 1023])
@pytest.mark.parametrize("rows", [2001, 2048, 2310])
def test_a_sample_meets_every_column(rows, columns):
    size = rows * columns
    taken = np.arange(0, size, sample_places(size, SAMPLE))
    assert len(set((taken % columns).tolist())) == min(columns, taken.size)
    assert SAMPLE / 8 < taken.size <= SAMPLE


def test_periodic_data_are_seen_as_they_are():
    """Every second column is large: a stride of 2 would see one kind only."""
    values = np.tile(np.array([1.0, 1e-9]), SAMPLE).astype(np.float32)
    sample = values[:: sample_places(values.size, SAMPLE)]
    assert np.mean(sample == 1) == pytest.approx(0.5, abs=0.01)


@given(st.integers(0, 2**48), st.integers(1, GRADIENT_SAMPLE))
def test_a_sample_is_never_too_large_and_never_empty(size, count):
    stride = sample_places(size, count)
    assert len(range(0, size, stride)) <= count
    assert (len(range(0, size, stride)) > 0) is (size > 0)
    assert size <= 1 or math.gcd(stride, size) == 1
    assert size > count or stride == 1


def test_a_sample_of_nothing():
    assert sample_places(0, 1) == 1
    with pytest.raises(ValueError, match="a sample of 0 elements"):
        sample_places(10, 0)


# what is said of it


@pytest.mark.parametrize(
    ("low", "high", "magnitude"),
    [(-3.0, 2.0, 3.0), (-2.0, 3.0, 3.0), (0.0, 0.0, 0.0), (-math.inf, 1.0, math.inf)],
)
def test_magnitude(low, high, magnitude):
    assert a_range(low=low, high=high).magnitude == magnitude


@pytest.mark.parametrize(("low", "high"), [(math.nan, 1.0), (1.0, math.nan)])
def test_magnitude_of_nan_is_nan(low, high):
    found = a_range(low=low, high=high)
    assert math.isnan(found.magnitude) and math.isnan(found.headroom)
    assert not found.fits("float64")


def test_headroom_is_of_its_own_dtype_or_of_another():
    found = a_range(dtype="float16", low=-1.0, high=65504 / 8)
    assert found.headroom == 3 and found.headroom_in("float16") == 3
    assert found.headroom_in("float8_e5m2") == pytest.approx(math.log2(57344 * 8 / 65504))
    assert found.fits("float8_e5m2") and not found.fits("float8_e4m3fn")
    assert math.isnan(a_range(dtype="int64").headroom)


def test_shares_are_of_non_zero_values():
    found = a_range([0, 0, 1e-9, 1e-6, 1, 1e5])
    assert found.share("float16") == Share(0.25, 0.25, 0.25)
    assert found.lost("float64") == Lost(4, 0, 0, 0, looked=6)
    assert (found.sampled, found.zeros) == (6, 2)
    with pytest.raises(KeyError):
        found.lost("float7")


@pytest.mark.parametrize(
    ("values", "vanished", "looked", "share"),
    [
        ([0, 0, 0, 0, 1, 1], 0, 0, 0.0),  # nothing looked at
        ([0, 0, 0, 0, 1, 1], 0, 4, 0.0),
        ([0, 0, 0, 0, 1, 1], 4, 4, 2 / 3),
        ([0, 0, 0, 0, 1, 1], 1, 2, 0.5),  # half of the zeros: two of four
        ([0, 0], 2, 2, 1.0),
        ([1, 1], 0, 0, 0.0),
        ([], 0, 0, 0.0),
    ],
)
def test_the_share_that_has_vanished(values, vanished, looked, share):
    found = a_range(values, vanished=vanished, zeros_looked=looked)
    assert found.vanished_share == pytest.approx(share)
    assert read_back(found).vanished_share == pytest.approx(share)


# the file


@given(
    st.lists(st.floats(width=32), max_size=30),
    st.sampled_from([*FORMATS, "int64"]),
    st.none() | st.text(max_size=5),
    st.integers(0, 2**63 - 1),
)
def test_a_line_says_what_the_range_says(values, dtype, name, seqid):
    found = a_range(values, dtype=dtype, name=name, module=name, seqid=seqid, step=seqid)
    again = read_back(found)
    for each in COUNTED:
        assert again.lost(each) == found.lost(each) == lost(found.sample, FORMATS[each])
        assert again.share(each) == found.share(each) and again.fits(each) is found.fits(each)
    assert (again.sampled, again.zeros) == (found.sampled, found.zeros)
    assert facts_of(again) == facts_of(found)
    for mine, theirs in ((again.low, found.low), (again.high, found.high)):
        assert mine == theirs or (math.isnan(mine) and math.isnan(theirs))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)
GOOD = facts_of(a_range([0, 1, np.nan, 1e9], name="w", vanished=1, zeros_looked=1))
FIELDS = st.sampled_from([*GOOD, *(("lost", name) for name in COUNTED)])


@given(st.lists(JSON, max_size=3))
def test_any_line_is_a_range_or_left_out(lines):
    assert ranges_of(lines) == []
    assert [each.name for each in ranges_of([*lines, GOOD, *lines])] == ["w"]


@given(FIELDS, JSON)
def test_any_field_may_be_anything(place, value):
    facts = json.loads(json.dumps(GOOD))
    if isinstance(place, tuple):
        facts["lost"][place[1]] = value
    else:
        facts[place] = value
    for found in ranges_of([facts]):
        for name in COUNTED:
            assert all(0 <= share <= 1 for share in found.share(name) or ())
            assert found.fits(name) in (True, False)
        assert 0 <= found.vanished_share <= 1 and found.sampled <= found.size
        assert (again := facts_of(found)) == facts_of(read_back(found)) and json.dumps(again)


@pytest.mark.parametrize(
    ("change", "is_read"),
    [
        ({"size": 4}, True),
        ({"size": 3}, False),  # fewer than were looked at
        ({"sample": [4, 2, 1]}, True),
        ({"sample": [4, 2, 3]}, False),
        ({"sample": [4, 2]}, False),
        ({"vanished": 1}, True),
        ({"vanished": 2}, False),  # of one
        ({"seqid": True}, False),
        ({"seqid": -1}, False),
        ({"seqid": 2**63}, False),
        ({"low": "-inf"}, True),
        ({"low": "lower"}, False),
        ({"high": 10**400}, False),
        ({"lost": {**GOOD["lost"], "float16": [0, 0, 2]}}, True),
        ({"lost": {**GOOD["lost"], "float16": [1, 1, 1]}}, False),
        ({"lost": {"float16": [0, 0, 1]}}, False),
        ({"ir": None}, False),
        ({"module": None}, True),
    ],
)
def test_lines_whose_numbers_cannot_be(change, is_read):
    assert len(ranges_of([{**GOOD, **change}])) == is_read


def test_a_line_without_a_sample_has_no_counts():
    facts = {key: value for key, value in GOOD.items() if key not in ("sample", "lost")}
    (found,) = ranges_of([facts])
    assert (found.sampled, found.zeros, found.vanished_share) == (0, 0, 0.0)
    assert found.lost("float16") is None and found.share("float16") is None
    with pytest.raises(KeyError):
        found.lost("float7")
    assert ranges_of([{**facts, "lost": GOOD["lost"]}]) == []
