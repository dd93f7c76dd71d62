"""Who made a value and who uses it, and with that what enters and leaves a call or a module.

Records are linked by the numbers of their values: equal numbers are one value, or views of it. An
in-place op makes a new value of what it wrote; a view op hands on the number it was given, so it
uses the value and makes none; records of gradients and parameters only show what is there. The
number of a value that no record made came from outside of what was recorded.

Pure functions of records. No torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from .layout import VALUES
from .reader import Record


class Place(NamedTuple):
    """Where a value stands in a record. key: `input/<name>` or `output/<name>`."""

    record: Record
    key: str


class Crossing(NamedTuple):
    """A value at a boundary. place: where it is first taken in, or last put out, inside."""

    value: int
    place: Place


class Boundary(NamedTuple):
    """What enters and leaves a part of the records, each value once, in order."""

    entering: tuple[Crossing, ...]
    leaving: tuple[Crossing, ...]


class Links:
    """The values of a dump's records, from producer to users. records: in execution order."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._maker: dict[int, Place] = {}
        self._users: dict[int, list[Place]] = {}
        for record in records:
            for value, key in _made(record):
                self._maker.setdefault(value, Place(record, key))
            for value, key in _used(record):
                self._users.setdefault(value, []).append(Place(record, key))

    def maker(self, value: int) -> Place | None:
        """Where a value was made; None where it came from outside."""
        return self._maker.get(value)

    def users(self, value: int) -> Sequence[Place]:
        """Where a value, or a view of it, is used, in execution order."""
        return self._users.get(value, ())

    def boundary(self, part: Sequence[Record], whole: Collection[Record]) -> Boundary:
        """What enters and leaves a part of a call or module, of which `whole` is all.

        part: one phase's records of it, in execution order. whole: those of all its phases: what
        forward saves for its own backward neither leaves the one nor enters the other. A value that
        nobody uses, but to hand it on, leaves: it may be what the caller wanted.
        """
        inside = {record.path for record in whole}
        own = {record.path for record in part}
        entering: dict[int, Crossing] = {}
        last: dict[int, Place] = {}
        for record in part:
            for value, key in _used(record):
                maker = self._maker.get(value)
                if maker is None or maker.record.path not in inside:
                    entering.setdefault(value, Crossing(value, Place(record, key)))
            for key, value in record.entry.values.items():
                maker = self._maker.get(value)
                if not _is_input(key) and maker is not None and maker.record.path in own:
                    last[value] = Place(record, key)
        leaving = [
            Crossing(value, place) for value, place in last.items() if self._leaves(value, inside)
        ]
        return Boundary(tuple(entering.values()), tuple(leaving))

    def _leaves(self, value: int, inside: set[str]) -> bool:
        users = self._users.get(value, ())
        if any(user.record.path not in inside for user in users):
            return True
        return all(hands_on(user.record, value) for user in users)


def hands_on(record: Record, value: int) -> bool:
    """Whether a record's output is its input seen otherwise, which is no use by itself."""
    return any(
        number == value and not _is_input(key) for key, number in record.entry.values.items()
    )


def _is_input(key: str) -> bool:
    return key.startswith("input/")


def _made(record: Record) -> Iterator[tuple[int, str]]:
    """(value, key) of what a record made: outputs that were not among its inputs."""
    if record.phase in VALUES:
        return
    values = record.entry.values
    given = {value for key, value in values.items() if _is_input(key)}
    for key, value in values.items():
        if not _is_input(key) and value not in given:
            yield value, key


def _used(record: Record) -> Iterator[tuple[int, str]]:
    """(value, key) of what a record took in, once each."""
    seen: set[int] = set()
    for key, value in record.entry.values.items():
        if (_is_input(key) or record.phase in VALUES) and value not in seen:
            seen.add(value)
            yield value, key
