"""The summary of streamed rows: counts, the first difference, the worst ten."""

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.columns import NOWHERE
from compare.metrics import Metrics, Worst
from compare.row import Row, Status
from compare.rows import line_of, row_of
from compare.summary import WORST, Summary

EQUAL, DIFFERS, UNPAIRED = Status.EQUAL, Status.DIFFERS, Status.UNPAIRED
OTHER, ARGUMENT = Status.INCOMPARABLE, Status.ARGUMENT


def row(seqid, side, status, red=0.0, absolute=0.0):
    metrics = None
    if status in (EQUAL, DIFFERS):
        pair = (0.0, 0.0)
        exact = float(status is EQUAL)
        metrics = Metrics(1.0, absolute, 0, red, 0, pair, pair, 0, 0, 0, 0, exact, 1)
    path = f"/op/{seqid}/{side}/x"
    return Row(seqid, "op", side, f"/op/{seqid}", path, path, "float32", (1,), status, metrics)


def summary(*rows):
    found = Summary()
    for each in rows:
        found.add(each)
    return found


def test_counts():
    found = summary(
        row(1, "input", EQUAL), row(1, "output", DIFFERS), row(2, "output", UNPAIRED),
        row(3, "output", Status.INCOMPARABLE),
    )  # fmt: skip
    assert (found.rows, found.compared, found.nothing_differs) == (4, 2, False)
    assert found.counts[UNPAIRED] == found.counts[Status.INCOMPARABLE] == 1


def test_nothing_differs_only_if_everything_was_compared():
    assert summary(row(1, "input", EQUAL)).nothing_differs
    assert not summary(row(1, "input", EQUAL), row(2, "output", UNPAIRED)).nothing_differs
    assert not summary(row(1, "input", EQUAL), row(1, "input", ARGUMENT)).nothing_differs
    assert not summary().nothing_differs


@pytest.mark.parametrize(
    ("rows", "first", "own"),
    [
        # the second op has equal inputs, the first one only passed on what it was given
        ([(1, "input", DIFFERS), (1, "output", DIFFERS), (2, "input", EQUAL),
          (2, "output", DIFFERS)], 1, 2),
        ([(1, "input", EQUAL), (1, "output", DIFFERS), (2, "output", DIFFERS)], 1, 1),
        # one differing input of two is enough
        ([(1, "input", DIFFERS), (1, "input", EQUAL), (1, "output", DIFFERS)], 1, None),
        # an input without partner is not known to be equal
        ([(1, "input", UNPAIRED), (1, "output", DIFFERS)], 1, None),
        ([(1, "input", EQUAL), (1, "output", EQUAL)], None, None),
        # nor is one that only golden has, whose row comes last
        ([(1, "output", DIFFERS), (1, "input", UNPAIRED), (2, "output", DIFFERS)], 1, 2),
        # another argument is another input
        ([(1, "input", EQUAL), (1, "input", ARGUMENT), (1, "output", DIFFERS)], 1, None),
        # another shape on equal inputs is the op's own doing, and comes before what differs later
        ([(1, "input", EQUAL), (1, "output", OTHER), (2, "output", DIFFERS)], 1, 1),
        ([(1, "input", OTHER), (1, "output", DIFFERS), (2, "output", DIFFERS)], 1, 2),
        # what has no partner goes apart, but is nobody's doing
        ([(1, None, UNPAIRED), (2, "input", EQUAL), (2, "output", DIFFERS)], 1, 2),
        ([(1, "output", UNPAIRED)], 1, None),
        # a record of which a part was left out
        ([(1, None, OTHER), (1, "output", DIFFERS)], 1, None),
        # what one record's inputs are says nothing of the next one's
        ([(1, "input", DIFFERS), (2, "output", DIFFERS)], 1, 2),
    ],
)  # fmt: skip
def test_where_it_first_goes_apart(rows, first, own):
    found = summary(*(row(*each) for each in rows))
    assert (found.first and found.first.index) == first
    assert (found.first_own and found.first_own.index) == own
    if own:
        assert found.first_own.side == "output"


def test_the_worst_rows():
    values = [(0.1, 5), (math.nan, math.nan), (0.3, 1), (0.3, 2), (math.inf, 3), (0.0, 9)]
    rows = [row(i, "output", DIFFERS, *value) for i, value in enumerate(values)]
    assert [each.index for each in summary(*rows).worst] == [1, 4, 3, 2, 0, 5]


def test_of_equally_bad_rows_the_earlier_are_kept():
    rows = [row(i, "output", DIFFERS, 0.5, 1.0) for i in range(3 * WORST)]
    rows = [
        dataclasses.replace(each, metrics=dataclasses.replace(each.metrics, mean_absolute=i))
        for i, each in enumerate(rows)
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
    numbers = dataclasses.replace(first.metrics, **SAME)
    first = dataclasses.replace(first, metrics=numbers)
    numbers = dataclasses.replace(numbers, **change)
    again = dataclasses.replace(row(2, "input", DIFFERS), metrics=numbers)
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
    return dataclasses.replace(
        found, metrics=dataclasses.replace(found.metrics, mean_absolute=mark)
    )


@given(st.lists(st.tuples(st.sampled_from([0.5, 1.0, math.inf]), st.integers(0, 9)), max_size=80))
def test_rows_with_the_numbers_of_one_of_the_worst_are_counted(kinds):
    """The oracle sorts all of them, and has memory for that."""
    firsts = {kind: number for number, kind in reversed(list(enumerate(kinds)))}
    kept = sorted(firsts.values(), key=lambda number: (-kinds[number][0], number))[:WORST]
    found = summary(*(numbered(number, *kind) for number, kind in enumerate(kinds)))
    assert [each.index for each in found.worst] == kept
    assert found.again == sum(kinds.count(kinds[number]) - 1 for number in kept)


def test_as_json():
    found = summary(
        row(1, "input", EQUAL), row(1, "output", DIFFERS, red=0.5), row(2, "input", UNPAIRED),
        row(2, "output", DIFFERS, red=1.5),
    ).as_json()  # fmt: skip
    assert found["counts"] == {
        "bit-equal": 1, "equal in value": 0, "differing": 2, "unpaired": 1, "not comparable": 0,
        "another argument": 0, "uninitialised": 0, "without data": 0,
    }  # fmt: skip
    assert (found["rows"], found["compared"], found["nothing_differs"]) == (4, 3, False)
    assert (found["first_differing_row"], found["first_own_difference"]) == (2, 2)
    assert found["worst"] == [4, 2]
    nothing = summary(row(1, "output", EQUAL)).as_json()
    assert nothing["nothing_differs"] is True and nothing["worst"] == []
    assert nothing["first_differing_row"] is nothing["first_own_difference"] is None


def test_an_input_of_another_dtype_is_no_difference_and_not_bit_equal():
    """An op on half where golden's had float32 was not given the same inputs."""
    found = summary(row(1, "input", Status.ALIKE), row(1, "output", DIFFERS, red=0.5))
    assert (found.first.side, found.first_own, found.compared) == ("output", None, 2)
    assert summary(row(1, "output", Status.ALIKE)).nothing_differs
