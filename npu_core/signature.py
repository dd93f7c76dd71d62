"""What the boxed kernel must know about an op, read once from its schema.

The dispatcher hands a Python kernel its arguments positionally up to the keyword-only ones and
drops trailing defaults, so positions and keyword names are all the hot path ever looks at.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

Place = int | str  # of an argument: its position, or its name if keyword-only


class Signature(NamedTuple):
    """Where tensors, written results and random state stand in an op's arguments."""

    tensors: tuple[int, ...]  # positions of Tensor and Tensor? arguments
    lists: tuple[int, ...]  # positions of Tensor[] and Tensor?[] arguments
    keywords: tuple[str, ...]  # keyword-only arguments that hold a tensor or a list of tensors
    outs: tuple[str, ...]  # those of them that are written: `out` and its like
    written: tuple[Place, ...]  # arguments the schema marks written
    returned: tuple[Place, ...] | None  # the written arguments that are the results; None: new ones
    generator: Place | None  # the Generator argument
    view: bool  # results alias an argument that is not written, or it is resized or restrided


def read(op: torch._ops.OpOverload) -> Signature:
    """The signature of an aten overload."""
    schema = op._schema
    tensors, lists, keywords, written, generator = [], [], [], {}, None
    for i, arg in enumerate(schema.arguments):
        place = arg.name if arg.kwarg_only else i
        kind = str(arg.type)  # a string: optional and list types share no accessor
        if "Generator" in kind:
            generator = place
        elif "Tensor" in kind:
            (keywords if arg.kwarg_only else lists if "List" in kind else tensors).append(place)
        if arg.is_write:
            written[place] = arg.alias_info.before_set
    marks = [r.alias_info for r in schema.returns]
    returned = None
    if written and all(m is not None and m.is_write for m in marks):
        returned = tuple(p for m in marks for p, s in written.items() if s == m.before_set)
    return Signature(
        tuple(tensors),
        tuple(lists),
        tuple(keywords),
        tuple(k for k in keywords if k in written),
        tuple(written),
        returned,
        generator,
        any(m is not None and not m.is_write for m in marks) or torch.Tag.inplace_view in op.tags,
    )
