"""An op call as the TBE operators a chip would run for it: operators, their ports, their values.

Plain data, so that whoever writes dump files needs nothing else of this package. `Call` collects
the steps while a builder computes them, one value after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dumper.ops import Op
from dumper.tensors import dtype_name
from npu_core import storage
from npu_core.formats import Format

from . import layouts

Number = bool | int | float | complex
Operand = Tensor | Number | None


@dataclass(frozen=True)
class Port:
    """One input or output of a TBE operator.

    value: as computed here, on the device of the call, in plain layout, contiguous or not; of rank
    0 for a number. format: in which the chip would hold it. result: of an output that is one of the
    op's own results, its place among them. groups: of a convolution's weight in FRACTAL_Z.
    """

    value: Tensor
    format: Format
    result: int | None = None
    groups: int = 1

    def of(self, results: Sequence[Tensor | None]) -> Tensor:
        """What the op itself computed for this port; `value` where it is none of its results.

        results: the op's, as `run` got them. In the shape of `value`, which has an axis more than
        the result where the chip takes a tensor as four-dimensional (conv1d).
        """
        own = None if self.result is None else results[self.result]
        return self.value if own is None else own.reshape(self.value.shape)


@dataclass(frozen=True)
class Step:
    """One run of a TBE operator. op: its type, as `MatMul`."""

    op: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    attributes: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class Ran:
    """The steps of an op call, none where it runs no TBE operator.

    instead_of: set where one operator stands for the whole op, since its steps are not known: the
    sequence that the table has for it, empty where it has none.
    """

    steps: tuple[Step, ...]
    instead_of: tuple[str, ...] | None = None


class Call:
    """An op call whose steps are being collected.

    op, values, results: as `ir2tbe.sequences.run` has them. device: where all values are.
    """

    def __init__(self, op: Op, values: list[Any], results: list[Tensor | None]) -> None:
        self.op, self.values, self.results = op, values, results
        self.given = {a.name: v for a, v in zip(op.arguments, values, strict=True)}
        self.steps: list[Step] = []
        # Of what steps made, and of what the op wrote, before and after. All of it is kept alive.
        self._formats: dict[int, Format] = {}
        devices = (t.device for t in tensors([values, results]) if t.device.type != "cpu")
        self.device = next(devices, torch.device("cpu"))
        for before, after in self._written():
            if before is not None and after is not None and after.device.type == "npu":
                label = Format(storage.get_format(after))
                self._formats |= {id(before): label, id(after): label}

    def __getitem__(self, name: str) -> Any:
        """The argument of this name."""
        return self.given[name]

    def result(self, place: int = 0) -> Tensor:
        """A result that the op surely has."""
        found = self.results[place]
        assert found is not None
        return found

    def step(
        self,
        op: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Tensor],
        ends: Mapping[int, int] | None = None,
        attributes: Mapping[str, object] | None = None,
        dtype: torch.dtype | None = None,
        groups: int = 1,
    ) -> None:
        """Append one operator.

        inputs: tensors and numbers in order; None is an optional input that is absent. outputs:
        their computed values. ends: which outputs are which results of the op; a result that the
        op did not return is none. dtype: of numbers; None is that which the first tensor and the
        number promote to. groups: of a weight.
        """
        given = [self.tensor(value, inputs, dtype) for value in inputs if value is not None]
        known = [self._formats.get(id(value)) for value in given]
        own = [self._formats.get(id(value)) for value in outputs]
        before, after = layouts.formats(op, given, known, outputs, own)
        ends = ends or {}
        places = [ends.get(i) for i in range(len(outputs))]
        for value, format in zip(outputs, after, strict=True):
            self._formats[id(value)] = format
        self.steps.append(
            Step(
                op,
                tuple(
                    Port(v, f, groups=groups if f in layouts.GROUPED else 1)
                    for v, f in zip(given, before, strict=True)
                ),
                tuple(
                    Port(v, f, p if p is not None and self.results[p] is not None else None,
                         groups if f in layouts.GROUPED else 1)
                    for v, f, p in zip(outputs, after, places, strict=True)
                ),
                tuple((attributes or {}).items()),
            )
        )  # fmt: skip

    def compute(
        self, op: str, inputs: Sequence[Operand], output: Tensor, end: int | None = None, **how: Any
    ) -> Tensor:
        """Append one operator that has one output, and return that. end: which result it is."""
        self.step(op, inputs, [output], None if end is None else {0: end}, **how)
        return output

    def whole(
        self,
        op: str,
        inputs: Sequence[Operand],
        attributes: Mapping[str, object] | None = None,
        **how: Any,
    ) -> None:
        """Append one operator whose outputs are the op's results, all of them in order."""
        there = [i for i, result in enumerate(self.results) if result is not None]
        outputs = [self.result(i) for i in there]
        self.step(op, inputs, outputs, dict(enumerate(there)), attributes, **how)

    def tensor(
        self,
        value: Tensor | Number,
        others: Sequence[Operand] = (),
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """A number as the chip takes it, a tensor of rank 0 on the device; a tensor as it is.

        A scalar tensor that is elsewhere, as PyTorch lets operands be, is a number. others: the
        operands it goes with, which decide its dtype where `dtype` does not.
        """
        value = self.scalar(value)
        if isinstance(value, Tensor):
            return value
        if dtype is None:
            with_tensor = next((t for t in tensors(others) if t.dtype is not torch.bool), None)
            with_tensor = self._first_result() if with_tensor is None else with_tensor
            dtype = torch.get_default_dtype()
            if with_tensor is not None:
                dtype = torch.result_type(with_tensor, value)
        kind = torch.float64 if isinstance(value, float) else None
        # Not torch.full: it refuses a number that is too large for the dtype, which no op does.
        return torch.tensor(value, dtype=kind).to(dtype).to(self.device)

    def hold(self, tensor: Tensor, format: Format) -> None:
        """Say in which format a tensor is, where that is neither its label nor follows."""
        self._formats[id(tensor)] = format

    def scalar(self, value: Operand) -> Operand:
        """A scalar tensor that is elsewhere as the number it is; anything else as it is."""
        elsewhere = isinstance(value, Tensor) and value.device != self.device and not value.dim()
        return value.item() if elsewhere else value

    def cast(self, x: Tensor, dtype: torch.dtype, end: int | None = None) -> Tensor:
        """Append a Cast, and return what it makes; the tensor itself where it is of that dtype."""
        if x.dtype is dtype:
            return x
        return self.compute("Cast", [x], x.to(dtype), end, attributes=cast_to(dtype))

    def sizes(self, numbers: Sequence[int], dtype: torch.dtype = torch.int64) -> Tensor:
        """Sizes, axes and the like as the chip takes them: integers of rank 1."""
        return torch.tensor(list(numbers), dtype=dtype, device=self.device)

    def _written(self) -> Iterator[tuple[Tensor | None, Tensor | None]]:
        """What the op wrote, before and after: of a tensor before it there is a copy, which has
        lost its label."""
        op, places = self.op, {a.key: i for i, a in enumerate(self.op.arguments) if a.written}
        for key, after in zip(op.returns, self.results, strict=False):
            before = self.values[places[key]] if key in places else None
            if isinstance(before, Tensor):
                yield before, after
        silent = [each for i in op.silent_outputs for each in _flat(self.values[i])]
        yield from zip(silent, self.results[len(self.results) - len(silent) :], strict=True)

    def _first_result(self) -> Tensor | None:
        return next(tensors(self.results), None)


def cast_to(dtype: torch.dtype) -> dict[str, object]:
    """The attributes of a Cast."""
    return {"dst_type": dtype_name(dtype)}


def tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor in a value or in the lists it is made of, in order."""
    return (each for each in _flat(value) if each is not None)


def _flat(value: Any) -> Iterator[Tensor | None]:
    if value is None or isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for member in value:
            yield from _flat(member)
