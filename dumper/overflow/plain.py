"""Numbers, names and lines as plain text that fits 100 columns, whatever a file says.

Names are made inert and cut in the middle, so that both ends of a path stay. Chinese characters
take two columns. A line is broken at blanks, between Chinese characters, and where neither is, in a
word. No torch.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence

from ..errors import printable

WIDTH = 100
"""Columns."""

_PLAIN = 1e9
"""Where numbers begin to be shown with an exponent, and fewer digits."""

_EXPONENT = 20
"""Of two, from which on a loss scale is shown by it."""

_NARROWEST = 36
"""Columns that the last column of a table has at least in its further lines."""

_COLUMN = 40
"""Columns to which the cells above and below a wide one are padded at most."""

NAME = 72
"""Characters of one name from a file."""

_WIDE = "\u1100-\uffff\U0001f000-\U0003ffff"
_CLOSING = "，。；：、）"
_PIECE = re.compile(f"(?:[{_WIDE}]|[^ {_WIDE}]+)[{_CLOSING}]*| +")
"""What a line is not broken within: a word or a wide character, with what closes it."""


def name(text: str, most: int = NAME) -> str:
    """A name as one inert line of at most `most` characters, cut in the middle."""
    text = printable(text if len(text) <= 4 * most else text[: 2 * most] + text[-2 * most :])
    if len(text) <= most:
        return text
    head = (most - 3) // 2
    return f"{text[:head]}...{text[-(most - 3 - head) :]}"


def number(value: float) -> str:
    """A number in full as far as 9 digits do: 66246, 3.40282e38, inf, NaN."""
    if math.isnan(value):
        return "NaN"
    return _short_exponent(f"{value:.9g}" if abs(value) < _PLAIN else f"{value:.6g}")


def scale_text(scale: float) -> str:
    """A loss scale; a power of two that is far from 1 by its exponent: 65536, 2**127."""
    fraction, exponent = math.frexp(scale)
    if fraction == 0.5 and abs(exponent - 1) > _EXPONENT:
        return f"2**{exponent - 1}"
    return number(scale)


def rough(value: float) -> str:
    """A magnitude in two digits: 3.1e2."""
    if not math.isfinite(value) or value == 0:
        return number(value)
    return _short_exponent(f"{value:.1e}")


def _short_exponent(text: str) -> str:
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else text


def share(part: float) -> str:
    """A share in percent: 43 %, 0.2 %; only none and all are 0 and 100."""
    if math.isnan(part):
        return "?"
    percent = 100 * part
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.1f} %" if 0 < percent < 10 or 99 < percent < 100 else f"{percent:.0f} %"


def place(index: Sequence[int | None]) -> str:
    """An index as Python has it: [0, 3], [0, :] with a whole axis."""
    axes = [":" if axis is None else str(axis) for axis in index[:9]]
    return f"[{', '.join(axes[:8])}{', ...' if len(axes) > 8 else ''}]"


def cells(text: str) -> int:
    """Columns that a text takes."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrapped(text: str, first: str = "", rest: str = "") -> list[str]:
    """A text in lines of at most WIDTH columns. first, rest: what the first, and each further line
    begins with."""
    lines, line, used = [], first, cells(first)
    for piece in _pieces(text, WIDTH - max(cells(first), cells(rest))):
        needed = cells(piece)
        if used + needed > WIDTH and line not in (first, rest):
            lines.append(line.rstrip())
            line, used = rest, cells(rest)
            if piece.isspace():
                continue
        line += piece
        used += needed
    return [*lines, line.rstrip()]


def _pieces(text: str, most: int) -> Iterator[str]:
    for found in _PIECE.finditer(text):
        piece = found[0]
        for start in range(0, len(piece), most):
            yield piece[start : start + most]


def table(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows in columns, two blanks apart; the last column is broken into lines where it must.

    A row whose other cells leave no room for it has it below them.
    """
    if not rows:
        return []
    columns = range(len(rows[0]) - 1)
    widths = [max(min(_COLUMN, cells(row[i])) for row in rows) for i in columns]
    lines = []
    for row in rows:
        padded = (row[i] + " " * (widths[i] - cells(row[i])) for i in columns)
        start = indent + "".join(f"{cell}  " for cell in padded)
        if cells(start) <= WIDTH - _NARROWEST:
            lines += wrapped(row[-1], start, " " * cells(start))
        else:
            below = f"{indent}    "
            lines += wrapped(start[len(indent) :].rstrip(), indent, below)
            lines += wrapped(row[-1], below, below)
    return lines
