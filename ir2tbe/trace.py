"""Which ops a chrome trace holds, as torch.profiler exports it, in memory that its size does not
matter to.

A trace of a long run is gigabytes of JSON in one line. Its events are decoded one by one as the
text goes by; what is kept are the names of ops and how often each ran.
"""

from __future__ import annotations

import codecs
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO

from dumper.errors import DumpError, first_line

LARGEST_VALUE = 4 << 20
"""Characters of one event, and of any other value of the trace."""

LARGEST_TEXT = 16 << 30
"""Bytes of a trace, unpacked: a packed one may claim to be of any size."""

MOST_NAMES = 100_000
"""Different names of ops in one file."""

_LONGEST_NAME = 500
_CHUNK = 1 << 20
_BLANKS = " \t\n\r"
_CATEGORIES = ("cpu_op", "Operator")
_OLD_PROCESS = "CPU functions"  # where events had no category

_TODO = "export the trace again: prof.export_chrome_trace(...)"


def ops_of_trace(stream: BinaryIO, path: object) -> Counter[str]:
    """How often each op was called, by the name that the trace has, in the order of the trace.

    Raises DumpError for what is no trace, is damaged, ends early, or is larger than the limits
    above.
    """
    calls: Counter[str] = Counter()
    for event in _Text(stream, path).events():
        if event.get("ph") != "X" or not _is_op(event):
            continue
        name = event.get("name")
        if isinstance(name, str) and len(name) <= _LONGEST_NAME:
            count(calls, name, 1, path)
    return calls


def count(calls: Counter[str], name: str, more: int, path: object) -> None:
    """Add calls of an op. Raises DumpError where there are more names than any model has."""
    if name not in calls and len(calls) >= MOST_NAMES:
        what = f"this profile has more than {MOST_NAMES} names of ops, which no model has"
        raise DumpError(what, path, "name a profile that torch.profiler wrote")
    calls[name] += more


def _is_op(event: dict[str, Any]) -> bool:
    if "cat" in event:
        return event["cat"] in _CATEGORIES
    return event.get("pid") == _OLD_PROCESS


class _Text:
    """The text of a trace as it goes by: a window that moves on, and the values in it."""

    def __init__(self, stream: BinaryIO, path: object) -> None:
        self._stream, self._path = stream, path
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._json = json.JSONDecoder()
        self._window, self._at, self._read = "", 0, 0
        self._ended = False
        self._seen = 0

    def events(self) -> Iterator[dict[str, Any]]:
        """The events of a trace: of the list it is, or of the one in its `traceEvents`."""
        if self._peek() == "[":
            yield from self._items()
        else:
            yield from self._object()
        if self._peek():
            raise self._wrong("there is text after its end")

    def _object(self) -> Iterator[dict[str, Any]]:
        self._take("{")
        found = False
        while self._peek() != "}":
            key = self._value()
            self._take(":")
            if key == "traceEvents":
                found = True
                yield from self._items()
            else:
                self._peek()
                self._value()
            if self._peek() != "}":
                self._take(",")
        self._take("}")
        if not found:
            what = "this JSON file has no traceEvents, so it is no chrome trace"
            raise DumpError(what, self._path, "name a trace that torch.profiler exported")

    def _items(self) -> Iterator[dict[str, Any]]:
        self._take("[")
        while self._peek() != "]":
            event = self._value()
            if not isinstance(event, dict):
                raise self._wrong("an event is no object")
            self._seen += 1
            yield event
            if self._peek() != "]":
                self._take(",")
        self._take("]")

    def _peek(self) -> str:
        """The next character that is no blank; empty at the end."""
        while True:
            while self._at < len(self._window) and self._window[self._at] in _BLANKS:
                self._at += 1
            if self._at < len(self._window):
                return self._window[self._at]
            if not self._more():
                return ""

    def _take(self, character: str) -> None:
        found = self._peek()
        if found != character:
            raise self._wrong(f"{character!r} is missing") if found else self._early()
        self._at += 1

    def _value(self) -> Any:
        """The next value, whose text must be in the window from end to end."""
        self._peek()
        while True:
            try:
                value, end = self._json.raw_decode(self._window, self._at)
            except RecursionError:
                raise self._wrong("a value is nested too deeply") from None
            except ValueError as error:
                if len(self._window) - self._at > LARGEST_VALUE:
                    what = f"a value is no JSON, or of more than {LARGEST_VALUE >> 20} MiB"
                    raise self._wrong(f"{what} ({first_line(error)})") from None
                if self._more():
                    continue
                raise self._early() from None
            rest = len(self._window) - end
            if rest < len("e+0") and isinstance(value, (int, float)) and self._more():
                continue  # a number may go on
            self._at = end
            return value

    def _more(self) -> bool:
        """Read on, and forget what was passed; whether there was more. Else nothing moves."""
        if self._ended:
            return False
        try:
            chunk = self._stream.read(_CHUNK)
            self._ended = not chunk
            text = self._decode(chunk, self._ended)
        except UnicodeDecodeError:
            raise self._wrong("it is no UTF-8 text") from None
        except EOFError:  # of a packed file
            raise self._early() from None
        except (OSError, zlib.error) as error:
            what = f"this trace cannot be read ({first_line(error)})"
            raise DumpError(what, self._path, _TODO) from None
        self._read += len(chunk)
        if self._read > LARGEST_TEXT:
            raise self._wrong(f"it is larger than {LARGEST_TEXT >> 30} GiB")
        if text:
            self._window, self._at = self._window[self._at :] + text, 0
        return bool(text) or not self._ended

    def _wrong(self, what: str) -> DumpError:
        return DumpError(
            f"this trace is damaged after {self._seen} events: {what}", self._path, _TODO
        )

    def _early(self) -> DumpError:
        what = f"this trace ends in the middle, after {self._seen} events"
        return DumpError(what, self._path, _TODO)
