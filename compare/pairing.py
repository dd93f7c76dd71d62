"""Which records of one dump belong to which of the other, and the pairs of values that they have.

Two free runs are aligned as sequences (`alignment`), so that one call more or less costs its own
rows. Where the two sides expand one API call differently, or one op does what several do on the
other side, what enters and leaves them is paired (`crossings`). A load-mode file bears the seqids
of the file that it was made from, so there equal seqids belong together, and only outputs are
compared, because its inputs are the other file's. Records of gradients and updated parameters
belong together by name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property

from dumper.garbage import uncollected
from dumper.layout import VALUES
from dumper.reader import Dump, Record

from .alignment import HIGH, Match, OpMap, align, value_name
from .common import (
    Gone,
    Omitted,
    Pair,
    gone_by_record,
    has_data,
    left_out,
    share,
    values_of,
    values_of_two,
)
from .crossings import Crossings


class Pairing:
    """What belongs together in two runs.

    mine, golden: records in seqid order. by_seqid: one of the files was made in load mode. omitted:
    mine, golden's. complete: an argument that is not in a file is None. table: of op names; the
    default one if None. Attributes: `by_seqid`; `matches`, in the order of my seqids, what only
    golden has among them.
    """

    def __init__(
        self,
        mine: Sequence[Record],
        golden: Sequence[Record],
        *,
        by_seqid: bool,
        omitted: tuple[Omitted, Omitted] = ((), ()),
        complete: bool = False,
        table: OpMap | None = None,
    ) -> None:
        self.by_seqid = by_seqid
        self._sides = ("output",) if by_seqid else ("input", "output")
        self._complete = complete
        self._gone = tuple(map(gone_by_record, omitted))
        self._mine, self._golden = map(_with_lost, (mine, golden), self._gone)
        pair_up = _by_seqid if by_seqid else align
        with uncollected():
            self.matches = pair_up(self._mine, self._golden, table or OpMap.default())
        self._outside = outside_of(self._mine), outside_of(self._golden)

    def pairs(self) -> Iterator[Pair]:
        """The pairs of values; everything compared appears exactly once.

        In the order of `matches`, inputs before outputs; what only golden has comes last, with an
        index one past my last seqid. Arguments only with a partner, or where they are known to have
        none.
        """
        after = self._mine[-1].seqid + 1 if self._mine else 1
        rest: list[Record] = []
        seen: set[int] = set()  # values from outside that had a row
        for match in self.matches:
            if not match.mine:
                rest += match.golden
            elif not match.golden:
                for record in match.mine:
                    yield from self._alone(record, match)
            elif match.kind != "op":
                yield from self._crossing(match, seen)
            elif share(match.mine[0], match.golden[0], self._sides):
                yield from self._two(match, seen)
            else:
                yield from self._alone(match.mine[0], match)
                rest += match.golden
        for record in rest:
            yield from self._alone_in_golden(record, after)
        left, right = (gone.get(None, {}) for gone in self._gone)
        yield from left_out(after, None, None, left, right)

    def partner(self, record: Record) -> Record | None:
        """The record of golden that one of mine is compared with, where that is a single one."""
        match = self._by_path[0].get(record.path)
        if match is None or len(match.mine) != 1 or len(match.golden) != 1:
            return None
        found = match.golden[0]
        return found if share(record, found, self._sides) else None

    def matches_of(self, path: str) -> list[Match]:
        """The match that my record at `path` is in, and that of golden's, if only golden has it."""
        return [matches[path] for matches in self._by_path if path in matches]

    @cached_property
    def _by_path(self) -> tuple[dict[str, Match], dict[str, Match]]:
        """Of all of my records, and of those that only golden has."""
        alone = (match for match in self.matches if not match.mine)
        return (
            {record.path: match for match in self.matches for record in match.mine},
            {record.path: match for match in alone for record in match.golden},
        )

    @cached_property
    def _crossings(self) -> Crossings:
        return Crossings(self._mine, self._golden, self.matches)

    def _two(self, match: Match, seen: set[int]) -> Iterator[Pair]:
        record, partner = match.mine[0], match.golden[0]
        gone = self._gone[0].get(record.path, {}), self._gone[1].get(partner.path, {})
        for found in values_of_two(record, partner, self._sides, gone, self._complete):
            yield found.of(self._leaf(found, seen), match)

    def _crossing(self, match: Match, seen: set[int]) -> Iterator[Pair]:
        """What enters and leaves a call or a group, and what was left out of its records."""
        for record in match.mine:
            yield from self._left_out(record)
        for found in self._crossings.pairs(match):
            yield found.of(self._leaf(found, seen), match)

    def _leaf(self, found: Pair, seen: set[int]) -> str | None:
        """What an input from outside on both sides is, if it is one: a parameter at each use, which
        may be of parts of it, another value at its first."""
        if found.side != "input" or found.mine is None or found.golden is None:
            return None
        if not found.record.entry.values or not found.partner.entry.values:
            return None
        values = (
            _value_of(found.record, found.my_path),
            _value_of(found.partner, found.golden_path),
        )
        name, other = (outside.get(v) for outside, v in zip(self._outside, values, strict=True))
        if name is None or other is None or (not name and values[0] in seen):
            return None
        seen.add(values[0])
        return name

    def _left_out(self, record: Record) -> Iterator[Pair]:
        """What my dump lacks of a record that is not paired with a single one."""
        gone = self._gone[0].get(record.path, {})
        for side in (None, *self._sides):
            yield from left_out(record.seqid, record, side, gone, {})

    def _alone(self, record: Record, match: Match) -> Iterator[Pair]:
        yield from self._left_out(record)
        if any(map(has_data, values_of(record, self._sides))):
            reason = f"No data match with op:{record.ir} in golden dump data."
            yield Pair(record.seqid, record, None, None, None, None, None, reason, match=match)

    def _alone_in_golden(self, record: Record, after: int) -> Iterator[Pair]:
        gone = self._gone[1].get(record.path, {})
        for side in (None, *self._sides):
            yield from left_out(after, None, side, {}, gone)
        if any(map(has_data, values_of(record, self._sides))):
            reason = f"No data match with {record.path} in my dump data."
            yield Pair(
                after, None, None, None, None, None, record.path, reason, partner=record
            )  # fmt: skip


