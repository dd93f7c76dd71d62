"""Underflow that has happened: zeros of a float16 or float8 result that are none in truth.

In such a run the lost numbers are nowhere to be seen, so a few of a result's zeros are computed
again in float64. (bfloat16 has the exponents of float32 and loses nothing that float32 would keep
but its very last numbers.)
"""

from __future__ import annotations

import torch

from . import exact
from .extent import NARROW
from .looks import index_at
from .pending import is_immediate
from .ranges import SAMPLE, sample_places
from .seen import Look

LOSING = (torch.float16, *NARROW)
"""Dtypes in which numbers are lost that others keep."""

_ZEROS = 8
"""Zeros of one result that are computed again, at most."""


def vanished(
    look: Look, key: str, tensor: torch.Tensor, extent: tuple[float, float]
) -> tuple[int, int]:
    """(how many of a result's zeros are none in truth, how many were looked at)."""
    if not extent[0] <= 0 <= extent[1] or not tensor.is_contiguous():
        return 0, 0
    if not is_immediate(tensor):
        return 0, 0
    stride = sample_places(tensor.numel(), SAMPLE)
    zeros = (tensor.view(-1)[::stride].float() == 0).nonzero().view(-1)
    if not len(zeros):
        return 0, 0
    places = zeros[:: -(-len(zeros) // _ZEROS)].tolist()
    indices = [index_at(tensor.shape, place * stride) for place in places]
    op = look.call.op
    found = exact.elements(op, look.given, look.result, key, indices)
    known = [one.value for one in found if one.value is not None]
    return sum(value != 0 for value in known), len(known)
