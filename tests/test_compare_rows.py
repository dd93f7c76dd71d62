"""A row as JSON and back: every digit, every text, and nothing that is no row."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.columns import ALL, NOWHERE, Place
from compare.metrics import Metrics, Ulp, Worst
from compare.row import MEASURED, Row, Status
from compare.rows import line_of, row_of
from dumper.errors import DumpError

counts = st.integers(0, 2**70)
numbers = st.floats()
pairs = st.tuples(numbers, numbers)
threes = st.tuples(counts, counts, counts)
texts = st.text(st.characters(exclude_categories=()), max_size=12)  # lone surrogates too
names = st.none() | texts
elements = st.booleans() | st.integers(-(2**70), 2**70) | numbers | st.complex_numbers()
metrics = st.builds(
    Metrics,
    st.none() | numbers, numbers, numbers, numbers, st.none() | numbers, pairs, pairs,
    numbers, numbers, numbers, numbers, numbers, counts, counts, counts, counts, counts,
    nan=threes, infinite=threes, reach=pairs,
    ulp=st.none() | st.builds(Ulp, counts, numbers, numbers),
    worst=st.none() | st.builds(Worst, st.lists(counts, max_size=3).map(tuple), elements, elements),
)  # fmt: skip


@st.composite
def some_rows(draw):
    found = draw(st.none() | metrics)
    measured = MEASURED
    status = draw(st.sampled_from([s for s in Status if (s in measured) is (found is not None)]))
    shape = st.none() | st.lists(counts | texts, max_size=3).map(tuple)
    several = st.lists(texts, max_size=2).map(tuple)
    return Row(
        draw(counts), *(draw(names) for _ in range(6)), draw(shape), status, found,
        draw(several), draw(names), draw(several),
    )  # fmt: skip


@given(counts, some_rows(), st.builds(Place, names, names, names))
def test_a_row_comes_back_as_it_was(number, row, place):
    line = line_of(number, row, place)
    assert line.isascii() and "\n" not in line
    found = row_of(json.loads(line, parse_constant=pytest.fail))
    assert found.number == number and repr(found.row) == repr(row) and found.place == place
    assert ALL.line(found.row, found.place) == ALL.line(row, place)


PAIR = (0.0, 0.0)
PLAIN = Metrics(
    1.0, 1e-9, 0.1 + 0.2, math.nan, None, PAIR, PAIR, 5e-324, 1.7976931348623157e308, math.inf,
    -math.inf, 0.5, 2**53 + 1, ulp=Ulp(2**64 - 1, 0.5, 0.25), worst=Worst((0,), 2**64 - 1, -1),
)  # fmt: skip
ROW = Row(
    3, "relu", "output", "/relu/3", "/relu/3/output/result", "/relu/3/output/result", "uint64",
    (2, 3), Status.DIFFERS, PLAIN, ("a reason",), "forward", ("1.5",),
)  # fmt: skip


def test_numbers_keep_their_digits():
    found = json.loads(line_of(1, ROW, NOWHERE))["metrics"]
    assert found["MaxAbsoluteError"] == 1e-9
    assert found["AccumulatedRelativeError"] == 0.30000000000000004
    assert found["RelativeEuclideanDistance"] == "nan"
    assert found["KullbackLeiblerDivergence"] is None
    assert (found["MaxRelativeError"], found["MeanRelativeError"]) == ("inf", "-inf")
    assert found["elements"] == 9007199254740993
    assert found["ulp"]["max"] == found["worst"]["mine"] == 18446744073709551615


CHANGES = {
    "no number": (("row",), None),
    "a number below 0": (("index",), -1),
    "a float for a number": (("row",), 1.0),
    "true for a number": (("index",), True),
    "a number for a text": (("op",), 5),
    "a list for a text": (("my_path",), []),
    "a text for a list": (("reasons",), "because"),
    "numbers for texts": (("custom",), [1]),
    "a shape of floats": (("shape",), [1.5]),
    "another status": (("status",), "fine"),
    "no status": (("status",), None),
    "a status without metrics": (("metrics",), None),
    "metrics of a row that was not measured": (("status",), "unpaired"),
    "metrics that are a list": (("metrics",), []),
    "no cosine at all": (("metrics", "CosineSimilarity"), KeyError),
    "no place": (("module",), KeyError),
    "another text for a number": (("metrics", "MaxAbsoluteError"), "1e5"),
    "an absent number": (("metrics", "MaxAbsoluteError"), None),
    "too large a number": (("metrics", "MaxAbsoluteError"), 10**400),
    "true for a measure": (("metrics", "ExactMatch"), True),
    "two counts": (("metrics", "nan"), [0, 0]),
    "three deviations": (("metrics", "StandardDeviation", "mine"), [0.0, 0.0, 0.0]),
    "deviations of nothing": (("metrics", "StandardDeviation"), None),
    "a ulp of texts": (("metrics", "ulp", "max"), "1"),
    "an element of three parts": (("metrics", "worst", "mine"), [1.0, 2.0, 3.0]),
    "an index below 0": (("metrics", "worst", "index"), [-1]),
}


@pytest.mark.parametrize(("where", "value"), CHANGES.values(), ids=list(CHANGES))
def test_what_is_no_row(where, value):
    found = json.loads(line_of(7, ROW, NOWHERE))
    assert repr(row_of(found).row) == repr(ROW)
    *above, last = where
    owner = found
    for key in above:
        owner = owner[key]
    if value is KeyError:
        del owner[last]
    else:
        owner[last] = value
    with pytest.raises(DumpError, match="no row of a result"):
        row_of(found)


@pytest.mark.parametrize("value", [None, 5, "row", [], {}, [1]])
def test_what_is_nothing_like_a_row(value):
    with pytest.raises(DumpError, match="no row of a result"):
        row_of(value)
