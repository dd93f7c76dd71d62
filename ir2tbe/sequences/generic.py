"""An op that one TBE operator computes whole, and the stand-in where the steps are not known.

The table's ports say which arguments go in, in which order; many of them are names of variables in
the vendor's source (`self_cp`, `contiguous_mat2`), which are an argument after some preparation.
Where a port is none even so, or a tensor would be left out, all tensor arguments go in, in the
order of the schema.
"""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

from ir2tbe.table import Step as Line

from .steps import Call, Operand, tensors

_PREPARED = re.compile(
    r"(?:contiguous|(?:d?type|format)_?cast_of)_"
    r"|_(?:cp|copy|cast|int32|bool|broadcast|tensor|para|not_0d|op)(?=$|_)|\?$"
)
_SAME = {
    **dict.fromkeys(("dim_list", "dim_vec", "dim_vector", "dimVec", "dimList"), ("dim",)),
    **dict.fromkeys(("axes", "axis", "concat_dim"), ("dim",)),
    "keep_dims": ("keepdim",),
    "strides": ("stride",),
    "pads": ("padding",),
    "dilations": ("dilation",),
    "ksize": ("kernel_size",),
    "grad": ("grad_output",),
    "self": ("output", "input"),
}
"""Names that the vendor has for arguments of ours."""


def one(call: Call, line: Line) -> None:
    """Append the one operator that computes the op, by its line in the table."""
    inputs = _by_ports(call, line.inputs or ())
    call.whole(line.op, _arguments(call) if inputs is None else inputs, _attributes(call, line))


def stand_in(call: Call) -> None:
    """Append one operator for an op whose steps are not known. Its type is the op's IR, so that
    nobody takes it for an operator of the chip."""
    call.whole(call.op.ir, _arguments(call))


def _by_ports(call: Call, ports: tuple[str, ...]) -> list[Operand] | None:
    """The inputs that ports name; None where a tensor argument would be left out."""
    inputs: list[Operand] = []
    names = set()
    for port in ports:
        name = _argument(call, port)
        if name is None or name in names:  # a variable that was printed for another
            continue
        names.add(name)
        inputs += _operands(call, call[name])
    missing = {name for name, value in call.given.items() if list(tensors(value))} - names
    return None if missing - set(_outs(call)) or not names else inputs


def _argument(call: Call, port: str) -> str | None:
    """The argument that a port's value is."""
    variable = port.partition("=")[2] or port
    name = _PREPARED.sub("", variable)
    known = (variable, name, *_SAME.get(name, ()))
    return next((each for each in known if each in call.given), None)


def _operands(call: Call, value: Any) -> list[Operand]:
    if isinstance(value, (Tensor, bool, int, float, complex)):
        return [value]
    if isinstance(value, (list, tuple)):
        if value and all(type(v) is int for v in value):
            return [call.sizes(value)]
        return list(tensors(value))
    return []


def _arguments(call: Call) -> list[Operand]:
    outs = _outs(call)
    return [t for name, value in call.given.items() if name not in outs for t in tensors(value)]


def _outs(call: Call) -> list[str]:
    """Arguments that are only written: `out=` of the overloads that have one."""
    return [a.name for a in call.op.arguments if a.written and a.kwarg_only]


def _attributes(call: Call, line: Line) -> dict[str, object]:
    found = {}
    for attribute in line.attributes or ():
        name = _argument(call, attribute)
        if name is not None and _is_plain(value := call[name]):
            found[attribute] = value
    return found


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, (bool, int, float, str))