def pairing_of(mine: Dump, golden: Dump, table: OpMap | None = None) -> Pairing:
    """What belongs together in two open dumps. table: of op names; the default one if None."""
    return Pairing(
        mine.records,
        golden.records,
        by_seqid=mine.load_mode or golden.load_mode,
        omitted=(mine.omitted, golden.omitted),
        complete=mine.finished is not None and golden.finished is not None,
        table=table,
    )


def pair_values(record: Record, partner: Record, *, by_seqid: bool) -> Iterator[Pair]:
    """What `Pairing.pairs` yields of two records that belong together, but for what was left
    out."""
    sides = ("output",) if by_seqid else ("input", "output")
    return values_of_two(record, partner, sides, ({}, {}), complete=False)


def _value_of(record: Record, path: str) -> int | None:
    """The number of the value at a path, where that is the record's."""
    return record.entry.values.get(path.removeprefix(f"{record.path}/"))


def outside_of(records: Sequence[Record]) -> dict[int, str]:
    """Values that came from outside of what was recorded: the name of the parameter or buffer by
    the value's number, '' of others."""
    names: dict[int, str] = {}
    made: set[int] = set()
    for record in records:
        entry = record.entry
        for key, value in entry.values.items():
            if value in made:
                continue
            if key.startswith("input/"):
                names[value] = names.get(value) or entry.names.get(key[6:], "")
            elif value not in names:  # or it is a view of what came from outside
                made.add(value)
    return names


def _by_seqid(mine: Sequence[Record], golden: Sequence[Record], table: OpMap) -> list[Match]:
    """Equal seqids: equal names before those that mean the same; values by their name and step."""
    partners: dict[str, Record] = {}
    left, right = list(mine), list(golden)
    for named in (lambda ir: ir, table.canonical):
        free: dict[Hashable, Record] = {}
        for record in right:
            free.setdefault(_key(record, named), record)
        for record in left:
            if (partner := free.pop(_key(record, named), None)) is not None:
                partners[record.path] = partner
        used = {partner.path for partner in partners.values()}
        left = [record for record in left if record.path not in partners]
        right = [record for record in right if record.path not in used]
    found = []
    for record in mine:
        partner = partners.get(record.path)
        found.append(_match((record,), (partner,) if partner else ()))
    return found + [_match((), (record,)) for record in right]


def _match(mine: tuple[Record, ...], golden: tuple[Record, ...]) -> Match:
    kind = "op" if mine and golden else "extra"
    return Match(mine, golden, kind, HIGH, ("by seqid, in load mode",))


def _key(record: Record, named: Callable[[str], str]) -> Hashable:
    """What calls are told apart by, and values by name and step."""
    if record.phase in VALUES:
        return record.ir, value_name(record), record.entry.step
    return named(record.ir), record.seqid


def _with_lost(records: Sequence[Record], gone: dict[str | None, Gone]) -> Sequence[Record]:
    """The records, and those of which nothing is left but the note that they were omitted."""
    known = {record.path for record in records}
    lost = [
        Record(ir, int(seqid), path, (), (), {}, False)
        for path in gone
        if path is not None and path not in known
        for ir, seqid in [path[1:].split("/")]
    ]
    if not lost:
        return records
    return sorted([*records, *lost], key=lambda record: (record.seqid, record.ir, record.path))
