"""How far apart two sides' results of one op may be, element by element, and how far they are.

The op's formula is computed in float64 from each side's own inputs. What these two predictions are
apart is inherited: the inputs differ. What is left of the difference must be rounding, which the
formula bounds as it goes (tracked.py), plus one rounding to each side's dtype.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from . import movement, pointwise, pooling, products, reductions  # noqa: F401  they enter their formulas
from .classes import Class, OpClass
from .norms import sizes
from .numerics import Numerics, internal, is_rounded, largest, rounding, smallest
from .operands import FORMULAS, Operands
from .parts import cut_of, sliced, slices, some
from .tracked import C, Tracked

BLOCK = 1 << 20
"""Elements of a result that are judged at a time, where it can be cut."""

BUDGET = 1 << 31
"""Multiplications of one product from which on only some of its rows are computed."""

_ROOM = 16
"""Times what an op took and returned that its formula may make."""

_UNDERFLOWS = 8
"""Smallest numbers of a dtype that may be lost on the way where every step is rounded to it."""

_WHOLE = {
    "nll_loss_backward",
    "nll_loss2d_backward",
    "mse_loss_backward",
    "amax",
    "amin",
    "max",
    "min",
}
"""Pointwise and exact ops whose elements depend on more than the elements at their place."""


class Call(NamedTuple):
    """One side's call. arrays: inputs by name in their own dtypes, of a list `list/list_<i>`.
    dtypes: theirs, torch's names. values: arguments that are no tensors."""

    arrays: Mapping[str, np.ndarray]
    dtypes: Mapping[str, str]
    values: Mapping[str, Any]
    numerics: Numerics = Numerics()


