"""What the hot path keeps of each result of the present step: its extent, and some elements.

Everything that is said of head-room and underflow is computed from these when it is asked for
(`ranges`), so that a step that nobody asks about pays for a copy of a few elements an op only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from ..record import Call
from ..scopes import BACKWARD, Scope
from ..tensors import dtype_name
from .ranges import GRADIENT, GRADIENT_SAMPLE, SAMPLE, Range, sample_places

PRODUCTS = frozenset(
    "mm addmm bmm baddbmm addbmm mv addmv convolution convolution_backward linear "
    "_scaled_dot_product_flash_attention_for_cpu_backward "
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward "
    "mkldnn_rnn_layer_backward".split()
)
"""What autocast computes in float16."""

_RUN = 16
"""Elements that are taken side by side."""

_BYTES = 1 << 28
"""Of samples, about; a context that never says `step()` keeps no more."""

_ROWS = 1 << 17
"""Results that are kept; of more, the last."""


class _Row(NamedTuple):
    ir: str
    seqid: int
    phase: str
    scope: Scope | None
    step: int
    output: str
    dtype: torch.dtype
    low: float
    high: float
    size: int
    sample: torch.Tensor | None
    name: str | None
    vanished: tuple[int, int]
    unscaled: bool
    carries: bool
    rounding: float


class Samples:
    """The results of one step.

    scale: the loss scale in its gradients. products: seqids of the matrix products of its backward,
    and of the calls whose results they multiply.
    """

    def __init__(self) -> None:
        # Of _Row's fields: a plain tuple is made in no time.
        self._rows: deque[tuple] = deque(maxlen=_ROWS)
        self._left = _BYTES
        self.scale = 1.0
        self.products: dict[int, Collection[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(
        self,
        call: Call,
        output: str,
        tensor: torch.Tensor,
        extent: tuple[float, float],
        vanished: tuple[int, int],
        carries: bool,
    ) -> None:
        """Keep a result. vanished: how many of its zeros are none in truth, and how many were
        looked at. carries: it is a gradient."""
        size = tensor.numel()
        sample = self._take(tensor, size, SAMPLE)
        self._rows.append(
            (
                call.op.ir, call.seqid, call.phase, call.scope, call.step, output, tensor.dtype,
                extent[0], extent[1], size, sample, None, vanished, False, carries, 0.0,
            )
        )  # fmt: skip

    def gradient(
        self,
        name: str,
        tensor: torch.Tensor,
        step: int,
        extent: tuple[float, float],
        unscaled: bool,
        rounding: float,
    ) -> None:
        """Keep a parameter's gradient. unscaled: the loss scale has been taken out of it. rounding:
        what is no larger may be nothing else."""
        size = tensor.numel()
        sample = self._take(tensor, size, GRADIENT_SAMPLE)
        self._rows.append(
            (
                GRADIENT, 0, GRADIENT, None, step, "result", tensor.dtype,
                *extent, size, sample, name, (0, 0), unscaled, True, rounding,
            )
        )  # fmt: skip

    def _take(self, tensor: torch.Tensor, size: int, count: int) -> torch.Tensor | None:
        if self._left <= 0:
            return None
        self._left -= 8 * (count if size > count else size)
        return tensor.clone() if size <= count else sample_of(tensor, count)

    def _all(self) -> Iterator[_Row]:
        return map(_Row._make, self._rows)

    def ranges(self) -> list[Range]:
        """Of all that was kept, in order; gradients as backward made them, with the loss scale."""
        return self._ranges(self._all())

    def _ranges(self, rows: Iterable[_Row]) -> list[Range]:
        return [_range(row, self.scale if row.unscaled else 1.0) for row in rows]

    def gradients(self) -> tuple[list[Range], list[Range], list[Range]]:
        """Those of the parameters, those of backward that a loss scale limits, and of these those
        that parameters' gradients are summed of.

        A step in float32 tells what float16 would do only where autocast would use it:
        what goes into products and what comes out; the loss itself stays in float32. Where a
        program brings its own gradient to start from, nobody saw what carries it: then all.
        """
        rows = list(self._all())
        of_parameters = [row for row in rows if row.ir == GRADIENT]
        backward = [row for row in rows if row.phase == BACKWARD]
        carrying = [row for row in backward if row.carries] or backward
        into = set().union(*self.products.values())
        if not any(row.dtype is torch.float16 for row in carrying):
            carrying = [
                r for r in carrying if r.seqid in into or r.seqid in self.products
            ] or carrying
        arriving = [row for row in carrying if row.seqid in into] or carrying
        gradients = self._ranges(of_parameters)
        for row, found in zip(of_parameters, gradients, strict=True):
            if row.rounding and found.sample is not None:
                found.sample[np.abs(found.sample) <= row.rounding] = 0
        return gradients, self._ranges(carrying), self._ranges(arriving)


def sample_of(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """A copy of at most `count` elements, spread over the tensor as it lies in memory."""
    size = tensor.numel()
    if size <= count:
        return tensor.clone()
    if tensor.is_contiguous() or _fills(tensor):
        # Runs, since what memory costs is lines, not elements.
        stride = sample_places(size, count // _RUN)
        runs = (size - _RUN) // stride + 1
        return tensor.as_strided((runs, _RUN), (stride, 1)).clone()
    # Gaps, or elements that share memory: along the longest axis, the others as they are.
    axis = max(range(tensor.dim()), key=lambda i: tensor.shape[i])
    length = tensor.shape[axis]
    stride = sample_places(length, max(1, count * length // size))
    return sample_of(tensor.movedim(axis, 0)[::stride].contiguous(), count)


def _fills(tensor: torch.Tensor) -> bool:
    """Whether the elements fill their memory without gaps, in whatever order of axes."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _range(row: _Row, scale: float) -> Range:
    scope, sample = row.scope, row.sample
    return Range(
        ir=row.ir,
        seqid=row.seqid,
        phase=row.phase,
        output=row.output,
        dtype=dtype_name(row.dtype),
        low=row.low * scale,
        high=row.high * scale,
        size=row.size,
        api=scope and scope.api,
        module=scope and scope.module,
        source=scope and scope.source,
        name=row.name,
        step=row.step,
        vanished=row.vanished[0],
        zeros_looked=row.vanished[1],
        sample=None if sample is None else _numbers(sample, scale),
    )


def _numbers(sample: torch.Tensor, scale: float) -> np.ndarray:
    """Real and imaginary parts are numbers of their own."""
    sample = sample.detach().reshape(-1)
    if sample.is_complex():
        sample = torch.view_as_real(sample.resolve_conj()).reshape(-1)
    wide = torch.float64 if sample.dtype is torch.float64 else torch.float32
    found = sample.cpu().to(wide).numpy()
    return found * found.dtype.type(scale)  # a copy, which may be changed
