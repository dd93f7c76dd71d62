"""From a pair of tensors and what is known of their op to a verdict.

Cheap questions first: most pairs are bit-equal, and of the rest most are apart by less than the
rounding of their dtype. Only what is left reads the op's inputs and runs its formula.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dumper.errors import DumpError
from dumper.index import VIEW
from dumper.reader import Record
from dumper.stored import Argument, Tensor

from ..metrics import Metrics
from . import estimates, words
from .bounds import Call, Found, Pair, by_norms, has_formula, measure
from .classes import Class, OpClass, class_of
from .numerics import Numerics, is_rounded, rounding
from .operands import Missing
from .verdict import Kind, Verdict

Read = Callable[[Tensor], np.ndarray]

_EXACT = (Class.MOVEMENT, Class.EXACT)

WORKSPACES = {
    "mkldnn_rnn_layer": ("result3",),
    "_cudnn_rnn": ("result3", "result4"),
    "cudnn_batch_norm": ("result3",),
    "_scaled_dot_product_flash_attention": ("rng_state", "unused", "debug_attn_mask"),
    "_scaled_dot_product_efficient_attention": ("philox_seed", "philox_offset"),
}
"""Results that only the op's own backward reads, in a form of the device's own."""

UNFIT = (ArithmeticError, AttributeError, IndexError, KeyError, NotImplementedError, TypeError,
          ValueError)  # fmt: skip
"""What a formula raises for operands and arguments that are not those of the op."""

_DEVICE_BOUND = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "_rng_state")


@dataclass(frozen=True, slots=True)
class Context:
    """What holds for a whole comparison.

    mine, golden: the two sides' arithmetic (`numerics_of` an environment). fed: mine was made in
    load mode from golden, so that its inputs are golden's. read: a tensor's values. same: whether
    two inputs are known to be bit-equal, or not to be; None where that must be looked up.
    """

    mine: Numerics = Numerics()
    golden: Numerics = Numerics()
    fed: bool = False
    read: Read = Tensor.read
    same: Callable[[Tensor, Tensor], bool | None] = lambda mine, golden: None


class Row(NamedTuple):
    """A pair of tensors: their records, side (`input` or `output`), and the numbers of the pair."""

    record: Record
    partner: Record
    side: str
    mine: Tensor
    golden: Tensor
    metrics: Metrics


def judge(row: Row, context: Context = Context()) -> Verdict:
    """The verdict of a pair that was measured: of one shape, its dtypes comparable.

    Never raises for what is in a file: what cannot be read or computed is `cannot_tell`.
    """
    op = class_of(row.record.ir)
    verdict = _judge(row, op, context)
    single = row.metrics.size == 1
    if single or (op.by_default and verdict.kind is not Kind.SAME):
        verdict = verdict.marked(low_evidence=single, by_default=op.by_default)
    return verdict


def _judge(row: Row, op: OpClass, context: Context) -> Verdict:
    m, dtypes = row.metrics, (row.mine.dtype, row.golden.dtype)
    if m.exact == 1.0:
        return words.SAME if dtypes[0] == dtypes[1] else words.EQUAL
    known = _not_judged(row, op)
    if known:
        return known
    if row.side == "input":
        return words.INPUT
    if op.kind is Class.VALUE:
        return _weak(row, op, context, words.VALUE)
    unit = rounding(dtypes[0]) + rounding(dtypes[1])
    clean = not (m.mine_nonfinite or m.golden_nonfinite or m.other_nonfinite)
    if clean and op.kind not in _EXACT and m.max_relative <= unit:
        return words.below_rounding(m, dtypes)
    try:
        return _by_inputs(row, op, context, dtypes)
    except DumpError as error:
        return Verdict(Kind.CANNOT_TELL, "unreadable", f"{error.what}: {error.where}")
    except MemoryError:
        return Verdict(Kind.CANNOT_TELL, "too_large", "not enough memory to judge this op")


def _not_judged(row: Row, op: OpClass) -> Verdict | None:
    if row.side == "input":
        return None
    if op.kind is Class.UNINITIALISED or row.mine.uninitialised or row.golden.uninitialised:
        return words.UNINITIALISED
    if op.kind is Class.RANDOM or _dropout(row.record) or _dropout(row.partner):
        return words.random(_states(row))
    if row.mine.name in WORKSPACES.get(op.base, ()):
        return words.WORKSPACE
    return None


def _dropout(record: Record) -> bool:
    """Whether an op that is not random by itself drew numbers."""
    return "_rng_state" in record.arguments


def _states(row: Row) -> tuple[Any, Any]:
    found = [_value(r.arguments.get("_rng_state")) for r in (row.record, row.partner)]
    return found[0], found[1]


def _value(argument: Argument | None) -> Any:
    if argument is None:
        return None
    try:
        return argument.value
    except DumpError:
        return None


def _by_inputs(row: Row, op: OpClass, context: Context, dtypes: tuple[str, str]) -> Verdict:
    record = row.partner if context.fed else row.record
    if op.kind is Class.MOVEMENT and is_view(record) and is_view(row.partner):
        return words.VIEW
    if not (has_inputs(record) and has_inputs(row.partner)):
        return _weak(row, op, context, words.NO_INPUTS)
    same = context.fed or _same_inputs(record, row.partner, context)
    equal = same and _arguments(record) == _arguments(row.partner)
    if equal and _within_ulps(row, op, dtypes):
        return words.within_ulps(row.metrics, op)
    pair = Pair(context.read(row.mine), context.read(row.golden), dtypes)
    golden = _call(row.partner, row.mine.name, context, context.golden)
    mine = golden._replace(numerics=context.mine)
    if not equal:
        mine = _call(record, row.mine.name, context, context.mine)
    if op.kind in _EXACT and not has_formula(op):
        return _exact(pair, mine, golden, equal)
    near = by_norms(op, row.mine.name, pair, golden) if equal and _plain(context) else None
    if near is not None:
        return words.near(near, op, golden, dtypes)
    try:
        if not has_formula(op):
            raise Missing(op.base)
        found = measure(op, row.mine.name, pair, mine, golden, equal)
    except UNFIT:
        return _estimate(pair, mine, golden, op, equal)
    return words.of(found, op, row, (mine, golden), equal)


def _plain(context: Context) -> bool:
    """Whether both sides compute in the same arithmetic, by what is known."""
    return not context.mine.modes and not context.golden.modes


def _within_ulps(row: Row, op: OpClass, dtypes: tuple[str, str]) -> bool:
    m = row.metrics
    return (
        op.ulps is not None
        and m.ulp is not None
        and dtypes[0] == dtypes[1]
        and m.ulp.greatest <= op.ulps
        and not (m.mine_nonfinite or m.golden_nonfinite or m.other_nonfinite)
    )


def has_inputs(record: Record) -> bool:
    """Whether all that an op was given is in the file."""
    return record.has_inputs and not any(key.startswith("input/") for key in record.entry.stubs)


def is_view(record: Record) -> bool:
    """Whether all that the op took is described only because it is a view of an earlier value."""
    given = [stub for key, stub in record.entry.stubs.items() if key.startswith("input/")]
    return bool(given) and not record.inputs and all(stub.reason == VIEW for stub in given)


def _call(record: Record, output: str, context: Context, numerics: Numerics) -> Call:
    """What a record was given; of an op on lists, what matters for this output."""
    wanted = [t for t in record.inputs if _matters(t.name, output)]
    arrays = {tensor.name: context.read(tensor) for tensor in wanted}
    return Call(arrays, {t.name: t.dtype for t in wanted}, _arguments(record), numerics)


_MEMBER = re.compile(r"(.*)/\1_([0-9]+)")


def _matters(name: str, output: str) -> bool:
    """Whether an input is part of what one output depends on: where an op on lists returns a list,
    only the tensors of the same number."""
    given, made = _MEMBER.fullmatch(name), _MEMBER.fullmatch(output)
    return not (given and made) or given[2] == made[2]


def _arguments(record: Record) -> dict[str, Any]:
    return {
        name: argument.value
        for name, argument in record.arguments.items()
        if name not in _DEVICE_BOUND and not name.endswith("/kind")
    }


def _same_inputs(mine: Record, golden: Record, context: Context) -> bool:
    theirs = {tensor.name: tensor for tensor in golden.inputs}
    if theirs.keys() != {tensor.name for tensor in mine.inputs}:
        return False
    return all(_same_tensor(tensor, theirs[tensor.name], context) for tensor in mine.inputs)


def _same_tensor(a: Tensor, b: Tensor, context: Context) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    known = context.same(a, b)
    if known is not None:
        return known
    x, y = (np.ascontiguousarray(context.read(t)).view(np.uint8) if t.shape else
            np.atleast_1d(context.read(t)).view(np.uint8) for t in (a, b))  # fmt: skip
    return np.array_equal(x, y)


def _exact(pair: Pair, mine: Call, golden: Call, equal: bool) -> Verdict:
    """An op that moves or compares, whose formula is not known here."""
    if equal:
        return words.not_exact(pair)
    if mine.values != golden.values:
        return words.ARGUMENTS
    if not is_rounded(pair.dtypes[0]):
        return words.DECIDED
    moved = max(
        (float(np.max(np.abs(_wide(a) - _wide(b)), initial=0.0)) if a.shape == b.shape else np.inf
         for a, b in ((a, golden.arrays.get(name, a)) for name, a in mine.arrays.items())),
        default=0.0,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        apart = np.abs(_wide(pair.mine) - _wide(pair.golden))
    actual = float(np.max(apart[np.isfinite(apart)], initial=0.0))
    return words.moved(actual, moved)


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _estimate(pair: Pair, mine: Call, golden: Call, op: OpClass, equal: bool) -> Verdict:
    """No formula: the default tolerance, and where inputs differ a condition estimate."""
    a, b = _wide(pair.mine), _wide(pair.golden)
    if not is_rounded(pair.dtypes[0]):
        return words.not_exact(pair) if equal else words.DECIDED
    found = _against(a, b, estimates.limits(b, pair.dtypes))
    if found.left <= 1 and not found.nonfinite:
        return words.default(found, op)
    if equal:
        return words.beyond_default(found, op)
    apart = estimates.distance(pair.mine, pair.golden)
    given = estimates.inputs_distance(mine.arrays, golden.arrays)
    return words.estimated(apart, given, estimates.CONDITION, found)


def _against(a: np.ndarray, b: np.ndarray, allowed: np.ndarray) -> Found:
    found = Found(size=a.size)
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        odd = ~same & ~(np.isfinite(a) & np.isfinite(b))
        share = np.where(same | odd, 0.0, apart / allowed)
    worst = int(np.argmax(share))
    found.own = found.left = float(share.reshape(-1)[worst])
    found.actual = float(np.where(same | odd, 0.0, apart).reshape(-1)[worst])
    found.allowed = float(np.broadcast_to(allowed, a.shape).reshape(-1)[worst])
    found.nonfinite = int(odd.sum())
    return found


def _weak(row: Row, op: OpClass, context: Context, otherwise: Verdict) -> Verdict:
    """The rule without inputs: what is close is rounding, what is not could be inherited."""
    if not is_rounded(row.mine.dtype):
        return otherwise
    try:
        a, b = (_wide(context.read(tensor)) for tensor in (row.mine, row.golden))
    except DumpError as error:
        return Verdict(Kind.CANNOT_TELL, "unreadable", f"{error.what}: {error.where}")
    found = _against(a, b, estimates.limits(b, (row.mine.dtype, row.golden.dtype)))
    if found.left <= 1 and not found.nonfinite:
        return words.weakly(found)
    return words.beyond(found, otherwise)
