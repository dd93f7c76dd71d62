"""`--explain-align`: what belongs together with the op of a row, and the facts that say so."""

from __future__ import annotations

from dumper.errors import DumpError, printable

from .alignment import Match
from .pairing import Pairing
from .program import say


def explain(pairing: Pairing, op: str) -> int:
    """Print what an op of mine, `IR/SEQID`, or one that only golden has, belongs to, all ops of
    both sides, and why. Returns the exit status: 1 without partner.

    Raises DumpError for an op that is neither.
    """
    path = "/" + "/".join(op.strip("/").split("/")[:2])
    matches = pairing.matches_of(path)
    if not matches:
        what = "there is no such op in my dump, nor in golden alone"
        raise DumpError(what, path, "name one as a result's rows do")
    for match in matches:
        for line in lines_of(match):
            say(line)
    return 0 if matches[0].mine and matches[0].golden else 1


def lines_of(match: Match) -> list[str]:
    """What to say of a match."""
    lines = [f"paired by: {match.kind}, {match.confidence} confidence"]
    for title, records in (("my dump", match.mine), ("golden", match.golden)):
        for record in records:
            entry = record.entry
            where = [entry.api, entry.module, entry.source]
            said = ", ".join(printable(word) for word in where if word)
            lines.append(f"{title:8}  {printable(record.path)}" + (f" ({said})" if said else ""))
        if not records:
            lines.append(f"{title:8}  nothing")
    return lines + [f"because {printable(reason)}" for reason in match.why]
