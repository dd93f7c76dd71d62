"""An HDF5 dump as golden: outputs of its records against the operators that the records became.

A replay under ACL dump writes into each output that is a record's result which it is
(`original_op`: `<IR>/<seqid>/output/<name>`, or `<IR>/<seqid>` and the how many-th tensor of its
outputs), and calls the operators `<IR>/<seqid>/<k>`. What lies between two operators of one record
is nowhere in golden: the record is replayed on the CPU to have it. What each input is, no file
says. And not every result is what an operator makes: the rstd of a layer norm comes of a variance,
a mask of packed bits; so a result that no file names is nobody's fault, if all files could be read
and agree with the record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from dumper import reader, stored
from dumper.layout import VALUES
from ir2tbe.cann.content import Dump, Origin

from ..files import FileTensor
from .pairs import BY_RECORD, UNINITIALISED, Pair, Side, cut, name_of, sides, unmatched
from .scan import OpFile

_RECORD = re.compile(r"/?(?P<record>[^/]+/[0-9]{1,18})(/output/(?P<name>.+))?", re.DOTALL)
_PART = re.compile(r"(?P<record>[^/]+/[0-9]{1,18})/[0-9]{1,18}")


class Records:
    """The records of a dump as golden."""

    kind = "records"
    addresses = False

    def __init__(self, dump: reader.Dump) -> None:
        self._records = {f"{record.ir}/{record.seqid}": record for record in dump.records}
        self.count = len(self._records)
        self._seen: dict[str, set[int]] = {}
        """Outputs that were found in my files, of the records that any file is of."""
        self._at_odds: set[str] = set()
        """Records of which a file of mine names a result that golden has not."""
        self._read = 0
        """How many of my files could be read."""

    def partner(self, op: OpFile) -> Side | None:
        """As `Golden` says."""

    def pairs(self, op: OpFile, dump: Dump) -> Iterator[Pair]:
        """As `pairs.Golden` says."""
        self._read += 1
        part = _PART.fullmatch(name_of(op, dump))
        owner = part["record"] if part and part["record"] in self._records else None
        for tensor in dump.outputs:
            if owner is None and tensor.origin is not None:
                found = _RECORD.fullmatch(tensor.origin.name)
                owner = found["record"] if found and found["record"] in self._records else None
        if owner is not None:
            self._seen.setdefault(owner, set())
        for where, _, side in sides(op, dump):
            pair = Pair(op.number, op.name.op_type, where, side, None)
            if where == "input" and owner is not None:
                reason = f"which value of {owner} this input is, no file says"
                yield replace(pair, reason=reason, code="unnamed")
            elif where == "output" and side.tensor.origin is not None:
                result = self._result(pair, side.tensor.origin)
                if result.golden is None and owner is not None:
                    self._at_odds.add(owner)
                yield result
            elif owner is not None:
                reason = (
                    f"an intermediate value of {owner}: golden has none; replay the record on the "
                    "CPU to have one"
                )
                yield replace(pair, reason=reason, code="intermediate")
            else:
                yield replace(pair, reason=unmatched(side.label, True))

    def _result(self, pair: Pair, origin: Origin) -> Pair:
        found = _RECORD.fullmatch(origin.name)
        record = self._records.get(found["record"]) if found else None
        if record is None:
            return replace(pair, reason=unmatched(cut(origin.name), True))
        at = origin.output_index
        if found["name"] is not None:
            names = [tensor.name for tensor in record.outputs]
            if found["name"] not in names:
                return replace(pair, reason=unmatched(cut(origin.name), True))
            at = names.index(found["name"])
        if at >= len(record.outputs):
            reason = f"{found['record']} has {len(record.outputs)} output tensors in golden"
            return replace(pair, reason=reason)
        self._seen.setdefault(found["record"], set()).add(at)
        tensor = record.outputs[at]
        pair = replace(pair, golden=_side(found["record"], at, tensor), by=BY_RECORD)
        if tensor.uninitialised and tensor.size:
            return replace(pair, reason="uninitialised memory is not compared", code=UNINITIALISED)
        return pair

    def left(self, index: int) -> Iterator[Pair]:
        """As `pairs.Golden` says. A record that no file is of may have run no operator, as a view
        has none, and is nobody's fault; gradients and parameters at the end of a step are no op."""
        unread = index - 1 - self._read
        for name, record in self._records.items():
            if record.phase in VALUES:
                continue
            if name not in self._seen:
                side = Side(name, name, record.path)
                reason = f"no file of my folder is of {name}"
                yield Pair(index, None, None, None, side, reason, code="not_run")
                continue
            for at, tensor in enumerate(record.outputs):
                if at in self._seen[name]:
                    continue
                side, code = _side(name, at, tensor), ""
                if unread:
                    reason = "no file that could be read names this result"
                elif name in self._at_odds:
                    reason = unmatched(tensor.path, False)
                else:
                    code = "unmade"
                    reason = (
                        f"no file of {name} names this result: no operator makes it as it is, or "
                        "it was not dumped"
                    )
                yield Pair(index, None, "output", None, side, reason, code=code)


def _side(name: str, at: int, tensor: stored.Tensor) -> Side:
    held = FileTensor(tensor.name, tensor.dtype, tensor.shape, tensor.path, tensor.read)
    return Side(name, f"{name}:output:{at}", tensor.path, held)
