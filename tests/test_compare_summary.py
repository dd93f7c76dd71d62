"""The summary of streamed rows: counts by verdict, the first difference, the worst ten."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.columns import NOWHERE, Place
from compare.judging.verdict import Kind, Verdict
from compare.metrics import Metrics, Worst
from compare.row import MEASURED, Row, Status
from compare.rows import line_of, row_of
from compare.start import Flag, Start
from compare.summary import WORST, Summary

EQUAL, DIFFERS, UNPAIRED = Status.EQUAL, Status.DIFFERS, Status.UNPAIRED
OTHER, ARGUMENT = Status.INCOMPARABLE, Status.ARGUMENT

WRONG = Verdict(Kind.DIFFERS, "beyond_rounding", "more than rounding", 1.0, 5.0, 5.0)
WEAK = WRONG.marked(low_evidence=True)
ROUNDED = Verdict(Kind.ROUNDING, "within_rounding", "K=4", 1.0, 0.5, 0.5)
GIVEN = Verdict(Kind.INHERITED, "input_differs", "what the op was given differs")
UNTOLD = Verdict(Kind.CANNOT_TELL, "no_inputs", "the file lacks the op's inputs")
SATURATED = Verdict(Kind.NOT_COMPARABLE, "saturation", "saturation against infinity")
COPY = Verdict(Kind.NOT_COMPARABLE, "no_copy", "one side copies once more")
SHAPE = Verdict(Kind.NOT_COMPARABLE, "shape_differs", "the shapes differ")


def row(seqid, side, status, red=0.0, absolute=0.0, judged=None, **more):
    metrics = None
    if status in MEASURED:
        pair = (0.0, 0.0)
        exact = float(status is not DIFFERS)
        metrics = Metrics(1.0, absolute, 0, red, 0, pair, pair, 0, 0, 0, 0, exact, 1)
    path = f"/op/{seqid}/{side}/x"
    return Row(
        seqid, "op", side, f"/op/{seqid}", path, path, "float32", (1,), status, metrics,
        judged=judged, **more,
    )  # fmt: skip


def summary(*rows):
    found = Summary()
    for each in rows:
        found.add(each)
    return found


def test_counts():
    found = summary(
        row(1, "input", EQUAL), row(1, "output", DIFFERS, judged=ROUNDED),
        row(2, None, UNPAIRED), row(3, None, UNPAIRED, judged=COPY), row(3, "output", OTHER),
    )  # fmt: skip
    assert (found.rows, found.compared, found.paired, found.nothing_wrong) == (5, 2, 3, False)
    assert found.counts[UNPAIRED] == 2 and found.counts[OTHER] == 1
    assert found.verdicts == {Kind.SAME: 1, Kind.ROUNDING: 1, Kind.NOT_COMPARABLE: 3}
    assert found.unpaired == {"no_partner": 1, "no_copy": 1}
    assert (found.wrong, found.unexplained, found.judged) == (2, 0, 1)


@pytest.mark.parametrize(
    ("later", "fine"),
    [
        ((1, "output", EQUAL), True),
        ((1, "output", Status.ALIKE), True),
        ((1, "output", DIFFERS, ROUNDED), True),
        ((1, "output", DIFFERS, GIVEN), True),
        ((1, "output", DIFFERS, SATURATED), True),
        ((1, "output", DIFFERS, WRONG), False),
        ((1, "output", DIFFERS, WEAK), False),
        ((1, "output", DIFFERS, UNTOLD), False),
        ((1, "output", DIFFERS), False),
        ((1, "output", Status.UNINITIALISED), True),
        ((1, "output", Status.DESCRIBED), True),
        ((1, "output", OTHER, SHAPE), False),
        ((1, "output", OTHER), False),
        ((1, "input", ARGUMENT), False),
        ((2, None, UNPAIRED), False),
        ((2, None, UNPAIRED, COPY), True),
    ],
)
def test_nothing_is_wrong_only_if_all_of_it_is_explained(later, fine):
    seqid, side, status, *judged = later
    rows = row(1, "input", EQUAL), row(seqid, side, status, judged=judged[0] if judged else None)
    assert summary(*rows).nothing_wrong is fine


def test_nothing_is_right_where_nothing_was_compared():
    assert not summary().nothing_wrong
    assert not summary(row(1, None, UNPAIRED, judged=COPY)).nothing_wrong
    assert summary(row(1, "output", Status.DESCRIBED)).nothing_wrong


@pytest.mark.parametrize(
    ("start", "rows", "equal"),
    [
        (Start(), [row(1, "input", EQUAL, leaf="w"), row(1, "input", EQUAL, leaf="")], True),
        (Start(), [row(1, "input", DIFFERS, judged=GIVEN, leaf="w")], False),
        (Start(), [row(1, "input", OTHER, judged=SHAPE, leaf="")], False),
        (Start((Flag("deterministic", True, False),)), [row(1, "input", EQUAL)], False),
        (Start(), [row(1, "input", EQUAL)], None),
        # a file that does not say what came from outside: no output differs before this input
        (Start(), [row(1, "input", DIFFERS, judged=GIVEN)], False),
        (Start(), [row(1, "output", DIFFERS, judged=ROUNDED),
                   row(2, "input", DIFFERS, judged=GIVEN)], None),
        (Start(), [row(1, None, UNPAIRED), row(2, "input", DIFFERS, judged=GIVEN)], None),
        (Start(), [row(1, "input", EQUAL, leaf="w"),
                   row(2, "input", DIFFERS, judged=GIVEN, phase="forward")], True),
    ],
)  # fmt: skip
def test_runs_that_did_not_start_equal_are_not_right(start, rows, equal):
    found = Summary(start)
    for each in rows:
        found.add(each)
    assert found.start.equal is equal
    assert found.nothing_wrong is (equal is not False and not found.wrong)
    assert found.as_json()["start"]["equal"] is equal


@pytest.mark.parametrize(
    ("rows", "odd", "first"),
    [
        # the second op has equal inputs, the first one only passed on what it was given
        ([(1, "input", DIFFERS, GIVEN), (1, "output", DIFFERS, GIVEN), (2, "input", EQUAL),
          (2, "output", DIFFERS, WRONG)], 2, 2),
        ([(1, "input", EQUAL), (1, "output", DIFFERS, WRONG), (2, "output", DIFFERS, WRONG)], 1, 1),
        ([(1, "output", DIFFERS, ROUNDED), (2, "output", DIFFERS, WRONG)], 2, 2),
        ([(1, "input", DIFFERS, GIVEN), (1, "output", DIFFERS, GIVEN)], None, None),
        ([(1, "input", EQUAL), (1, "output", EQUAL)], None, None),
        # without inputs it could be inherited: it goes apart, but no op is blamed
        ([(1, "output", DIFFERS, UNTOLD)], 1, None),
        ([(1, "output", DIFFERS, UNTOLD), (2, "output", DIFFERS, WRONG)], 1, 2),
        # one element is no evidence, but it differs
        ([(1, "output", DIFFERS, WEAK), (2, "output", DIFFERS, WRONG)], 1, 2),
        ([(1, "output", DIFFERS, WEAK)], 1, None),
        # another argument or shape, and what has no partner, goes apart; none can be measured
        ([(1, "input", ARGUMENT), (1, "output", DIFFERS, GIVEN)], 1, None),
        ([(1, "output", OTHER, SHAPE), (2, "output", DIFFERS, WRONG)], 1, 2),
        ([(1, None, UNPAIRED), (2, "output", DIFFERS, WRONG)], 1, 2),
        ([(1, None, UNPAIRED, COPY), (2, "output", DIFFERS, WRONG)], 2, 2),
        ([(1, "output", DIFFERS, SATURATED), (2, "output", DIFFERS, WRONG)], 2, 2),
        ([(1, None, OTHER), (1, "output", DIFFERS, GIVEN)], 1, None),
    ],
)  # fmt: skip
def test_where_it_first_goes_apart(rows, odd, first):
    found = summary(*(row(*each[:3], judged=each[3] if len(each) > 3 else None) for each in rows))
    assert (found.odd and found.odd.index) == odd
    assert (found.first and found.first.index) == first
    if first:
        assert found.first.side == "output"


def test_the_worst_rows():
    values = [(0.1, 5), (math.nan, math.nan), (0.3, 1), (0.3, 2), (math.inf, 3), (0.0, 9)]
    rows = [row(i, "output", DIFFERS, *value) for i, value in enumerate(values)]
    assert [each.index for each in summary(*rows).worst] == [1, 4, 3, 2, 0, 5]


def test_the_gravest_verdict_is_the_worst_row_then_the_largest_margin():
    verdicts = [GIVEN, ROUNDED, WRONG, WRONG._replace(margin=math.inf), UNTOLD,
                SATURATED, WRONG._replace(margin=math.nan)]  # fmt: skip
    rows = [
        row(i, "output", DIFFERS, red=float(10 - i), judged=verdict)
        for i, verdict in enumerate(verdicts)
    ]
    assert [each.index for each in summary(*rows).worst] == [3, 6, 2, 4, 5, 0, 1]


def test_of_equally_bad_rows_the_earlier_are_kept():
    rows = [row(i, "output", DIFFERS, 0.5, 1.0) for i in range(3 * WORST)]
    rows = [
        each._replace(metrics=each.metrics._replace(mean_absolute=i)) for i, each in enumerate(rows)
    ]
    assert [each.index for each in summary(*rows).worst] == list(range(WORST))


def test_equal_rows_are_not_among_the_worst():
    assert summary(row(1, "output", EQUAL)).worst == []


SAME = {"mean_absolute": math.nan, "cosine": None, "worst": Worst((0,), 1.0, 2.0)}


@pytest.mark.parametrize(
    ("change", "is_another"),
    [
        ({}, False),
        ({"mean_absolute": 1.0}, True),
        ({"cosine": 0.5}, True),
        ({"worst": Worst((1,), 1.0, 2.0)}, True),
        ({"golden": (0.0, 1.0)}, True),
    ],
)
def test_a_value_reached_through_links_is_one_row_of_the_worst(change, is_another):
    """By its numbers, since a result that is read again knows no links."""
    first = row(1, "output", DIFFERS, red=2.0)
    numbers = first.metrics._replace(**SAME)
    first = first._replace(metrics=numbers)
    numbers = numbers._replace(**change)
    again = row(2, "input", DIFFERS)._replace(metrics=numbers)
    found = summary(first, again, row(3, "output", DIFFERS, red=1.0))
    assert [each.index for each in found.worst] == ([1, 2, 3] if is_another else [1, 3])
    assert found.again == (not is_another)
    rows = first, again, row(3, "output", DIFFERS, red=1.0)
    lines = [line_of(number, each, NOWHERE) for number, each in enumerate(rows, 1)]
    read = summary(*(row_of(json.loads(line)).row for line in lines))
    assert (read.again, read.worst) == (found.again, found.worst)
    assert found.counts[DIFFERS] == 3


def numbered(number, red, mark):
    """A row of these numbers: `mark` parts rows that are equally bad."""
    found = row(number, "output", DIFFERS, red)
    return found._replace(metrics=found.metrics._replace(mean_absolute=mark))


@given(st.lists(st.tuples(st.sampled_from([0.5, 1.0, math.inf]), st.integers(0, 9)), max_size=80))
def test_rows_with_the_numbers_of_one_of_the_worst_are_counted(kinds):
    """The oracle sorts all of them, and has memory for that."""
    firsts = {kind: number for number, kind in reversed(list(enumerate(kinds)))}
    kept = sorted(firsts.values(), key=lambda number: (-kinds[number][0], number))[:WORST]
    found = summary(*(numbered(number, *kind) for number, kind in enumerate(kinds)))
    assert [each.index for each in found.worst] == kept
    assert found.again == sum(kinds.count(kinds[number]) - 1 for number in kept)


def test_as_json():
    found = Summary()
    for each, place in (
        (row(1, "input", EQUAL, leaf="net.w"), NOWHERE),
        (row(1, "output", DIFFERS, red=0.5, judged=GIVEN), NOWHERE),
        (row(2, "input", UNPAIRED), NOWHERE),
        (row(2, "output", DIFFERS, red=1.5, judged=WRONG, phase="forward"),
         Place("torch.relu.0", "net", "x.py:3")),
        (row(3, "output", DIFFERS, red=9.0, judged=ROUNDED._replace(by_default=True)),
         NOWHERE),
    ):  # fmt: skip
        found.add(each, place)
    said = found.as_json()
    assert said["counts"] == {
        "bit-equal": 1, "equal in value": 0, "differing": 3, "unpaired": 1, "not comparable": 0,
        "another argument": 0, "uninitialised": 0, "without data": 0,
    }  # fmt: skip
    assert {kind.value: said[kind.value] for kind in Kind} == {
        "same": 1, "rounding": 1, "inherited": 1, "differs": 1, "not_comparable": 1,
        "cannot_tell": 0,
    }  # fmt: skip
    assert (said["rows"], said["compared"], said["nothing_wrong"]) == (5, 4, False)
    assert (said["judged"], said["judged_by_default"], said["unexplained"]) == (2, 1, 0)
    assert said["unpaired"] == {"no_partner": 1}
    assert said["first_difference"] == {
        "row": 4, "ir": "op", "seqid": 2, "call": "torch.relu.0", "phase": "forward",
        "module": "net", "source": "x.py:3", "arg": "output/x", "reason": "more than rounding",
    }  # fmt: skip
    assert said["worst"] == [4, 2, 5]
    leaf = {"compared": 0, "differ": 0, "first": None, "name": None}
    assert said["start"] == {
        "equal": True, "compared": 1, "batch": leaf, "weights": {**leaf, "compared": 1},
        "optimizer_state": leaf, "flags": [], "loss_scale": None,
    }  # fmt: skip
    nothing = summary(row(1, "output", EQUAL)).as_json()
    assert nothing["nothing_wrong"] is True and nothing["worst"] == []
    assert nothing["first_difference"] is None


def test_a_tensor_of_another_dtype_and_equal_values_is_the_same():
    found = summary(row(1, "input", Status.ALIKE), row(1, "output", Status.ALIKE))
    assert (found.odd, found.first, found.compared) == (None, None, 2)
    assert found.nothing_wrong and found.verdicts == {Kind.SAME: 2}
