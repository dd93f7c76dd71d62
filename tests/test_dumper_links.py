"""Producers, users and boundaries, against a program that knows what it did."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dumper.index import Entry
from dumper.links import Links, hands_on
from dumper.reader import Record


def record(seqid, inputs, outputs, phase="forward", api="call.0"):
    """A record with nothing but the numbers of its values."""
    values = {f"input/x{i}": value for i, value in enumerate(inputs)}
    values |= {f"output/y{i}": value for i, value in enumerate(outputs)}
    entry = Entry(phase, api, "", None, None, 0, 0, values=values)
    return Record("op", seqid, f"/op/{seqid}", (), (), {}, False, entry)


def numbers(crossings):
    return [crossing.value for crossing in crossings]


def test_a_call_its_backward_and_what_is_around_it():
    """x -> (a: makes 2, saves 3) -> b; backward of the call uses 3 and makes the gradient 6."""
    before = record(1, [], [1], api=None)
    call = [record(2, [1, 10], [2, 3]), record(3, [2], [2]), record(4, [2], [4])]
    after = record(5, [4], [5], api=None)
    back = [record(6, [5, 3, 10], [6], "backward"), record(7, [6], [7], "backward")]
    later = record(8, [7], [8], "backward", None)
    links = Links([before, *call, after, *back, later])
    whole = [*call, *back]
    forward, backward = links.boundary(call, whole), links.boundary(back, whole)
    assert numbers(forward.entering) == [1, 10] and numbers(forward.leaving) == [4]
    assert numbers(backward.entering) == [5, 10] and numbers(backward.leaving) == [7]
    assert forward.entering[0].place == (call[0], "input/x0")
    assert forward.leaving[0].place == (call[2], "output/y0")
    assert links.maker(1).record is before and links.maker(10) is None
    assert [place.record.seqid for place in links.users(2)] == [3, 4]
    assert hands_on(call[1], 2) and not hands_on(call[2], 2)


def test_a_view_outside_uses_what_it_views():
    made, view = record(1, [], [1]), record(2, [1], [1], api=None)
    links = Links([made, view])
    assert numbers(links.boundary([made], [made]).leaving) == [1]
    assert numbers(links.boundary([view], [view]).entering) == [1]
    assert numbers(links.boundary([view], [view]).leaving) == []


def test_the_last_view_inside_is_what_leaves():
    """`linear` ends with a view, whose shape is the call's result; nobody has used it yet."""
    records = [record(1, [], [1]), record(2, [1], [1])]
    (leaving,) = Links(records).boundary(records, records).leaving
    assert leaving.place == (records[1], "output/y0")


def test_what_is_written_in_place_is_a_new_value():
    made = record(1, [], [1], api=None)
    written = record(2, [1], [2])
    links = Links([made, written, record(3, [2], [3], api=None)])
    boundary = links.boundary([written], [written])
    assert (numbers(boundary.entering), numbers(boundary.leaving)) == ([1], [2])


def test_records_of_gradients_use_what_they_show():
    """A parameter that no op made is not made by the record that shows it either."""
    made = record(1, [9], [1])
    shown = [record(2, [], [1], "grad", None), record(3, [], [9], "update", None)]
    links = Links([made, *shown])
    assert links.maker(9) is None
    assert [place.record.seqid for place in links.users(9)] == [1, 3]
    assert numbers(links.boundary([made], [made]).leaving) == [1]


OP = st.tuples(
    st.sampled_from(["new", "view", "write", "grad"]),
    st.lists(st.integers(0, 30), max_size=3),
    st.integers(0, 3),  # the call
    st.booleans(),  # whether in backward
)


@settings(max_examples=200)
@given(st.lists(OP, max_size=25), st.integers(0, 3), st.booleans())
def test_boundaries_against_what_the_program_did(program, call, backward):
    """The oracle sees memories and what each op did to them; links see numbers only."""
    memories = [100, 101]  # each memory's present value; these two come from outside
    last, maker, uses, records = 101, {}, [], []
    for seqid, (kind, picks, owner, back) in enumerate(program):
        picked = [pick % len(memories) for pick in picks]
        given_values = [memories[at] for at in picked]
        phase = "backward" if back else "forward"
        if kind == "grad":
            shown = given_values[:1] or [memories[0]]
            records.append(record(seqid, [], shown, "grad", None))
            uses.append((seqid, shown[0], True))
            continue
        outputs = []
        if kind == "view" and picked:
            outputs = given_values[:1]
        else:
            last += 1
            maker[last] = seqid
            outputs = [last]
            if kind == "write" and picked:
                memories[picked[0]] = last
            else:
                memories.append(last)
        records.append(record(seqid, given_values, outputs, phase, f"call.{owner}"))
        for value in given_values:
            uses.append((seqid, value, value not in outputs))
    whole = [r for r in records if r.entry.api == f"call.{call}"]
    part = [r for r in whole if (r.phase == "backward") == backward]
    inside, own = {r.seqid for r in whole}, {r.seqid for r in part}
    entering = {v for seqid, v, _ in uses if seqid in own and maker.get(v) not in inside}
    leaving = set()
    for value, seqid in maker.items():
        outside = any(user not in inside for user, v, _ in uses if v == value)
        consumed = any(consumes for _, v, consumes in uses if v == value)
        if seqid in own and (outside or not consumed):
            leaving.add(value)
    links = Links(records)
    boundary = links.boundary(part, whole)
    assert len(boundary.entering) == len(entering) and set(numbers(boundary.entering)) == entering
    assert len(boundary.leaving) == len(leaving) and set(numbers(boundary.leaving)) == leaving
    for value in {v for _, v, _ in uses} | set(maker):
        found = links.maker(value)
        assert (found and found.record.seqid) == maker.get(value)
        users = sorted({seqid for seqid, v, _ in uses if v == value})
        assert [place.record.seqid for place in links.users(value)] == users
