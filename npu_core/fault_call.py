"""One call of an op as a fault sees it: arguments by name, and the op run again on other ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

Run = Callable[[tuple, dict], Any]  # an op's kernel: positional and keyword arguments to results

# The matrix that ops of the cube unit multiply by.
WEIGHT = {
    "mm": "mat2", "bmm": "mat2", "addmm": "mat2", "_addmm_activation": "mat2", "mv": "self",
    "addmv": "mat", "addbmm": "batch2", "baddbmm": "batch2", "convolution": "weight",
    "_convolution": "weight", "convolution_backward": "weight",
}  # fmt: skip


@cache
def arguments(op: str) -> dict[str, torch._C.Argument]:
    """The schema's arguments of an aten `name.overload`, by name and in order."""
    name, _, overload = op.partition(".")
    schema = getattr(getattr(torch.ops.aten, name), overload)._schema
    return {argument.name: argument for argument in schema.arguments}


@dataclass
class Call:
    """One call of an op: its arguments by schema name, and the way to run it on changed ones.

    args, kwargs: as the dispatcher hands them over, without trailing defaults. written: the results
    are tensors of the caller, to be overwritten. seed: chooses elements. chosen: whether the fault
    is to change this call. memory: what the fault keeps from call to call. applied: whether it did.
    """

    op: str
    kernel: Run
    args: tuple
    kwargs: dict
    written: bool
    seed: int = 0
    chosen: bool = True
    memory: dict = field(default_factory=dict)
    applied: bool = True

    @property
    def base(self) -> str:
        """The op's name without overload, the same for its in-place form."""
        return base(self.op)

    def __contains__(self, name: str) -> bool:
        return name in arguments(self.op)

    def __getitem__(self, name: str) -> Any:
        known = arguments(self.op)
        place = list(known).index(name)
        if place < len(self.args):
            return self.args[place]
        return self.kwargs.get(name, known[name].default_value)

    def all(self) -> tuple[list, dict]:
        """Every argument, defaults included: positional ones and keyword-only ones."""
        known = arguments(self.op).values()
        return (
            [self[a.name] for a in known if not a.kwarg_only],
            {a.name: self[a.name] for a in known if a.kwarg_only},
        )

    def run(self, /, **changed: Any) -> Any:
        """The op's results, computed with some arguments changed."""
        args, kwargs = list(self.args), dict(self.kwargs)
        known = arguments(self.op)
        names = list(known)
        for name, value in changed.items():
            if known[name].kwarg_only:
                kwargs[name] = value
                continue
            place = names.index(name)
            args += [known[n].default_value for n in names[len(args) : place + 1]]
            args[place] = value
        return self.kernel(tuple(args), kwargs)

    def error(self, why: str) -> RuntimeError:
        """What a kind raises where it cannot be applied to this call."""
        return RuntimeError(f"fault on {self.op}: {why}; choose other calls with nth or when")

    def main(self, results: Any) -> torch.Tensor:
        """The main result. Raises RuntimeError where none is floating-point or all are empty."""
        main = find_main(results)
        if main is None:
            raise self.error("this call returns no floating-point numbers to change")
        return main

    def replace(self, results: Any, old: torch.Tensor, new: torch.Tensor) -> Any:
        """The results with `new` for `old`, or with `old` overwritten if it is the caller's."""
        if self.written:
            old.copy_(new)
            return results
        if results is old:
            return new
        return type(results)([new if result is old else result for result in results])


def base(op: str) -> str:
    """The name of `name.overload` without overload, the same for an op and its in-place form."""
    return op.partition(".")[0].removesuffix("_")


def each(results: Any) -> list:
    """What an op returns as a list, be it one value or several."""
    return list(results) if isinstance(results, tuple | list) else [results]


def find_main(results: Any) -> torch.Tensor | None:
    """The main result: the first with floating-point numbers."""
    for result in each(results):
        if isinstance(result, torch.Tensor) and result.is_floating_point() and result.numel():
            return result
    return None
