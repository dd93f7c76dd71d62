"""One pair of tensors to its row. What cannot be compared is a row with its reason, never an
exception."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from dumper.errors import DumpError
from ir2tbe.cann.content import Tensor

from ..comparing import Options
from ..filepairs import measured
from ..files import FileTensor
from ..judging.verdict import Kind, Verdict
from ..row import Row, Status
from .pairs import BY_RECORD, UNINITIALISED, Pair
from .plain import both_plain, plain, without_ones


class FolderRow(NamedTuple):
    """A row, and the pair that it is of."""

    row: Row
    pair: Pair


def row_of(pair: Pair, options: Options) -> FolderRow:
    """The row of a pair. What is nobody's fault is no trouble: its verdict is `cannot_tell`."""
    labels = [side and side.label for side in (pair.mine, pair.golden)]
    row = Row(
        pair.index, pair.op_type, pair.where, None, *labels, None, None, Status.INCOMPARABLE, None,
        match=pair.by or None,
    )  # fmt: skip
    if pair.reason:
        return FolderRow(_without_values(row, pair), pair)
    try:
        mine, golden, note = values_of(pair)
        row = measured(row, mine, golden, options)
    except DumpError as error:
        row = row._replace(reasons=(f"{error.what}: {error.where}",))
        return FolderRow(row, replace(pair, damaged=True))
    except MemoryError:
        reason = f"not enough memory to compare {pair.mine.label}"
        return FolderRow(row._replace(reasons=(reason,)), replace(pair, damaged=True))
    if row.status is Status.EQUAL and pair.mine.dtype != pair.golden.dtype:
        row = row._replace(status=Status.ALIKE)
    kind = pair.mine.tensor.kind
    odd = "" if kind.numeric else f"what {kind.name} holds is compared as integers"
    return FolderRow(row._replace(reasons=(*row.reasons, *filter(None, (note, odd)))), pair)


def _without_values(row: Row, pair: Pair) -> Row:
    row = row._replace(reasons=(pair.reason,))
    if pair.code == UNINITIALISED:
        return row._replace(status=Status.UNINITIALISED)
    if pair.code or (not pair.damaged and None in (pair.mine, pair.golden)):
        row = row._replace(status=Status.UNPAIRED)
    if pair.code:
        row = row.judged_as(Verdict(Kind.CANNOT_TELL, pair.code, pair.reason))
    return row


def values_of(pair: Pair) -> tuple[FileTensor, FileTensor, str]:
    """Both tensors in one layout, and a note on what was assumed. Raises DumpError."""
    mine, golden = pair.mine, pair.golden
    if isinstance(golden.tensor, Tensor):
        return both_plain(mine.tensor, golden.tensor, (mine.label, golden.label))
    found, note = plain(mine.tensor, pair.format, mine.label), ""
    if pair.by == BY_RECORD and found.shape != golden.tensor.shape:
        found, note = without_ones(found, golden.tensor.shape)
    return found, golden.tensor, note
