"""Between which numbers the result of an in-place or optimizer op must lie, from those of its
operands.

An op that overwrites its operand would have to be copied before it runs, and an optimizer's state
be read again after each of its ops: twice the step's own traffic of memory, for ops that almost
never come near the end of their dtype. Intervals of a few elementwise ops prove that, at no cost.
They are wide (a list of tensors has one interval), never narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Interval = tuple[float, float]
RangeOf = Callable[[Any], Interval | None]
"""The interval of a tensor argument, or of a list of them; None where it is not known."""

_WIDER = 1 + 2**-7
"""A result is rounded, in half a bit of bfloat16 at worst."""

_ROOM = 2.0**-2


def bound(base: str, values: list[Any], known: RangeOf, smallest: float) -> Interval | None:
    """Where the written argument lies after the op; None where that cannot be said.

    base: the op's name without `_foreach_` and the trailing underscore. values: in schema order.
    smallest: the dtype's smallest normal number; what is below it may become 0, or it.
    """
    rule = RULES.get(base)
    if rule is None:
        return None
    try:
        found = rule(values, known)
    except (TypeError, ZeroDivisionError, OverflowError, ValueError, IndexError):
        return None  # an operand of which nothing is known, or 0 in a denominator
    low, high = found
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    return min(low * _WIDER, low / _WIDER) - smallest, max(high * _WIDER, high / _WIDER) + smallest


def is_safe(interval: Interval | None, largest: float) -> bool:
    """Whether an interval stays well inside of what a dtype holds."""
    return interval is not None and -largest * _ROOM < interval[0] <= interval[1] < largest * _ROOM


def _operand(value: Any, known: RangeOf) -> Interval:
    """The interval of an operand: a number, numbers, a tensor, tensors. TypeError: not known."""
    if isinstance(value, (int, float)):
        return float(value), float(value)
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (int, float)):
        return float(min(value)), float(max(value))
    found = known(value)
    if found is None:
        raise TypeError("nothing is known of this operand")
    return found


def _times(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _plus(a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


def _over(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0 <= b[1]:
        raise ZeroDivisionError
    return _times(a, (1 / b[1], 1 / b[0]))


def _add(values: list[Any], known: RangeOf) -> Interval:
    alpha = _operand(values[2], known) if len(values) > 2 else (1.0, 1.0)
    return _plus(_operand(values[0], known), _times(alpha, _operand(values[1], known)))


def _sub(values: list[Any], known: RangeOf) -> Interval:
    alpha = _operand(values[2], known) if len(values) > 2 else (1.0, 1.0)
    return _plus(
        _operand(values[0], known), _times((-alpha[1], -alpha[0]), _operand(values[1], known))
    )


def _mul(values: list[Any], known: RangeOf) -> Interval:
    return _times(_operand(values[0], known), _operand(values[1], known))


def _div(values: list[Any], known: RangeOf) -> Interval:
    if len(values) > 2 and values[2] is not None:  # rounding_mode
        raise TypeError
    return _over(_operand(values[0], known), _operand(values[1], known))


def _addcmul(values: list[Any], known: RangeOf) -> Interval:
    product = _times(_operand(values[1], known), _operand(values[2], known))
    return _plus(_operand(values[0], known), _times(_operand(_fourth(values), known), product))


def _addcdiv(values: list[Any], known: RangeOf) -> Interval:
    quotient = _over(_operand(values[1], known), _operand(values[2], known))
    return _plus(_operand(values[0], known), _times(_operand(_fourth(values), known), quotient))


def _fourth(values: list[Any]) -> Any:
    return values[3] if len(values) > 3 else 1.0


def _lerp(values: list[Any], known: RangeOf) -> Interval:
    start, end = _operand(values[0], known), _operand(values[1], known)
    weight = _operand(values[2], known)
    if 0 <= weight[0] <= weight[1] <= 1:
        return min(start[0], end[0]), max(start[1], end[1])
    return _plus(start, _times(weight, (end[0] - start[1], end[1] - start[0])))


def _sqrt(values: list[Any], known: RangeOf) -> Interval:
    low, high = _operand(values[0], known)
    return math.sqrt(max(low, 0.0)) if low >= 0 else math.nan, math.sqrt(high)


def _neg(values: list[Any], known: RangeOf) -> Interval:
    low, high = _operand(values[0], known)
    return -high, -low


def _abs(values: list[Any], known: RangeOf) -> Interval:
    low, high = _operand(values[0], known)
    return 0.0, max(abs(low), abs(high))


def _toward_zero(values: list[Any], known: RangeOf) -> Interval:
    """Ops whose result lies between their operand and 0."""
    low, high = _operand(values[0], known)
    return min(low, 0.0), max(high, 0.0)


def _maximum(values: list[Any], known: RangeOf) -> Interval:
    a, b = _operand(values[0], known), _operand(values[1], known)
    return max(a[0], b[0]), max(a[1], b[1])


def _second(values: list[Any], known: RangeOf) -> Interval:
    """Ops that leave their second operand, or part of it: the rest stays as it was."""
    return _operand(values[1], known)


def _hull(values: list[Any], known: RangeOf) -> Interval:
    a, b = _operand(values[0], known), _operand(values[2], known)
    return min(a[0], b[0]), max(a[1], b[1])


RULES: dict[str, Callable[[list[Any], RangeOf], Interval]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "lerp": _lerp,
    "sqrt": _sqrt,
    "neg": _neg,
    "abs": _abs,
    "relu": _toward_zero,
    "zero": lambda values, known: (0.0, 0.0),
    "maximum": _maximum,
    "clamp_min": _maximum,
    "copy": _second,
    "fill": _second,
    "masked_fill": _hull,
}
"""By the op's name."""
