"""A row as JSON and back: every digit, every text, and nothing that is no row."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.columns import ALL, NOWHERE, Place
from compare.judging.verdict import Kind, Verdict
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

codes = st.text(max_size=8)
verdicts = st.builds(
    Verdict, st.sampled_from(Kind), codes, texts, culprit=names,
    low_evidence=st.booleans(), by_default=st.booleans(), weak=st.booleans(),
) | st.builds(
    Verdict, st.sampled_from(Kind), codes, texts, st.none() | numbers, st.none() | numbers,
    numbers, names,
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
        draw(several), draw(names), draw(several), draw(names), draw(names), draw(st.booleans()),
        draw(st.none() | verdicts),
    )  # fmt: skip


@given(counts, some_rows(), st.builds(Place, names, names, names))
def test_a_row_comes_back_as_it_was(number, row, place):
    line = line_of(number, row, place)
    assert line.isascii() and b"\n" not in line
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
    (2, 3), Status.DIFFERS, PLAIN, ("a reason",), "forward", ("1.5",), "net.w", "call", True,
    Verdict(Kind.ROUNDING, "within_rounding", "K=4", 1.0, 0.25, 0.25),
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


def test_a_row_says_what_it_comes_to():
    found = json.loads(line_of(1, ROW, NOWHERE))
    assert (found["leaf"], found["match"], found["low_confidence"]) == ("net.w", "call", True)
    assert found["verdict"] == {
        "kind": "rounding", "code": "within_rounding", "reason": "K=4", "allowed": 1.0,
        "actual": 0.25, "margin": 0.25, "culprit": None, "low_evidence": False,
        "by_default": False, "weak": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (Status.EQUAL, "same", "bit_equal"),
        (Status.ALIKE, "same", "equal_in_value"),
        (Status.DIFFERS, "differs", "values_differ"),
        (Status.UNPAIRED, "not_comparable", "no_partner"),
        (Status.INCOMPARABLE, "not_comparable", "no_numbers"),
        (Status.ARGUMENT, "not_comparable", "argument_differs"),
        (Status.UNINITIALISED, "cannot_tell", "uninitialised"),
        (Status.DESCRIBED, "cannot_tell", "no_data"),
    ],
)
def test_a_row_that_no_op_judged_has_the_verdict_of_its_status(status, kind, code):
    found = ROW._replace(status=status, metrics=PLAIN if status in MEASURED else None, judged=None)
    line = json.loads(line_of(1, found, NOWHERE))
    assert (line["verdict"]["kind"], line["verdict"]["code"]) == (kind, code)
    assert row_of(line).row.judged is None


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
    "no verdict": (("verdict",), KeyError),
    "a verdict of nothing": (("verdict",), None),
    "another verdict": (("verdict", "kind"), "fine"),
    "a code of numbers": (("verdict", "code"), 5),
    "no reason": (("verdict", "reason"), None),
    "a text for a margin": (("verdict", "margin"), "large"),
    "true for a limit": (("verdict", "allowed"), True),
    "a number for true": (("verdict", "weak"), 1),
    "a list for a culprit": (("verdict", "culprit"), []),
    "no mark at all": (("verdict", "by_default"), KeyError),
    "a number for a leaf": (("leaf",), 0),
    "no match at all": (("match",), KeyError),
    "doubt in words": (("low_confidence",), "low"),
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
