"""The parts of a call's arguments that one element of its result is computed from.

A cut is made of views only: nothing is computed on the tensors' device. Either the op itself runs
on the cut arguments, so that no formula is written twice, or, where an op has no small form (a
convolution's border), a `formula` stands in for it. Which op is cut how: `cuts_axes`,
`cuts_sums`, `cuts_moves`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..layout import member
from ..ops import Op

Place = tuple[int | None, ...]
Formula = Callable[[Mapping[str, torch.Tensor]], torch.Tensor]


class Uncut(Exception):
    """This call is no case of the cut that its op has: the whole op is run."""


class Cut:
    """A call's arguments while they are cut for one element.

    op, values: the call. output, number: the result that is asked about, and which member of it if
    it is a list. shape: of that result. index: the element; a cut that moves it sets it anew.
    formula: instead of the op, from the cut arguments by name. places: by position of the argument
    (and member of a list) where what is left of it lies.
    """

    def __init__(
        self,
        op: Op,
        values: list[Any],
        output: tuple[str, int | None],
        shape: tuple[int, ...],
        index: tuple[int, ...],
    ) -> None:
        self.op = op
        self.values = list(values)
        self.output, self.number = output
        self.shape = shape
        self.index = index
        self.formula: Formula | None = None
        self.places: dict[tuple[int, int | None], Place] = {}
        self.labels: dict[tuple[int, int | None], str] = {}
        self._at = {argument.name: i for i, argument in enumerate(op.arguments)}

    def __contains__(self, name: str) -> bool:
        """Whether the op has an argument of this name."""
        return name in self._at

    def __getitem__(self, name: str) -> Any:
        return self.values[self._at[name]]

    def __setitem__(self, name: str, value: Any) -> None:
        self.values[self._at[name]] = value

    def get(self, name: str, default: Any = None) -> Any:
        """An argument's value, `default` where the op has none of this name."""
        return self[name] if name in self else default

    def axis(self, rank: int) -> int:
        """The axis that `dim` names. Raises Uncut where it is none, or not one."""
        dim = self["dim"]
        if not isinstance(dim, int) or not rank:
            raise Uncut
        return dim % rank

    @property
    def position(self) -> int:
        """Which of the op's results is asked about; -1 for an argument that it changes."""
        return self.op.returns.index(self.output) if self.output in self.op.returns else -1

    def tensors(self) -> list[str]:
        """Names of the arguments that are a tensor, and not where the result goes."""
        return [
            argument.name
            for argument, value in zip(self.op.arguments, self.values, strict=True)
            if isinstance(value, torch.Tensor) and not (argument.written and argument.kwarg_only)
        ]

    def take(self, name: str, axes: Mapping[int, int | slice]) -> torch.Tensor:
        """Leave one index, or a slice, of some axes of a tensor; no axis goes away."""
        at = self._at[name]
        self.values[at], self.places[at, None] = taken(self.values[at], axes)
        return self.values[at]

    def broadcast(self, name: str, index: tuple[int, ...], shape: tuple[int, ...]) -> None:
        """Leave what a tensor holds for one index of the shape that it is broadcast to."""
        self.take(name, aligned(self[name], index, shape))

    def keep(self, name: str, number: int, axes: Mapping[int, int | slice]) -> None:
        """Leave one member of a list, cut as by `take`; it keeps its name in the list."""
        at = self._at[name]
        tensor = self.values[at][number]
        if tensor is not None:
            tensor, self.places[at, 0] = taken(tensor, axes)
        self.labels[at, 0] = member(self.op.arguments[at].key, number)
        self.values[at] = [tensor]

    def only(self, *names: str) -> None:
        """Leave out all other tensors, which a formula does not read."""
        for i, argument in enumerate(self.op.arguments):
            if "Tensor" in argument.type and argument.name not in names:
                self.values[i] = None


def taken(tensor: torch.Tensor, axes: Mapping[int, int | slice]) -> tuple[torch.Tensor, Place]:
    """A view of one index, or a slice, of some axes, and where it lies. Raises Uncut."""
    slices, place = [slice(None)] * tensor.dim(), [None] * tensor.dim()
    for axis, part in axes.items():
        if isinstance(part, int):
            if not 0 <= part < tensor.shape[axis]:
                raise Uncut
            part = slice(part, part + 1)
        slices[axis] = part
        found = range(tensor.shape[axis])[part]
        place[axis] = found[0] if len(found) == 1 else None
    return tensor[tuple(slices)], tuple(place)


def aligned(
    tensor: torch.Tensor, index: tuple[int, ...], shape: tuple[int, ...]
) -> dict[int, int | slice]:
    """What to take of a tensor for one index of the shape it is broadcast to. Raises Uncut."""
    behind = len(shape) - tensor.dim()
    if behind < 0:
        raise Uncut
    found = {}
    for axis, size in enumerate(tensor.shape):
        if size not in (1, shape[behind + axis]):
            raise Uncut
        found[axis] = index[behind + axis] if size > 1 else 0
    return found


def base_of(op: Op) -> str:
    """The op's name without its namespace, overload and the mark of an in-place op: `add`."""
    name = op.func._schema.name.partition("::")[2]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


Cutter = Callable[[Cut], None]


def registering(table: dict[str, Cutter]) -> Callable[..., Callable[[Cutter], Cutter]]:
    """A decorator that enters a function into a table, by the bases of the ops that it cuts.

    The function changes the cut that it is given, or raises Uncut.
    """

    def cuts(*bases: str) -> Callable[[Cutter], Cutter]:
        def register(function: Cutter) -> Cutter:
            table.update(dict.fromkeys(bases, function))
            return function

        return register

    return cuts
