"""One overflow in words: where it is, what happened there, and what its op was given.

Everything that comes from an event may be anyone's file: names are made inert and cut, lists are
counted where they are long. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..layout import record_path
from .bits import words_of
from .events import INTENDED, MASKED, PROPAGATED, Operand, Overflow
from .formats import FORMATS
from .phrases import Say
from .plain import name, number, place, rough, table, wrapped

_WAYS = 8
"""Ops of a trail that are shown, the last ones."""

_INPUTS = 6
_VALUES = 4
"""Inputs, and values of one, that are shown."""

_ORDERED = ("self", "input", "mat1", "mat2", "other", "weight")


class OpCall(NamedTuple):
    """What is known of a call that a sentence names."""

    ir: str
    module: str | None = None


Calls = Mapping[tuple[int, int], OpCall]
"""Calls by (rank, seqid)."""


class Teller:
    """Says things of events in one language.

    say: phrases. events: all that will be spoken of. calls: others that they may name. ranks: there
    are several.
    """

    def __init__(
        self, say: Say, events: Sequence[Overflow], calls: Calls, ranks: bool = False
    ) -> None:
        self.say = say
        self._calls = dict(calls)
        for event in events:
            self._calls[event.rank, event.seqid] = OpCall(event.ir, event.module)
        for event in events:
            for way in event.trail:
                self._calls.setdefault((event.rank, way.seqid), OpCall(way.ir))
        self.has_ranks = ranks or any(event.rank for event in events)
        self.has_steps = any(event.step for event in events)

    def path(self, rank: int, seqid: int) -> str:
        """An op as its record's path, or by its number where its name is not known."""
        call = self._calls.get((rank, seqid))
        if call is None:
            return self.say("seqid", seqid=seqid)
        return name(record_path(call.ir, seqid))

    def place(self, event: Overflow) -> str:
        """Path, and in brackets rank, step, phase, module and source line."""
        where = [name(event.phase)]
        if event.module is not None:
            where.append(module_name(event.module, self.say))
        if event.source is not None:
            where.append(name(event.source))
        where = [*self.apart(event), *where]
        path = self.path(event.rank, event.seqid)
        return self.say("place", path=path, where=self.say("comma").join(where))

    def apart(self, event: Overflow) -> list[str]:
        """Rank and step, where there are several."""
        found = []
        if self.has_ranks:
            found.append(self.say("rank", rank=event.rank))
        if self.has_steps:
            found.append(self.say("step", step=event.step))
        return found

    def what(self, event: Overflow) -> str:
        """What happened there."""
        if event.begins:
            return self._linked(event, self._began(event))
        if event.kind == INTENDED:
            if event.origin is None:
                return self.say("asked for")
            return self.say("asked for by", origin=name(event.origin))
        what = self._came(event)
        return self.say("went no further", what=what) if event.kind == MASKED else what

    def _came(self, event: Overflow) -> str:
        if event.producer is not None:
            return self.say("came from", path=self.path(event.rank, event.producer))
        if event.origin is not None:
            return self.say("came with", origin=name(event.origin))
        return self.say("came in")

    def _linked(self, event: Overflow, what: str) -> str:
        if event.again is not None:
            what = self.say("again", what=what, origin=self.path(event.rank, event.again))
        if event.masked_by is not None:
            what = self.say("ended at", what=what, path=self.path(event.rank, event.masked_by))
        return what

    def _began(self, event: Overflow) -> str:
        say, value, stored = self.say, event.value, event.stored
        kind = FORMATS.get(event.dtype)
        dtype = name(event.dtype)
        if value is None or kind is None:
            return self._returned(event, stored)
        if math.isnan(value) or math.isinf(value):
            what = say("exactly not finite", value=number(value))
        elif abs(value) >= kind.overflows_from:
            what = say(
                "does not fit", value=number(value), dtype=dtype, largest=number(kind.largest)
            )
        elif stored is None:
            return self._returned(event, stored)
        else:
            return say("on the way", stored=number(stored), value=number(value), dtype=dtype)
        if stored is not None and math.isfinite(stored):
            what = say("and stored", what=what, stored=number(stored))
        return what

    def _returned(self, event: Overflow, stored: float | None) -> str:
        if stored is not None and not math.isfinite(stored):
            return self.say("returned", stored=number(stored))
        if event.bits:
            return self.say("register")
        if stored is not None:
            return self.say("at the limit", stored=number(stored), dtype=name(event.dtype))
        return self.say("began")

    def details(self, event: Overflow) -> Iterator[str]:
        """Lines on one event: the way to it, the element, what the op was given there."""
        say = self.say
        yield from self._way(event)
        if event.stored is not None:
            element = name(event.output)
            if event.index:
                element += place(event.index)
            stored = number(event.stored)
            what = say("exact unknown", stored=stored)
            if event.value is not None:
                what = say("in float64", value=number(event.value), stored=stored)
            if event.count and event.size > 1:
                of = say("of elements", count=number(event.count), size=number(event.size))
                what = say("semicolon").join((what, of))
            yield from wrapped(say("element", element=element, what=what), "  ", "    ")
        yield from self._inputs(event.inputs)
        if event.api is not None:
            yield from wrapped(say("call", api=name(event.api)), "  ", "    ")
        if event.bits:
            words = say("semicolon").join(words_of(event.bits, say.lang))
            yield from wrapped(say("status", bits=hex(event.bits), words=words), "  ", "    ")

    def _way(self, event: Overflow) -> Iterator[str]:
        ways = event.trail[-_WAYS:]
        if len(ways) < 2:
            return
        magnitudes = " -> ".join(rough(way.magnitude) for way in ways)
        yield from wrapped(self.say("way", magnitudes=magnitudes), "  ", "    ")
        if earlier := len(event.trail) - len(ways):
            yield f"    {self.say('earlier', count=earlier)}"
        rows = []
        for way in ways:
            call = self._calls[event.rank, way.seqid]
            module = "" if call.module is None else module_name(call.module, self.say)
            rows.append([rough(way.magnitude), self.path(event.rank, way.seqid), module])
        yield from table(rows, "    ")

    def _inputs(self, inputs: dict[str, Operand]) -> Iterator[str]:
        order = sorted(
            inputs, key=lambda key: _ORDERED.index(key) if key in _ORDERED else len(_ORDERED)
        )
        for key in order[:_INPUTS]:
            yield from wrapped(self._operand(key, inputs[key]), "    ", "      ")
        if more := len(order) - _INPUTS:
            if more > 0:
                yield f"    {self.say('more inputs', count=more)}"

    def _operand(self, key: str, operand: Operand) -> str:
        argument = name(key)
        if operand.index:
            argument += place(operand.index)
        if operand.size == 1 and operand.values:
            return self.say("equals", argument=argument, value=number(operand.values[0]))
        values = ", ".join(number(value) for value in operand.values[:_VALUES])
        return self.say(
            "numbers",
            argument=argument,
            count=operand.size,
            low=number(operand.low),
            high=number(operand.high),
            values=values or "-",
        )


def module_name(module: str, say: Say) -> str:
    """A module as it is named among other facts."""
    return say("module", module=name(module)) if module else say("the model")


def is_handed_on(event: Overflow) -> bool:
    """Whether it shows an overflow that began elsewhere."""
    return event.kind in (PROPAGATED, MASKED)
