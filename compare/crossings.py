"""What enters and leaves a call that the two sides compute by different ops, paired by value.

One attention is 8 ops on one device and 25 on another: inside, nothing can be set against anything.
But what enters and leaves is made and used by ops outside that do belong together, so a value's
counterpart is what its maker's or user's partner has in its place; only what is left is paired by
shape, in order. Pure functions of records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dumper.index import Stub
from dumper.layout import VALUES
from dumper.links import Crossing, Links
from dumper.reader import Record
from dumper.stored import Tensor

from .alignment import HIGH, Match
from .common import Pair, tensors_of


class _Seen(NamedTuple):
    """A tensor of a value: where it stands, and itself."""

    record: Record
    key: str
    tensor: Tensor | Stub

    @property
    def path(self) -> str:
        return f"{self.record.path}/{self.key}"


class Crossings:
    """The boundaries of all calls of two runs. matches: of all their records."""

    def __init__(
        self, mine: Sequence[Record], golden: Sequence[Record], matches: Sequence[Match]
    ) -> None:
        self._sides = _Side(mine), _Side(golden)
        self._golden_of: dict[int, int] = {}
        ones = [match for match in matches if len(match.mine) == len(match.golden) == 1]
        for match in sorted(ones, key=_doubt):  # what is known best comes first
            theirs = match.golden[0].entry.values
            for key, value in match.mine[0].entry.values.items():
                if key in theirs:
                    self._golden_of.setdefault(value, theirs[key])

    def pairs(self, match: Match) -> Iterator[Pair]:
        """What enters and then what leaves the records of a match; none of the ops inside."""
        mine, golden = self._sides
        ours = mine.boundary(match.mine)
        theirs = golden.boundary(match.golden)
        for side, left, right in zip(("input", "output"), ours, theirs, strict=True):
            yield from self._paired(side, match, left, right)

    def _paired(
        self, side: str, match: Match, left: Sequence[Crossing], right: Sequence[Crossing]
    ) -> Iterator[Pair]:
        mine, golden = self._sides
        rest = {crossing.value: crossing for crossing in right}
        found: list[tuple[Crossing, Crossing | None]] = []
        for crossing in left:
            found.append((crossing, rest.pop(self._golden_of.get(crossing.value, -1), None)))
        by_shape: dict[tuple, list[Crossing]] = defaultdict(list)
        for crossing in rest.values():
            by_shape[golden.shape(crossing)].append(crossing)
        free = Counter(mine.shape(crossing) for crossing, other in found if other is None)
        for crossing, other in found:
            shape = mine.shape(crossing)
            # of several that nobody outside takes, which is which cannot be told
            sure = free[shape] == len(by_shape[shape]) == 1
            if other is None and by_shape[shape] and (sure or self._is_used(crossing, match)):
                other = by_shape[shape].pop(0)
                rest.pop(other.value)
            if other is not None:  # what comes later may be made of it
                self._golden_of.setdefault(crossing.value, other.value)
            yield from self._pair(side, match, crossing, other)
        for other in rest.values():
            yield from self._pair(side, match, None, other)

    def _is_used(self, crossing: Crossing, match: Match) -> bool:
        return self._sides[0].is_used_outside(crossing, match)

    def _pair(
        self, side: str, match: Match, left: Crossing | None, right: Crossing | None
    ) -> Iterator[Pair]:
        mine, golden = self._sides
        if left is None or right is None:
            # what nobody outside takes is a by-product of how it was computed
            one, crossing = (mine, left) if right is None else (golden, right)
            seen = one.seen(crossing, match)
            if side == "input" or not seen or not one.is_used_outside(crossing, match):
                return
            place = seen[0]
            reason = "No data match with {} in {} dump data.".format(
                place.path, "golden" if right is None else "my"
            )
            values = (place.tensor, None) if right is None else (None, place.tensor)
            paths = (place.path, None) if right is None else (None, place.path)
            yield Pair(match.mine[0].seqid, match.mine[0], side, *values, *paths, reason)
            return
        seen = mine.seen(left, match), golden.seen(right, match)
        best = _alike(*seen)
        if best is None and all(seen) and mine.shape(left) != golden.shape(right):
            best = seen[0][0], seen[1][0]
        if best is not None:  # a side may have only parts of a value, which its ops took it in
            a, b = best
            values = a.tensor, b.tensor
            record = left.place.record
            yield Pair(
                record.seqid, record, side, *values, a.path, b.path, partner=right.place.record
            )


def _doubt(match: Match) -> int:
    """How far a match may be wrong: values go by name, calls by what is around them."""
    if match.mine[0].phase in VALUES:
        return 0
    return 1 if match.confidence == HIGH else 2


class _Side:
    """The records of one run, their links, and the records of each call."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.links = Links(records)
        self._calls: dict[tuple, list[Record]] = defaultdict(list)
        for record in records:
            if record.entry.api is not None:
                self._calls[record.entry.step, record.entry.api].append(record)

    def boundary(self, records: Sequence[Record]) -> tuple[Sequence[Crossing], Sequence[Crossing]]:
        """What enters and leaves records of one phase of a call."""
        whole = {record.path: record for record in records}
        for call in {(record.entry.step, record.entry.api) for record in records}:
            whole |= {record.path: record for record in self._calls.get(call, ())}
        return self.links.boundary(records, whole.values())

    def seen(self, crossing: Crossing, match: Match) -> list[_Seen]:
        """The tensors of a value that the file has data of: first the one at the boundary, then
        where it was made, and where it is used."""
        maker = self.links.maker(crossing.value)
        places = [crossing.place, *((maker,) if maker else ()), *self.links.users(crossing.value)]
        found, known = [], set()
        for record, key in places:
            side, _, name = key.partition("/")
            tensor = tensors_of(record, side).get(name)
            if isinstance(tensor, Tensor) and (record.path, key) not in known:
                known.add((record.path, key))
                found.append(_Seen(record, key, tensor))
        return found

    def shape(self, crossing: Crossing) -> tuple:
        """The shape at the boundary."""
        record, key = crossing.place
        side, _, name = key.partition("/")
        tensor = tensors_of(record, side).get(name)
        return tensor.shape if tensor is not None else ()

    def is_used_outside(self, crossing: Crossing, match: Match) -> bool:
        """Whether a record of no part of the match takes the value."""
        inside = {record.path for record in (*match.mine, *match.golden)}
        users = self.links.users(crossing.value)
        return any(user.record.path not in inside for user in users)


def _alike(mine: list[_Seen], golden: list[_Seen]) -> tuple[_Seen, _Seen] | None:
    """The first two of one shape; None where there are none."""
    for one in mine:
        for other in golden:
            if one.tensor.shape == other.tensor.shape:
                return one, other
    return None
