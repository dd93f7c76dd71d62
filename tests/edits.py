"""Changes planted in the records of a real dump, with what is whose true partner.

A change is what another program, or another version of it, would have left in a dump: calls more or
less, calls in another order, a segment computed again, an op written as two. Afterwards everything
is numbered anew, as a run of that program would have been: seqids, calls, values.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random

from dumper.index import function_of
from dumper.layout import VALUES, record_path
from dumper.reader import Record


@dataclass(eq=False)
class Line:
    """One record on its way; origin: the record it is, or, if planted, the one it is a copy of."""

    record: Record
    origin: Record
    planted: bool = False

    @property
    def call(self) -> tuple | None:
        """The API call it belongs to."""
        entry = self.record.entry
        return None if entry.api is None else (entry.step, entry.api)

    def makes(self) -> set[int]:
        """Values that were not there before."""
        return set(self.values("output")) - set(self.values("input"))

    def values(self, side: str) -> list[int]:
        """Numbers of what goes in or comes out."""
        return [v for key, v in self.record.entry.values.items() if key.startswith(side)]


class Edited:
    """The records of one run, being edited. fused: (the two lines, the one that they were)."""

    def __init__(self, records: tuple[Record, ...], seed: int) -> None:
        self.random = Random(seed)
        self.lines = [Line(record, record) for record in records]
        self.fused: list[tuple[Line, Line, Record]] = []
        self._fresh = 1 + max((v for r in records for v in r.entry.values.values()), default=0)
        self._calls = 0

    def finish(self) -> list[Record]:
        """The edited records, numbered anew."""
        numbers: dict[int, int] = {}
        counts: dict[tuple, int] = defaultdict(int)
        apis: dict[tuple, str] = {}
        shift = self.random.randrange(1000)
        for seqid, line in enumerate(self.lines, 1):
            entry = line.record.entry
            api = entry.api
            if api is not None:
                function = function_of(api)
                if line.call not in apis:
                    apis[line.call] = f"{function}.{counts[entry.step, function]}"
                    counts[entry.step, function] += 1
                api = apis[line.call]
            values = {
                key: numbers.setdefault(value, len(numbers) + 1 + shift)
                for key, value in entry.values.items()
            }
            line.record = replace(
                line.record,
                seqid=seqid,
                path=record_path(line.record.ir, seqid),
                entry=replace(entry, api=api, values=values),
            )
        return [line.record for line in self.lines]

    # What is chosen from.

    def ops(self) -> list[int]:
        """Places of all calls; gradients and parameters are none."""
        return [i for i, line in enumerate(self.lines) if line.record.phase not in VALUES]

    def forward(self) -> list[list[Line]]:
        """Forward's API calls, each with its records."""
        calls: dict[tuple, list[Line]] = defaultdict(list)
        for line in self.lines:
            if line.record.phase == "forward" and line.call is not None:
                calls[line.call].append(line)
        return list(calls.values())

    # What is done.

    def delete_op(self) -> None:
        """One op less; half of the time what took its result takes its first input instead."""
        line = self.lines.pop(self.random.choice(self.ops()))
        if self.random.random() < 0.5:
            self._bypass([line])

    def delete_call(self) -> None:
        """One API call less, with its backward."""
        call = self.random.choice(self.forward())[0].call
        gone = [line for line in self.lines if line.call == call]
        self.lines = [line for line in self.lines if line.call != call]
        self._bypass([line for line in gone if line.record.phase == "forward"])

    def insert_op(self) -> None:
        """One op more, with the inputs of one before it; nobody takes its result."""
        i = self.random.choice(self.ops())
        self._plant([self.lines[i]], self._later(i))

    def insert_call(self) -> None:
        """One API call more, with the inputs of one before it, there or later."""
        found = self.random.choice(self.forward())
        last = self.lines.index(found[-1])
        self._plant(found, last + 1 if self.random.random() < 0.5 else self._later(last))

    def swap_neighbours(self) -> None:
        """Two ops that do not need each other, one before the other."""
        for _ in range(100):
            i = self.random.choice(self.ops()[:-1])
            a, b = self.lines[i], self.lines[i + 1]
            if b.record.phase not in VALUES and not set(a.values("output")) & set(b.values("")):
                self.lines[i], self.lines[i + 1] = b, a
                return

    def move_call(self) -> None:
        """One API call elsewhere, after all that it takes and before all that takes its results."""
        for _ in range(100):
            found = self.random.choice(self.forward())
            takes, makes = set(), set()
            for line in found:
                takes |= set(line.values("input")) - makes
                makes |= set(line.values("output")) - takes
            rest = [line for line in self.lines if line not in found]
            first = max(
                (i + 1 for i, line in enumerate(rest) if takes & line.makes()),
                default=0,
            )
            last = min(
                (i for i, line in enumerate(rest) if i >= first and makes & set(line.values(""))),
                default=len(rest),
            )
            if last - first > 3:
                at = self.random.randint(first, last)
                self.lines = rest[:at] + found + rest[at:]
                return

    def recompute(self) -> None:
        """A segment of forward again in backward, which takes what that made."""
        forward = [i for i, line in enumerate(self.lines) if line.record.phase == "forward"]
        backward = [i for i, line in enumerate(self.lines) if line.record.phase == "backward"]
        start = self.random.choice(forward)
        segment = [self.lines[i] for i in forward if start <= i < start + 20]
        at = self.random.choice(backward)
        fresh = self._plant(segment, at, phase="recompute")
        for line in self.lines[at:]:
            if line.record.phase == "backward":
                self._set(line, lambda v: fresh.get(v, v))

    def fuse(self) -> None:
        """One `addmm` written as `mm` and `add`."""
        found = [i for i in self.ops() if self.lines[i].record.ir == "addmm"]
        if not found:
            return
        i = self.random.choice(found)
        line = self.lines[i]
        record, between, entry = line.record, self._number(), line.record.entry
        product = replace(
            record,
            ir="mm",
            inputs=tuple(t for t in record.inputs if t.name != "self"),
            entry=replace(
                entry,
                names={k: n for k, n in entry.names.items() if k != "self"},
                values={k: v for k, v in entry.values.items() if k in _FACTORS}
                | {"output/result": between},
            ),
        )
        total = replace(
            record,
            ir="add_Tensor",
            inputs=tuple(
                t for t in (*record.outputs, *record.inputs) if t.name in ("self", "result")
            ),
            entry=replace(
                entry,
                names={"other": entry.names["self"]} if "self" in entry.names else {},
                values={
                    "input/self": between,
                    "input/other": entry.values["input/self"],
                    "output/result": entry.values["output/result"],
                },
            ),
        )
        pair = Line(product, record, True), Line(total, record, True)
        self.lines[i : i + 1] = pair
        self.fused.append((*pair, record))

    # How.

    def _later(self, i: int) -> int:
        """A place after the i-th line."""
        return self.random.randint(i + 1, min(len(self.lines), i + 200))

    def _number(self) -> int:
        self._fresh += 1
        return self._fresh

    def _plant(self, lines: list[Line], at: int, phase: str | None = None) -> dict[int, int]:
        """Copies of some lines at a place; the new number of each value that they make."""
        fresh: dict[int, int] = {}
        apis: dict[tuple | None, str | None] = {None: None}
        planted = []
        for line in lines:
            taken = set(line.values("input"))
            copy = Line(line.record, line.origin, True)
            entry = line.record.entry
            values = {key: fresh.get(value, value) for key, value in entry.values.items()}
            for key, value in entry.values.items():
                if key.startswith("output") and value not in taken:
                    values[key] = fresh.setdefault(value, self._number())
            if line.call not in apis:
                self._calls += 1
                apis[line.call] = f"{function_of(entry.api)}.{10**6 + self._calls}"
            api = entry.api if phase else apis[line.call]
            copy.record = replace(
                line.record,
                entry=replace(entry, values=values, api=api, phase=phase or entry.phase),
            )
            planted.append(copy)
        self.lines[at:at] = planted
        return fresh

    def _bypass(self, gone: list[Line]) -> None:
        """Who took what these made takes what they were given."""
        instead: dict[int, int] = {}
        for line in gone:
            ins = line.values("input")
            for value in line.values("output"):
                if ins and value not in ins:
                    instead[value] = instead.get(ins[0], ins[0])
        for line in self.lines:
            self._set(line, lambda v: instead.get(v, v))

    def _set(self, line: Line, number: Callable[[int], int]) -> None:
        entry = line.record.entry
        values = {key: number(value) for key, value in entry.values.items()}
        if values != entry.values:
            line.record = replace(line.record, entry=replace(entry, values=values))


