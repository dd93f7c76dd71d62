"""What an op computes at one element in float64, from the very inputs it had, and those inputs.

An overflow is told from a wrong kernel by this: 66246 fits no float16 whatever the device does. The
op runs again on the CPU, on the parts of its inputs that the element needs (`cuts`); whole where
its parts are not known and its tensors are small. Nothing of the caller's changes: written
arguments are copies, ops that draw numbers are not run, no mode or dump sees any of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ..draws import draws
from ..errors import first_line
from ..ops import Op, op_of
from ..parts import is_plain
from ..record import tensors_in
from . import cuts_axes, cuts_moves, cuts_sums
from .cuts import Cut, Uncut, base_of
from .cuts_axes import elementwise, is_elementwise, is_list, lists
from .events import Operand
from .widened import operands_of, read_by, widened

LIMIT = 2**24
"""Elements of all tensors together up to which an op is run in float64."""

NO_TENSOR = "the op returns no such tensor"

_BY_DTYPE = frozenset("nan_to_num nextafter".split())
"""Ops whose result hangs on the dtype itself."""

_TWINS: dict[str, tuple[torch._ops.OpOverload, tuple[Any, ...]]] = {
    "cudnn_batch_norm": (
        torch.ops.aten.native_batch_norm.default,
        ("input", "weight", "bias", "running_mean", "running_var", "training",
         "exponential_average_factor", "epsilon"),
    ),
    "cudnn_batch_norm_backward": (
        torch.ops.aten.native_batch_norm_backward.default,
        ("grad_output", "input", "weight", "running_mean", "running_var", "save_mean", "save_var",
         True, "epsilon", [True] * 3),
    ),
}  # fmt: skip
"""Ops of one kind of device, and those of the CPU that make the same results in the same order:
what each of its arguments is, by name or as it is."""

_REFUSALS = (RuntimeError, TypeError, ValueError, IndexError)

_CUTS = cuts_axes.CUTS | cuts_moves.CUTS | cuts_sums.CUTS


class Exact(NamedTuple):
    """value: in float64; None where it is not known, and `why` says so in English.

    inputs: what each tensor input that is not complex holds where the element came from, by
    argument name, a member of a list by its name in it (`self/self_3`).
    """

    value: float | None
    inputs: dict[str, Operand]
    why: str | None = None


def element(op: Op, values: list[Any], result: Any, output: str, index: tuple[int, ...]) -> Exact:
    """What a call computes at one element of one result.

    values: in schema order, as they were before the op ran. result: what the call returned (only
    looked at for shapes; of a view, for the element). output: a result's or changed argument's name
    as records have it, `self/self_3` for a member of a list. index: () for what is no tensor.
    """
    return elements(op, values, result, output, [index])[0]


def elements(
    op: Op, values: list[Any], result: Any, output: str, indices: Sequence[tuple[int, ...]]
) -> list[Exact]:
    """`element` at several places of one result. An op that is run whole runs once for all."""
    # DisableTorchFunction hides it from modes over functions, the other one from modes over ops.
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), torch.no_grad():
        why = refused(op, values)
        if why is not None:
            return [Exact(None, {}, why)] * len(indices)
        return list(_Call(op, values, result, output).at(indices))


class _Unknown(Exception):
    """The value is not known; the text says why."""


def refused(op: Op, values: list[Any]) -> str | None:
    """Why a call cannot, or must not, be run again; None where it can."""
    if op.func.namespace != "aten":
        return f"{op.func.namespace} ops are not run again: what else they do is not known"
    if draws(op, values) or any(isinstance(value, torch.Generator) for value in values):
        return "the op draws random numbers"
    if op.blank:
        return "the op leaves memory as it is"
    if op.resizes or base_of(op) in ("set", "set_data"):
        return "the op changes its argument's memory"
    if base_of(op) in _BY_DTYPE:
        return "the result hangs on the dtype itself"
    for tensor in tensors_in(values):
        if not is_plain(tensor) or tensor.is_meta:
            return "an input is no dense tensor with values"
    return None


class _Call:
    """One call that is asked about."""

    def __init__(self, op: Op, values: list[Any], result: Any, output: str) -> None:
        self._op = op
        self._values = values
        self._result = result
        key, _, rest = output.partition("/")
        self._output = key, int(rest.rpartition("_")[2]) if rest else None
        self._asked = _pick(op, values, result, self._output)
        self._ints = is_elementwise(op)  # whether integers are computed as numbers, not places

    def at(self, indices: Sequence[tuple[int, ...]]) -> Iterator[Exact]:
        """Each element, in order."""
        whole: tuple[Any, dict[str, Operand], str | None] | None = None
        for index in indices:
            if self._asked is None:
                yield Exact(None, {}, NO_TENSOR)
                continue
            if self._op.is_view and isinstance(self._asked, torch.Tensor):
                yield self._viewed(index)
                continue
            cut = self._cut(index)
            if cut is not None:
                made, inputs, why = self._run(cut)
                index = cut.index
            else:
                whole = self._whole() if whole is None else whole
                made, inputs, why = whole
            if why is None:
                try:
                    yield Exact(_number(made, index), inputs)
                    continue
                except _Unknown as unknown:
                    why = str(unknown)
            yield Exact(None, inputs, why)

    def _viewed(self, index: tuple[int, ...]) -> Exact:
        """A view holds what its source does: nothing is computed."""
        try:
            value = _number(self._asked, index)
        except _Unknown as unknown:
            return Exact(None, {}, str(unknown))
        for argument, source in zip(self._op.arguments, self._values, strict=True):
            if isinstance(source, torch.Tensor):
                place = cuts_moves.seen_in(source, self._asked, index)
                if place is None:
                    break
                return Exact(value, {argument.key: Operand(place, (value,), 1, value, value)})
        return Exact(value, {})

    def _cut(self, index: tuple[int, ...]) -> Cut | None:
        """The call cut for one element; None where it has to be run whole."""
        if not isinstance(self._asked, torch.Tensor):
            return None
        if is_list(self._op):
            cutter = lists
        elif self._ints:
            cutter = elementwise
        else:
            cutter = _CUTS.get(base_of(self._op))
        if cutter is None:
            return None
        cut = Cut(self._op, self._values, self._output, tuple(self._asked.shape), index)
        try:
            cutter(cut)
        except Uncut:
            return None
        return cut

    def _whole(self) -> tuple[Any, dict[str, Operand], str | None]:
        """The whole op's result. Its results count too: small inputs may make a large one."""
        made = sum(tensor.numel() for tensor in tensors_in([self._result]))
        return self._run(Cut(self._op, self._values, self._output, (), ()), made)

    def _run(self, cut: Cut, made: int = 0) -> tuple[Any, dict[str, Operand], str | None]:
        """What is asked about, computed from a cut's arguments; what they hold; why it failed."""
        size = made + sum(tensor.numel() for tensor in tensors_in(read_by(cut)))
        if size > LIMIT:
            return None, {}, f"{size} elements are too many to compute in float64"
        op, inputs = self._op, {}
        try:
            values = widened(cut, self._ints)
            inputs = operands_of(cut, values)
            named = {a.name: v for a, v in zip(op.arguments, values, strict=True)}
            if cut.formula is not None:
                members = {k: v[0] for k, v in named.items() if isinstance(v, list) and len(v) == 1}
                result = cut.formula(named | members)
                cut.index = (0,) * result.dim()
                return result, inputs, None
            output = cut.output
            if base_of(op) in _TWINS:
                func, taken = _TWINS[base_of(op)]
                values = [named[t] if isinstance(t, str) else t for t in taken]
                if output in op.returns:
                    output = op_of(func).returns[op.returns.index(output)]
                op = op_of(func)
            return _pick(op, values, op.call(values), (output, cut.number)), inputs, None
        except _REFUSALS as error:
            return None, inputs, f"not computed in float64: {first_line(error)}"


def _pick(op: Op, values: list[Any], result: Any, output: tuple[str, int | None]) -> Any:
    """A result, or an argument that the call changed, by its name; None where there is none."""
    key, number = output
    named = dict(op.named_results(result)) if result is not None or op.returns else {}
    for i in op.silent_outputs:
        named.setdefault(op.arguments[i].key, values[i])
    found = named.get(key)
    if number is not None:
        return found[number] if isinstance(found, (list, tuple)) and number < len(found) else None
    return found


def _number(made: Any, index: tuple[int, ...]) -> float:
    """One element of a tensor, or a number, in float64. Raises _Unknown."""
    if isinstance(made, torch.Tensor):
        if not is_plain(made) or made.is_meta:
            raise _Unknown("the result is no dense tensor with values")
        if made.dim() != len(index):
            raise _Unknown(f"the result has {made.dim()} axes in float64")
        try:
            made = made[index]
        except IndexError:
            raise _Unknown("the result has another shape in float64") from None
        if made.is_floating_point() and made.element_size() == 1:
            made = made.float()
        made = made.item()
    if isinstance(made, complex):
        raise _Unknown("the result is complex")
    if not isinstance(made, (bool, int, float)):
        raise _Unknown(NO_TENSOR)
    return float(made)
