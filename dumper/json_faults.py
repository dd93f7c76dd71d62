"""Everything that is wrong with a JSON text, place by place, not only the first thing.

Configurations are copied from guides, and guides have comments, lack commas and carry the quotation
marks of a printed page. A parser stops at the first of these, often a line too late; so a person
would correct, run and read again, once a fault. Here the text is read on as what was meant, which
is only told, never taken: a text with a fault is refused.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass, field

MOST = 100
"""Faults of one text that are looked for."""

_SHOWN = 80  # characters of a line, and of a piece of it

_TOKEN = re.compile(
    r"""(?P<space>[ \t\n\r]+)
    |(?P<comment>//[^\n]*|\#[^\n]*|/\*[\s\S]*?(?:\*/|\Z))
    |(?P<text>"(?:[^"\\\n]|\\.)*")
    |(?P<open>[{\[])|(?P<close>[}\]])|(?P<comma>,)|(?P<colon>:)
    |(?P<single>'(?:[^'\\\n]|\\.)*')
    |(?P<printed>[“”„‘’‚][^“”„‘’‚"'\n]*[“”„‘’"'])
    |(?P<wide>[，：｛｝［］])
    |(?P<unclosed>["'“”„‘’‚][^\n]*?(?=,?[ \t\r]*$))
    |(?P<word>(?:(?!//|/\*)[^\s{}\[\]:,"'“”„‘’‚\#，：｛｝［］\ufeff])+)
    |(?P<odd>[\s\S])""",
    re.VERBOSE | re.MULTILINE,
)
_WIDE = dict(zip("，：｛｝［］", ",:{}[]", strict=True))
_KINDS = {"{": "open", "[": "open", "}": "close", "]": "close", ",": "comma", ":": "colon"}
_CLOSING = {"{": "}", "[": "]"}
_VALUE = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Fault:
    """One fault. line, column: counted from 1. what: it is. shown: the line."""

    line: int
    column: int
    what: str
    shown: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.what} in `{self.shown}`"


def faults(text: str) -> list[Fault]:
    """The faults of a text that should be JSON, at most MOST, in order; none where it is JSON.

    As faults count too: a name that an object has twice, and NaN and Infinity. The depth does not:
    that is the parser's own limit.
    """
    walk = _Walk(text)
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "space":
            walk.take(match.lastgroup, match[0], match.start())
        if len(walk.found) >= MOST:
            break
    else:
        walk.end()
    return sorted(walk.found, key=lambda fault: (fault.line, fault.column))


@dataclass
class _Open:
    """A bracket that is not closed yet, and the line in which each of its names is."""

    bracket: str
    place: int
    names: dict[str, int] = field(default_factory=dict)


class _Walk:
    """What is expected next is a `name`, a `colon`, a `value`, or what follows a value: `next`."""

    def __init__(self, text: str) -> None:
        self.found: list[Fault] = []
        self._text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._expected = "value"
        self._open: list[_Open] = []
        self._before = ("", "", 0)  # the last token: kind, text, place
        self._ended = False

    def take(self, kind: str, text: str, place: int) -> None:
        """Read one token."""
        if kind == "comment":
            self._fault(place, f"JSON has no comments; remove {_short(text)}")
            return
        if kind == "odd":
            self._fault(place, f"the character U+{ord(text):04X} is out of place; remove it")
            return
        if kind == "wide":
            self._fault(place, f"{text} is a full-width character; write {_WIDE[text]}")
            text = _WIDE[text]
            kind = _KINDS[text]
        elif kind in ("single", "printed"):
            self._fault(place, f'write {_short(text)} with " on both sides')
            kind = "text"
        elif kind == "unclosed":
            self._fault(place, f"the quotation mark of {_short(text)} is not closed")
            kind = "text"
        elif kind == "text":
            self._check(text, place)
        if not self._ended:
            self._place(kind, text, place)
        self._before = (kind, text, place)

    def end(self) -> None:
        """The text has ended."""
        _, text, place = self._before
        if self._ended:
            return
        for container in reversed(self._open):
            line, _ = self._position(container.place)
            self._fault(place + len(text), f"the {container.bracket} of line {line} is not closed")
        if not self._before[0]:
            self._fault(0, "there is nothing")

    def _place(self, kind: str, text: str, place: int) -> None:
        if self._expected == "next":
            if not self._open:
                self._ended = True  # what stands behind the end is one fault, however much it is
                self._fault(place, f"the JSON has ended before {_short(text)}")
                return
            if kind == "colon":
                self._fault(place, "this colon is out of place")
                return
            if kind == "close":
                self._close(text, place)
                return
            if kind != "comma":
                self._after("a comma is missing after")
            self._expected = "name" if self._open[-1].bracket == "{" else "value"
            if kind == "comma":
                return
        if self._expected == "colon":
            if kind in ("comma", "close"):
                self._after("a colon and a value are missing after")
                self._expected = "next"
                self._place(kind, text, place)
                return
            self._expected = "value"
            if kind == "colon":
                return
            self._after("a colon is missing after")
        if self._expected == "name":
            self._name(kind, text, place)
        else:
            self._value(kind, text, place)

    def _name(self, kind: str, text: str, place: int) -> None:
        if kind == "close":
            self._end_of_container(text, place)
        elif kind == "comma":
            self._fault(place, "this comma is one too many")
        elif kind == "colon":
            self._fault(place, "the name before this colon is missing")
            self._expected = "value"
        elif kind == "open":
            self._fault(place, f"a name is missing before this {text}")
            self._value(kind, text, place)
        else:
            if kind == "word":
                self._fault(place, f'write the name {_short(text)} as "{_short(text)}"')
            self._twice(text, place)
            self._expected = "colon"

    def _value(self, kind: str, text: str, place: int) -> None:
        in_object = bool(self._open) and self._open[-1].bracket == "{"
        if kind == "open":
            self._open.append(_Open(text, place))
            self._expected = "name" if text == "{" else "value"
        elif kind == "close":
            if in_object:
                self._after("a value is missing after")
                self._close(text, place)
            else:
                self._end_of_container(text, place)
        elif kind == "comma":
            self._fault(place, "a value is missing before this comma")
            self._expected = "name" if in_object else "value"
        elif kind == "colon":
            self._fault(place, "this colon is out of place")
        else:
            if kind == "word" and not _VALUE.fullmatch(text):
                self._fault(place, f'{_short(text)} is no JSON value; write "{_short(text)}"')
            self._expected = "next"

    def _end_of_container(self, text: str, place: int) -> None:
        """A bracket closes where a name or a value could have come."""
        kind, _, before = self._before
        if kind == "comma" and self._open:
            self._fault(before, f"the comma before {text} is one too many")
        self._close(text, place)

    def _close(self, text: str, place: int) -> None:
        if not self._open:
            self._fault(place, f"this {text} closes nothing")
            return
        container = self._open.pop()
        right = _CLOSING[container.bracket]
        if text != right:
            line, _ = self._position(container.place)
            self._fault(place, f"the {container.bracket} of line {line} is closed by {right}")
        self._expected = "next"

    def _check(self, text: str, place: int) -> None:
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            if "escape" in error.msg:
                self._fault(place + error.pos, r"this is no escape; a backslash is written \\")
            else:
                self._fault(place + error.pos, "a text may hold no control character, as a tab is")

    def _twice(self, text: str, place: int) -> None:
        try:
            name = json.loads(text)
        except json.JSONDecodeError:
            name = text.strip("\"'“”„‘’‚")
        names = self._open[-1].names
        if name in names:
            self._fault(place, f"the name {_short(text)} is there already, in line {names[name]}")
        else:
            names[name], _ = self._position(place)

    def _after(self, what: str) -> None:
        _, text, place = self._before
        self._fault(place + len(text), f"{what} {_short(text)}")

    def _fault(self, place: int, what: str) -> None:
        line, column = self._position(place)
        start = self._starts[line - 1]
        shown = self._text[start : start + _SHOWN * 2].partition("\n")[0].strip()
        self.found.append(Fault(line, column, what, _short(shown)))

    def _position(self, place: int) -> tuple[int, int]:
        line = bisect_right(self._starts, place)
        return line, place - self._starts[line - 1] + 1


def _short(text: str) -> str:
    text = text.rstrip()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
