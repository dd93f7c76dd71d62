"""What is wrong with a JSON text: against Python's parser, and against planted faults."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumper.json_faults import MOST, faults

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4)
)
LEAVES = LEAVES.filter(lambda leaf: leaf not in (float("inf"), float("-inf")))
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


class Twice(Exception):
    """A name that an object has twice."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise Twice
    return dict(pairs)


def no_number(word: str) -> Any:
    raise ValueError(word)


def is_json(text: str) -> bool:
    try:
        json.loads(text, object_pairs_hook=unique, parse_constant=no_number)
    except (ValueError, Twice):
        return False
    return True


@given(VALUES, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_json_has_no_faults(value: Any, indent: int | str | None, ascii_only: bool) -> None:
    assert faults(json.dumps(value, indent=indent, ensure_ascii=ascii_only)) == []


@given(VALUES, st.data())
def test_what_the_parser_refuses_has_a_fault_and_nothing_else_has(value: Any, data: Any) -> None:
    """Some characters taken out, doubled or put in: either both refuse the text or neither does."""
    text = json.dumps(value, indent=data.draw(st.sampled_from([None, 1])))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text)))
        put = data.draw(st.text("{}[],:\"'\\/# \n\t1e.-+abtruefalsn\x01\u00a0，“é", max_size=3))
        text = text[:place] + put + text[place + data.draw(st.integers(0, 2)) :]
    assert (faults(text) == []) == is_json(text), text


@given(st.text("{}[],:\"'/*#\\ \n1a“”，", max_size=60))
def test_every_fault_has_a_place_in_the_text(text: str) -> None:
    lines = text.split("\n")
    found = faults(text)
    assert (found == []) == is_json(text)
    for fault in found:
        assert 1 <= fault.line <= len(lines)
        assert 1 <= fault.column <= len(lines[fault.line - 1]) + 1
    assert found == sorted(found, key=lambda fault: (fault.line, fault.column))


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5), st.text(max_size=5) | st.integers(), min_size=3
    ),
    st.data(),
)
def test_every_planted_fault_is_found_where_it_is(value: dict[str, Any], data: Any) -> None:
    """Commas taken away and comments put in, line by line: the guide's example, made worse."""
    lines = json.dumps(value, indent=2).split("\n")
    expected = []
    for i in range(1, len(lines) - 1):
        what = data.draw(st.sets(st.sampled_from(["comma", "comment"])))
        if "comma" in what and i < len(lines) - 2:
            lines[i] = lines[i].removesuffix(",")
            expected.append((i + 1, len(lines[i]) + 1, "a comma is missing"))
        if "comment" in what:
            expected.append((i + 1, len(lines[i]) + 3, "JSON has no comments"))
            lines[i] += data.draw(st.sampled_from(["  // why", "  # why", "  /* why */"]))
    found = faults("\n".join(lines))
    assert [(fault.line, fault.column) for fault in found] == [place[:2] for place in expected]
    for fault, (_, _, what) in zip(found, expected, strict=True):
        assert what in fault.what


@pytest.mark.parametrize(
    ("text", "line", "column", "what"),
    [
        ('{\n "a": "/x"\n "b": 1}', 2, 11, 'a comma is missing after "/x"'),
        ('{"a": 1 // one\n}', 1, 9, "JSON has no comments; remove // one"),
        ('{"a": 1,\n}', 1, 8, "the comma before } is one too many"),
        ("[1,]", 1, 3, "the comma before ] is one too many"),
        ("[1,,2]", 1, 4, "a value is missing before this comma"),
        ('{"a":1,,"b":2}', 1, 8, "this comma is one too many"),
        ("{'a': 1}", 1, 2, "write 'a' with \" on both sides"),
        ("{“a”: 1}", 1, 2, 'write “a” with " on both sides'),
        ('{"a"： 1}', 1, 5, "full-width character; write :"),
        ("{a: 1}", 1, 2, 'write the name a as "a"'),
        ('{"a": on}', 1, 7, 'on is no JSON value; write "on"'),
        ('{"a": True}', 1, 7, "True is no JSON value"),
        ("[NaN]", 1, 2, "NaN is no JSON value"),
        ('{"a" 1}', 1, 5, 'a colon is missing after "a"'),
        ('{"a"}', 1, 5, 'a colon and a value are missing after "a"'),
        ('{"a":}', 1, 6, "a value is missing after :"),
        ('{"a": "x, \n}', 1, 7, 'the quotation mark of "x is not closed'),
        ('{"a": 1,\n"a": 2}', 2, 1, 'the name "a" is there already, in line 1'),
        (r'{"a": "C:\dump"}', 1, 10, "this is no escape"),
        ('{"a": "b\tc"}', 1, 9, "no control character"),
        ('{"a":\u00a01}', 1, 6, "the character U+00A0 is out of place"),
        ('{"a": 1', 1, 8, "the { of line 1 is not closed"),
        ('[{"a": 1]', 1, 9, "the { of line 1 is closed by }"),
        ('{"a": 1}\n}', 2, 1, "the JSON has ended before }"),
        ("]", 1, 1, "this ] closes nothing"),
        (" \n", 1, 1, "there is nothing"),
    ],
)
def test_a_fault_says_what_and_where(text: str, line: int, column: int, what: str) -> None:
    found = faults(text)[0]
    assert (found.line, found.column) == (line, column)
    assert what in found.what


def test_a_long_line_is_shown_in_part() -> None:
    (found,) = faults('{"a": "' + "x" * 5000 + '" "b": 1}')
    assert len(str(found)) < 400


def test_no_more_faults_are_looked_for_than_anybody_reads() -> None:
    assert len(faults("," * 1_000_000)) == MOST
    assert len(faults("/* " * 300_000)) == 2  # one comment, and nothing else
