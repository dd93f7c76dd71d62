"""One run as arrays: what each call does, and whose values it takes.

Edges lead from the record that made a value to those that take it. An op that only brings a value
elsewhere (a cast, a view) is seen through, so that one more or less of them changes nobody's edges.
A cone is what lies up or down the edges, to some depth, as one number: two calls with equal cones
do the same with the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dumper.reader import Record

from .facts import Labels
from .names import OpMap

Array = np.ndarray

_OUTSIDE = np.uint64(7)
"""In the place of a maker's number, of what came from outside."""


class Side:
    """The calls of one run, in order; values (`grad`, `update`) are no calls.

    strict, loose, plain, bare: labels. makers, users: of each record, with a slot that says which
    input of the user and which output of the maker; edges: all (maker, user, slot), maker -1 for
    what came from outside. through: whether a record only brings a value elsewhere. idle: that, or
    makes one without values. called: names of values, such as gradients, by number.
    """

    def __init__(
        self, records: Sequence[Record], labels: Labels, called: Mapping[int, str]
    ) -> None:
        self.records = records
        self.count = len(records)
        self.through: list[bool] = []
        self.idle: list[bool] = []
        self.makers: list[dict[int, int]] = []
        self.users: list[list[tuple[int, int]]] = [[] for _ in records]
        self._labels = labels
        self._values: dict[int, int] = {}
        self._made: list[tuple[int, int]] = []
        self._used: list[tuple[int, int, int]] = []
        self._brought: list[tuple[int, int]] = []
        self._named = _before(records, called, labels.table)
        backward = {
            (record.entry.step, record.entry.api)
            for record in records
            if record.phase == "backward"
        }
        backward.discard((None, None))
        found = np.empty((self.count, 4), np.int64)
        for i, record in enumerate(records):
            name = labels.table.canonical(record.ir)
            through = name in labels.table.carriers
            self.through.append(through)
            self.idle.append(through or name in labels.table.blanks)
            found[i] = labels.of(record, self._link(i, record, through), backward)
        self.strict, self.loose, self.plain, self.bare = found.T.copy()
        flat = [
            number
            for i, made in enumerate(self.makers)
            for slot, maker in made.items()
            for number in (maker, i, slot)
        ]
        self.edges = np.array(flat, np.int64).reshape(-1, 3)

    def _link(self, i: int, record: Record, through: bool) -> Sequence[str]:
        """Note the edges of the i-th record; the names of what it takes."""
        numbers, named, values, made = record.entry.values, self._named, self._values, self._made
        names = []
        for key, name in record.entry.names.items():
            number = numbers.get(f"input/{key}")
            if number is None:
                names.append(self._labels.path(name))
            else:
                named[number] = self._labels.path(name)
        makers: dict[int, int] = {}
        given, first, outputs = set(), None, 0
        for key, number in numbers.items():
            if key[:1] != "i":
                if number not in given:
                    if through and first is not None:
                        values[number] = values[first]
                        if first in named:
                            named[number] = named[first]
                    else:
                        values[number] = len(made)
                        made.append((i, outputs))
                outputs += 1
                continue
            slot, value = len(makers), values.get(number)
            if value is None:
                value = values[number] = len(made)
                made.append((-1, 0))
            if not through:
                self._used.append((value, i, slot))
            elif first is None:
                self._brought.append((i, value))
            if first is None:
                first = number
            given.add(number)
            if number in named:
                names.append(named[number])
            maker, output = made[value]
            edge = slot << 20 | output
            makers[edge] = maker
            if maker >= 0:
                self.users[maker].append((edge, i))
        self.makers.append(makers)
        return sorted(filter(None, names)) if len(names) > 1 else names

    def phase(self, i: int) -> tuple[int | None, str | None]:
        """Step and phase of the i-th record."""
        entry = self.records[i].entry
        return entry.step, entry.phase

    def function(self, i: int) -> str:
        """What API function the i-th record belongs to."""
        return self._labels.function(self.records[i].entry.api)

    def module(self, i: int) -> str | None:
        """What module the i-th record belongs to."""
        return self._labels.path(self.records[i].entry.module)

    def cones(self, labels: Array, depths: Sequence[int]) -> Iterator[tuple[int, Array, Array]]:
        """(depth, numbers of what is above each record, numbers of what is below) at each depth."""
        own = mixed(labels.astype(np.uint64))
        above, below = own, own
        maker, user, slot = self.edges.T
        made = np.array(self._made, np.int64).reshape(-1, 2)
        inside = np.flatnonzero(made[:, 0] >= 0)
        made = made[inside]
        used = np.array(self._used, np.int64).reshape(-1, 3)
        used = used[np.argsort(used[:, 0], kind="stable")]
        brought = np.array(self._brought, np.int64).reshape(-1, 2)
        for depth in range(1, max(depths) + 1):
            came = np.where(maker < 0, _OUTSIDE, above[maker])
            above = mixed(own + _sums(came, slot, user, self.count))
            goes = _sums(below[used[:, 1]], used[:, 2], used[:, 0], len(self._made))
            below = own + _sums(goes[inside], made[:, 1], made[:, 0], self.count)
            below[brought[:, 0]] += mixed(goes[brought[:, 1]])
            below = mixed(below)
            if depth in depths:
                yield depth, above, below

    def around(self, labels: Array, width: int) -> Array:
        """Numbers of the labels of so many records before and after each, and its own."""
        own = mixed(labels.astype(np.uint64))
        total = own.copy()
        for shift in range(1, width + 1):
            salt = np.uint64(2 * shift + 1)
            total[shift:] += mixed(own[:-shift] * salt)
            total[:-shift] += mixed(own[shift:] ^ salt)
        return mixed(total)


def mixed(numbers: Array) -> Array:
    """Spread numbers over 64 bits (splitmix64)."""
    with np.errstate(over="ignore"):
        z = numbers + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _sums(numbers: Array, slots: Array, at: Array, count: int) -> Array:
    """The sum over each record's edges; `at`, whose they are, ascends."""
    sums = np.zeros(count, np.uint64)
    if len(at):
        salted = mixed(numbers ^ mixed(slots.astype(np.uint64)))
        starts = np.flatnonzero(np.r_[True, at[1:] != at[:-1]])
        sums[at[starts]] = np.add.reduceat(salted, starts)
    return sums


def _before(
    records: Sequence[Record], called: Mapping[int, str], table: OpMap
) -> dict[int, str | None]:
    """Names of values, and of what they were before they were written in place (a gradient that
    is clipped) or brought elsewhere."""
    named: dict[int, str | None] = dict(called)
    if not named:
        return named
    for record in reversed(records):
        values = record.entry.values
        for key, number in values.items():
            if key[:1] == "i" or number not in named:
                continue
            before = values.get(f"input{key[6:]}")
            if before is None and table.canonical(record.ir) in table.carriers:
                before = values.get("input/self")
            if before is not None:
                named.setdefault(before, named[number])
    return named
