"""How near a step came to overflow and underflow, and which loss scale suits it, as lines.

What a step's ranges say: bits left, what would not fit float16, shares that become 0 in narrower
formats, and the two ends of a loss scale together. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..layout import record_path
from .formats import Share
from .happened import module_name
from .phrases import Say
from .plain import name, number, rough, scale_text, share, table, wrapped
from .ranges import COUNTED, GRADIENT, Range
from .scales import KEPT, LossScale

_NEAR = 8.0
"""Bits of head-room from which on an op is not listed."""

_ROWS = 5
_TARGET = "float16"


def margins(
    ranges: Sequence[Range], loss_scale: LossScale | None = None, *, lang: str = "en"
) -> list[str]:
    """Lines on head-room, underflow and the loss scale; none where nothing is known.

    lang: `en` or `zh`; ValueError for others.
    """
    say = Say(lang)
    ops = [found for found in ranges if found.ir != GRADIENT]
    gradients = [found for found in ranges if found.ir == GRADIENT]
    parts = [
        _headroom(ops, say),
        _wider(ops, say),
        _vanished(ops, say),
        _underflow(ops, say),
        _gradients(gradients, say),
        _scale(loss_scale, say),
    ]
    lines: list[str] = []
    for part in parts:
        if found := list(part):
            lines += ["", *found]
    return lines


def _headroom(ops: Sequence[Range], say: Say) -> Iterator[str]:
    known = [found for found in ops if math.isfinite(found.headroom or math.inf)]
    if not known:
        return
    known.sort(key=lambda found: found.headroom)
    near = [found for found in known if found.headroom < _NEAR]
    if not near:
        least = known[0]
        bits = f"{math.floor(10 * least.headroom) / 10:g}"
        yield from wrapped(say("all far", bits=bits, op=_op(least)), "", "  ")
        return
    yield from wrapped(say("nearest"), "", "  ")
    yield from _rows(near, say, _left)


def _left(found: Range, say: Say) -> str:
    return say(
        "left",
        bits=f"{found.headroom:.1f}",
        dtype=name(found.dtype),
        magnitude=rough(found.magnitude),
        where=_where(found, say),
    )


def _wider(ops: Sequence[Range], say: Say) -> Iterator[str]:
    """What would not fit float16, for people about to enable mixed precision."""
    wide = [found for found in ops if found.dtype in ("float32", "bfloat16", "float64")]
    wide = [found for found in wide if math.isfinite(found.magnitude)]
    beyond = [found for found in wide if not found.fits(_TARGET)]
    if not wide:
        return
    if not beyond:
        yield from wrapped(say("would fit", count=len(wide), size=len(wide)), "", "  ")
        return
    beyond.sort(key=lambda found: -found.magnitude)
    yield from wrapped(say("would not fit", count=len(beyond), size=len(wide)), "", "  ")
    yield from _rows(beyond, say, _largest)


def _largest(found: Range, say: Say) -> str:
    magnitude, dtype = rough(found.magnitude), name(found.dtype)
    return say("largest", magnitude=magnitude, dtype=dtype, where=_where(found, say))


def _vanished(ops: Sequence[Range], say: Say) -> Iterator[str]:
    lost = sorted(
        (found for found in ops if found.vanished_share), key=lambda found: -found.vanished_share
    )
    if not lost:
        return
    yield from wrapped(say("vanished"), "", "  ")
    yield from _rows(lost, say, _of_zeros)


def _of_zeros(found: Range, say: Say) -> str:
    return say(
        "of zeros",
        share=share(found.vanished_share),
        dtype=name(found.dtype),
        where=_where(found, say),
    )


class _Total(NamedTuple):
    format: str
    share: Share
    worst: Range
    at_worst: Share


def _underflow(ops: Sequence[Range], say: Say) -> Iterator[str]:
    totals = [total for total in (_total(ops, each) for each in COUNTED) if total]
    some = [total for total in totals if total.share.zero or total.share.subnormal]
    if not totals:
        return
    if not some:
        formats = say("comma").join(total.format for total in totals)
        yield from wrapped(say("no underflow", formats=formats), "", "  ")
        return
    yield from wrapped(say("underflow"), "", "  ")
    rows = []
    for total in totals:
        what = _become(total.share, say)
        if total.at_worst.zero:
            worst = say(
                "worst",
                op=_op(total.worst),
                zero=share(total.at_worst.zero),
                where=_where(total.worst, say),
            )
            what = say("semicolon").join((what, worst))
        rows.append([total.format, what])
    yield from table(rows)
    yield from _sampled(ops, say)


def _total(ops: Sequence[Range], fmt: str) -> _Total | None:
    """What becomes of all values that are looked at, each op's weighing as much as there are."""
    lost = [(found, found.lost(fmt)) for found in ops]
    lost = [(found, each) for found, each in lost if each is not None and each.nonzero]
    if not lost:
        return None
    of = sum(each.nonzero for _, each in lost)
    whole = Share(*(sum(getattr(each, key) for _, each in lost) / of for key in Share._fields))
    worst, at = max(lost, key=lambda pair: (pair[1].share.zero, pair[1].nonzero))
    return _Total(fmt, whole, worst, at.share)


