"""What a text that should be JSON is cut into: JSON's own words and marks, and what people write.

The trap in these patterns is time: no token may look at more text than it takes, or a line of a
million quotation marks would be read a million times.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import islice

_SHOWN = 3  # invisible characters in a row that are named

TOKEN = re.compile(
    r"""(?P<space>[ \t\n]+)
    |(?P<comment>//[^\n]*|\#[^\n]*|/\*[\s\S]*?(?:\*/|\Z))
    |(?P<text>"[^"\\\n]*(?:\\.[^"\\\n]*)*")
    |(?P<open>[{\[])|(?P<close>[}\]])|(?P<comma>,)|(?P<colon>:)
    |(?P<instead>;|=>?)
    |(?P<single>'[^'\\\n]*(?:\\.[^'\\\n]*)*')
    |(?P<printed>[“”„‘’‚][^“”„‘’‚"'\n]*[“”„‘’"'])
    |(?P<wide>[，：｛｝［］])
    |(?P<unclosed>["'“”„‘’‚][^\n]*)
    |(?P<word>(?:(?!//|/\*)[^\s{}\[\]:,;="'“”„‘’‚\#，：｛｝［］])+)
    |(?P<blank>[^\S \t\n]+)""",
    re.VERBOSE,
)
"""Every text is a row of these, each in one pass. `instead` stands for a mark of JSON, `printed` is
in quotation marks of a page, `wide` a mark from a Chinese keyboard, `blank` what looks like a space
and is none.
"""

HIDDEN = re.compile(
    r"[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    r"\U000e0000-\U000e0fff]+"
)
"""Characters that nobody sees and that are no blanks: they stand within words."""

WIDE = dict(zip("，：｛｝［］", ",:{}[]", strict=True))
"""JSON's mark for each full-width one."""

KINDS = {"{": "open", "[": "open", "}": "close", "]": "close", ",": "comma", ":": "colon"}
"""Kinds of JSON's marks."""


def named(run: str) -> str:
    """Codes and names of invisible characters, of each kind once."""
    kinds = islice(dict.fromkeys(run), _SHOWN)
    return ", ".join(
        f"U+{ord(c):04X} ({unicodedata.name(c, 'a control character')})" for c in kinds
    )
