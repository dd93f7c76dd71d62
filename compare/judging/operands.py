"""One side's call of an op as its formula sees it: inputs and arguments by schema name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .numerics import KEPT, Numerics, narrow, rounding, slack, step
from .tracked import Tracked, bilinear

Results = dict[str, Tracked] | Tracked
"""What a formula returns: by the name of the output, or the one output there is."""

Formula = Callable[["Operands"], Results]

FORMULAS: dict[str, Formula] = {}
"""By the op's name without overload and in-place mark."""


_SPLITS = 8
"""Parts of K whose sums a device may keep in 16 bits."""


class Missing(KeyError):
    """An operand that the file does not hold."""


def formula(*names: str) -> Callable[[Formula], Formula]:
    """Enter a function as the formula of these ops."""

    def entered(function: Formula) -> Formula:
        for name in names:
            FORMULAS[name] = function
        return function

    return entered


class Operands:
    """arrays: the tensors by name, in their own dtypes. values: what is no tensor. dtypes: of the
    arrays, torch's names. numerics: of this side. room: elements that a formula may make."""

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        values: Mapping[str, Any],
        dtypes: Mapping[str, str],
        numerics: Numerics,
        room: int,
    ) -> None:
        self.arrays, self.values = arrays, values
        self.dtypes, self.numerics, self.room = dtypes, numerics, room

    def bounded(self, *sizes: int) -> tuple[int, ...]:
        """A shape that a file asks for. Raises ValueError where it is none, or larger than what the
        op took and returned can call for."""
        if min(sizes, default=0) < 0 or math.prod(sizes) > self.room:
            raise ValueError(f"no formula makes {list(sizes)} of this op's operands")
        return sizes

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def __getitem__(self, name: str) -> Tracked:
        """A tensor in float64, or a number given in its place. Raises Missing."""
        array = self.arrays.get(name)
        if array is not None:
            return self._tracked(name)
        value = self.values.get(name)
        if isinstance(value, bool | int | float):
            return Tracked(float(value))
        raise Missing(name)

    def _tracked(self, name: str) -> Tracked:
        dtype = self.dtypes.get(name, "")
        return Tracked(wide(self.arrays[name]), r=step(dtype, self.numerics))

    def optional(self, name: str) -> Tracked | None:
        """A tensor, or None where there is none."""
        return self._tracked(name) if name in self.arrays else None

    def bits(self, name: str) -> np.ndarray:
        """A tensor of integers or bools as it is. Raises Missing."""
        if name not in self.arrays:
            raise Missing(name)
        return self.arrays[name]

    def list(self, name: str) -> list[Tracked]:
        """The tensors of a list, in order."""
        found, i = [], 0
        while (key := f"{name}/{name}_{i}") in self.arrays:
            found.append(self._tracked(key))
            i += 1
        if not found:
            raise Missing(name)
        return found

    def value(self, name: str, default: Any = None) -> Any:
        """An argument that is no tensor."""
        found = self.values.get(name, default)
        return default if found is None else found

    def product(
        self,
        f: Callable[[np.ndarray, np.ndarray], np.ndarray],
        names: tuple[str, str],
        operands: tuple[Tracked, Tracked],
        count: int,
        kind: str = "matrix",
        stores: int = 0,
    ) -> Tracked:
        """A sum of `count` products as this side's device computes it.

        names: of the operands in the call, for their dtypes. stores: how many times a partial sum
        is kept in the operands' dtype where each step is rounded to it.
        """
        a, b = operands
        mode = self.numerics.matrix if kind == "matrix" else self.numerics.convolution
        known = {self.dtypes.get(name, "") for name in names}
        if known == {"float32"} and mode != KEPT:
            a, b = (Tracked(narrow(x.v, mode, self.numerics.saturates), x.w) for x in operands)
            return bilinear(f, a, b, count, slack(mode) / rounding("float32"))
        unit = max(step(dtype, self.numerics) for dtype in known)
        narrow_sums = known & set(self.numerics.split)
        if narrow_sums:
            unit = max(rounding(dtype) for dtype in narrow_sums) / rounding("float32")
            stores = max(stores, _SPLITS)
        return bilinear(f, a, b, count, stores=stores, unit=unit)


def wide(array: np.ndarray) -> np.ndarray:
    """In float64, or complex128."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
