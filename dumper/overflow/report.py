"""What is said to people of overflows: the answer first, then why, what to do, and the rest.

From events, ranges and the loss scale as data, so that a running step, a file that is read again
and several ranks are told of alike. Plain lines of at most 100 columns. No torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from .events import INTENDED, KINDS, PROPAGATED, Overflow
from .formats import FORMATS
from .happened import Calls, OpCall, Teller, is_handed_on
from .margins import margins
from .phrases import Say
from .plain import name, scale_text, table, wrapped
from .ranges import Range
from .scales import LossScale

MOST = 20
"""Events that are listed; the rest is counted."""


def report(
    events: Sequence[Overflow],
    ranges: Sequence[Range] = (),
    loss_scale: LossScale | None = None,
    *,
    lang: str = "en",
    most: int = MOST,
) -> str:
    """All that is known, as lines.

    events, ranges: of one process. lang: `en` or `zh`; ValueError for others. most: events listed.
    """
    say = Say(lang)
    rank = events[0].rank if events else 0
    calls = {(rank, found.seqid): OpCall(found.ir, found.module) for found in ranges}
    lines = list(_told(events, calls, say, most))
    lines += margins(ranges, loss_scale, lang=lang)
    return "\n".join(lines)


def nothing_checked(lang: str = "en") -> str:
    """What is said where no op was looked at."""
    return Say(lang)("nothing checked")


def report_events(
    events: Sequence[Overflow],
    calls: Calls | None = None,
    *,
    lang: str = "en",
    most: int = MOST,
    ranks: bool = False,
) -> str:
    """What happened, as lines.

    events: of one process or of several ranks. calls: others that they may name. ranks: there are
    several, so that each event says its own.
    """
    return "\n".join(_told(events, calls or {}, Say(lang), most, ranks))


def is_fault(events: Sequence[Overflow]) -> bool:
    """Whether something is wrong: an overflow that no loss scaler took care of, or one that came in
    from outside."""
    return any(
        event.fault or (event.kind == PROPAGATED and event.producer is None) for event in events
    )


def _told(
    events: Sequence[Overflow], calls: Calls, say: Say, most: int, ranks: bool = False
) -> Iterator[str]:
    events = sorted(events, key=lambda event: (event.step, event.seqid, event.rank))
    teller = Teller(say, events, calls, ranks)
    first = _first(events)
    yield from wrapped(_headline(events, first, teller), "", "  ")
    if first is not None:
        yield from _scaled(events, first, say)
        yield from teller.details(first)
        if count := _followers(events, first):
            yield f"  {say('went on', count=count)}"
    if todo := _todo(events, first, teller):
        yield from wrapped(say("next", what=todo), "", "  ")
    if events:
        yield ""
        yield say("events", count=len(events), kinds=_kinds(events, say))
        listed = _listed(events, most)
        yield from table([_row(event, teller) for i, event in enumerate(events) if i in listed])
        if rest := [event for i, event in enumerate(events) if i not in listed]:
            yield f"  {say('more events', count=len(rest), kinds=_kinds(rest, say))}"


def _first(events: Sequence[Overflow]) -> Overflow | None:
    """What the answer is about: the first fault, else the first overflow, else what came in."""
    for wanted in (
        lambda event: event.fault,
        lambda event: event.begins,
        lambda event: event.kind != INTENDED,
    ):
        if found := next(filter(wanted, events), None):
            return found
    return None


def _headline(events: Sequence[Overflow], first: Overflow | None, teller: Teller) -> str:
    say = teller.say
    if first is None:
        if not events:
            return say("no overflow")
        return say("only intended", count=len(events))
    found = {"place": teller.place(first), "what": teller.what(first)}
    if first.fault:
        return say("first", **found)
    if first.begins:
        if first.scale is None:
            return say("skipped without scale", **found)
        return say("skipped", scale=scale_text(first.scale), **found)
    return say("only handed on", **found)


def _scaled(events: Sequence[Overflow], first: Overflow, say: Say) -> Iterator[str]:
    """What the loss scale has to do with it."""
    if not first.fault:
        return
    if first.scale == 1:
        yield from wrapped(say("at scale 1"), "  ", "    ")
    elif first.scale is not None:
        yield from wrapped(say("not skipped", scale=scale_text(first.scale)), "  ", "    ")
    if count := sum(event.begins and not event.fault for event in events):
        yield from wrapped(say("skipped besides", count=count), "  ", "    ")


def _followers(events: Sequence[Overflow], first: Overflow) -> int:
    """How many ops took on what began there, from op to op."""
    reached = {first.seqid}
    for event in events:
        if event.rank == first.rank and is_handed_on(event) and event.producer in reached:
            reached.add(event.seqid)
    return len(reached) - 1


def _listed(events: Sequence[Overflow], most: int) -> set[int]:
    """Which events are listed: those at which one begins before the others, then the first."""
    order = sorted(range(len(events)), key=lambda i: (not events[i].begins, i))
    return set(order[:most])


def _kinds(events: Sequence[Overflow], say: Say) -> str:
    counts = Counter(event.kind for event in events)
    parts = (say("of kind", count=counts[kind], kind=say(kind)) for kind in KINDS if counts[kind])
    return say("comma").join(parts)


def _row(event: Overflow, teller: Teller) -> list[str]:
    cells = [*teller.apart(event), teller.path(event.rank, event.seqid), teller.say(event.kind)]
    return [*cells, name(event.phase), teller.what(event)]


def _todo(events: Sequence[Overflow], first: Overflow | None, teller: Teller) -> str | None:
    """What to do about the first one, in one sentence."""
    say = teller.say
    if first is None:
        return None
    if not first.begins:
        return say("do outside")
    if first.skipped:
        return say("do nothing")
    if any(operand.size > 1 and operand.high == -math.inf for operand in first.inputs.values()):
        return say("do masked row")
    again = next((event.again for event in events if event.fault and event.again is not None), None)
    if again is not None:
        return say("do again", origin=teller.path(first.rank, again))
    if first.scale is not None and first.scale > 1:
        return say("do scale")
    if first.value is not None and not math.isfinite(first.value):
        return say("do arithmetic")
    if first.dtype.startswith("float8") and first.dtype in FORMATS:
        return say("do float8", dtype=first.dtype)
    return say("do wider" if first.dtype == "float16" else "do smaller")
