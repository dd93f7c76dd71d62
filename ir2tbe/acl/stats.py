"""`dump_data: stats`: in the place of an operator's tensors, their statistics as a csv.

    Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,...

Header, names of data types and shapes (`2x3`) are CANN's. What dump_stats leaves out is an empty
cell. CANN counts NaN and infinities of half, bfloat and float only; L2norm, for which no header is
published, is a column at the end where it is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from ..cann.content import Dump, Tensor
from ..cann.formats import format_name

_HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
    "Nan Count,Negative Inf Count,Positive Inf Count"
)
_L2NORM = "L2norm"
_CALLED = {"float32": "FLOAT", "float64": "DOUBLE", "bfloat16": "BF16"}
_COUNTED = ("float16", "bfloat16", "float32")


def table_of(dump: Dump, wanted: Collection[str]) -> str:
    """The text of the file. wanted: words of dump_stats."""
    lines = [_HEADER + (f",{_L2NORM}" if _L2NORM in wanted else "")]
    for name, tensor in dump.tensors():
        side, _, number = name.partition(".")
        lines.append(
            ",".join([side.capitalize(), number, *_facts(tensor), *_cells(tensor, wanted)])
        )
    return "\n".join(lines) + "\n"


def _facts(tensor: Tensor) -> Iterator[str]:
    kind = tensor.kind.name
    yield str(tensor.size)
    yield f"DT_{_CALLED.get(kind, kind.upper())}"
    yield format_name(tensor.format)
    yield "x".join(map(str, tensor.shape))


def _cells(tensor: Tensor, wanted: Collection[str]) -> Iterator[str]:
    values = tensor.values()
    counted = tensor.kind.name in _COUNTED
    if values.dtype.kind == "c":
        values = np.abs(values)
    wide = values.astype(np.float64).reshape(-1)
    finite = wide[np.isfinite(wide)]
    for word, found in (("Max", np.max), ("Min", np.min), ("Avg", np.mean)):
        yield f"{found(finite):.9g}" if word in wanted and finite.size else ""
    yield str(wide.size)
    for word, found in (
        ("Nan", np.isnan(wide)),
        ("Negative Inf", np.isneginf(wide)),
        ("Positive Inf", np.isposinf(wide)),
    ):
        yield str(np.count_nonzero(found)) if word in wanted and counted else ""
    if _L2NORM in wanted:
        yield f"{np.sqrt(np.sum(np.square(finite))):.9g}"
