"""The columns: which and in what order, numbers that keep their digits, cells that nothing runs."""

import csv
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.columns import (
    ALGORITHMS,
    ALL,
    NOWHERE,
    Columns,
    Place,
    element,
    inert,
    is_taken,
    number,
    select,
    share,
)
from compare.judging.verdict import Kind, Verdict
from compare.metrics import Metrics, Ulp, Worst
from compare.row import Row, Status
from dumper.errors import DumpError

NAMES = [each.name for each in ALGORITHMS]
PEER_COLUMNS = (
    "Index,NPUDump,NPUDumpPath,GroundTruthPath,DataType,Shape,CosineSimilarity,MaxAbsoluteError,"
    "AccumulatedRelativeError,RelativeEuclideanDistance,KullbackLeiblerDivergence,StandardDeviation,"
    "MeanAbsoluteError,RootMeanSquareError,MaxRelativeError,MeanRelativeError,CompareFailReason"
).split(",")
MEASURES = (
    "ExactMatch,UlpMax,UlpMean,UlpAboveOne,WorstIndex,WorstMine,WorstGolden,NaNCounts,"
    "InfinityCounts,Phase,Api,Module,Source"
).split(",")
VERDICT = "Verdict,VerdictCode,Allowed,Actual,Margin,VerdictReason,PairedBy".split(",")
OURS = [*MEASURES, *VERDICT]

PAIR = (0.0, 0.0)
METRICS = Metrics(0.5, 1.0, 2.0, 3.0, 4.0, PAIR, PAIR, 6.0, 7.0, 8.0, 9.0, 0.25, 6)


def row(metrics=METRICS, **changes):
    status = Status.UNPAIRED if metrics is None else Status.DIFFERS
    path = "/relu/1/output/result"
    found = Row(
        1, "relu", "output", "/relu/1", path, path, "float32", (2, 3), status, metrics
    )  # fmt: skip
    return found._replace(**changes)


def table(found, columns=ALL, place=NOWHERE):
    return dict(zip(columns.names, columns.cells(found, place), strict=True))


def test_columns_are_the_originals_then_ours():
    assert list(ALL.names) == [*PEER_COLUMNS, *OURS]
    found = table(row(None))
    assert [found.pop(name) for name in VERDICT] == [
        "not_comparable", "no_partner", "NaN", "NaN", "NaN", "", "NaN",
    ]  # fmt: skip
    assert set(found.values()) == {
        "1", "relu", "/relu/1/output/result", "float32", "[2,3]", "", "NaN",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("match", "low", "paired_by"),
    [("op", False, "op"), ("call", True, "call, in doubt"), (None, False, "NaN")],
)
def test_what_a_row_comes_to(match, low, paired_by):
    verdict = Verdict(Kind.DIFFERS, "beyond_rounding", "K=4; =1+1", 1e-9, 0.5, math.inf)
    found = table(row(judged=verdict, match=match, low=low))
    assert [found[name] for name in VERDICT] == [
        "differs", "beyond_rounding", "1.000000e-09", "0.500000", "inf", "K=4;' =1+1", paired_by,
    ]  # fmt: skip


def test_the_ten_are_numbered_as_the_original_numbers_them():
    assert NAMES == PEER_COLUMNS[6:16]
    assert [each.number for each in ALGORITHMS] == list(range(10))
    found = table(row())
    assert [found[name] for name in NAMES if name != "StandardDeviation"] == [
        f"{value:.6f}" for value in (0.5, 1, 2, 3, 4, 6, 7, 8, 9)
    ]


