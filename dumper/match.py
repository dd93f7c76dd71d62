"""Which recorded op is the counterpart of a live one: the rule, on facts alone, without torch.

What knows best is asked first: the API call. A live call opens with its first op and takes one
recorded call of the same step, phase, thread, module and name; from then on its ops, those of its
backward and recomputation included, are sought inside that call. Calls are numbered per name, and
one call more or less shifts all numbers after it, so the number is not the rule. Of the next few
recorded calls that one is taken whose first tensors are the live ones: a parameter is known by its
name, any other value by what made it (values are numbered, and what a matched op makes is known by
the recorded number from then on). A call with other tensors is none, unless it stands on the same
source line. So an inserted call takes nobody's counterpart, and one that follows a dropped call
still finds its own. docs/load.md tells it to people.

A file without an index (one op that h5copy took out, or the original's) has no calls, and one of an
overflow check has calls of which most ops are missing. The records of such an extract bear the
numbers they had, and live ops are counted as the recording counted them; a whole run of the
original is matched in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .reader import Record
from .recording import CallKey, Live, Queue, Recording

_TRUSTED = 4  # ops in a row at one distance of lines, where that is not 0
_NAME, _OTHER_NAME = 4, -1_000_000  # what a parameter's name weighs against a value's number
NOTHING_LEFT = "no such op is left in the recording"
NO_SUCH_OP = "the recording has no such op"
NOT_IN_CALL = "the recorded call has no such op, or no further one"
NO_CALL = "no recorded call of this name is left in this module"
OTHER_TENSORS = "the recorded calls at hand take other tensors"


@dataclass(slots=True)
class Found:
    """record: the counterpart; None without one, and `reason` says why. call: the recorded call
    that the live op's call is, if one is. expanded: that holds other ops than the live one."""

    record: Record | None
    reason: str = ""
    call: CallKey | None = None
    expanded: bool = False


Differs = Callable[[Record], str | None]
"""Says how a record's arguments differ from the live ones; None where they agree."""


@dataclass(slots=True)
class Lines:
    """How far apart a live line and its recorded one are, file by file."""

    shift: dict[str, int] = field(default_factory=dict)
    agreed: dict[str, int] = field(default_factory=dict)
    doubted: dict[str, int] = field(default_factory=dict)

    def compare(self, live: str | None, recorded: str | None) -> int:
        """1: the same line. -1: another. 0: cannot tell."""
        distance = _distance(live, recorded)
        if distance is None:
            return 0
        file, apart = distance
        if self.agreed.get(file, 0) < (_TRUSTED if self.shift.get(file) else 1):
            return 0  # the same line number needs no confirmation
        return 1 if apart == self.shift[file] else -1

    def learn(self, live: str | None, recorded: str | None) -> None:
        """The two ops are counterparts."""
        distance = _distance(live, recorded)
        if distance is None:
            return
        file, apart = distance
        same = self.shift.get(file) == apart
        self.agreed[file] = self.agreed.get(file, 0) + 1 if same else 1
        self.shift[file] = apart

    def moved(self, live: str | None, recorded: str | None) -> bool:
        """Whether a line that is another has been so twice by one distance: the file was edited."""
        distance = _distance(live, recorded)
        if distance is None:
            return True
        file, apart = distance
        again = self.doubted.get(file) == apart
        self.doubted[file] = apart
        return again


