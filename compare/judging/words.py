"""The sentences of verdicts, and which numbers they stand on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..metrics import Metrics
from .bounds import Call, Found, Pair
from .classes import Class, OpClass
from .numerics import rounding
from .verdict import Kind, Verdict

if TYPE_CHECKING:
    from .judge import Row

SAME = Verdict(Kind.SAME, "bit_equal", "every element is equal")
EQUAL = Verdict(Kind.SAME, "equal_in_value", "every element is equal in value, in another dtype")
INPUT = Verdict(
    Kind.INHERITED, "input_differs", "what the op was given differs; see the op that made it"
)
UNINITIALISED = Verdict(
    Kind.NOT_COMPARABLE, "uninitialised", "memory that no op has written is not compared"
)
WORKSPACE = Verdict(
    Kind.NOT_COMPARABLE, "workspace", "notes of the op for its own backward, in its device's form"
)
VALUE = Verdict(
    Kind.CANNOT_TELL,
    "value_of_no_op",
    "a gradient or parameter, which no op's rounding bounds; see the ops that made it",
)
NO_INPUTS = Verdict(
    Kind.CANNOT_TELL,
    "no_inputs",
    "the file lacks the op's inputs: this may be inherited or the op's own",
)
ARGUMENTS = Verdict(
    Kind.INHERITED, "arguments_differ", "what the op was asked for differs, by its arguments"
)
VIEW = Verdict(
    Kind.INHERITED, "view", "a view of an earlier value, which is not this op's; see what made it"
)
DECIDED = Verdict(
    Kind.INHERITED, "decided_by_inputs", "another choice or count, from inputs that differ"
)


def random(states: tuple[Any, Any]) -> Verdict:
    """An op that draws numbers."""
    if states[0] is None or states[1] is None or states[0] != states[1]:
        why = "the two sides' random states differ"
        return Verdict(Kind.NOT_COMPARABLE, "random_state", f"random numbers; {why}")
    why = "from equal states, by generators that need not agree"
    return Verdict(Kind.NOT_COMPARABLE, "random", f"random numbers {why}")


def below_rounding(m: Metrics, dtypes: tuple[str, str]) -> Verdict:
    """Apart by no more than one rounding on each side."""
    unit = rounding(dtypes[0]) + rounding(dtypes[1])
    reach = max(m.reach)
    return Verdict(
        Kind.ROUNDING,
        "below_rounding",
        f"relative error {m.max_relative:.3g}, less than one rounding of {_both(dtypes)}",
        allowed=unit * reach,
        actual=m.max_absolute,
        margin=m.max_relative / unit,
    )


def within_ulps(m: Metrics, op: OpClass) -> Verdict:
    """A pointwise op on equal inputs."""
    return Verdict(
        Kind.ROUNDING,
        "within_ulps",
        f"{m.ulp.greatest} of {op.ulps} ULP allowed to {op.base} on equal inputs",
        allowed=m.max_absolute * op.ulps / m.ulp.greatest if m.ulp.greatest else m.max_absolute,
        actual=m.max_absolute,
        margin=m.ulp.greatest / op.ulps,
    )


def near(found: Found, op: OpClass, call: Call, dtypes: tuple[str, str]) -> Verdict:
    """A product on equal inputs, apart by less than its operands' norms allow."""
    why = f"{_length(op, call)}{_both(dtypes)}{_inputs(call)}; less than half of |a| |b| allows"
    return _numbers(Verdict(Kind.ROUNDING, "within_norms", why), found)


def not_exact(pair: Pair) -> Verdict:
    """An op that rounds nothing, on equal inputs."""
    unlike = int(np.count_nonzero(pair.mine != pair.golden))
    return Verdict(
        Kind.DIFFERS,
        "not_exact",
        f"{unlike} of {pair.mine.size} elements differ, inputs are equal and this rounds nothing",
        allowed=0.0,
        margin=math.inf,
    )


def moved(actual: float, given: float) -> Verdict:
    """An op that moves elements, whose inputs differ."""
    kind, code = (
        (Kind.INHERITED, "moved") if actual <= given else (Kind.DIFFERS, "beyond_inherited")
    )
    return Verdict(
        kind,
        code,
        f"elements are moved, and those given differ by up to {given:.3g}",
        allowed=given,
        actual=actual,
        margin=_margin(actual, given),
    )


def default(found: Found, op: OpClass) -> Verdict:
    """Within the rule for ops of which no formula is known."""
    return _numbers(
        Verdict(Kind.ROUNDING, "within_default", f"within the default tolerance; {_unknown(op)}"),
        found,
    )


def beyond_default(found: Found, op: OpClass) -> Verdict:
    """Beyond that rule, on equal inputs."""
    if found.nonfinite:
        reason = f"{found.nonfinite} of {found.size} elements are NaN or infinite on one side"
        return _numbers(Verdict(Kind.DIFFERS, "nonfinite", reason), found)
    reason = f"beyond the default tolerance, inputs are equal; {_unknown(op)}"
    return _numbers(Verdict(Kind.DIFFERS, "beyond_default", reason), found)


def _unknown(op: OpClass) -> str:
    return f"no formula of {op.base} is known here"


def estimated(apart: float, given: float, condition: float, found: Found) -> Verdict:
    """No formula, and inputs that differ."""
    share = f"relative distance {apart:.3g}, of inputs {given:.3g}"
    limit = condition * given
    numbers = {"allowed": limit, "actual": apart, "margin": _margin(apart, limit)}
    if apart <= condition * given and not found.nonfinite:
        return Verdict(Kind.INHERITED, "inherited_estimate", f"{share}: an estimate", **numbers)
    reason = f"{share}: more than {condition:g} times, and no formula of the op is known here"
    return Verdict(Kind.CANNOT_TELL, "beyond_estimate", reason, **numbers)