@pytest.mark.parametrize(
    ("text", "custom", "chosen"),
    [
        ("all", (), NAMES),
        ("all", ("Mine", "Other"), [*NAMES, "Mine", "Other"]),
        ("0", (), NAMES[:1]),
        ("9,0", (), [NAMES[9], NAMES[0]]),
        ("0,3,MaxAbsoluteError", (), [NAMES[0], NAMES[3], NAMES[1]]),
        (" 5 , KullbackLeiblerDivergence ", (), [NAMES[5], NAMES[4]]),
        ("3,3,RelativeEuclideanDistance", (), [NAMES[3]]),
        ("Other,0,Mine", ("Mine", "Other"), ["Other", NAMES[0], "Mine"]),
        ("9 0\t3", (), [NAMES[9], NAMES[0], NAMES[3]]),
        ("0, 3 ,5", (), [NAMES[0], NAMES[3], NAMES[5]]),
        ("cosinesimilarity MAXABSOLUTEERROR", (), NAMES[:2]),
        ("ALL", ("Mine",), [*NAMES, "Mine"]),
        ("mine", ("Mine",), ["Mine"]),
        ("mine,Mine", ("Mine", "mine"), ["mine", "Mine"]),
    ],
)
def test_columns_follow_the_selection(text, custom, chosen):
    found = select(text, custom)
    assert list(found.chosen) == chosen
    assert list(found.names) == [*PEER_COLUMNS[:6], *chosen, "CompareFailReason", *OURS]
    assert list(found.custom) == [name for name in chosen if name in custom]
    assert found.divergence == ("KullbackLeiblerDivergence" in chosen)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10", "'10'"), ("-1", "'-1'"), ("cosine", "'cosine'"), ("0,,1", "is missing"),
        ("", "is missing"), ("Mine", "'Mine'"), ("0;1", "'0;1'"), ("0 ,, 1", "is missing"),
        ("all,0", "'all' is every algorithm"), ("0 ALL", "'ALL' is every algorithm"),
    ],
)  # fmt: skip
def test_another_name_is_trouble(text, words):
    with pytest.raises(DumpError) as caught:
        select(text)
    assert words in caught.value.what and "CosineSimilarity" in caught.value.todo


@pytest.mark.parametrize(
    ("word", "custom", "near"),
    [
        ("cosine", (), "the nearest is CosineSimilarity; "),
        ("CosinSimilarty", (), "the nearest is CosineSimilarity; "),
        ("relative", (), "the nearest is AccumulatedRelativeError or RelativeEuclideanDistance or"),
        ("Biass", ("Bias",), "the nearest is Bias; "),
        ("MINE", ("Mine", "mine"), "the nearest is "),
        ("10", (), "name some of "),
    ],
)
def test_the_nearest_names_are_offered(word, custom, near):
    with pytest.raises(DumpError) as caught:
        select(word, custom)
    assert caught.value.todo.startswith(near) and "CosineSimilarity, " in caught.value.todo


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        *((name, True) for name in (*PEER_COLUMNS, *OURS, "OverFlow", "MyFile", "GoldenFile")),
        *((name, True) for name in ("all", "ALL", "0", "42", "ulpmax", "INDEX")),
        *((name, False) for name in ("Bias", "alle", "UlpMax2", "a0", "_1")),
    ],
)
def test_a_name_with_another_meaning_is_taken(name, taken):
    assert is_taken(name) is taken


@pytest.mark.parametrize("twice", ["UlpMax", "Index", "CompareFailReason", "CosineSimilarity"])
def test_no_column_is_there_twice(twice):
    with pytest.raises(DumpError, match="a column is there twice"):
        Columns((*ALGORITHMS, twice))
    assert Columns((*ALGORITHMS, "Bias")).names.count("Bias") == 1


@pytest.mark.parametrize("text", ["1,2", 'say "x"', "a;b", "plain"])
def test_whatever_stands_in_a_cell_is_one_cell(text):
    """A custom algorithm returns any text, and a name may be that of a number."""
    columns = Columns((ALGORITHMS[0], "Bias"))
    (cells,) = csv.reader([columns.line(row(custom=(text,)))])
    assert cells == columns.cells(row(custom=(text,))) and cells[7] == text


def test_a_custom_algorithms_text_stands_in_its_column():
    columns = select("Other,0,Mine", ("Mine", "Other"))
    found = table(row(custom=("1.5", "=cmd()")), columns)
    assert (found["Other"], found["CosineSimilarity"], found["Mine"]) == (
        "1.5", "0.500000", "'=cmd()",
    )  # fmt: skip
    absent = table(row(None), columns)
    assert absent["Other"] == absent["Mine"] == "NaN"


@pytest.mark.parametrize(
    ("dtype", "reach", "cell"),
    [
        ("float16", 65504.0, "YES"),
        ("float16", 65503.0, "NO"),
        ("float16", math.inf, "YES"),
        ("float32", math.inf, "NaN"),
        ("bfloat16", 65504.0, "NaN"),
    ],
)
def test_overflow(dtype, reach, cell):
    metrics = METRICS._replace(reach=(reach, 0.0), nan=(1, 0, 0))
    columns = select("1", (), overflow=True)
    assert list(columns.names[5:8]) == ["Shape", "OverFlow", "MaxAbsoluteError"]
    assert table(row(metrics, dtype=dtype), columns)["OverFlow"] == cell
    assert table(row(None, dtype=dtype), columns)["OverFlow"] == "NaN"
    assert "OverFlow" not in ALL.names