class Matcher:
    """Finds the counterparts of live ops, one after the other."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._calls: dict[tuple[int, int, str], str | None] = {}  # live call to recorded call
        self._expanded: set[CallKey] = set()  # calls that hold other ops here than there
        self._lines = Lines()

    def find(self, live: Live, differs: Differs) -> Found:
        """Take the record that belongs to a live op."""
        if self._recording.extract or not self._recording.indexed:
            return self._in_order(live, differs)
        if live.api is None:
            found = self._best(live, self._recording.outside(live), differs)
        else:
            found = self._of_call(live, differs)
        if found.record is None and found.call is None:
            found = self._elsewhere(live, differs, found.reason)
        if found.record is not None:
            self._recording.take(found.record)
            self._lines.learn(live.source, found.record.entry.source)
        return found

    def _of_call(self, live: Live, differs: Differs) -> Found:
        key = (live.step, live.thread, live.api)
        if key not in self._calls:
            api, reason = self._open(live, differs)
            if api is None:
                if _opens(live):
                    self._calls[key] = None
                return Found(None, reason)
            self._calls[key] = api
        api = self._calls[key]
        if api is None:
            return Found(None, OTHER_TENSORS)
        call = CallKey(live.step, live.thread, live.phase, api)
        if call not in self._recording.calls:
            return Found(None, NOT_IN_CALL)
        queue = self._recording.in_call(call, live.ir)
        found = self._best(live, queue, differs, call)
        found.call = call
        if found.record is None:
            if not found.reason:
                found.reason = NOT_IN_CALL
                self._expanded.add(call)
            found.expanded = call in self._expanded
        return found

    def _open(self, live: Live, differs: Differs) -> tuple[str | None, str]:
        """The recorded call that a live call is, by its first op; else None and why."""
        if not _opens(live):
            # Its forward was not recorded, or not seen: the number is all there is.
            same = CallKey(live.step, live.thread, live.phase, live.api)
            return (live.api, "") if same in self._recording.calls else (None, NO_CALL)
        queue, best, reason = self._recording.openings(live), None, NO_CALL
        for order, (place, call) in enumerate(queue):
            record, agrees = self._first(call, live.ir, differs)
            if record is None:
                evidence = self._evidence_of_call(live, call)
            else:
                evidence = _evidence(live, record)
            source = self._recording.calls[call][0].entry.source
            line = self._lines.compare(live.source, source)
            if not _accepts(evidence, line):
                reason = OTHER_TENSORS
                continue
            rank = (agrees, line, evidence, record is not None, -order)
            if best is None or rank > best[0]:
                best = rank, place, call, source
            if agrees and line >= 0 and evidence >= 0 and (line or evidence):
                break
        if best is None:
            return None, reason
        (_, line, evidence, *_), place, call, source = best
        if line < 0 and evidence == 0 and not self._lines.moved(live.source, source):
            return None, OTHER_TENSORS
        queue.take(place)
        return call.api, ""

    def _first(self, call: CallKey, ir: str, differs: Differs) -> tuple[Record | None, bool]:
        """The call's first record of an IR that agrees, else its first one; and whether it does."""
        first = None
        for _, record in self._recording.in_call(call, ir):
            if differs(record) is None:
                return record, True
            first = first or record
        return first, False

    def _best(
        self, live: Live, queue: Queue, differs: Differs, call: CallKey | None = None
    ) -> Found:
        """The record of a queue that fits best. call: the recorded call it is sought in, whose
        tensors need not be the live ones unless the call holds other ops than here."""
        best, reason, strict = None, "", call in self._expanded
        for order, (place, record) in enumerate(queue):
            if not self._recording.left(record):
                continue
            difference = differs(record)
            if difference is not None:
                reason = reason or difference
                continue
            evidence = _evidence(live, record)
            line = self._lines.compare(live.source, record.entry.source)
            if evidence <= 0 if strict else call is None and not _accepts(evidence, line):
                reason = reason or OTHER_TENSORS
                continue
            rank = (line, evidence, -order)
            if best is None or rank > best[0]:
                best = rank, place, record
            if evidence > 0 and line >= 0:
                break
        if best is not None and call is None and best[0][:2] == (-1, 0):
            if not self._lines.moved(live.source, best[2].entry.source):
                best, reason = None, reason or OTHER_TENSORS
        if best is None:
            return Found(None, reason)
        queue.take(best[1])
        return Found(best[2])

    def _elsewhere(self, live: Live, differs: Differs, reason: str) -> Found:
        """By name, shapes and arguments, wherever the record stands: its tensors must be these.

        Where the live module's path is unknown to the recording (a model wrapped or renamed), names
        say nothing, and it is enough that the tensors are no others.
        """
        strange = live.module not in self._recording.modules
        for _, record in self._recording.anywhere(live):
            evidence = _evidence(live, record, named=not strange)
            line = self._lines.compare(live.source, record.entry.source)
            plausible = evidence > 0 and line >= 0 or strange and evidence == 0
            if plausible and differs(record) is None:
                if live.api is not None and record.entry.api is not None:
                    self._calls[live.step, live.thread, live.api] = record.entry.api
                return Found(record)
        known = live.ir in self._recording.irs
        return Found(None, (reason or NOTHING_LEFT) if known else NO_SUCH_OP)

    def _in_order(self, live: Live, differs: Differs) -> Found:
        recording, reason = self._recording, ""
        record = recording.numbered(live.ir, live.number) if recording.extract else None
        if record is not None and recording.left(record) and differs(record) is None:
            recording.take(record)
            return Found(record)
        for _, record in recording.anywhere(live):
            if recording.extract and live.number < record.seqid:
                reason = reason or f"op {live.number} of the run, which the extract does not hold"
                continue
            difference = differs(record)
            if difference is None:
                recording.take(record)
                return Found(record)
            reason = reason or difference
        return Found(None, reason or (NOTHING_LEFT if live.ir in recording.irs else NO_SUCH_OP))

    def _evidence_of_call(self, live: Live, call: CallKey) -> int:
        """As `_evidence`, where the call has no such op."""
        entering = self._recording.entering(call)
        known = [fact.number for fact in live.tensors.values() if fact.number is not None]
        return sum(1 if number in entering else -1 for number in known)


def _opens(live: Live) -> bool:
    """Whether a call begins where it is live; others are known from their forward."""
    return live.phase not in ("backward", "recompute") or live.api.startswith("backward:")


def _accepts(evidence: int, line: int) -> bool:
    """Whether a record's tensors let it be the counterpart of a call that stands alone."""
    return evidence > _OTHER_NAME and (line > 0 or evidence >= 0)


def _evidence(live: Live, record: Record, named: bool = True) -> int:
    """How many tensors are known to be the recorded ones, less those known to be others."""
    names, numbers, sum_ = record.entry.names, record.entry.values, 0
    for key, fact in live.tensors.items():
        name = names.get(key)
        if named and fact.name is not None and name is not None:
            if fact.name != name:
                return _OTHER_NAME
            sum_ += _NAME
            continue
        number = numbers.get(f"input/{key}")
        if fact.number is not None and number is not None:
            sum_ += 1 if fact.number == number else -1
    return sum_


def _distance(live: str | None, recorded: str | None) -> tuple[str, int] | None:
    if live is None or recorded is None:
        return None
    file, _, line = live.rpartition(":")
    other, _, at = recorded.rpartition(":")
    if file != other or not (line.isdecimal() and at.isdecimal()):
        return None
    return file, int(line) - int(at)
