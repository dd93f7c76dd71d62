"""What an op's schema says about it, read once per op and kept: names, defaults, what is written,
what is a view.

Everything else asks here, so that the hot path of capture looks up one object per op call and never
walks a schema. Two facts are no schema's: native batch norm writes its running statistics unmarked,
and `Tensor?[]` lists hold None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from .layout import escape, ir_name

UNMARKED_WRITES = {
    name: ("running_mean", "running_var")
    for name in (
        "aten::native_batch_norm",
        "aten::cudnn_batch_norm",
        "aten::miopen_batch_norm",
        "aten::batch_norm",
        "aten::batch_norm_update_stats",
        "aten::batch_norm_gather_stats",
        "aten::batch_norm_gather_stats_with_counts",
    )
}
"""The ops that write arguments their schema does not mark."""

_BLANK = re.compile(r"(new_)?empty(_like|_strided|_permuted|_quantized)?$")

SCRATCH = {"aten::mkldnn_rnn_layer": ("result3",)}
"""Results that are scratch memory for the op's backward: not all of it is ever written."""

SILENT_NAMESPACES = ("profiler", "prim")
"""Bookkeeping of torch itself that reaches dispatch modes; no arithmetic, so no record."""


@dataclass(frozen=True)
class Argument:
    """One argument of a schema: `key` is its name in a file, `type` the declared type as torch
    prints it.
    """

    name: str
    key: str
    type: str
    has_default: bool
    default: Any
    kwarg_only: bool
    written: bool

    @cached_property
    def is_scalar(self) -> bool:
        """Declared as Scalar, or a Tensor for which Python passes a number."""
        return "number" in self.type or "Tensor" in self.type

    @cached_property
    def is_optional(self) -> bool:
        return self.type.startswith("Optional")


class Op:
    """The facts of one `OpOverload`."""

    def __init__(self, func: torch._ops.OpOverload) -> None:
        schema = func._schema
        unmarked = UNMARKED_WRITES.get(schema.name, ())
        self.func = func
        self.qualified = schema.name
        name = schema.name.partition("::")[2].removeprefix("_foreach_")
        self.base = name.removesuffix("_")  # of an op, its in-place and its foreach form
        self.ir = ir_name(schema.name, schema.overload_name)
        self.schema = str(schema)
        self.recorded = func.namespace not in SILENT_NAMESPACES
        self.arguments = tuple(
            Argument(
                name=a.name,
                key=escape(a.name),
                type=str(a.real_type),
                has_default=a.has_default_value(),
                default=a.default_value,
                kwarg_only=a.kwarg_only,
                written=a.name in unmarked or bool(a.alias_info and a.alias_info.is_write),
            )
            for a in schema.arguments
        )
        self.positional = sum(not a.kwarg_only for a in self.arguments)
        self.written = tuple(i for i, a in enumerate(self.arguments) if a.written)
        # t_, set_ and their like move the tensor itself over memory: views, though marked written.
        self.is_view = torch.Tag.inplace_view in func.tags or any(
            r.alias_info is not None and not r.alias_info.is_write for r in schema.returns
        )
        self.resizes = schema.name in ("aten::resize_", "aten::resize_as_")
        self.seeded = torch.Tag.nondeterministic_seeded in func.tags
        self.returns = _return_keys(schema)
        empty = _BLANK.match(schema.name.partition("::")[2])
        self.blank = self.returns if empty else SCRATCH.get(schema.name, ())
        # The arguments an op changes without returning them (foreach, batch norm) are outputs all
        # the same.
        self.silent_outputs = tuple(
            i for i in self.written if self.arguments[i].key not in self.returns
        )
        self.plain_result = len(self.returns) == 1 and not self.silent_outputs
        # torch stops bumping version counters of these under any dispatch mode; capture does it
        # instead.
        self.needs_version_bump = schema.name.startswith("aten::_foreach_") and bool(self.written)
        self.arrives_later, self.async_argument = False, None
        if func.namespace in ("c10d", "_c10d_functional"):
            self._exchange(schema)

    def _exchange(self, schema: torch._C.FunctionSchema) -> None:
        """Between processes no schema marks what is written, and results may arrive later.

        Only a collective that its caller waits for at once can be waited for here: another rank may
        need us to go on before it takes part.
        """
        namespace, _, name = schema.name.partition("::")
        if name in ("send", "wait_tensor"):
            return
        self.arrives_later = True
        if namespace == "c10d":
            self.written = tuple(i for i, a in enumerate(self.arguments) if "Tensor" in a.type)
            names = [a.name for a in self.arguments]
            self.async_argument = names.index("async_op") if "async_op" in names else None
            returned = any("Tensor" in str(r.type) for r in schema.returns)
            self.silent_outputs = () if returned else self.written

    def waits(self, values: list[Any]) -> bool:
        """Whether the caller of a collective waits for it at once."""
        return self.async_argument is not None and values[self.async_argument] is False

    def bind(self, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
        """Lay a call's values out in schema order, defaults filled in."""
        values = list(args)
        for argument in self.arguments[len(args) :]:
            values.append(kwargs.get(argument.name, argument.default))
        return values

    def named_results(self, result: Any) -> Iterator[tuple[str, Any]]:
        """What a call returned, by the names that records give its results."""
        results = (result,) if len(self.returns) == 1 else tuple(result or ())
        return zip(self.returns, results, strict=True)

    def call(self, values: list[Any]) -> Any:
        """Call the op on values in schema order."""
        positional = self.positional
        if positional == len(values):
            return self.func(*values)
        named = {
            a.name: v for a, v in zip(self.arguments[positional:], values[positional:], strict=True)
        }
        return self.func(*values[:positional], **named)


def _return_keys(schema: torch._C.FunctionSchema) -> tuple[str, ...]:
    """Name results as the original did: the schema's name, the written argument's name, else
    `result[i]`.
    """
    keys = []
    for i, result in enumerate(schema.returns):
        key = result.name
        if result.alias_info is not None and result.alias_info.is_write:
            alias = result.alias_info.before_set
            key = next(
                (
                    a.name
                    for a in schema.arguments
                    if a.alias_info and a.alias_info.before_set == alias
                ),
                key,
            )
        if not key:
            key = "result" if len(schema.returns) == 1 else f"result{i}"
        keys.append(escape(key))
    return tuple(keys)


_OPS: dict[torch._ops.OpOverload, Op] = {}


def op_of(func: torch._ops.OpOverload) -> Op:
    """The facts of `func`, made at its first call."""
    op = _OPS.get(func)
    if op is None:
        op = _OPS[func] = Op(func)
    return op


def overload_named(ir: str) -> torch._ops.OpOverload | None:
    """The op whose records bear the IR name `ir`, or None. No two aten ops share an IR name."""
    if not _BY_IR or ir not in _BY_IR:
        for qualified in torch._C._dispatch_get_all_op_names():
            name, _, overload = qualified.partition(".")
            _BY_IR[ir_name(name, overload)] = qualified
    qualified = _BY_IR.get(ir)
    if qualified is None:
        return None
    namespace, _, rest = qualified.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base)
    return getattr(packet, overload or "default")


_BY_IR: dict[str, str] = {}