def _become(found: Share, say: Say) -> str:
    return say("would become", zero=share(found.zero), subnormal=share(found.subnormal))


def _gradients(gradients: Sequence[Range], say: Say) -> Iterator[str]:
    shares = ((found, found.share(_TARGET)) for found in gradients)
    shares = [pair for pair in shares if pair[1] is not None and pair[1].zero]
    lost = sorted(shares, key=lambda pair: -pair[1].zero)
    if not lost:
        return
    yield from wrapped(say("gradients"), "", "  ")
    rows = [[name(_named(found)), _become(each, say)] for found, each in lost[:_ROWS]]
    yield from table(rows)
    yield from _more(len(lost), say)


def _named(found: Range) -> str:
    return found.name or record_path(found.ir, found.seqid)


def _scale(found: LossScale | None, say: Say) -> Iterator[str]:
    if found is None:
        return
    smallest = _end(found.smallest, "at least" if found.at_least else None, say)
    largest = _end(found.largest, "at most" if found.at_most else None, say)
    if found.overflows_at(found.current):
        now = say("overflow now", format=found.format)
    else:
        now = say("vanish now", share=share(1 - found.kept), format=found.format)
    if found.vanished:
        gone = say("vanished now", share=share(found.vanished))
        now = say("comma").join((now, gone))
    text = say(
        "scales",
        kept=share(KEPT),
        smallest=smallest,
        largest=largest,
        current=scale_text(found.current),
        now=now,
    )
    yield from wrapped(text, "", "  ")
    if found.sampled < found.of:
        sampled = say("sampled", sample=number(found.sampled), size=number(found.of))
        yield from wrapped(sampled, "  ", "    ")
    yield from wrapped(say("next", what=_advice(found, say)), "  ", "    ")


def _end(scale: float, bound: str | None, say: Say) -> str:
    if math.isinf(scale):
        return say("no end")
    return scale_text(scale) if bound is None else say(bound, scale=scale_text(scale))


def _advice(found: LossScale, say: Say) -> str:
    if found.conflict:
        return say("conflict")
    if found.smallest <= found.current <= found.largest:
        return say("scale is right")
    smallest, largest = (_end(end, None, say) for end in (found.smallest, found.largest))
    return say("set scale", smallest=smallest, largest=largest)


def _sampled(ops: Sequence[Range], say: Say) -> Iterator[str]:
    looked, size = sum(each.sampled for each in ops), sum(each.size for each in ops)
    if looked < size:
        yield from wrapped(say("sampled", sample=number(looked), size=number(size)), "  ", "    ")


def _rows(found: Sequence[Range], say: Say, what: Callable[[Range, Say], str]) -> Iterator[str]:
    yield from table([[_op(each), what(each, say)] for each in found[:_ROWS]])
    yield from _more(len(found), say)


def _more(count: int, say: Say) -> Iterator[str]:
    if count > _ROWS:
        yield f"  {say('more ops', count=count - _ROWS)}"


def _op(found: Range) -> str:
    return f"{name(record_path(found.ir, found.seqid))} {name(found.output)}"


def _where(found: Range, say: Say) -> str:
    if found.module is None:
        return ""
    return say("comma") + module_name(found.module, say)
