"""Which run of an operator, or of an op of the original network, belongs to which.

What has one name may have run often, on several devices. The k-th run here is the k-th run there,
counted within a subfolder where both sides have it, else over all. What an operator was given came
of the last run before it of what makes it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from .scan import OpFile

T = TypeVar("T")


class Run(NamedTuple):
    """A run: its subfolder, the how many-th it is there, and over all, from 0."""

    place: str
    here: int
    overall: int


class Runs(Generic[T]):
    """Runs by key. items: (key, subfolder, run) in order of execution. by_place: both sides have
    subfolders in common, so that runs are counted within one."""

    def __init__(self, items: Iterable[tuple[Hashable, str, T]], places: Iterable[str]) -> None:
        """places: the other side's subfolders."""
        self._here: dict[tuple[Hashable, str], list[T]] = {}
        self._overall: dict[Hashable, list[T]] = {}
        own = set()
        for key, place, item in items:
            own.add(place)
            self._here.setdefault((key, place), []).append(item)
            self._overall.setdefault(key, []).append(item)
        self.by_place = not own.isdisjoint(places)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._overall

    def all(self, key: Hashable, place: str) -> list[T]:
        """The runs that may belong to those of the other side in a subfolder."""
        return self._here.get((key, place), []) if self.by_place else self._overall.get(key, [])

    def at(self, key: Hashable, run: Run) -> T | None:
        """The run that belongs to one of the other side; None where there is none."""
        found = self.all(key, run.place)
        k = run.here if self.by_place else run.overall
        return found[k] if k < len(found) else None


class Own:
    """The runs of my operators."""

    def __init__(self, ops: Iterable[OpFile]) -> None:
        self._here: dict[Hashable, list[int]] = {}
        self._overall: dict[Hashable, list[int]] = {}
        self.places: set[str] = set()
        self._types: dict[str, set[str]] = {}
        for op in ops:
            self.places.add(op.place)
            self._types.setdefault(op.name.op_name, set()).add(op.name.op_type)
            self._here.setdefault((*_key(op), op.place), []).append(op.number)
            self._overall.setdefault(_key(op), []).append(op.number)

    def of(self, op: OpFile) -> Run:
        """Which run an operator is."""
        return self._before(_key(op), op)

    def count(self, op: OpFile, runs: Runs) -> int:
        """How many runs of its name there are, as `runs.all` counts them."""
        if runs.by_place:
            return len(self._here[(*_key(op), op.place)])
        return len(self._overall[_key(op)])

    def made_by(self, kind: str, name: str, op: OpFile) -> Run | None:
        """The last run before an operator of another one; None where that has left no file before.
        kind, name: as in names of files; of one that has another type there, the name counts."""
        types = self._types.get(name, set())
        kind = kind if kind in types or len(types) != 1 else next(iter(types))
        found = self._before((kind, name, None), op)
        return None if found.overall < 1 else Run(op.place, found.here - 1, found.overall - 1)

    def _before(self, key: tuple[Hashable, ...], op: OpFile) -> Run:
        here, overall = self._here.get((*key, op.place), []), self._overall.get(key, [])
        return Run(op.place, bisect_left(here, op.number), bisect_left(overall, op.number))


def _key(op: OpFile) -> tuple[str, str, int | None]:
    return op.name.op_type, op.name.op_name, op.name.thread_id