_FACTORS = ("input/mat1", "input/mat2")

EDITS: dict[str, Callable[[Edited], None]] = {
    "delete_op": Edited.delete_op,
    "delete_call": Edited.delete_call,
    "insert_op": Edited.insert_op,
    "insert_call": Edited.insert_call,
    "swap_neighbours": Edited.swap_neighbours,
    "move_call": Edited.move_call,
    "recompute": Edited.recompute,
    "fuse": Edited.fuse,
}


def edited(records: tuple[Record, ...], seed: int, count: int, kinds: tuple[str, ...]) -> Edited:
    """Records with `count` random changes of the given kinds."""
    run = Edited(records, seed)
    for _ in range(count):
        EDITS[run.random.choice(kinds)](run)
    return run


@dataclass
class Verdict:
    """What became of the calls that survived, and of the planted ones that were matched.

    wrong: (mine, golden's, confidence). lost: survivors without partner. survivors: how many.
    """

    survivors: int
    wrong: list[tuple[Record, Record, str]]
    lost: list[Record]

    @property
    def share(self) -> float:
        """Of the survivors, those with their true partner."""
        return 1 - (len(self.wrong) + len(self.lost)) / max(1, self.survivors)


def judged(run: Edited, golden: Iterable[Record], matches: Iterable) -> Verdict:
    """Whether each call got its true partner, or one that nothing but its place tells from it."""
    mine = [line.record for line in run.lines]
    ours, theirs = _told_apart(mine), _told_apart(golden)
    partner = {}
    together: dict[str, set[str]] = {}
    for match in matches:
        if len(match.mine) == len(match.golden) == 1:
            partner[match.mine[0].path] = match.golden[0], match.confidence
        elif match.golden:
            paths = {record.path for record in match.golden}
            together.update((record.path, paths) for record in match.mine)
    calls = [line for line in run.lines if line.record.phase not in VALUES]
    taken = Counter(
        (ours[path], theirs[record.path]) for path, (record, _) in partner.items() if path in ours
    )
    for line in calls:  # what is left of a kind is what the others of the kind took too much
        if not line.planted and line.record.path in partner:
            taken[ours[line.record.path], theirs[partner[line.record.path][0].path]] -= 1
    found = Verdict(0, [], [])
    for line in calls:
        record, kind = line.record, (ours[line.record.path], theirs[line.origin.path])
        found.survivors += not line.planted
        if record.path in partner:
            other, confidence = partner[record.path]
            same = record.phase == other.phase and theirs[other.path] == kind[1]
            if not same or (line.planted and record.ir != other.ir):
                found.wrong.append((record, other, confidence))
        elif not line.planted and line.origin.path not in together.get(record.path, ()):
            if taken[kind] > 0:
                taken[kind] -= 1
            else:
                found.lost.append(record)
    return found


def _told_apart(records: Iterable[Record]) -> dict[str, tuple]:
    """By path, all that tells a record from others but its place."""
    users: dict[int, list[tuple]] = defaultdict(list)
    for record in records:
        for key, value in record.entry.values.items():
            if key.startswith("input"):
                users[value].append((record.ir, record.phase or "", key))
    return {record.path: _facts(record, users) for record in records}


def _facts(record: Record, users: dict[int, list[tuple]]) -> tuple:
    entry = record.entry
    taken = tuple(item for item in entry.values.items() if item[0].startswith("input"))
    given = tuple(
        tuple(sorted(users[value])) for key, value in entry.values.items() if key.startswith("o")
    )
    shapes = tuple((t.name, t.dtype, t.shape) for t in (*record.inputs, *record.outputs))
    function = entry.api and function_of(entry.api)
    stubs = tuple(sorted(entry.stubs.items()))
    where = record.ir, entry.phase, entry.step, entry.module, function, entry.node
    return *where, taken, given, shapes, stubs
