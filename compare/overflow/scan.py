"""Overflow found in a dump that was made without checking for it: by what it recorded.

Every result is read once, in execution order. Infinity, NaN, or the dtype's largest number out of
inputs that hold none is where an overflow begins; from there it is followed by the numbers of
values, and where a file has none (the original's), by values that are bit-equal. An infinity that
the program asked for is followed like one, and blamed on nobody until NaN comes of it. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from dumper.errors import DumpError
from dumper.layout import VALUES
from dumper.links import Links
from dumper.overflow.events import (
    CREATED,
    INTENDED,
    MASKED,
    PROPAGATED,
    SATURATED,
    Overflow,
    Way,
)
from dumper.overflow.formats import FORMATS
from dumper.overflow.ranges import GRADIENT, Range
from dumper.overflow.scales import LossScale
from dumper.reader import Dump, Record
from dumper.stored import Tensor

from ..judging import Class, class_of
from .flow import (
    Flow,
    Given,
    Root,
    Scaling,
    asked_for,
    asked_numbers,
    is_contained,
    is_odd,
    is_scaled,
    may_be_asked,
    only_hands_on,
    order_of,
    scaling_of,
    selects,
    stored_at,
    unread,
)
from .looks import Look, Looks, digest, index_of, is_float
from .ranges import Ranges
from .value import exact

_WAYS = 12
"""Ops of a trail."""

_EXPLAINED = 64
"""Events whose element is computed from the inputs; these are read once more."""


class _Made(NamedTuple):
    ir: str
    magnitude: float
    sources: tuple[int, ...]


Records = Iterable[Record]


class Scanned(NamedTuple):
    """What a dump says of overflow. ranges, loss_scale: of its last step. unreadable: what of it
    could not be read."""

    events: list[Overflow]
    ranges: list[Range]
    loss_scale: LossScale | None
    unreadable: list[DumpError]


def scan(dump: Dump, passing: Callable[[Records], Records] = iter) -> Scanned:
    """The events of a dump, in order, and how far its results reach.

    passing: what the records go through, to show how far it is. Raises DumpError where the file
    does not tell: of load mode, without inputs, and without results.
    """
    return _Scan(dump).run(passing)


class _Scan:
    """One pass over a dump."""

    def __init__(self, dump: Dump) -> None:
        if dump.load_mode:
            raise DumpError(
                "this file was made in load mode and holds no inputs, so where an overflow began "
                "cannot be told",
                dump.path,
                "name the dump whose inputs it ran on, or run it again with check_overflow=True",
            )
        self._dump = dump
        self._looks = Looks()
        self._ranges = Ranges(self._looks)
        self._links = Links(dump.records)
        self._flows: dict[object, Flow] = {}
        self._made: dict[int, _Made] = {}
        self._roots: list[Root] = []
        self._events: list[Overflow] = []
        self._looked = 0

    def run(self, passing: Callable[[Records], Records]) -> Scanned:
        """The whole of it."""
        for record in passing(self._dump.records):
            if record.phase == GRADIENT:
                for tensor in filter(is_float, record.outputs):
                    self._ranges.gradient(record, tensor)
            elif record.phase not in VALUES and not only_hands_on(record):
                self._record(record)
        if not self._looked:
            raise DumpError(
                "no result of an op is in this file, so nothing tells of an overflow",
                self._dump.path,
                "dump the step again without sides='input', or with check_overflow=True",
            )
        for root in self._roots:
            if not root.live:
                root.event.masked_by = root.ended
        return Scanned(self._events, *self._ranges.found(), self._looks.unreadable)

    def _record(self, record: Record) -> None:
        if (scaling := scaling_of(record)) is not None:
            self._scaled(record, scaling)
            return
        if class_of(record.ir).kind is Class.UNINITIALISED:
            return
        results = []
        for tensor in record.outputs:
            if is_float(tensor) and not tensor.uninitialised and tensor.size:
                look = self._ranges.look(record, tensor)
                if look is not None:
                    results.append((tensor, look))
        self._looked += len(results)
        if results:
            self._note(record, results)
        taken = list(self._taken(record))
        odd = next(((t, look) for t, look in results if look.nonfinite), None)
        full = next(((t, look) for t, look in results if look.full.count), None)
        if odd is not None:
            self._odd(record, *odd, taken)
        elif full is not None:
            self._full(record, *full, taken)
        elif results:
            self._clean(record, results[0][0], taken)
        self._hand_on(record)

    def _scaled(self, record: Record, scaling: Scaling) -> None:
        """A loss scaler tells of this step's gradients."""
        self._ranges.scaled(record, scaling)
        for event in self._events:
            if event.step == (record.entry.step or 0) and is_scaled(event, scaling):
                event.scale = scaling.scale
                event.skipped |= scaling.skipped

    def _hand_on(self, record: Record) -> None:
        """What is written in part still holds what it held elsewhere."""
        values = record.entry.values
        for tensor in record.outputs:
            before = self._flows.get(values.get(f"input/{tensor.name}"))
            number = values.get(f"output/{tensor.name}")
            if before is not None and number is not None:
                self._flows.setdefault(number, before)

    def _note(self, record: Record, results: list[tuple[Tensor, Look]]) -> None:
        if any(look.nan.count for _, look in results):
            magnitude = math.nan
        elif any(look.nonfinite for _, look in results):
            magnitude = math.inf
        else:
            magnitude = max(look.magnitude for _, look in results)
        sources = set()
        for key, number in record.entry.values.items():
            maker = self._links.maker(number) if key.startswith("input/") else None
            if maker is not None and maker.record.seqid < record.seqid:
                sources.add(maker.record.seqid)
        self._made[record.seqid] = _Made(record.ir, magnitude, tuple(sorted(sources)))

    # what an op takes

    def _taken(self, record: Record) -> Iterator[Given]:
        """Inputs that hold an overflow."""
        skipped = unread(record)
        stored = set()
        for tensor in record.inputs:
            stored.add(tensor.name)
            if not is_float(tensor) or tensor.name in skipped or not tensor.size:
                continue
            look = self._looks.at(tensor)
            if look is None or not (look.nonfinite or look.full.count):
                continue
            key = self._key(record, tensor)
            yield Given(tensor.name, key, look, self._flow(record, tensor, key, look))
        for key, number in record.entry.values.items():
            side, _, name = key.partition("/")
            if side == "input" and name not in stored and name not in skipped:
                flow = self._flows.get(number)
                if flow is not None:
                    yield Given(name, number, None, flow)

    def _key(self, record: Record, tensor: Tensor) -> object:
        """By what a value is known: its number, or its bits where the file has no numbers."""
        number = record.entry.values.get(f"{tensor.side}/{tensor.name}")
        if number is not None:
            return number
        try:
            return digest(tensor)
        except DumpError as error:
            self._looks.unreadable.append(error)
            return (tensor.address,)

    def _flow(self, record: Record, tensor: Tensor, key: object, look: Look) -> Flow:
        flow = self._flows.get(key)
        if flow is not None:
            return flow
        maker = self._links.maker(key) if isinstance(key, int) else None
        if maker is not None and maker.record.seqid < record.seqid:
            flow = Flow(None, maker.record.seqid)  # written in part: the rest was not looked at
        else:
            asked = not look.nan.count and not look.above.count
            flow = Flow(None, None, asked)
            mark = look.below if look.below.count else look.full
            if asked and (look.below.count or look.full_below):
                event = self._event(record, INTENDED, tensor, mark.first, mark.count)
                event.origin = self._origin(record, tensor.name)
                self._events.append(event)
        self._flows[key] = flow
        return flow

    @staticmethod
    def _origin(record: Record, name: str) -> str:
        return record.entry.names.get(name) or name

    # what comes of it

    def _odd(self, record: Record, tensor: Tensor, look: Look, taken: list[Given]) -> None:
        """A result holds infinity or NaN."""
        where = min(
            (m.first, m.count) for m in (look.nan, look.above, look.below) if m.count
        )[0]  # fmt: skip
        bad = [one for one in taken if not one.flow.asked and is_odd(one)]
        if bad:
            if all(is_contained(one, record) for one in bad):
                self._begins(record, tensor, where, look, CREATED, again=bad[0])
            else:
                self._goes_on(record, tensor, where, look, bad)
            return
        asked = [one for one in taken if one.flow.asked]
        if asked and may_be_asked(record, look, asked):
            self._holds(record, Flow(None, record.seqid, True))
        elif asked_for(record, look):
            self._intended(record, tensor, where, look)
        else:
            place = look.nan.first if look.nan.count and asked else where
            self._begins(record, tensor, place, look, CREATED)

    def _full(self, record: Record, tensor: Tensor, look: Look, taken: list[Given]) -> None:
        """A result holds its dtype's largest number, and neither infinity nor NaN."""
        followed = [one for one in taken if one.flow.root is not None]
        if followed:
            self._goes_on(record, tensor, look.full.first, look, followed)
            return
        limit = FORMATS[tensor.dtype].largest if tensor.dtype in FORMATS else math.inf
        if taken:
            self._holds(record, Flow(None, record.seqid, True))
            return
        if any(abs(number) >= limit for number in asked_numbers(record)):
            self._intended(record, tensor, look.full.first, look)
            return
        found = exact(record, tensor, index_of(tensor, look.full.first))
        if found.value is not None and abs(found.value) < FORMATS[tensor.dtype].overflows_from:
            return  # it is the number that the op computes
        self._begins(record, tensor, look.full.first, look, SATURATED)

    def _intended(self, record: Record, tensor: Tensor, place: int, look: Look) -> None:
        """The program's own number."""
        event = self._event(record, INTENDED, tensor, place, look.nonfinite or look.full.count)
        event.stored = stored_at(look, place)
        self._events.append(event)
        self._holds(record, Flow(None, record.seqid, True))

    def _clean(self, record: Record, tensor: Tensor, taken: list[Given]) -> None:
        """No result holds an overflow."""
        if selects(record):
            return
        ended = [one for one in taken if one.flow.root and one.look and one.look.nonfinite]
        self._take_up(record, taken)
        if not ended:
            return
        event = self._event(record, MASKED, tensor, None, 0)
        event.producer = ended[0].flow.by
        self._events.append(event)
        for one in ended:
            one.flow.root.ended = record.seqid

    def _begins(
        self, record: Record, tensor: Tensor, place: int, look: Look, kind: str,
        again: Given | None = None,
    ) -> None:  # fmt: skip
        event = self._event(record, kind, tensor, place, look.nonfinite or look.full.count)
        event.stored = stored_at(look, place)
        if again is not None:
            event.again, event.producer = again.flow.root.event.seqid, again.flow.by
        self._explain(record, tensor, event)
        event.trail = self._way(record.seqid)
        root = Root(event)
        self._roots.append(root)
        self._events.append(event)
        self._holds(record, Flow(root, record.seqid))

    def _goes_on(
        self, record: Record, tensor: Tensor, place: int, look: Look, taken: list[Given]
    ) -> None:
        source = next((one for one in taken if one.flow.root is not None), taken[0])
        event = self._event(record, PROPAGATED, tensor, place, look.nonfinite or look.full.count)
        event.stored = stored_at(look, place)
        event.producer = source.flow.by
        if event.producer is None:
            event.origin = self._origin(record, source.name)
        self._explain(record, tensor, event)
        self._events.append(event)
        self._take_up(record, taken)
        self._holds(record, Flow(source.flow.root, record.seqid))

    def _holds(self, record: Record, flow: Flow) -> None:
        """All results of a record that hold something hold this."""
        for tensor in record.outputs:
            look = self._looks.at(tensor) if is_float(tensor) else None
            if look is not None and (look.nonfinite or look.full.count):
                key = self._key(record, tensor)
                self._flows[key] = flow
                if flow.root is not None:
                    flow.root.live.add(key)

    def _take_up(self, record: Record, taken: list[Given]) -> None:
        if record.phase in (None, "forward", "optimizer"):
            for one in taken:
                if one.flow.root is not None:
                    one.flow.root.live.discard(one.key)

    # what is said of it

    def _event(
        self, record: Record, kind: str, tensor: Tensor, place: int | None, count: int
    ) -> Overflow:
        entry = record.entry
        return Overflow(
            record.ir,
            record.seqid,
            record.phase or "?",
            kind,
            tensor.dtype,
            output=tensor.name,
            index=None if place is None else index_of(tensor, place),
            count=count,
            size=tensor.size,
            api=entry.api,
            module=entry.module,
            source=entry.source,
            step=entry.step or 0,
            rank=self._dump.rank,
        )

    def _explain(self, record: Record, tensor: Tensor, event: Overflow) -> None:
        if len(self._events) < _EXPLAINED:
            found = exact(record, tensor, event.index)
            event.inputs = dict(found.inputs)
            if event.begins:
                event.value = found.value

    def _way(self, seqid: int) -> tuple[Way, ...]:
        """The ops that led to one: of each op's sources the one of the largest magnitude."""
        way = [seqid]
        while len(way) < _WAYS:
            known = [source for source in self._made[way[-1]].sources if source in self._made]
            if not known:
                break
            way.append(max(known, key=lambda source: order_of(self._made[source].magnitude)))
        made = ((each, self._made[each]) for each in reversed(way))
        return tuple(Way(each, one.ir, one.magnitude) for each, one in made)
