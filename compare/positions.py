"""`-r` and `-s`: which operators of a folder of CANN dumps are compared, by their numbers.

Operators count from 1 in order of execution, as in the original, which needs fusion rules for it.

    positions_of("1,-1,2", None).of(5)  # 1, 3, 5
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import click

from dumper.errors import DumpError

_NUMBER = r"[1-9][0-9]{0,8}"
_SPAN = re.compile(
    rf"\s*(?P<first>{_NUMBER})?\s*,\s*(?P<last>-1|{_NUMBER})?\s*,\s*(?P<step>{_NUMBER})?\s*"
)
_CHOSEN = re.compile(rf"\s*{_NUMBER}\s*(,\s*{_NUMBER}\s*)*")


class Positions(NamedTuple):
    """Numbers that are asked for. option: as the command line has it. chosen: each of them, or None
    for first to last (None: the end), each step-th."""

    option: str
    chosen: tuple[int, ...] | None = None
    first: int = 1
    last: int | None = None
    step: int = 1

    def of(self, count: int) -> Sequence[int]:
        """The numbers in order, of `count` operators. Raises DumpError for one that there is
        not."""
        if self.chosen is not None:
            highest, found = max(self.chosen), sorted(set(self.chosen))
        else:
            last = count if self.last is None else self.last
            highest, found = max(self.first, last), range(self.first, last + 1, self.step)
        if highest > count:
            what = f"it asks for operator {highest}, and my folder has {count}"
            raise DumpError(what, self.option, f"operators have the numbers 1 to {count}")
        return found


def positions_of(span: str | None, chosen: str | None) -> Positions | None:
    """What the texts of -r and -s ask for; None where neither is given.

    Raises click.UsageError for both, and for a text of another form.
    """
    if span and chosen:
        raise click.UsageError("-r and -s both say which operators: give one of them.")
    if chosen:
        if not _CHOSEN.fullmatch(chosen):
            raise click.BadParameter(f"{chosen!r} is not like 1,5,9", param_hint="-s")
        return Positions(f"-s {chosen}", tuple(map(int, chosen.split(","))))
    if not span:
        return None
    match = _SPAN.fullmatch(span)
    if match is None:
        what = f"{span!r} is not like 1,-1,1: first, last (-1 is the end), each how many-th"
        raise click.BadParameter(what, param_hint="-r")
    first, step = int(match["first"] or 1), int(match["step"] or 1)
    last = None if match["last"] in (None, "-1") else int(match["last"])
    if last is not None and last < first:
        raise click.BadParameter(f"{span!r} ends before it begins", param_hint="-r")
    return Positions(f"-r {span}", None, first, last, step)
