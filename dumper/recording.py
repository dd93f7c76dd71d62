"""The records of one file as load mode seeks them: by call, by module, anywhere. No torch.

Each way to seek is a queue in execution order, of which the next few items and those after the one
taken last are looked at, so that a search costs the same however long the run is and however many
of its ops nobody takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from .index import function_of
from .layout import VALUES
from .reader import Record

LOOK_AHEAD = 16
"""Items of a queue that are looked at, from its first and from the one after the last taken."""


class Fact(NamedTuple):
    """What is known of one tensor argument. number: of the recorded value that it is."""

    name: str | None
    number: int | None


@dataclass(slots=True)
class Live:
    """One live op call. number: its place among the ops of the run, from 1, as a dump counts."""

    ir: str
    phase: str
    api: str | None
    module: str | None
    source: str | None
    step: int
    thread: int
    number: int
    tensors: dict[str, Fact]


class CallKey(NamedTuple):
    """One API call in one phase."""

    step: int | None
    thread: int
    phase: str | None
    api: str


class Queue:
    """Recorded items in order, of which any of the next few may be taken."""

    __slots__ = ("_items", "_taken", "_first", "_last")

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._taken: set[int] = set()
        self._first = 0  # what is before is taken
        self._last = 0  # behind the item taken last

    def append(self, item: Any) -> int:
        """Add an item; returns its place."""
        self._items.append(item)
        return len(self._items) - 1

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """What is left, with its place, among the first items and those after the last one taken.

        Never more than two windows, so that items nobody takes cost no later search.
        """
        first, last, count = self._first, self._last, len(self._items)
        for start in (first, max(first + LOOK_AHEAD, last)):
            for at in range(start, min(start + LOOK_AHEAD, count)):
                if at not in self._taken:
                    yield at, self._items[at]

    def take(self, place: int) -> None:
        """The item at a place is not left any more."""
        self._taken.add(place)
        self._last = place + 1
        while self._first in self._taken:
            self._taken.discard(self._first)
            self._first += 1


class Recording:
    """The records of one file as they are sought."""

    def __init__(self, records: Iterable[Record], extract: bool = False) -> None:
        """extract: it is known to be a part of a run, whatever its numbers say."""
        found = [record for record in records if record.phase not in VALUES]
        highest = max((record.seqid for record in found), default=0)
        self.indexed = any(record.phase is not None for record in found)
        # A whole run bears nearly every number up to its last.
        self.extract = extract or (not self.indexed and 2 * len(found) < highest)
        self.irs = {record.ir for record in found}
        self.modules = {record.entry.module for record in found}
        self.calls: dict[CallKey, list[Record]] = {}
        self._in_call: dict[tuple[CallKey, str], Queue] = {}
        self._openings: dict[tuple, Queue] = {}
        self._outside: dict[tuple, Queue] = {}
        self._anywhere: dict[tuple, Queue] = {}
        self._places: dict[tuple[str, int], tuple[Record, Queue, int]] = {}
        self._left = set()
        self._entering: dict[CallKey, dict[int, list[tuple[Record, str]]]] = {}
        for record in found:
            self._add(record)

    def _add(self, record: Record) -> None:
        entry, key = record.entry, (record.ir, record.seqid)
        self._left.add(key)
        queue = self._anywhere.setdefault((record.ir, entry.step, entry.phase), Queue())
        self._places[key] = record, queue, queue.append(record)
        if entry.phase is None:
            return
        if entry.api is None:
            place = (record.ir, entry.step, entry.thread, entry.phase, entry.module)
            self._outside.setdefault(place, Queue()).append(record)
            return
        call = CallKey(entry.step, entry.thread, entry.phase, entry.api)
        if call not in self.calls:
            self.calls[call] = []
            opening = (*call[:3], entry.module, function_of(entry.api))
            self._openings.setdefault(opening, Queue()).append(call)
        self.calls[call].append(record)
        self._in_call.setdefault((call, record.ir), Queue()).append(record)

    def in_call(self, call: CallKey, ir: str) -> Queue:
        """Records of an IR in one call."""
        return self._in_call.get((call, ir), _EMPTY)

    def openings(self, live: Live) -> Queue:
        """Calls of the live call's name in its module and phase."""
        key = (live.step, live.thread, live.phase, live.module, function_of(live.api))
        return self._openings.get(key, _EMPTY)

    def outside(self, live: Live) -> Queue:
        """Records of the op outside of any call."""
        key = (live.ir, live.step, live.thread, live.phase, live.module)
        return self._outside.get(key, _EMPTY)

    def anywhere(self, live: Live) -> Queue:
        """Records of the op in the live op's phase and step, wherever they stand."""
        where = (live.step, live.phase) if self.indexed else (None, None)
        return self._anywhere.get((live.ir, *where), _EMPTY)

    def numbered(self, ir: str, number: int) -> Record | None:
        """The record that bears this number."""
        found = self._places.get((ir, number))
        return None if found is None else found[0]

    def left(self, record: Record) -> bool:
        """Whether no live op took the record."""
        return (record.ir, record.seqid) in self._left

    def take(self, record: Record) -> None:
        """A live op takes the record."""
        key = (record.ir, record.seqid)
        self._left.discard(key)
        _, queue, place = self._places[key]
        queue.take(place)

    def entering(self, call: CallKey) -> dict[int, list[tuple[Record, str]]]:
        """The values that enter a call: by number their uses in it, (record, argument)."""
        found = self._entering.get(call)
        if found is None:
            found, made = self._entering.setdefault(call, {}), set()
            for record in self.calls[call]:
                for place, number in record.entry.values.items():
                    side, _, key = place.partition("/")
                    if side == "output" and number not in found:  # else a view of what entered
                        made.add(number)
                    elif side == "input" and number not in made:
                        found.setdefault(number, []).append((record, key))
        return found


_EMPTY = Queue()
