"""A text that should be JSON, read on past each fault as what was meant.

What is expected and what comes are set against each other, word by word; of what is wrong each
place is told once, with what to write there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import islice

from .json_tokens import HIDDEN, KINDS, WIDE, named

MOST = 100
"""Faults of one text that are told."""

_DEEPEST = 1000
"""Brackets open within one another: about what the parser takes."""

_SHOWN = 80  # characters of a line, and of a piece of it

_CLOSING = {"{": "}", "[": "]"}
_CLOSES = re.compile(r"(?:\s|//[^\n]*\n|\#[^\n]*\n)*[}\]]")
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


@dataclass
class _Open:
    """A bracket that is not closed yet, and where each of its names is."""

    bracket: str
    place: int
    names: dict[str, int] = field(default_factory=dict)


class Walk:
    """Takes tokens; found: the faults so far, a few more than MOST at most.

    What is expected next is a `name`, a `colon`, a `value`, or what follows a value: `next`.
    """

    def __init__(self, text: str) -> None:
        self.found: list[Fault] = []
        self._text = text
        self._expected = "value"
        self._open: list[_Open] = []
        self._before = ("", "", 0)  # the last token: kind, text, place
        self._ended = False

    @property
    def is_deep(self) -> bool:
        """Whether so many brackets are open that no more is read."""
        return len(self._open) > _DEEPEST

    def take(self, kind: str, text: str, place: int) -> None:
        """Read one token."""
        if kind == "comment":
            self.fault(place, f"JSON has no comments; remove {short(text)}")
            return
        if kind == "blank":
            self._unseen(text, place)
            return
        if kind == "word":
            for run in islice(HIDDEN.finditer(text), MOST + 1):
                self._unseen(run[0], place + run.start())
            text = HIDDEN.sub("", text)
            if not text:
                return
        elif kind == "instead":
            kind = self._stands_for(text, place)
            if not kind:
                return
        elif kind == "wide":
            self.fault(place, f"{text} is a full-width character; write {WIDE[text]}")
            text = WIDE[text]
            kind = KINDS[text]
        elif kind in ("single", "printed"):
            self.fault(place, f'write {short(text)} with " on both sides')
            kind = "text"
        elif kind == "unclosed":
            self._unclosed(text.rstrip(), place)
            return
        elif kind == "text":
            self._check(text, place)
        self._put(kind, text, place)

    def end(self) -> None:
        """The text has ended."""
        _, text, place = self._before
        if self._ended:
            return
        for container in self._open[: -MOST - 2 : -1]:
            line, _ = self._position(container.place)
            self.fault(place + len(text), f"the {container.bracket} of line {line} is not closed")
        if not self._before[0]:
            self.fault(0, "there is nothing")

    def _put(self, kind: str, text: str, place: int) -> None:
        if not self._ended:
            self._place(kind, text, place)
        self._before = (kind, text, place)

    def _unclosed(self, text: str, place: int) -> None:
        """A quotation mark with none to go with it in its line; a comma at the end is a comma."""
        piece = text.removesuffix(",")
        self.fault(place, f"the quotation mark of {short(piece)} is not closed")
        self._put("text", piece, place)
        if piece != text:
            self._put("comma", ",", place + len(piece))

    def _unseen(self, run: str, place: int) -> None:
        one = len(run) == 1
        what = "is an invisible character" if one else f"are {len(run)} invisible characters"
        self.fault(place, f"here {what}, {named(run)}; remove {'it' if one else 'them'}")

    def _stands_for(self, text: str, place: int) -> str:
        """The kind of token in whose place a `;` or `=` stands; '' where it is one too many."""
        kind = "comma" if text == ";" else "colon"
        if self._expected == "next" and not self._open:
            return kind  # behind the end
        if kind == "colon" and self._expected == "colon":
            self.fault(place, f"write : in place of {text}")
            return kind
        if (
            kind == "comma"
            and self._expected == "next"
            and not _CLOSES.match(self._text, place + 1)
        ):
            self.fault(place, f"write a comma in place of {text}")
            return kind
        self.fault(place, f"this {text} is out of place; remove it")
        return ""

    def _place(self, kind: str, text: str, place: int) -> None:
        if self._expected == "next":
            if not self._open:
                self._ended = True  # what stands behind the end is one fault, however much it is
                self.fault(place, f"the JSON has ended before {short(text)}")
                return
            if kind == "colon":
                self.fault(place, "this colon is out of place")
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
            self.fault(place, "this comma is one too many")
        elif kind == "colon":
            self.fault(place, "the name before this colon is missing")
            self._expected = "value"
        elif kind == "open":
            self.fault(place, f"a name is missing before this {text}")
            self._value(kind, text, place)
        else:
            if kind == "word":
                self.fault(place, f'write the name {short(text)} as "{short(text)}"')
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
            self.fault(place, "a value is missing before this comma")
            self._expected = "name" if in_object else "value"
        elif kind == "colon":
            self.fault(place, "this colon is out of place")
        else:
            if kind == "word" and not _VALUE.fullmatch(text):
                self.fault(place, f'{short(text)} is no JSON value; write "{short(text)}"')
            self._expected = "next"

    def _end_of_container(self, text: str, place: int) -> None:
        """A bracket closes where a name or a value could have come."""
        kind, _, before = self._before
        if kind == "comma" and self._open:
            self.fault(before, f"the comma before {text} is one too many")
        self._close(text, place)

    def _close(self, text: str, place: int) -> None:
        if not self._open:
            self.fault(place, f"this {text} closes nothing")
            return
        container = self._open.pop()
        right = _CLOSING[container.bracket]
        if text != right:
            line, _ = self._position(container.place)
            self.fault(place, f"the {container.bracket} of line {line} is closed by {right}")
        self._expected = "next"

    def _check(self, text: str, place: int) -> None:
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            if "escape" in error.msg:
                self.fault(place + error.pos, r"this is no escape; a backslash is written \\")
            else:
                self.fault(place + error.pos, "a text may hold no control character, as a tab is")

    def _twice(self, text: str, place: int) -> None:
        try:
            name = json.loads(text) if text[0] == '"' else text
        except json.JSONDecodeError:
            name = text
        name = name.strip("\"'“”„‘’‚") if name is text else name
        names = self._open[-1].names
        if name in names:
            line, _ = self._position(names[name])
            self.fault(place, f"the name {short(text)} is there already, in line {line}")
        else:
            names[name] = place

    def _after(self, what: str) -> None:
        _, text, place = self._before
        self.fault(place + len(text), f"{what} {short(text)}")

    def fault(self, place: int, what: str) -> None:
        """Keep a fault."""
        line, column = self._position(place)
        start = place - column + 1
        shown = self._text[start : start + _SHOWN * 2].partition("\n")[0].strip()
        self.found.append(Fault(line, column, what, short(shown)))

    def _position(self, place: int) -> tuple[int, int]:
        return self._text.count("\n", 0, place) + 1, place - self._text.rfind("\n", 0, place)


def short(text: str) -> str:
    """A piece of a text, or its beginning."""
    text = text.rstrip()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
