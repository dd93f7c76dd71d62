"""One side's call of an op as its formula sees it: inputs and arguments by schema name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .numerics import KEPT, Numerics, narrow, slack, step
from .tracked import Tracked, bilinear

Results = dict[str, Tracked] | Tracked
"""What a formula returns: by the name of the output, or the one output there is."""

Formula = Callable[["Operands"], Results]

FORMULAS: dict[str, Formula] = {}
"""By the op's name without overload and in-place mark."""


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
    """arrays: the tensors by name, in their own dtypes. values: what is no tensor. outputs: names
    of what the op returned. dtypes: of the arrays, torch's names. numerics: of this side."""

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        values: Mapping[str, Any],
        outputs: tuple[str, ...],
        dtypes: Mapping[str, str],
        numerics: Numerics,
    ) -> None:
        self.arrays, self.values, self.outputs = arrays, values, outputs
        self.dtypes, self.numerics = dtypes, numerics

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
        a: Tracked,
        b: Tracked,
        count: int,
        kind: str = "matrix",
        narrows: bool = True,
        stores: int = 0,
    ) -> Tracked:
        """A sum of products as this side's device computes it. narrows: operands are float32.
        stores: as `bilinear` takes it."""
        mode = self.numerics.matrix if kind == "matrix" else self.numerics.convolution
        if mode == KEPT or not narrows:
            return bilinear(f, a, b, count, stores=stores)
        a, b = (Tracked(narrow(x.v, mode, self.numerics.saturates), x.w) for x in (a, b))
        return bilinear(f, a, b, count, slack(mode) / 2.0**-24)

    def narrows(self, *names: str) -> bool:
        """Whether these operands are of a dtype that products narrow."""
        return all(self.dtypes.get(name) == "float32" for name in names)


def wide(array: np.ndarray) -> np.ndarray:
    """In float64, or complex128."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
