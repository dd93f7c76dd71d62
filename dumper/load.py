"""Load mode: every op of a live run computes on the inputs that another run recorded for it.

So an op that computes wrongly spoils its own outputs and nobody else's. `match` says which record
belongs to a live op; here live tensors are known by the recorded values that they are, calls are
fed, and what found no counterpart is listed. An op without one runs on what it was given, unless it
is part of an API call that this device expands into other ops than the recorded one did: then the
tensors that enter the call are the recorded ones.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from .agree import Agreement
from .errors import DumpError, first_line, warn
from .feed import Boundary, drawn_shape, given_by, mask_of
from .index import VIEW
from .layout import VALUES, member
from .match import Matcher
from .names import Names
from .ops import Op
from .parts import is_plain
from .reader import Dump, Record
from .record import stub_of, tensors_in
from .recording import CallKey, Fact, Live, Recording
from .scopes import Scope
from .stored import Tensor
from .values import StoredValues
from .writer import Writer

_SHOWN = 10
EXPANDED = "this device expands the call into other ops"
FED = "this device expands the call into other ops; this one was fed with what enters the call"


class Feed(NamedTuple):
    """What a live call is to run on. record: its counterpart. given: the arguments in the place of
    the live ones; None: it runs as it came. inside: the live call, in which values may be made.
    drawn: what the recorded call drew, where another op draws here."""

    live: Live
    record: Record | None
    given: list[Any] | None
    inside: tuple
    drawn: Tensor | None = None


class Unmatched(NamedTuple):
    """An op that is not recorded, and why."""

    ir: str
    api: str | None
    module: str | None
    phase: str
    reason: str


class Loader:
    """Finds the counterparts of live calls in one recorded run, and what to feed them."""

    def __init__(self, dump: Dump) -> None:
        self._values = {
            (record.phase, name, record.entry.step or 0): record.seqid
            for record in dump.records
            if record.phase in VALUES
            for name in record.entry.names.values()
        }
        # An overflow check records only what overflowed.
        overflow = dump.environment.get("mode") == "overflow"
        self._recording = Recording(dump.records, extract=overflow)
        self._matcher = Matcher(self._recording)
        self._agreement = Agreement(self._recording.indexed)
        self._storages = StoredValues()  # `maker`: the recorded number, or where it was made
        self._boundaries: dict[tuple, Boundary] = {}
        self._fed_calls: dict[tuple, int] = {}  # with how many ops of theirs found no counterpart
        self._number = self._step = 0
        self._lock = threading.RLock()
        self.matched = 0
        self._unmatched: list[Unmatched] = []

    @property
    def unmatched(self) -> list[str]:
        """IR names of the ops that found no counterpart, in order."""
        return [entry.ir for entry in self._unmatched]

    def value(self, phase: str, name: str, step: int) -> int | None:
        """The seqid under which the recorded run holds a named value of a step, if it does."""
        with self._lock:
            self._number += 1  # a dump numbers these too
            return self._values.get((phase, name, step))

    def seek(
        self,
        op: Op,
        values: list[Any],
        place: tuple[str, Scope, str | None],
        step: int,
        thread: int,
        names: Names,
    ) -> Feed:
        """Say what a live call is to run on; what has no counterpart is noted."""
        # Our own work is no call of the user's, for none of the user's modes.
        with self._lock, torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            phase, scope, _ = place
            self._number += 1
            if step > self._step + 1:  # ops went unseen: what storages hold is not known any more
                self._storages = StoredValues()
            self._step = step
            facts = {key: self._fact(t, names) for key, t in _named(op, values)}
            live = Live(
                op.ir, phase, scope.api, scope.module, scope.source, step, thread, self._number,
                facts,
            )  # fmt: skip
            inside = (step, thread, phase, scope.api)
            found = self._matcher.find(live, lambda record: self._difference(op, values, record))
            if found.record is not None:
                return self._fed(op, values, Feed(live, found.record, None, inside))
            given = drawn = None
            if found.expanded:
                given = self._at_boundary(op, values, live, found.call, inside)
                drawn = self._drawn(op, values, found.call)
                found.reason = EXPANDED
                if given is not None or drawn is not None:
                    found.reason, given = FED, given or values
            self._note(live, found.reason, inside)
            return Feed(live, None, given, inside, drawn)

    def failed(self, feed: Feed, error: Exception) -> None:
        """The op would not run on what it was given; it runs as it came."""
        reason = f"it raised on recorded inputs: {first_line(error)}"
        with self._lock:
            if feed.record is not None:
                self.matched -= 1
                self._note(feed.live, reason, feed.inside)

    def made(self, feed: Feed, op: Op, values: list[Any], result: Any) -> None:
        """Learn which recorded values the live tensors are now. result: what the caller gets."""
        with self._lock, torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            numbers = {} if feed.record is None else feed.record.entry.values
            if feed.record is not None:
                for key, tensor in _named(op, values):
                    storage = self._storages.of(tensor) if is_plain(tensor) else None
                    if storage is not None and not isinstance(storage.maker, int):
                        storage.maker = numbers.get(f"input/{key}", storage.maker)
            for i in op.written:
                for key, tensor in _members(op.arguments[i].key, values[i]):
                    if is_plain(tensor):
                        self._storages.written(tensor, numbers.get(f"output/{key}", feed.inside))
            if op.is_view:
                return
            written = {id(t) for i in op.written for t in tensors_in(values[i])}
            for name, value in op.named_results(result):
                for key, tensor in _members(name, value):
                    if id(tensor) not in written and is_plain(tensor):
                        number = numbers.get(f"output/{key}", feed.inside)
                        self._storages.written(tensor, number)

    def report(self, path: str, source: str) -> None:
        """Say once how much was fed and, by reason, what was not."""
        in_calls = sum(self._fed_calls.values())
        alone = len(self._unmatched) - in_calls
        total = self.matched + alone
        if not total + in_calls:
            return
        what = f"{self.matched} of {total} ops ({100 * self.matched // max(total, 1)} %) ran on "
        what += "recorded inputs"
        if in_calls:
            calls = {(step, thread, api) for step, thread, _, api in self._fed_calls}
            what += (
                f"; {in_calls} more ops belong to {len(calls)} calls that this device "
                "expands into other ops, which were fed with what enters them"
            )
        if not self._unmatched:
            sys.stderr.write(f"torch.utils.dumper: {what} ({path})\n")
            return
        what += f"; what found no counterpart in {source} is not recorded: {self._kinds()}"
        if 2 * self.matched < total:
            warn(
                f"this is no load run: {what}",
                path,
                "load what the same script recorded, with the same model and the same data shapes",
            )
            return
        warn(what, path, "compare what was fed; the file lists the others under unmatched")

    def _kinds(self) -> str:
        """The most frequent kinds of ops without a counterpart, with their reasons."""
        counted = Counter((entry.ir, entry.reason) for entry in self._unmatched)
        kinds = [f"{n} x {ir}: {reason}" for (ir, reason), n in counted.most_common(_SHOWN)]
        more = len(counted) - len(kinds)
        return "; ".join(kinds) + (f"; and {more} more kinds" if more > 0 else "")

    def write_unmatched(self, writer: Writer) -> None:
        """List in the file what found no counterpart."""
        for entry in self._unmatched:
            writer.line("unmatched", json.dumps(entry._asdict()))

    def _difference(self, op: Op, values: list[Any], record: Record) -> str | None:
        try:
            return self._agreement.difference(op, values, record)
        except DumpError as error:
            return f"its inputs cannot be read: {error.what}"

    def _note(self, live: Live, reason: str, inside: tuple) -> None:
        self._unmatched.append(Unmatched(live.ir, live.api, live.module, live.phase, reason))
        if inside in self._fed_calls:
            self._fed_calls[inside] += 1

    def _fact(self, tensor: torch.Tensor, names: Names) -> Fact:
        storage = self._storages.of(tensor) if is_plain(tensor) else None
        if storage is None:
            return Fact(None, None)
        maker = storage.maker
        name = names.of_storage(storage.address, tensor)
        return Fact(name, maker if isinstance(maker, int) else None)

    def _fed(self, op: Op, values: list[Any], feed: Feed) -> Feed:
        if op.is_view and not feed.record.outputs:
            self.matched += 1
            return feed
        try:
            given = given_by(op, values, feed.record)
        except (DumpError, RuntimeError) as error:
            if op.is_view:  # its input is only described, and it runs live in any case
                self.matched += 1
                return feed
            reason = error.what if isinstance(error, DumpError) else first_line(error)
            self._note(feed.live, f"its inputs cannot be read: {reason}", feed.inside)
            return feed._replace(record=None)
        self.matched += 1
        return feed._replace(given=given)

    def _at_boundary(
        self, op: Op, values: list[Any], live: Live, call: CallKey, inside: tuple
    ) -> list[Any] | None:
        """The arguments with recorded values for what enters the call; None where nothing does."""
        uses = self._recording.entering(call)
        boundary = self._boundaries.get(inside)
        if boundary is None:
            boundary = self._boundaries[inside] = Boundary(uses)
        given, fed = list(values), False
        for i, (argument, value) in enumerate(zip(op.arguments, values, strict=True)):
            if not isinstance(value, torch.Tensor) or not is_plain(value):
                continue
            number = self._entered(boundary, uses, value, live.tensors[argument.key], inside)
            if number is None:
                continue
            if op.is_view:
                boundary.note(value, number)
                continue
            try:
                recorded = boundary.replaced(value, number)
            except DumpError:
                continue
            if recorded is not None:
                given[i], fed = recorded, True
        if fed:
            self._fed_calls.setdefault(inside, 0)
        return given if fed else None

    def _drawn(self, op: Op, values: list[Any], call: CallKey) -> Tensor | None:
        """What the recorded call drew, if this op draws its like: dropout's mask, most often."""
        shape = drawn_shape(op, values)
        if shape is None:
            return None
        for record in self._recording.calls[call]:
            if not self._recording.left(record):
                continue
            mask = mask_of(record)
            if mask is not None and mask.shape == shape:
                self._recording.take(record)
                return mask
        return None

    def _entered(
        self, boundary: Boundary, uses: dict, tensor: torch.Tensor, fact: Fact, inside: tuple
    ) -> int | None:
        """The number of the recorded value that entered the call as this tensor, if one did."""
        if fact.number is not None:
            return fact.number if fact.number in uses else None
        storage = self._storages.of(tensor)
        if storage is None or storage.maker == inside:
            return None
        number = boundary.number_of(tensor, fact.name)
        if number is not None:
            storage.maker = number
        return number


def described(op: Op, result: Any) -> dict[str, list[Any]]:
    """Stubs of a view op's results, as the index has them."""
    return {
        f"output/{key}": stub_of(tensor, VIEW)
        for name, value in op.named_results(result)
        for key, tensor in _members(name, value)
    }


def _named(op: Op, values: list[Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a call by the names that a record gives them."""
    for argument, value in zip(op.arguments, values, strict=True):
        yield from _members(argument.key, value)


def _members(key: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield key, value
    elif isinstance(value, (list, tuple)):
        for i, tensor in enumerate(value):
            if isinstance(tensor, torch.Tensor):
                yield member(key, i), tensor
