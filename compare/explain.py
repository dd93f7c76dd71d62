"""`--explain-align`: what an op of mine belongs to in golden, and the facts that say so."""

from __future__ import annotations

from dumper.errors import DumpError, printable

from .alignment import Match
from .pairing import Pairing
from .program import say

_SHOWN = 20
"""Records of one side that are listed."""


def explain(pairing: Pairing, op: str) -> int:
    """Print the match of the op, `IR/SEQID`. Returns the exit status: 1 without partner.

    Raises DumpError for an op that my dump has not.
    """
    path = "/" + "/".join(op.strip("/").split("/")[:2])
    match = pairing.match_of(path)
    if match is None:
        raise DumpError("there is no such op in my dump", path, "name one as a result's rows do")
    for line in lines_of(match):
        say(line)
    return 0 if match.golden else 1


def lines_of(match: Match) -> list[str]:
    """What to say of a match."""
    lines = [f"paired by: {match.kind}, {match.confidence} confidence"]
    for title, records in (("my dump", match.mine), ("golden", match.golden)):
        for record in records[:_SHOWN]:
            entry = record.entry
            where = [entry.api, entry.module, entry.source]
            said = ", ".join(printable(word) for word in where if word)
            lines.append(f"{title:8}  {printable(record.path)}" + (f" ({said})" if said else ""))
        if len(records) > _SHOWN:
            lines.append(f"{title:8}  and {len(records) - _SHOWN} more")
        if not records:
            lines.append(f"{title:8}  nothing")
    return lines + [f"because {printable(reason)}" for reason in match.why]
