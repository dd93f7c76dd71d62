"""How this package says that something is wrong: a block with what, where, and what to do.

As an error for bad input; as a warning where training must go on.
"""

from __future__ import annotations

import re
import sys
import warnings

_BYTES = re.compile("[\udc80-\udcff]+")


class DumpError(Exception):
    """What is wrong, where, and what to do about it.

    `str()` is the whole block, fit for a terminal: one line each, control characters made visible,
    since names and paths may come from a hostile file.
    """

    def __init__(self, what: str, where: object, todo: str) -> None:
        self.what, self.where, self.todo = printable(what), printable(str(where)), printable(todo)
        super().__init__(f"{self.what}\n  where: {self.where}\n  what to do: {self.todo}")


def first_line(error: BaseException) -> str:
    """What an error says in its first line; its kind where it says nothing."""
    return str(error).partition("\n")[0] or type(error).__name__


def printable(text: str) -> str:
    """Make `text` one inert line: control, bidirectional and undecodable characters become
    escapes."""
    if text.isascii() and text.isprintable():
        return text
    text = decoded(text)
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )


def decoded(text: str) -> str:
    """Make characters of what came in byte by byte, as a path does where the locale is ASCII.

    Bytes that are no UTF-8 stay as they are.
    """
    return _BYTES.sub(
        lambda found: (
            found[0].encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
        ),
        text,
    )


def warn(what: str, where: object, todo: str) -> None:
    """Warn once, and never raise: under `python -W error` the block goes to stderr instead."""
    text = f"torch.utils.dumper: {DumpError(what, where, todo)}"
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        sys.stderr.write(text + "\n")
