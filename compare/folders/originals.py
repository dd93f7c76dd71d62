"""npy files of the original network's ops as golden: `{op_name}.{output_index}[.{timestamp}].npy`.

A compiled network's operator may stand for several ops of the original one. Which of those an
output was is told by fusion rules, else by what its own dump file says of it, else by its own name.
Golden has outputs only: which of them an input was, only the rules can say. Files of one name are
taken in the order of their timestamps, for the first, second, ... run of an operator.

What `convert` made of CANN dumps is never golden here, although some of its names have the form of
an op's: the dumps themselves say more, the format and the shape from before padding.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from dumper.dtypes import BY_NAME
from dumper.errors import DumpError
from ir2tbe.cann.content import Dump
from ir2tbe.cann.names import name_part, parse

from ..files import tensors_in
from .origins import Claim, Key, Origins, key_of
from .pairs import Pair, Side, sides, unmatched
from .rules import Rules
from .runs import Partners, Runs, Where, name_of_file
from .scan import Folder, OpFile

_NAMES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?P<op>.+)\.(?P<index>[0-9]{1,9})\.(?P<time>[0-9]{16})\.npy",
        r"(?P<op>.+)\.(?P<index>[0-9]{1,9})\.npy",
    )
)
_CONVERTED = re.compile(r"(?P<dump>.+)\.(?:input|output)\.[0-9]+(?:\.[A-Za-z0-9_-]+)?\.npy")
"""What `convert` made of a dump file; a shape (3x4, or 7 for one axis) or a format may follow."""

QUANTIZED = "a quantized value, which golden's network has not"
"""Why such a tensor has no partner."""


def named(files: Iterable[str]) -> dict[Key, list[str]]:
    """Of paths below a folder those that are an op's output, by (name as in files, index), each in
    the order of time."""
    found: dict[Key, list[tuple[int, str]]] = {}
    for path in files:
        if is_converted(path):
            continue
        name = path.rpartition("/")[2]
        match = next(filter(None, (pattern.fullmatch(name) for pattern in _NAMES)), None)
        if match is not None:
            time = int(match.groupdict().get("time") or 0)
            key = name_part(match["op"]), int(match["index"])
            found.setdefault(key, []).append((time, path))
    return {key: [path for _, path in sorted(paths)] for key, paths in found.items()}


def is_converted(path: str) -> bool:
    """Whether a file is called like what `convert` made of a CANN dump file."""
    match = _CONVERTED.fullmatch(path.rpartition("/")[2])
    return match is not None and parse(match["dump"]) is not None


class Originals:
    """npy files as golden. mine: my folder. files: by their paths below the folder, with
    what keeps others from being read. Raises DumpError where there are none but what `convert`
    made."""

    kind = "npy files"
    addresses = False

    def __init__(
        self,
        mine: Folder,
        files: Mapping[str, Path | DumpError],
        rules: Rules | None,
    ) -> None:
        self._files, self._rules = files, rules
        readable = [name for name, file in files.items() if isinstance(file, Path)]
        self._named = named(readable)
        self._converted = sorted(filter(is_converted, readable))
        if self._converted and not self._named:
            count = len(self._converted)
            what = f"{count} npy files here are" if count > 1 else "the npy file here is"
            raise DumpError(
                f"{what} what convert made of CANN dumps, which is no golden for CANN dumps",
                files[self._converted[0]],
                "compare the folders of CANN dumps themselves: -g is the one that was converted",
            )
        self.count = sum(map(len, self._named.values()))
        self._origins = Origins(mine, rules, self._named.__contains__)
        self._runs = Runs(
            (key, Where(None, os.path.dirname(path), None), path)
            for key, paths in self._named.items()
            for path in paths
        )
        self._partners = Partners(self._origins.own.runs, self._runs)
        self._used: set[str] = set()
        self._unknown: set[Key] = set()
        """Of which nobody says which run an input was."""

    def partner(self, op: OpFile) -> Side | None:
        """As `pairs.Golden` says."""

    def pairs(self, op: OpFile, dump: Dump) -> Iterator[Pair]:
        """As `pairs.Golden` says."""
        name = self._origins.called(op, dump)
        for where, index, side in sides(op, dump):
            pair = Pair(op.number, op.name.op_type, where, side, None)
            quantized = self._rules is not None and self._rules.is_quantized(
                name, where, index, len(dump.inputs)
            )
            claim = self._origins.of(op, dump, where, index, side.tensor)
            if claim is None:
                why = self._origins.why_not(name, where, index, side.label)
                reason, code = (QUANTIZED, "quantized") if quantized else why
                yield replace(pair, reason=reason, code=code)
                continue
            path, unknown = self._run(claim, op)
            found = self._paired(pair, claim, path)
            if unknown:
                found = replace(pair, reason=unknown, code="unnamed")
            if quantized and not _are_integers(found):
                found = replace(found, reason=QUANTIZED, code="quantized", damaged=False)
            yield found

    def _run(self, claim: Claim, op: OpFile) -> tuple[str | None, str]:
        """The file of the run that a tensor was, None where there is none, or why nobody knows."""
        key, last = key_of(claim.original), claim.hops[-1]
        if last.name is not None and last.number is not None:
            return self._partners.of(last.name, last.number, key), ""
        known = [(hop.name, hop.number) for hop in reversed(claim.hops) if hop.number is not None]
        count = 0
        for own, number in (*known, (name_of_file(op), op.number)):
            found, count = self._partners.likely(own, number, key)
            if found is not None:
                return found, ""
        if not count:
            return None, ""
        self._unknown.add(key)
        return None, f"golden has {count} runs of what made this input; nobody says which"

    def _paired(self, pair: Pair, claim: Claim, path: str | None) -> Pair:
        label = f"{claim.original.name}:output:{claim.original.index}"
        if path is None:
            return replace(pair, reason=unmatched(label, True))
        self._used.add(path)
        golden = Side(claim.original.name, label, path)
        try:
            (tensor,) = tensors_in(self._files[path]).values()
        except DumpError as error:
            reason = f"{error.what}: {error.where}"
            return replace(pair, golden=golden, reason=reason, damaged=True, by=claim.by)
        return replace(pair, golden=replace(golden, tensor=tensor), by=claim.by,
                       format=claim.original.format)  # fmt: skip

    def left(self, index: int) -> Iterator[Pair]:
        """As `pairs.Golden` says."""
        for path, file in self._files.items():
            if isinstance(file, DumpError):
                reason = f"{file.what}: {file.where}"
                yield Pair(index, None, None, None, Side(path, path, path), reason, damaged=True)
        for path in self._converted:
            reason = (
                "convert made this of a CANN dump, so it is no golden; compare the folders of CANN "
                "dumps themselves"
            )
            side = Side(path, path, path)
            yield Pair(index, None, None, None, side, reason, code="converted")
        for (op, number), paths in sorted(self._named.items()):
            for path in paths:
                if path in self._used:
                    continue
                label = f"{op}:output:{number}"
                reason, code = self._origins.left(op, unmatched(label, False))
                if (op, number) in self._unknown:
                    reason, code = "nobody says which input of my operators this was", "unnamed"
                side = Side(op, label, path)
                yield Pair(index, None, "output", None, side, reason, code=code)


def _are_integers(pair: Pair) -> bool:
    """Whether both sides hold integers, as those of one quantized network do."""
    if pair.golden is None or pair.golden.tensor is None:
        return False
    kind, other = pair.mine.tensor.kind.plain.kind, BY_NAME.get(pair.golden.tensor.dtype)
    return kind in "iu" and other is not None and other.bits.kind in "iu"
