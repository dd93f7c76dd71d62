"""What the tests of exact values share: op calls as a dump sees them, and an oracle in float64.

The oracle runs the whole op on whole tensors in float64, so it knows nothing of cuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from dumper.layout import member
from dumper.ops import Op, op_of
from dumper.overflow.exact import Exact, element


class Call(NamedTuple):
    """One op call: `values` as they were before it."""

    op: Op
    values: list[Any]
    result: Any

    def at(self, output: str, *index: int) -> Exact:
        """What it computes at one element."""
        return element(self.op, self.values, self.result, output, index)


class Calls(TorchDispatchMode):
    """Keeps every op call."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Call] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        self.seen.append(call(func, *args, **(kwargs or {})))
        return self.seen[-1].result


def call(func: Any, *args: Any, **kwargs: Any) -> Call:
    """Run an op, and keep what it was given."""
    op = op_of(func)
    values = op.bind(args, kwargs)
    before = values if op.is_view else copied(values)
    return Call(op, before, func(*args, **kwargs))


def copied(values: Any) -> Any:
    """The same with tensors of their own."""
    return tree_map(lambda v: v.detach().clone() if isinstance(v, torch.Tensor) else v, values)


def tensors_of(op: Op, values: list[Any], result: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor that a call made or changed, by the name that records give it."""
    named = dict(op.named_results(result)) if result is not None or op.returns else {}
    for i in op.silent_outputs:
        named.setdefault(op.arguments[i].key, values[i])
    for key, value in named.items():
        if isinstance(value, torch.Tensor):
            yield key, value
        elif isinstance(value, (list, tuple)):
            yield from (
                (member(key, i), t) for i, t in enumerate(value) if isinstance(t, torch.Tensor)
            )


def oracle(made: Call) -> dict[str, torch.Tensor]:
    """The call's tensors from the whole op in float64. Raises what the op raises."""
    if made.op.is_view:
        return dict(tensors_of(*made))
    values = tree_map(_wide, made.values)
    return dict(tensors_of(made.op, values, made.op.call(values)))


def _wide(value: Any) -> Any:
    if isinstance(value, torch.dtype) and value.is_floating_point:
        return torch.float64
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_complex():
        return value.detach().cpu().to(torch.complex128)
    value = value.detach().cpu()
    return value.double() if value.is_floating_point() else value.clone()