def test_what_is_measured_beyond_the_ten():
    metrics = METRICS._replace(
        ulp=Ulp(2**63 + 1, 1e-9, 1e-12),
        worst=Worst((0, 3), 1.5, -2.0),
        nan=(1, 2, 3),
        infinite=(0, 0, 4),
    )
    found = table(row(metrics, phase="forward"), ALL, Place("torch.relu.0", "", "a.py:3"))
    assert [found[name] for name in MEASURES] == [
        "0.250000", "9223372036854775809", "1.000000e-09", "0.000001", "[0,3]", "1.5", "-2",
        "1;2;3", "0;0;4", "forward", "torch.relu.0", "", "a.py:3",
    ]  # fmt: skip
    unknown = table(row())
    assert [unknown[name] for name in MEASURES[1:7]] == ["NaN"] * 6
    assert [unknown[name] for name in MEASURES[9:]] == ["NaN"] * 4


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (True, "bool", "True"),
        (2**64 - 1, "uint64", "18446744073709551615"),
        (-3, "int8", "-3"),
        (float(2**24), "float32", "16777216"),
        (0.10000000149011612, "float32", "0.100000001"),
        (0.1 + 2**-56, "float64", "0.10000000000000002"),
        (math.nan, "float32", "nan"),
        (-math.inf, "float16", "-inf"),
        (1 - 2j, "complex64", "(1-2j)"),
        (complex(math.nan, math.inf), "complex128", "(nan+infj)"),
    ],
)
def test_an_element_has_the_digits_of_its_dtype(value, dtype, text):
    assert element(value, dtype) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000000"),
        (-0.0, "0.000000"),
        (1.0, "1.000000"),
        (0.001, "0.001000"),
        (0.0009999, "9.999000e-04"),
        (1e-9, "1.000000e-09"),
        (-1e-9, "-1.000000e-09"),
        (9.99e15, "9990000000000000.000000"),
        (1e16, "1.000000e+16"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (None, "NaN"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_keep_at_least_four_digits(value):
    assert float(number(value)) == pytest.approx(value, rel=5.1e-4, abs=0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.000000"),
        (0.0, "0.000000"),
        (1 - 1e-9, "0.999999"),
        (1e-9, "0.000001"),
        (0.5, "0.500000"),
    ],
)
def test_a_share_is_one_only_when_it_is(value, text):
    assert share(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (0.001, "0.001"),
        (-3.7e-05, "-3.700e-05"),
        (1.25, "1.250"),
        (2e16, "2.000e+16"),
    ],
)
def test_means_and_deviations_keep_their_digits(value, text):
    pair = (value, 0.5)
    found = table(row(METRICS._replace(mine=pair, golden=pair)))
    assert found["StandardDeviation"] == f"({text};0.500),({text};0.500)"


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1", "@SUM(A1)", "%x", "\t=1", " =1", "=cmd|' /C calc'!A0", "＝1", "a;=1+1"],
)
def test_formulas_are_inert(text):
    for part in inert(text).split(";"):
        assert not part.strip().startswith(tuple("=+-@%\t＝"))


@pytest.mark.parametrize(
    "text", ["/relu/1/output/result", "relu", "名字", "shapes differ: [2] [3]"]
)
def test_plain_text_stays(text):
    assert inert(text) == text


def test_a_shape_of_texts_is_inert():
    """A jagged size is a text of the file."""
    found = table(row(None, shape=("=j\x1b", 2), dtype="-x", op="a;=b"))
    assert (found["Shape"], found["DataType"], found["NPUDump"]) == ("[=j\\x1b,2]", "'-x", "a;'=b")


@given(st.floats(), st.sampled_from(["float32", "float64"]))
def test_numbers_are_plain_cells(value, dtype):
    found = Columns().line(row(METRICS._replace(worst=Worst((), value, value))))
    assert found.count(element(value, dtype)) >= 2 or dtype == "float64"
    assert found.endswith("\r\n") and found.isascii()
