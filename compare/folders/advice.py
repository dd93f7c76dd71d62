"""`-advisor` of folders: three lines on where to look first, as of dumps.

Folders know no bounds, so what is said is what the report says: which operator parts from equal
inputs, else what is off before any operator is, and what adds most.
"""

from __future__ import annotations

from ..advisor import CONSISTENCY, INPUT, NOTHING, Advice, Advisor, said
from ..row import Status
from ..terminal import counted
from .report import Parting


def advice(advisor: Advisor, found: Parting, unread: int, first: int) -> Advice:
    """What to look at first. advisor: has taken the same rows. unread: parts of the folders
    that could not be looked at. first: elements of each tensor that were compared, 0 for all."""
    gap = f" {counted(unread, 'part')} of the folders could not be read." if unread else ""
    summary, odd = found.summary, found.odd and found.odd.row
    at_once = advisor.at_once(summary, odd, gap)
    if at_once is not None:
        return at_once
    most = found.most and found.most.row
    rest = advisor.size(summary) + gap
    if most is not None and found.most is not found.own:
        rest = f" What adds most to what it was given is {said(most)}.{rest}"
    if odd is not None and odd.status is Status.DIFFERS and found.odd.pair.where == "input":
        text = (
            f"This input is not as in golden, and nothing compared before it is off: {said(odd)}."
        )
        if found.own is not None:
            text += f" From equal inputs parts first {said(found.own.row)}."
        return Advice(INPUT, str(odd.index), text + rest)
    if found.own is not None:
        own = found.own.row
        text = f"This output differs, and the inputs of its operator do not: {said(own)}."
        if odd is not own:
            text += f" Before it, another row is not as in golden: {said(odd)}."
        return Advice(CONSISTENCY, str(own.index), text + rest)
    if odd is not None:
        text = "No operator is seen to part from equal inputs. "
        text += f"The first row with a finding is {said(odd)}."
        return Advice(CONSISTENCY, str(odd.index), text + rest)
    part = f", as far as the first {first} elements of each go" * (first > 0)
    text = f"Nothing that was compared differs{part}: {counted(summary.compared, 'tensor')}."
    if summary.nothing_wrong:
        return Advice(CONSISTENCY, NOTHING, text + gap)
    return Advice(CONSISTENCY, NOTHING, f"{text} Others have no partner: see the csv.{gap}")