@dataclass
class Found:
    """What two results of an op are apart, against what they may be.

    own: greatest share of the allowed that mine and golden are apart, the inputs' difference not
    considered. left: the same of what that difference does not explain; equal where there is none.
    actual, allowed: at the element where `left` is greatest. mine, golden: greatest share of its
    own allowance by which each side is off what its inputs give. nonfinite: elements that are NaN
    or infinite on one side only, or not alike, which neither inputs nor saturation explain.
    saturated, ranged, handed: of those that are explained by saturation, by the range of a dtype,
    by the inputs. size: elements.
    """

    own: float = 0.0
    left: float = 0.0
    actual: float = 0.0
    allowed: float = 0.0
    mine: float = 0.0
    golden: float = 0.0
    nonfinite: int = 0
    saturated: int = 0
    ranged: int = 0
    handed: int = 0
    size: int = 0

    def merge(self, other: Found) -> None:
        """Take in another part of the same tensor."""
        if other.left >= self.left:
            self.actual, self.allowed = other.actual, other.allowed
        for name in ("own", "left", "mine", "golden"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        for name in ("nonfinite", "saturated", "ranged", "handed", "size"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Pair(NamedTuple):
    """The two results. dtypes: mine's and golden's, torch's names."""

    mine: np.ndarray
    golden: np.ndarray
    dtypes: tuple[str, str]


def has_formula(op: OpClass) -> bool:
    """Whether the op's value can be computed here."""
    return _formula_name(op.base) in FORMULAS


def measure(op: OpClass, output: str, pair: Pair, mine: Call, golden: Call, equal: bool) -> Found:
    """Judge one output of an op by its formula.

    output: its name. equal: inputs and arguments are the same on both sides. Raises Missing where
    the file lacks an operand, NotImplementedError or KeyError for what the formula cannot do, and
    ValueError where shapes are not those of the op.
    """
    with np.errstate(all="ignore"):
        found = Found()
        exact = op.kind in (Class.MOVEMENT, Class.EXACT) and equal
        alike = equal and mine.numerics == golden.numerics
        for part, left, right in _blocks(op, output, pair, mine, golden):
            expected = predict(op, output, left, part.mine.size)
            other = expected if alike else predict(op, output, right, part.mine.size)
            found.merge(compare(part, expected, other, (left, right), exact, alike))
        return found


def predict(op: OpClass, output: str, call: Call, size: int) -> Tracked:
    """What one output of the op is, by its formula, from these inputs. size: its elements."""
    name = _formula_name(op.base)
    member = _member(output) if name != op.base or name in _LISTED else None
    if member is not None:
        call, output = _of_list(call, member), output.partition("/")[0]
    values = {**call.values, "_base": name}
    room = _ROOM * (sum(a.size for a in call.arrays.values()) + size + 1024)
    if op.kind is not Class.PRODUCT:
        _check_broadcasts(call, room)
    results = FORMULAS[name](Operands(call.arrays, values, call.dtypes, call.numerics, room))
    if isinstance(results, Tracked):
        return results
    return results[output]


def _check_broadcasts(call: Call, room: int) -> None:
    """Two operands that together would be far larger than all the op took and returned are not
    those of a real call."""
    shapes = [a.shape for name, a in call.arrays.items() if a.ndim and "/" not in name]
    for i, shape in enumerate(shapes):
        for other in shapes[:i]:
            with contextlib.suppress(ValueError):  # they never meet
                if math.prod(np.broadcast_shapes(shape, other)) > room:
                    raise MemoryError


_LISTED = {"_fused_adam", "_fused_adamw", "_fused_sgd", "_foreach_norm"}


def _formula_name(base: str) -> str:
    return base if base in FORMULAS else base.removeprefix("_foreach_")


def _member(output: str) -> int | None:
    """The number of a list's tensor."""
    _, slash, last = output.rpartition("/")
    number = last.rpartition("_")[2]
    return int(number) if slash and number.isdecimal() else None


def _of_list(call: Call, member: int) -> Call:
    """One tensor's call of an op on lists."""
    arrays, dtypes = {}, {}
    for name, array in call.arrays.items():
        key, slash, last = name.partition("/")
        if not slash or last == f"{key}_{member}":
            arrays[key], dtypes[key] = array, call.dtypes[name]
    values = {}
    for name, value in call.values.items():
        values[name] = value[member] if isinstance(value, list) and member < len(value) else value
    scalar = values.get("scalars", values.get("scalar"))
    if scalar is not None:
        for name in ("other", "value", "min", "max", "exponent", "weight"):
            values.setdefault(name, scalar)
    return Call(arrays, dtypes, values, call.numerics)


def _blocks(
    op: OpClass, output: str, pair: Pair, mine: Call, golden: Call
) -> Iterator[tuple[Pair, Call, Call]]:
    """The op in parts that memory can hold; of a product that costs much, some of its parts."""
    shape, size = pair.mine.shape, pair.mine.size
    name = "result" if output in ("self", "out") else output
    cut = cut_of(op.base, name, golden.values, shape)
    if cut is not None and size:
        length, cost = shape[cut.axis], _cost(op, golden, size)
        step = max(1, min(length, length * BLOCK // max(size, 1)))
        wanted = length * BUDGET // cost if cut.many and cost > BUDGET else length
        step = max(1, min(step, wanted // 8 or 1))
        for at in some(length, step, wanted, lambda: _suspicion(pair, cut.axis)):
            index = (slice(None),) * cut.axis + (at,)
            calls = [c._replace(arrays=sliced(cut, c.arrays, length, at)) for c in (mine, golden)]
            yield Pair(pair.mine[index], pair.golden[index], pair.dtypes), *calls
        return
    sides = [(c, _operands(output, c)) for c in (mine, golden)]
    elementwise = op.kind in (Class.POINTWISE, Class.EXACT) and _formula_name(op.base) not in _WHOLE
    if elementwise and output.partition("/")[0] in ("result", "self", "out"):
        if not all(_broadcasts(a.shape, shape) for _, arrays in sides for a in arrays.values()):
            raise ValueError("these operands do not give that result")
    else:
        elementwise = False
    if size <= BLOCK or not elementwise:
        yield pair, mine, golden
        return
    flat = [
        {k: a if a.ndim == 0 else np.broadcast_to(a, shape).reshape(-1) for k, a in arrays.items()}
        for _, arrays in sides
    ]
    results = pair.mine.reshape(-1), pair.golden.reshape(-1)
    for at in slices(size, BLOCK):
        calls = [
            c._replace(arrays={k: a if a.ndim == 0 else a[at] for k, a in arrays.items()})
            for (c, _), arrays in zip(sides, flat, strict=True)
        ]
        yield Pair(results[0][at], results[1][at], pair.dtypes), *calls


def _cost(op: OpClass, call: Call, size: int) -> int:
    """Multiplications of a product, about: each element of the output is a sum as long as the
    largest input is for each element of the output's other factor."""
    if op.kind is not Class.PRODUCT:
        return size
    counts = sorted((a.size for a in call.arrays.values()), reverse=True)
    if len(counts) < 2:
        return size
    return int(math.sqrt(counts[0] * counts[1] * size))


def _suspicion(pair: Pair, axis: int) -> np.ndarray:
    """How far apart the two results are by place along an axis, relative to their size there."""
    a, b = (np.moveaxis(side, axis, 0) for side in (pair.mine, pair.golden))
    found = np.zeros(a.shape[0])
    for i in range(a.shape[0]):
        apart = np.abs(a[i].astype(np.float64) - b[i])
        size = float(np.sqrt(np.mean(np.square(np.abs(b[i].astype(np.float64))))))
        found[i] = np.nan_to_num(float(apart.max(initial=0.0)) / (size or 1.0), nan=np.inf)
    return found


def by_norms(op: OpClass, output: str, pair: Pair, call: Call) -> Found | None:
    """A product on equal inputs held against its operands' norms; None where that is not enough to
    call it rounding, or not known."""
    with np.errstate(all="ignore"):
        try:
            least = sizes(op.base, output, call.arrays, call.values)
            if least is None:
                return None
            least = np.broadcast_to(least, pair.mine.shape)
        except (KeyError, ValueError, TypeError, IndexError):
            return None
        found = Found()
        rows = pair.mine.shape[0] if pair.mine.ndim else 0
        for at in slices(rows, max(1, BLOCK * rows // max(1, pair.mine.size))):
            a, b = (side[at].astype(np.float64) for side in (pair.mine, pair.golden))
            size = least[at]
            allowed = sum(
                C / 2 * size * internal(dtype, call.numerics)
                + np.abs(b) * rounding(dtype)
                + smallest(dtype)
                for dtype in pair.dtypes
            )
            apart = np.abs(a - b)
            if not np.isfinite(apart).all():
                return None
            share = apart / allowed
            worst = int(np.argmax(share))
            top = float(share.reshape(-1)[worst])
            limit = float(np.broadcast_to(allowed, a.shape).reshape(-1)[worst])
            actual = float(apart.reshape(-1)[worst])
            found.merge(Found(top, top, actual, limit, size=a.size))
        return found if found.size and found.left <= 1 else None


def _operands(output: str, call: Call) -> dict[str, np.ndarray]:
    """The arrays that matter for one output."""
    member = _member(output)
    if member is None or "/" not in output:
        return dict(call.arrays)
    return {
        name: a
        for name, a in call.arrays.items()
        if "/" not in name or name.rpartition("_")[2] == str(member)
    }


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False)
    )


def compare(
    pair: Pair, mine: Tracked, golden: Tracked, calls: tuple[Call, Call], exact: bool, equal: bool
) -> Found:
    """What a pair is apart against its predictions. exact: no rounding is allowed. equal: both
    predictions are one, so that nothing is inherited. Raises ValueError where the formula gives
    another shape than the op."""
    a, b = (np.asarray(x, _wide(x)) for x in (pair.mine, pair.golden))
    if not a.size:
        return Found()
    shape = a.shape
    v, t = (_fitted(p.v, shape) for p in (mine, golden))
    allowed = []
    for dtype, p, call in zip(pair.dtypes, (mine, golden), calls, strict=True):
        if exact:
            allowed.append(np.zeros(()))
        elif not is_rounded(dtype):  # an integer is what it is, but for what rounding tips over
            allowed.append(_fitted(p.w, shape) * internal(dtype, call.numerics))
        else:
            own = np.abs(_fitted(p.v, shape)) * rounding(dtype)
            least = smallest(dtype) * (_UNDERFLOWS if call.numerics.narrow_steps else 1)
            allowed.append(_fitted(p.w, shape) * internal(dtype, call.numerics) + own + least)
    both = np.broadcast_to(allowed[0] + allowed[1], shape)
    apart = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    odd = ~(np.isfinite(a) & np.isfinite(b)) & ~same
    apart = np.where(same | odd, 0.0, apart)
    found = Found(size=a.size)
    left = apart
    if not equal:
        unexplained = np.abs((a - b) - (v - t))
        left = np.fmin(apart, np.where(same | odd, 0.0, unexplained))
    own, share = _share(apart, both), _share(left, both)
    worst = int(np.argmax(share))
    found.own, found.left = float(own.max()), float(share.reshape(-1)[worst])
    found.actual = float(left.reshape(-1)[worst])
    found.allowed = float(both.reshape(-1)[worst])
    if found.left > 1:
        for name, x, p, limit in (("mine", a, v, allowed[0]), ("golden", b, t, allowed[1])):
            off = np.where(np.isfinite(x) & np.isfinite(p), np.abs(x - p), 0.0)
            setattr(found, name, float(_share(off, np.broadcast_to(limit, shape)).max()))
    if odd.any():
        _odd(found, pair.dtypes, calls, *(x[odd] for x in (a, b, v, t)))
    return found


def _wide(x: np.ndarray) -> type:
    return np.complex128 if x.dtype.kind == "c" else np.float64


def _fitted(x: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A prediction in the result's shape: one may have kept an axis of one that the other lacks."""
    x = np.asarray(x)
    if x.shape == shape or x.ndim == 0:
        return np.broadcast_to(x, shape)
    if x.size == int(np.prod(shape)):
        return x.reshape(shape)
    return np.broadcast_to(x, shape)


def _share(apart: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    return np.where(apart > 0, apart / np.where(allowed > 0, allowed, 5e-324), 0.0)


def _odd(
    found: Found, dtypes: tuple[str, str], calls: tuple[Call, Call],
    a: np.ndarray, b: np.ndarray, v: np.ndarray, t: np.ndarray,
) -> None:  # fmt: skip
    """Why elements are NaN or infinite on one side, or not alike."""
    tops = [largest(d) for d in dtypes]
    at_top = [np.abs(x) >= top for x, top in zip((a, b), tops, strict=True)]
    # of saturation the dtype's largest number stands for infinity, and 0 for NaN
    saturated = (np.isinf(b) & at_top[0] & np.isfinite(a) & (np.sign(a) == np.sign(b))) | (
        np.isinf(a) & at_top[1] & np.isfinite(b) & (np.sign(a) == np.sign(b))
    )
    for call, x, y in ((calls[0], a, b), (calls[1], b, a)):
        if call.numerics.saturates:
            saturated |= np.isnan(y) & (x == 0)
    rest = ~saturated
    ranged = rest & (
        (np.isinf(a) & np.isfinite(b) & (np.abs(b) > 0.99 * tops[0]))
        | (np.isinf(b) & np.isfinite(a) & (np.abs(a) > 0.99 * tops[1]))
    )
    rest &= ~ranged
    follow = [
        np.where(np.isfinite(x), np.isfinite(p), np.isnan(x) == np.isnan(p))
        & (np.isfinite(x) == (np.isfinite(p) & (np.abs(p) <= top * 1.01)))
        for x, p, top in ((a, v, tops[0]), (b, t, tops[1]))
    ]
    handed = rest & follow[0] & follow[1]
    found.saturated, found.ranged = int(saturated.sum()), int(ranged.sum())
    found.handed, found.nonfinite = int(handed.sum()), int((rest & ~handed).sum())
