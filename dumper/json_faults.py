"""Everything that is wrong with a JSON text, place by place, not only the first thing.

Configurations are copied from guides, and guides have comments, lack commas and carry the quotation
marks of a printed page. A parser stops at the first of these, often a line too late; so a person
would correct, run and read again, once a fault. Here the text is read on as what was meant, which
is only told, never taken: a text with a fault is refused. Whether there is a fault is the parser's
to say, which is fast; what reads on is not, and so leaves off in a text that is no configuration.
"""

from __future__ import annotations

import json
from typing import Any

from .json_tokens import TOKEN
from .json_walk import MOST, Fault, Walk, short

_PARTS = 100_000
"""Words, marks and blanks of a text that are looked at; a configuration has some hundreds."""


def faults(text: str) -> list[Fault]:
    """The faults of a text that should be JSON, in order; none where it is JSON.

    At most MOST + 1, of which the last only says that there are more. Lines end with LF, CR or
    both. As faults count too: a name that an object has twice, NaN and Infinity, and more depth
    than the parser takes.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    stops = _stops(text)
    if stops is None:
        return []
    walk = Walk(text)
    for count, match in enumerate(TOKEN.finditer(text), 1):
        if match.lastgroup != "space":
            walk.take(match.lastgroup, match[0], match.start())
        if len(walk.found) > MOST:
            break
        if walk.is_deep:
            walk.fault(match.start(), "this is nested too deeply")
            break
        if count == _PARTS:
            if not walk.found:
                walk.fault(*stops)
            walk.fault(match.end(), f"what follows {_PARTS} words and marks is not looked at")
            break
    else:
        walk.end()
        if not walk.found:
            walk.fault(*stops)
    return sorted(walk.found, key=lambda fault: (fault.line, fault.column))[: MOST + 1]


class _Refused(Exception):
    """What the parser takes and JSON, or what is meant, does not."""


def _stops(text: str) -> tuple[int, str] | None:
    """Where the parser stops, and why; None where it does not. It takes next to no time."""
    try:
        json.loads(text, object_pairs_hook=_unique, parse_constant=_no_value, parse_int=str)
    except json.JSONDecodeError as error:
        return error.pos, f"a parser stops here ({error.msg})"
    except _Refused as error:
        return 0, str(error)
    except RecursionError:
        return 0, "this is nested too deeply"
    return None


def _unique(pairs: list[tuple[str, Any]]) -> None:
    names = set()
    for name, _ in pairs:
        if name in names:
            raise _Refused(f'an object has the name "{short(name)}" twice')
        names.add(name)


def _no_value(word: str) -> None:
    raise _Refused(f"{word} is no JSON value")