def weakly(found: Found) -> Verdict:
    """Without inputs, close enough for any op."""
    verdict = Verdict(
        Kind.ROUNDING,
        "within_weak",
        "close, by a rule that does not know the op's inputs",
        weak=True,
    )
    return _numbers(verdict, found)


def beyond(found: Found, otherwise: Verdict) -> Verdict:
    """Without inputs, and not that close."""
    return _numbers(otherwise, found).marked(weak=True)


def of(found: Found, op: OpClass, row: Row, calls: tuple[Call, Call], equal: bool) -> Verdict:
    """The verdict of an op whose formula was run."""
    dtypes = (row.mine.dtype, row.golden.dtype)
    why = f"{_length(op, calls[1])}{_both(dtypes)}{_inputs(calls[1])}{_modes(calls)}"
    if found.nonfinite:
        reason = f"{found.nonfinite} of {found.size} elements are NaN or infinite on one side only"
        return _numbers(Verdict(Kind.DIFFERS, "nonfinite", f"{reason}; {why}"), found)
    if found.left > 1:
        return _numbers(_too_far(found, op, calls, equal, why), found)
    if found.saturated:
        reason = (
            f"{found.saturated} of {found.size} elements are the largest number (or 0) on one side "
            "where the other is infinite (or NaN): saturation against infinity"
        )
        return _numbers(Verdict(Kind.NOT_COMPARABLE, "saturation", reason), found)
    if found.ranged:
        reason = f"{found.ranged} of {found.size} elements are beyond the range of one side's dtype"
        return _numbers(Verdict(Kind.NOT_COMPARABLE, "dtype_range", f"{reason}; {why}"), found)
    if found.handed:
        reason = (
            f"{found.handed} of {found.size} elements are NaN or infinite because of the inputs"
        )
        return _numbers(Verdict(Kind.INHERITED, "nonfinite_inputs", reason), found)
    if found.own <= 1:
        return _numbers(Verdict(Kind.ROUNDING, "within_rounding", why), found)
    code = "inputs_differ" if calls[0].values == calls[1].values else "arguments_differ"
    if equal:
        code = "mode_differs"
    reason = f"explained by {_CAUSES[code]}; what is left is rounding: {why}"
    return _numbers(Verdict(Kind.INHERITED, code, reason), found)


_CAUSES = {
    "inputs_differ": "the difference of the inputs",
    "arguments_differ": "the difference of the arguments",
    "mode_differs": "what the devices round operands to",
}


def _too_far(found: Found, op: OpClass, calls: tuple[Call, Call], equal: bool, why: str) -> Verdict:
    who = [name for name in ("mine", "golden") if getattr(found, name) > 1]
    culprit = who[0] if len(who) == 1 else "both" if who else None
    wrong = (
        calls[culprit == "golden"].numerics.known_wrong if culprit in ("mine", "golden") else None
    )
    if wrong:
        return Verdict(Kind.NOT_COMPARABLE, "known_wrong", f"{culprit}: {wrong}", culprit=culprit)
    if equal and op.kind in (Class.MOVEMENT, Class.EXACT):
        code = "not_exact"
        reason = "inputs are equal and this op rounds nothing"
    elif equal:
        code, reason = "beyond_rounding", "more than rounding, inputs are equal"
    else:
        code, reason = "beyond_inherited", "more than rounding and the inputs' difference"
    said = {
        None: "",
        "both": "; neither side follows from its inputs",
        "mine": "; golden follows from its inputs, mine does not",
        "golden": "; mine follows from its inputs, golden does not",
    }[culprit]
    return Verdict(Kind.DIFFERS, code, f"{reason}{said}; {why}", culprit=culprit)


def _numbers(verdict: Verdict, found: Found) -> Verdict:
    return verdict._replace(allowed=found.allowed, actual=found.actual, margin=_finite(found.left))


def _finite(value: float) -> float:
    return value if value < 1e300 else math.inf


def _margin(actual: float, allowed: float) -> float:
    return actual / allowed if allowed else (math.inf if actual else 0.0)


def _both(dtypes: tuple[str, str]) -> str:
    if dtypes[0] == dtypes[1]:
        return dtypes[0]
    return f"{dtypes[0]} against {dtypes[1]}, the coarser one allows"


def _inputs(call: Call) -> str:
    reach = 0.0
    for name, array in call.arrays.items():
        if array.size and call.dtypes[name].startswith(("float", "bfloat")):
            top = float(np.max(np.abs(array.astype(np.float64))))
            reach = max(reach, top) if math.isfinite(top) else math.inf
    return f", inputs up to {reach:.3g}" if reach else ""


def _modes(calls: tuple[Call, Call]) -> str:
    found = [
        f"{mode} ({side})"
        for side, call in zip(("mine", "golden"), calls, strict=True)
        for mode in call.numerics.modes
    ]
    return f"; {', '.join(found)}" if found else ""


def _length(op: OpClass, call: Call) -> str:
    """The number of terms that an element of a product is a sum of."""
    if op.kind is not Class.PRODUCT:
        return ""
    for name in ("mat1", "self", "mat", "batch1", "query"):
        shape = call.arrays[name].shape if name in call.arrays else ()
        if name == "self" and not ({"mat2", "vec", "other"} & call.arrays.keys()):
            continue
        if shape:
            return f"K={shape[-1]}, "
    weight = call.arrays.get("weight")
    if weight is not None and weight.ndim > 1:
        return f"K={math.prod(weight.shape[1:])}, "
    return ""
