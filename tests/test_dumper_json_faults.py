"""What is wrong with a JSON text: against Python's parser, and against planted faults."""

from __future__ import annotations

import json
import re
import time
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
        put = data.draw(
            st.text("{}[],:;=\"'\\/# \n\r\t1e.-+abtruefalsn\x01\u00a0\u200b，“é", max_size=3)
        )
        text = text[:place] + put + text[place + data.draw(st.integers(0, 2)) :]
    found = faults(text)
    assert (found == []) == is_json(text), text
    assert not any("a parser stops here" in fault.what for fault in found)  # all is understood


@given(st.text("{}[],:;=>\"'/*#\\ \n\r1a“”，\u200b\u00a0", max_size=60))
def test_every_fault_has_a_place_in_the_text(text: str) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
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
        ('{"a":\u00a01}', 1, 6, "an invisible character, U+00A0 (NO-BREAK SPACE); remove it"),
        ('{"a": 1};', 1, 9, "the JSON has ended before ;"),
        ('{"a" => 1}', 1, 6, "write : in place of =>"),
        ('{"a": = 1}', 1, 7, "this = is out of place; remove it"),
        ('{"a": 1;}', 1, 8, "this ; is out of place; remove it"),
        ("[; 2]", 1, 2, "this ; is out of place; remove it"),
        ('{"a": 1;\n// why\n}', 1, 8, "this ; is out of place; remove it"),
        ('{"a": "x,\n"b": 1}', 1, 7, 'the quotation mark of "x is not closed'),
        ("{" + "9" * 5000 + ": 1}", 1, 2, "write the name 999"),
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": "x"; "b": [1; 2]}', ["write a comma in place of ;"] * 2),
        ('{"dump" = {"a" = 1}}', ["write : in place of ="] * 2),
        (
            "{dump_mode = all}",
            ['write the name dump_mode as "dump_mode"', "write : in place of =", "all is no JSON"],
        ),
    ],
)
def test_a_mark_in_place_of_another_is_one_fault(text: str, expected: list[str]) -> None:
    found = [fault.what for fault in faults(text)]
    assert len(found) == len(expected)
    assert all(what.startswith(start) for what, start in zip(found, expected, strict=True))


UNSEEN = (
    "\0\x0b\x1f\x7f\u0085\u00a0\u00ad\u034f\u061c\u115f\u1680\u180e\u2000\u200a\u200b\u200c\u200d\u200e"
    "\u2028\u2029\u202e\u202f\u205f\u2060\u2066\u2800\u3000\u3164\ufe0f\ufeff\uffa0\ufff9\U000e0001\U000e0020"
)


@given(VALUES, st.data())
def test_a_character_that_nobody_sees_is_named_where_it_is(value: Any, data: Any) -> None:
    """Anywhere but in a text, within a number or word too."""
    lines = json.dumps(value, indent=1).split("\n")
    number = data.draw(st.integers(0, len(lines) - 1))
    code = data.draw(st.sampled_from(UNSEEN))
    run = code * data.draw(st.integers(1, 3))
    line = lines[number]
    quoted = [m.span() for m in re.finditer(r'"(?:[^"\\]|\\.)*"', line)]
    free = [i for i in range(len(line) + 1) if not any(a < i < b for a, b in quoted)]
    if code.isspace():  # a blank ends a word
        free = [i for i in free if not re.match(r"[^\s{}\[\],:]{2}", line[max(0, i - 1) :])]
    place = data.draw(st.sampled_from(free))
    lines[number] = line[:place] + run + line[place:]
    (found,) = faults("\n".join(lines))
    assert (found.line, found.column) == (number + 1, place + 1)
    assert "invisible character" in found.what and f"U+{ord(code):04X}" in found.what


def test_what_is_seen_is_not_called_invisible() -> None:
    for each in map(chr, [*range(0x21, 0x7F), 0xE9, 0x416, 0x4E2D, 0x1F600, 0xFF0C, 0x201C]):
        assert not any("invisible" in fault.what for fault in faults(f"{{{each}"))


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_every_line_end_ends_a_line(end: str) -> None:
    """A comment, or a quotation mark that is not closed, ends with its line."""
    text = end.join(["{", ' "a": 1, // one', ' "b": "x,', ' "c": 3', "}", ""])
    found = [(fault.line, fault.column, fault.what[:16]) for fault in faults(text)]
    assert found == [(2, 10, "JSON has no comm"), (3, 7, "the quotation ma")]
    assert faults(text.replace(" // one", "").replace('"x', '"x"')) == []
    assert [fault.shown for fault in faults(text)] == ['"a": 1, // one', '"b": "x,']


MIB = 1 << 20


def filled(piece: str) -> str:
    return piece * (MIB // len(piece.encode()))


@pytest.mark.parametrize(
    "text",
    [
        *map(filled, '[ { , ; = " “ x 0 \\ \n \r / \u200b \u00a0'.split(" ")),
        *map(filled, [" ", '"\n', "“ „", "a\u200b", "[],", '{"a":', '"a" ', "/* ", "1;  "]),
        "[" + filled("1,") + "]",
        "[" + filled("{},") + "1 2]",
        "{" + ",\n".join(f'"{i}": {i}' for i in range(70_000)) + ',"1": 2}',
        '"' + " " * MIB + "x ,,",
        "[" * (MIB // 2) + "]" * (MIB // 2),
    ],
    ids=lambda text: repr(text[:6]),
)
def test_a_mebibyte_of_anything_is_soon_told(text: str) -> None:
    began = time.process_time()
    found = faults(text)
    assert time.process_time() - began < 1.5  # a quarter of a second; seconds where all is read
    assert 1 <= len(found) <= MOST + 1
    assert all(len(str(fault)) < 1000 for fault in found)


@pytest.mark.parametrize(
    ("last", "what"),
    [
        ("]", "a parser stops here"),
        ('{"same": 1, "same": 2}]', 'an object has the name "same" twice'),
        ("NaN]", "NaN is no JSON value"),
    ],
)
def test_a_fault_behind_what_is_looked_at_is_the_parsers(last: str, what: str) -> None:
    text = "[" + "1,\n" * 200_000 + last
    found = faults(text)
    assert len(found) == 2 and any(what in fault.what for fault in found)
    assert any("is not looked at" in fault.what for fault in found)
    if last == "]":
        assert (found[-1].line, found[-1].column) == (200_001, 1)


def test_what_is_nested_too_deeply_is_told_with_the_rest() -> None:
    found = faults("{'a': " + "[" * 5000)
    assert [fault.what for fault in found] == [
        "write 'a' with \" on both sides",
        "this is nested too deeply",
    ]


def test_no_more_faults_are_looked_for_than_anybody_reads() -> None:
    assert len(faults("," * 1000)) == len(faults("," * 1_000_000)) == MOST + 1
    assert len(faults("," * MOST)) == MOST
    assert len(faults("/* " * 300_000)) == 2  # one comment, and nothing else
