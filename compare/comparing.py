"""One pair of values to its row: judged for shape and dtype first, then read and measured.

What cannot be compared is a row with its reason, never an exception. Equal arguments have no rows,
as in the original's csv. What no op has written yet is not compared: a tensor says so itself, and
in older files its IR does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dumper.errors import DumpError
from dumper.index import WITHOUT_DATA, Stub
from dumper.layout import Type
from dumper.reader import Dump
from dumper.stored import Argument, Tensor

from .alignment import LOW
from .common import Pair
from .custom import Custom
from .judging import Context
from .kinds import comparable, way
from .loss_scale import PHASES, LossScale
from .metrics import Metrics, compare_arrays, metrics_of
from .row import Row, Status
from .sparse import (
    Whole,
    coalesced,
    quantization_difference,
    structure_difference,
    to_coalesce,
    whole_of,
)
from .streams import Streams, can_stream

_REMEMBERED = 4096
"""Pairs of stored values whose metrics are kept: an input that is an earlier output is a hard link
to it."""

_EMPTY = re.compile(r"(new_)?empty(_like|_strided|_permuted|_quantized)?(_|$)")
"""IRs whose result is memory as it was found."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked of a comparison.

    divergence: the Kullback-Leibler divergence, which costs as much as all else, is wanted. first:
    how many elements of each tensor are compared, 0 for all. custom: algorithms of the user's own.
    skip: how many rows are known already, from an earlier run, and not wanted again.
    """

    divergence: bool = True
    first: int = 0
    custom: tuple[Custom, ...] = ()
    skip: int = 0


ALL = Options()
"""Everything, with the ten algorithms."""


class Measured(NamedTuple):
    """A pair's numbers; what the user's own algorithms said, and why they failed, '' where not."""

    metrics: Metrics
    custom: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(slots=True)
class Known:
    """What is asked, and what is known of stored values by their addresses (mine, golden's).

    scale: of the loss, to be divided out. context: what verdicts go by. made: numbers of the values
    that ops of mine made. turned: golden was made in load mode from mine.
    """

    options: Options
    unwritten: tuple[set[int], set[int]]
    scale: LossScale | None = None
    context: Context = Context()
    made: frozenset[int] = frozenset()
    turned: bool = False
    measured: dict[tuple, Measured] = field(default_factory=dict)
    arguments: dict[tuple, str] = field(default_factory=dict)


def unwritten(dump: Dump) -> set[int]:
    """Addresses of values that are, in part at least, whatever lay in memory.

    An op that takes such a tensor before anything is written to it has a hard link to that value.
    """
    found = {
        tensor.address
        for record in dump.records
        for tensor in (*record.inputs, *record.outputs)
        if tensor.uninitialised
    }
    if found:
        return found
    made = (record for record in dump.records if _EMPTY.match(record.ir))
    return {tensor.address for record in made for tensor in record.outputs}


def row_of(found: Pair, known: Known, spread: Callable = map) -> Row | None:
    """The row of a pair; None for equal arguments. spread: maps a function over parts of a pair."""
    mine, golden, record = found.mine, found.golden, found.record

    def row(
        status: Status,
        *reasons: str,
        claims: tuple[str, tuple[int, ...]] | tuple[None, None] = (None, None),
        measured: Measured | None = None,
    ) -> Row:
        op, path, phase = (record.ir, record.path, record.phase) if record else (None, None, None)
        paths = found.my_path, found.golden_path
        metrics, custom, failed = measured or (None, (), ())
        match = found.match
        return Row(
            found.index, op, found.side, path, *paths, *claims, status, metrics,
            (*reasons, *filter(None, failed)), phase, custom, found.leaf,
            match and match.kind, match is not None and match.confidence == LOW,
        )  # fmt: skip

    if mine is None or golden is None:
        return row(Status.INCOMPARABLE if found.omitted else Status.UNPAIRED, found.reason)
    claims = (None, None) if isinstance(mine, Argument) else (mine.dtype, mine.shape)
    try:
        if isinstance(mine, Argument):
            return _argument_row(mine, golden, found, known, row)
        if isinstance(mine, Stub) or isinstance(golden, Stub):
            return row(*_described(mine, golden), claims=claims)
        wholes = [
            whole_of(owner, found.side, tensor)
            for owner, tensor in ((record, mine), (found.partner, golden))
        ]
        reason = obstacle(mine, golden, wholes)
        if not reason and mine.name.endswith("/values"):
            reason = quantization_difference(wholes)
        if reason:
            return row(Status.INCOMPARABLE, reason)
        if mine.size and (
            mine.address in known.unwritten[0] or golden.address in known.unwritten[1]
        ):
            reason = "uninitialised memory is not compared"
            return row(Status.UNINITIALISED, reason, claims=claims)
        if to_coalesce(wholes):
            part = mine.name.rpartition("/")[2]
            a, b = (coalesced(whole)[part] for whole in wholes)
            claims = mine.dtype, a.shape
            if a.shape != b.shape:
                count = [array.shape[-1 if part == "indices" else 0] for array in (a, b)]
                reason = (
                    f"structures differ: {count[0]} elements in my dump, {count[1]} in golden, "
                    "both coalesced"
                )
                return row(Status.INCOMPARABLE, reason, claims=claims)
            measured = measure_arrays(a, b, known.options)
        else:
            scaled = known.scale is not None and record.phase in PHASES
            measured = _measure(mine, golden, known, spread, scaled)
    except DumpError as error:
        reason = f"{error.what}: {error.where}"
    except MemoryError:
        reason = f"not enough memory to compare {found.my_path}"
    else:
        notes = notes_of(mine, golden, measured.metrics)
        status = status_of(measured.metrics, mine.dtype == golden.dtype)
        return row(status, *notes, claims=claims, measured=measured)
    return row(Status.INCOMPARABLE, reason, claims=claims)


def status_of(metrics: Metrics, one_dtype: bool = True) -> Status:
    """Equal or not. one_dtype: both sides have the same."""
    if metrics.exact < 1.0:
        return Status.DIFFERS
    return Status.EQUAL if one_dtype else Status.ALIKE


def _argument_row(
    mine: Argument, golden: Argument, found: Pair, known: Known, row: Callable[..., Row]
) -> Row | None:
    """Arguments are the same or not; a number that an op returned is measured as a tensor is."""
    if Type.PARTS in (mine.type, golden.type):
        difference = structure_difference(mine, golden)
        return row(Status.INCOMPARABLE, difference) if difference else None
    difference = _argument_difference(mine, golden, known)
    if not difference:
        return None
    if found.side == "output":
        a, b = (np.asarray(value.value) for value in (mine, golden))
        if a.dtype == b.dtype and a.shape == b.shape and a.dtype.kind in "bifc":
            measured = measure_arrays(a, b, known.options)
            claims = a.dtype.name, a.shape
            return row(status_of(measured.metrics), claims=claims, measured=measured)
        return row(Status.INCOMPARABLE, difference)
    return row(Status.ARGUMENT, difference)


def _described(mine: Tensor | Stub, golden: Tensor | Stub) -> tuple[Status, str]:
    """What to say of a pair of which one side, or both, is only described in its file."""
    reason = obstacle(mine, golden, (None, None))
    if reason:
        return Status.INCOMPARABLE, reason
    if all(isinstance(value, Stub) and value.reason in WITHOUT_DATA for value in (mine, golden)):
        if mine.dtype != golden.dtype:
            note = f"no data on either side ({mine.reason}); shapes are equal, dtypes"
            return Status.DESCRIBED, f"{note} {mine.dtype} in my dump, {golden.dtype} in golden"
        note = f"no data on either side ({mine.reason}); shape and dtype are equal"
        return Status.DESCRIBED, note
    side, stub = ("my dump", mine) if isinstance(mine, Stub) else ("golden", golden)
    return Status.INCOMPARABLE, f"no data in {side}: {stub.reason}"


def _argument_difference(mine: Argument, golden: Argument, known: Known) -> str:
    """What to say of two arguments; nothing where they are equal."""
    key = (mine.address, golden.address)
    said = known.arguments.get(key)
    if said is None:
        a, b = mine.value, golden.value
        said = ""
        if not _same(a, b):
            said = f"arguments differ: {_brief(a)} in my dump, {_brief(b)} in golden"
        if len(known.arguments) >= _REMEMBERED:
            known.arguments.clear()
        known.arguments[key] = said
    return said


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _same(a: object, b: object) -> bool:
    """Equal as arguments are: 1 and 1.0 are one number, 0.0 and -0.0 are two, NaN is itself."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return repr(a) == repr(b) or (type(a) is not type(b) and a == b)


def obstacle(
    mine: Tensor | Stub, golden: Tensor | Stub, wholes: Sequence[Whole | None]
) -> str | None:
    """Why a pair is not compared by value, its shapes before its dtypes; None where it is."""
    if mine.shape != golden.shape and not to_coalesce(wholes):
        what = "shapes"
        if all(whole is not None and whole.is_sparse for whole in wholes):
            what = "structures"  # another number of elements, which is no shape of the tensor
        return f"{what} differ: {list(mine.shape)} in my dump, {list(golden.shape)} in golden"
    if not comparable(mine.dtype, golden.dtype):
        return f"dtypes differ: {mine.dtype} in my dump, {golden.dtype} in golden"
    return None


def key_of(mine: Tensor, golden: Tensor, scaled: bool = False) -> tuple:
    """By what the metrics of two stored values are remembered."""
    return mine.address, golden.address, mine.claims.dtype, golden.claims.dtype, scaled


def _measure(
    mine: Tensor, golden: Tensor, known: Known, spread: Callable, scaled: bool
) -> Measured:
    """scaled: the pair may bear the loss scale."""
    key = key_of(mine, golden, scaled)
    measured = known.measured.get(key)
    if measured is None:
        measured = known.measured.get(key_of(mine, golden)) if scaled else None
        measured = measured or _measure_now(mine, golden, known.options, spread)
        if scaled and known.scale.bears(measured.metrics.reach):
            measured = _measure_scaled(mine, golden, known)
        remember(known, key, measured)
    return measured


def remember(known: Known, key: tuple, measured: Measured) -> None:
    """Keep what was measured, for where these values are met again."""
    if len(known.measured) >= _REMEMBERED:
        known.measured.clear()
    known.measured[key] = measured


def _measure_now(mine: Tensor, golden: Tensor, options: Options, spread: Callable) -> Measured:
    if options.custom or not can_stream(mine, golden):
        return measure_arrays(mine.read(), golden.read(), options)
    size = min(mine.size, options.first or mine.size)
    found = way(mine.dtype, golden.dtype)
    streams = Streams(mine, golden, found, size)
    return Measured(
        metrics_of(streams, found, mine.shape, streams.values, options.divergence, spread)
    )


def _measure_scaled(mine: Tensor, golden: Tensor, known: Known) -> Measured:
    """The numbers with the loss scale divided out; units in the last place have no meaning then."""
    a, b = (tensor.read().astype(np.float64) for tensor in (mine, golden))
    measured = measure_arrays(a / known.scale.ratio, b, known.options)
    note = f"mine was divided by the ratio of the loss scales, {known.scale.ratio:g}"
    metrics = measured.metrics._replace(ulp=None)
    return measured._replace(metrics=metrics, reasons=(*measured.reasons, note))


def measure_arrays(mine: np.ndarray, golden: np.ndarray, options: Options) -> Measured:
    """The numbers of two arrays of one shape, or of their first elements."""
    if options.first and mine.size > options.first:
        mine, golden = (side.reshape(-1)[: options.first] for side in (mine, golden))
    metrics = compare_arrays(mine, golden, options.divergence)
    said = [custom.compare(mine.reshape(-1), golden.reshape(-1)) for custom in options.custom]
    return Measured(metrics, *zip(*said, strict=True)) if said else Measured(metrics)


def notes_of(mine: Tensor, golden: Tensor, metrics: Metrics) -> Iterator[str]:
    """What a row says besides its numbers."""
    if mine.dtype != golden.dtype:
        yield f"dtypes: {mine.dtype} in my dump, {golden.dtype} in golden"
    if metrics.size == 0:
        yield "This tensor is empty."
    elif metrics.size == 1:
        yield "This tensor is scalar."
    if metrics.cosine is None:
        zero = golden.path if not any(metrics.golden) else mine.path
        yield f"Cannot compare by Cosine Similarity. All the data is zero in {zero}."
    if metrics.same_nonfinite:
        same = f"{metrics.same_nonfinite} of {metrics.size} elements"
        yield f"{same} are the same NaN or infinity on both sides"
    apart = (metrics.mine_nonfinite, metrics.golden_nonfinite, metrics.other_nonfinite)
    if any(apart):
        yield (
            "NaN or infinite: {} of {} elements in my dump only, {} in golden only, "
            "{} on both sides but not alike".format(apart[0], metrics.size, *apart[1:])
        )
