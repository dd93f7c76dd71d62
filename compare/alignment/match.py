"""What an alignment is made of: records of both sides that belong together."""

from __future__ import annotations

from typing import NamedTuple

from dumper.reader import Record


class Match(NamedTuple):
    """Records that belong together.

    kind: `op`, one call each; `group`, one op against those that it is made of, by the table;
    `call`, one API call that the sides expand in their own ways; `extra`, of one side only.
    confidence: `high` or `low`. why: the facts that made it.
    """

    mine: tuple[Record, ...]
    golden: tuple[Record, ...]
    kind: str
    confidence: str
    why: tuple[str, ...]
