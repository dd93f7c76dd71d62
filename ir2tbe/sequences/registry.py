"""Which ops have steps of their own: a builder for each, by name.

A builder appends the steps of a `Call` and returns True; or it returns False and appends none where
the table's one operator is the whole op.
"""

from __future__ import annotations

from collections.abc import Callable

from .steps import Call

Builder = Callable[[Call], bool]

BUILDERS: dict[str, Builder] = {}
"""By qualified name, as `aten::addmm`: all overloads of it."""


def builds(*names: str) -> Callable[[Builder], Builder]:
    """Make a function the builder of these aten ops."""

    def enter(builder: Builder) -> Builder:
        for name in names:
            assert f"aten::{name}" not in BUILDERS, name
            BUILDERS[f"aten::{name}"] = builder
        return builder

    return enter
