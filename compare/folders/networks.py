"""npy files of a quantized network's ops against those of the network before it was quantized.

AMCT's json says which op of that network each output was. There is one file an output, named as
`originals` says, and no order of execution: rows come in the order of names, mine first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from dumper.errors import DumpError

from ..filepairs import Place, Source, natural, row_of, some_npy_files
from ..judging.verdict import Kind, Verdict
from ..row import Row
from .originals import QUANTIZED, named
from .origins import Key, Origins, key_of
from .pairs import unmatched
from .rules import Original, Rules
from .runs import Where, matched
from .scan import Folder, no_npy_of_ops


class _Planned(NamedTuple):
    """A row to be. names, sources: mine and golden's. reason, code: why it is nobody's fault that
    one is missing, '' where it is not, or none is."""

    op: str
    names: tuple[str, str]
    sources: tuple[Source, Source]
    reason: str = ""
    code: str = ""


def rows_of_networks(mine: Path, golden: Path, rules: Rules) -> tuple[int, Iterator[Row]]:
    """How many rows two directories have, and the rows.

    rules: of the quantized network, which is mine. Raises DumpError, before any row, where one of
    them has no npy file of an op.
    """
    left, right = some_npy_files(mine), some_npy_files(golden)
    of_mine, of_golden = _ops(left), _ops(right)
    for root, found in ((mine, of_mine), (golden, of_golden)):
        if not found:
            raise no_npy_of_ops(root)
    origins = Origins(Folder(), rules, of_golden.__contains__)
    planned, used = [], set()
    for (op, index), paths in sorted(of_mine.items(), key=_by_name):
        claimed = rules.output(op, index) if op in rules else Original(op, index)
        label = f"{op}:output:{index}"
        others = of_golden.get(key_of(claimed), []) if claimed else []
        partners = matched(_places(paths), _places(others))
        for run, path in enumerate(paths):
            reason, code, other = "", "", None
            if rules.is_quantized(op, "output", index):
                reason, code = QUANTIZED, "quantized"
            elif claimed is None:
                reason, code = origins.why_not(op, "output", index, label)
            else:
                label = f"{claimed.name}:output:{claimed.index}"
                other = others[partners[run]] if run in partners else None
            used.add(other)
            sides = (left[path], right.get(other))
            planned.append(_Planned(op, (path, other or label), sides, reason, code))
    for (op, index), paths in sorted(of_golden.items(), key=_by_name):
        label = f"{op}:output:{index}"
        reason, code = origins.left(op, unmatched(label, False))
        for path in paths:
            if path not in used:
                planned.append(_Planned(op, (label, path), (None, right[path]), reason, code))
    planned += [_Planned(path, (path, path), (left[path], None)) for path in _rest(left, of_mine)]
    planned += [
        _Planned(path, (path, path), (None, right[path])) for path in _rest(right, of_golden)
    ]
    return len(planned), (_row(number, each) for number, each in enumerate(planned, 1))


def _ops(files: Mapping[str, Path | DumpError]) -> dict[Key, list[str]]:
    return named(path for path, file in files.items() if isinstance(file, Path))


def _places(paths: Iterable[str]) -> list[Where]:
    return [Where(None, os.path.dirname(path), None) for path in paths]


def _rest(files: Mapping[str, Path | DumpError], ops: Mapping[Key, list[str]]) -> list[str]:
    """Files that are no op's output, or cannot be read."""
    return sorted(files.keys() - {path for paths in ops.values() for path in paths}, key=natural)


def _by_name(item: tuple[Key, list[str]]) -> tuple[list[tuple[int, str]], int]:
    (op, index), _ = item
    return natural(op), index


def _row(number: int, planned: _Planned) -> Row:
    row = row_of(Place(number, planned.op, "output"), planned.names, planned.sources)
    if planned.code:
        verdict = Verdict(Kind.CANNOT_TELL, planned.code, planned.reason)
        row = row._replace(reasons=(planned.reason,)).judged_as(verdict)
    return row
