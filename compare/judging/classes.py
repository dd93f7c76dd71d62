"""What class an aten op belongs to: what it does to numbers, and so what two runs of it may differ.

The table is data (classes.json). An op that is not in it is judged by the default, and its verdict
says so.
"""

from __future__ import annotations

import json
from enum import Enum
from functools import cache
from importlib import resources
from typing import NamedTuple


class Class(Enum):
    """MOVEMENT copies elements; EXACT compares, counts, selects or makes constants; POINTWISE,
    REDUCTION, PRODUCT and OPTIMIZER round; RANDOM draws; UNINITIALISED is memory as found; VALUE is
    no op at all but a gradient or a parameter; OTHER is not in the table."""

    MOVEMENT = "movement"
    EXACT = "exact"
    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    PRODUCT = "product"
    OPTIMIZER = "optimizer"
    RANDOM = "random"
    UNINITIALISED = "uninitialised"
    VALUE = "value"
    OTHER = "other"


class OpClass(NamedTuple):
    """base: the op's name without overload and in-place mark. kind: its class. ulps: units in the
    last place that two sides may be apart on equal inputs; None where that is no measure."""

    base: str
    kind: Class
    ulps: int | None = None

    @property
    def by_default(self) -> bool:
        """Whether the table does not know this op."""
        return self.kind is Class.OTHER


_VALUES = ("grad", "update")
_DEVICES = ("cudnn_", "miopen_", "mkldnn_", "npu_", "thnn_", "mps_")


@cache
def class_of(ir: str) -> OpClass:
    """The class of an IR: a schema name, and its overload after `_` where it has one."""
    if ir in _VALUES:
        return OpClass(ir, Class.VALUE)
    table, overloads = _table()
    pieces = ir.split("_")
    for cut in range(len(pieces), 0, -1):
        name, overload = "_".join(pieces[:cut]), "_".join(pieces[cut:])
        if overload and overload not in overloads:
            continue
        for base in _plain(name):
            if base in table:
                return OpClass(base, *table[base])
    return OpClass(ir, Class.OTHER)


def _plain(name: str) -> list[str]:
    """A schema name and what it is called without in-place mark or a device's prefix."""
    found = [name, name.removesuffix("_")]
    for prefix in _DEVICES:
        if name.startswith(prefix):
            found.append(name.removeprefix(prefix))
    return found


@cache
def _table() -> tuple[dict[str, tuple[Class, int | None]], frozenset[str]]:
    text = (resources.files(__package__) / "classes.json").read_text("utf-8")
    data = json.loads(text)
    found: dict[str, tuple[Class, int | None]] = {}
    for kind in Class:
        names = data.get(kind.value, ())
        if isinstance(names, dict):
            for ulps, group in names.items():
                found.update(dict.fromkeys(group, (kind, int(ulps))))
        else:
            found.update(dict.fromkeys(names, (kind, None)))
    return found, frozenset(data["overloads"])
