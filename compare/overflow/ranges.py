"""How far the results in a dump reach, and which loss scale suits its gradients.

The same ranges as the overflow check takes while a step runs: of the last step, with a sample of
each result, of which only counts are kept. No torch.
"""

from __future__ import annotations

from dumper.layout import unescape
from dumper.overflow.formats import FORMATS, lost
from dumper.overflow.ranges import COUNTED, GRADIENT, GRADIENT_SAMPLE, SAMPLE, Range
from dumper.overflow.scales import LossScale, loss_scale
from dumper.reader import Record
from dumper.stored import Tensor

from .flow import Scaling
from .looks import Look, Looks

_ROOM = 1 << 24
"""Elements of all gradients' samples together."""


class Ranges:
    """Ranges of the last step that records are of."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._ops: list[Range] = []
        self._gradients: list[Range] = []
        self._step: int | None = None
        self._scaling: Scaling | None = None

    def look(self, record: Record, tensor: Tensor) -> Look | None:
        """Look at a result of an op, and keep its range."""
        self._of(record)
        found = self._looks.sampled(tensor, SAMPLE)
        if found is not None and tensor.dtype in FORMATS:
            self._ops.append(_counted(_range(record, tensor, found)))
        return found

    def gradient(self, record: Record, tensor: Tensor) -> None:
        """Look at a parameter's gradient, and keep its range."""
        self._of(record)
        room = _ROOM - sum(each.sampled for each in self._gradients)
        found = self._looks.sampled(tensor, min(GRADIENT_SAMPLE, max(SAMPLE, room)))
        if found is not None and tensor.dtype in FORMATS:
            kept = _range(record, tensor, found)
            kept.ir, kept.name = GRADIENT, record.entry.names.get(tensor.name)
            kept.name = kept.name or unescape(tensor.name)
            self._gradients.append(kept)

    def scaled(self, record: Record, scaling: Scaling) -> None:
        """A loss scaler divided the scale out of this step's gradients."""
        self._of(record)
        self._scaling = scaling

    def found(self) -> tuple[list[Range], LossScale | None]:
        """All ranges, and the loss scales that suit the gradients."""
        scale = self._scaling.scale if self._scaling is not None else None
        scale = scale or 1.0
        for each in self._gradients:  # as backward computed them
            if scale != 1.0 and each.sample is not None:
                each.sample = each.sample.astype("f8") * scale
                each.low, each.high = each.low * scale, each.high * scale
        suits = loss_scale(self._gradients, self._ops, scale)
        return [*self._ops, *map(_counted, self._gradients)], suits

    def _of(self, record: Record) -> None:
        """Another step begins with a record of it."""
        step = record.entry.step or 0
        if step != self._step:
            self._ops, self._gradients, self._scaling = [], [], None
            self._step = step


def _range(record: Record, tensor: Tensor, look: Look) -> Range:
    entry = record.entry
    return Range(
        record.ir,
        record.seqid,
        record.phase or "?",
        tensor.name,
        tensor.dtype,
        look.low,
        look.high,
        tensor.size,
        api=entry.api,
        module=entry.module,
        source=entry.source,
        step=entry.step or 0,
        sample=look.sample,
    )


def _counted(found: Range) -> Range:
    """The same with counts in place of the sample."""
    if found.sample is not None:
        found.counted = {name: lost(found.sample, FORMATS[name]) for name in COUNTED}
        found.sample = None
    return found
