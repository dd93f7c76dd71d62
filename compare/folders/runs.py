"""Which run of an operator, or of an op of the original network, belongs to which.

What has one name may have run often, on several devices. The k-th run belongs to the k-th, within
one subfolder and device before all others; with FFTS+ one by one a thread belongs to that thread
alone. What an operator was given came of the last run before it of what makes it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from .scan import OpFile

T = TypeVar("T")

Name = tuple[str, str]
"""Type and name of an operator, as names of files have them."""


class Where(NamedTuple):
    """Where a run was: its thread where threads are apart, its subfolder, its device where files
    say it."""

    thread: int | None
    place: str
    device: int | None


_LEVELS: tuple[Callable[[Where], Hashable], ...] = (
    lambda where: where,
    lambda where: where[:2],
    lambda where: where.thread,
)


def where_of(op: OpFile) -> Where:
    """Where an operator ran."""
    return Where(op.name.thread_id, op.place, op.name.device_id)


def matched(mine: Sequence[Where], golden: Sequence[Where]) -> dict[int, int]:
    """Which of golden's runs belongs to which of mine, all of one name and in order."""
    found: dict[int, int] = {}
    left, others = list(range(len(mine))), list(range(len(golden)))
    for level in _LEVELS:
        queues: dict[Hashable, deque[int]] = {}
        for i in others:
            queues.setdefault(level(golden[i]), deque()).append(i)
        for i in left:
            if queue := queues.get(level(mine[i])):
                found[i] = queue.popleft()
        left = [i for i in left if i not in found]
        others = sorted(i for queue in queues.values() for i in queue)
    return found


class Runs(Generic[T]):
    """Runs by key. items: (key, where, run) in order of execution."""

    def __init__(self, items: Iterable[tuple[Hashable, Where, T]]) -> None:
        self._runs: dict[Hashable, tuple[list[Where], list[T]]] = {}
        for key, where, run in items:
            places, runs = self._runs.setdefault(key, ([], []))
            places.append(where)
            runs.append(run)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._runs

    def places(self, key: Hashable) -> list[Where]:
        """Where its runs were."""
        return self._runs[key][0] if key in self._runs else []

    def runs(self, key: Hashable) -> list[T]:
        """Its runs."""
        return self._runs[key][1] if key in self._runs else []


class Partners(Generic[T]):
    """Runs of mine and of golden. mine: by number."""

    def __init__(self, mine: Runs[int], golden: Runs[T]) -> None:
        self._mine, self._golden = mine, golden
        self._known: dict[tuple[Hashable, Hashable], dict[int, T]] = {}
        self._guessed: dict[tuple[Hashable, Hashable], dict[int, T]] = {}

    def of(self, key: Hashable, number: int, other: Hashable) -> T | None:
        """The run of golden's `other` that belongs to one of my `key`; None where there is none."""
        found = self._known.get((key, other))
        if found is None:
            runs, numbers = self._golden.runs(other), self._mine.runs(key)
            pairs = matched(self._mine.places(key), self._golden.places(other))
            found = self._known[key, other] = {numbers[i]: runs[k] for i, k in pairs.items()}
        return found.get(number)

    def likely(self, key: Hashable, number: int, other: Hashable) -> tuple[T | None, int]:
        """The run of golden's `other` for a run of my `key`, which takes what has left no file: the
        only one, or the k-th of as many, of its subfolder and device or else of all; else None, and
        how many there are."""
        found = self._guessed.get((key, other))
        if found is None:
            found = self._guessed[key, other] = self._likely(key, other)
        return found.get(number), len(self._golden.runs(other))

    def _likely(self, key: Hashable, other: Hashable) -> dict[int, T]:
        found: dict[int, T] = {}
        own = list(zip(self._mine.places(key), self._mine.runs(key), strict=True))
        runs = list(zip(self._golden.places(other), self._golden.runs(other), strict=True))
        for level in (*_LEVELS, lambda _: None):
            there: dict[Hashable, list[T]] = {}
            taking: dict[Hashable, list[int]] = {}
            for where, run in runs:
                there.setdefault(level(where), []).append(run)
            for where, number in own:
                taking.setdefault(level(where), []).append(number)
            for group, numbers in taking.items():
                made = there.get(group, [])
                if len(made) == 1:
                    made = made * len(numbers)
                if len(made) == len(numbers):
                    for number, run in zip(numbers, made, strict=True):
                        found.setdefault(number, run)
        return found

    def as_often(self, key: Hashable, other: Hashable) -> bool:
        """Whether both ran as often."""
        return len(self._mine.runs(key)) == len(self._golden.runs(other))


class Own:
    """The runs of my operators, by type and name; those of a graph of FFTS+ also by the name that
    has the graph in it."""

    def __init__(self, ops: Sequence[OpFile]) -> None:
        self._ops = ops
        self.runs = Runs((name, where_of(op), op.number) for op in ops for name in _names(op))
        self._types = types_by_name(name for op in ops for name in _names(op))
        self._at: dict[tuple[Name, Hashable], list[int]] = {}
        for op in ops:
            for name in _names(op):
                for near in _around(where_of(op)):
                    self._at.setdefault((name, near), []).append(op.number)

    def named(self, kind: str, name: str) -> Name | None:
        """What an op is called in names of files; None where it has left none. Of one that has
        another type there, the name counts."""
        return only_type(self._types, kind, name)

    def before(self, name: Name, number: int) -> int | None:
        """The last run before a file of mine: of the same subfolder and device if there is one,
        else of the least folder above that has one."""
        for near in _around(where_of(self._ops[number - 1])):
            numbers = self._at.get((name, near), [])
            if at := bisect_left(numbers, number):
                return numbers[at - 1]
        return None


def _around(where: Where) -> Iterator[Hashable]:
    """Where else a run may have been, the nearest first."""
    yield where
    folder = where.place
    while folder:
        yield where.thread, folder
        folder = folder.rpartition("/")[0]
    yield where.thread, ""


def name_of_file(op: OpFile) -> Name:
    """Type and name of an operator."""
    return op.name.op_type, op.name.op_name


def _names(op: OpFile) -> tuple[Name, ...]:
    return tuple(dict.fromkeys((name_of_file(op), (op.name.op_type, op.called))))


def types_by_name(names: Iterable[Name]) -> dict[str, list[str]]:
    """The types that operators of each name have, in their order."""
    found: dict[str, dict[str, None]] = {}
    for kind, name in names:
        found.setdefault(name, {})[kind] = None
    return {name: list(types) for name, types in found.items()}


def only_type(types: dict[str, list[str]], kind: str, name: str) -> Name | None:
    """Type and name where such files are, by the type that was said, else the only one."""
    known = types.get(name, [])
    if kind in known:
        return kind, name
    return (known[0], name) if len(known) == 1 else None
