"""Which ops have steps of their own: a builder for each, by name.

A builder appends the steps of a `Call` and returns True; or it returns False and appends none where
the table's one operator is the whole op.
"""

from __future__ import annotations

from collections.abc import Callable

from .steps import Call

Builder = Callable[[Call], bool]

BUILDERS: dict[str, Builder] = {}
"""By qualified name, as `aten::addmm`: of all its overloads."""


def builds(*names: str) -> Callable[[Builder], Builder]:
    """Make a function the builder of these ops, aten ones unless the name says otherwise."""

    def enter(builder: Builder) -> Builder:
        for name in names:
            qualified = name if "::" in name else f"aten::{name}"
            assert qualified not in BUILDERS, name
            BUILDERS[qualified] = builder
        return builder

    return enter
