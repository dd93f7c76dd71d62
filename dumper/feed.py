"""A live call computed on recorded values, so that its caller gets tensors of its own.

Three kinds of op need care. A view's result must alias the live tensor, or every later in-place
update is lost: it runs live (`Loader` sees to it). An op that writes its arguments is computed on
recorded ones, then the live ones take the values. An op that draws numbers draws, so that the
generator goes on as it would, and then gives what was drawn when it was recorded.
"""

from __future__ import annotations

from typing import Any

import torch

from .acl_dump import AclDump, runs_on_npu
from .agree import REPLACED
from .draws import draws
from .errors import DumpError
from .layout import member
from .ops import Op
from .parts import is_plain
from .reader import Record
from .record import tensors_in
from .replay import Decoder, scalar_of
from .stored import Tensor
from .tensors import dtype_name, tensor_of


def given_by(op: Op, values: list[Any], record: Record) -> list[Any]:
    """The record's tensors and scalars in the place of the live ones, laid out as those are.

    Raises DumpError for a tensor that the file only describes or that cannot be read.
    """
    given, decoders = [], {}
    stored = {tensor.name: tensor for tensor in record.inputs}
    for argument, live in zip(op.arguments, values, strict=True):
        key, scalar = argument.key, record.arguments.get(argument.key)
        if isinstance(live, torch.Tensor):
            given.append(_recorded(key, live, stored, record, decoders))
        elif isinstance(live, (list, tuple)) and any(True for _ in tensors_in(live)):
            names = (member(key, i) for i in range(len(live)))
            pairs = zip(names, live, strict=True)
            given.append([_recorded(name, one, stored, record, decoders) for name, one in pairs])
        elif scalar is not None and scalar.type in REPLACED:
            given.append(scalar_of(scalar))
        else:
            given.append(live)
    return given


def _recorded(
    key: str,
    live: Any,
    stored: dict[str, Tensor],
    record: Record,
    decoders: dict[torch.device, Decoder],
) -> Any:
    if not isinstance(live, torch.Tensor):
        return live
    if is_plain(live) and key in stored:
        return laid_like(stored[key], live)
    decoder = decoders.get(live.device)
    if decoder is None:
        decoder = decoders[live.device] = Decoder(record, live.device)
    return decoder.tensor_named(key)


def laid_like(stored: Tensor, live: torch.Tensor) -> torch.Tensor:
    """A stored value with the strides, dtype and device of a live tensor of its shape."""
    if live.is_meta:
        return live
    tensor = tensor_of(stored.bits(), stored.dtype, live.stride(), live.device)
    return tensor if tensor.dtype is live.dtype else tensor.to(live.dtype)


def run_on(
    op: Op,
    values: list[Any],
    given: list[Any],
    record: Record | None = None,
    drawn: Tensor | None = None,
    acl: AclDump | None = None,
) -> tuple[Any, Any]:
    """Run a live call on given arguments.

    record: the counterpart, whose results are handed out where the op draws numbers. drawn: what
    another op drew in its place. acl: dumps the op of a record while it runs, and nothing else of
    what happens here. Returns what the caller gets, and what the op made of the given arguments,
    which is what is recorded.
    """
    if acl is None or record is None or not runs_on_npu(given):
        computed = op.call(given)
    else:
        computed = acl.call(op.ir, record.seqid, lambda: op.call(given))
    if record is not None and draws(op, given):
        _as_drawn(op, computed, record)
    if drawn is not None:
        _with_mask(given, computed, drawn)
    live_of: dict[int, torch.Tensor] = {}
    for i, (ours, live) in enumerate(zip(given, values, strict=True)):
        for mine, theirs in zip(tensors_in(ours), tensors_in(live), strict=True):
            if mine is theirs:
                continue
            live_of[id(mine)] = theirs
            if i in op.written:
                if theirs.shape != mine.shape and is_plain(theirs):
                    theirs.resize_(mine.shape)
                theirs.copy_(mine)
    return _swap(computed, live_of), computed


def _as_drawn(op: Op, computed: Any, record: Record) -> None:
    """Give results the recorded values, where the file has them."""
    stored = {tensor.name: tensor for tensor in record.outputs}
    for key, result in op.named_results(computed):
        if not (isinstance(result, torch.Tensor) and is_plain(result) and key in stored):
            continue
        if stored[key].shape == tuple(result.shape):
            result.copy_(laid_like(stored[key], result))


def drawn_shape(op: Op, values: list[Any]) -> tuple[int, ...] | None:
    """Shape of the mask that a call draws; None for a call that draws none."""
    if not draws(op, values) or op.ir not in ("native_dropout", "bernoulli__float"):
        return None
    return tuple(values[0].shape)


def mask_of(record: Record) -> Tensor | None:
    """The mask that a recorded op drew: zeros and others, of whatever dtype."""
    name = {"native_dropout": "result1", "bernoulli__float": "self"}.get(record.ir)
    return next((tensor for tensor in record.outputs if tensor.name == name), None)


def _with_mask(given: list[Any], computed: Any, drawn: Tensor) -> None:
    """Let dropout have dropped what the mask says: as one op, or as the op that draws the mask."""
    if isinstance(computed, torch.Tensor):
        computed.copy_(laid_like(drawn, computed))
        return
    (result, mask), (source, p) = computed, given[:2]
    mask.copy_(laid_like(drawn, mask))
    result.copy_(source * (mask.to(source.dtype) / (1 - p)))


def _swap(result: Any, live_of: dict[int, torch.Tensor]) -> Any:
    """Hand back the caller's own tensors where the op returned an argument."""
    if isinstance(result, (list, tuple)):
        return type(result)(_swap(member, live_of) for member in result)
    return live_of.get(id(result), result)


class Boundary:
    """Feeds a call that holds other ops here than in the recording: what enters it is recorded.

    uses: by number of the value, where the recorded call uses it: (record, argument).
    """

    def __init__(self, uses: dict[int, list[tuple[Record, str]]]) -> None:
        self._uses = uses
        self._bases: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def replaced(self, live: torch.Tensor, number: int) -> torch.Tensor | None:
        """The recorded value of a live tensor that entered, also seen through a view of it.

        None where the file holds none of this shape. Raises DumpError for one it cannot read.
        """
        if number not in self._bases:
            stored = self._stored(live, number)
            if stored is None:
                return None
            # kept alive together: the place in memory is the live one only as long as it lives
            self._bases[number] = live, laid_like(stored, live)
        seen, base = self._bases[number]
        return _seen_as(base, seen, live)

    def note(self, live: torch.Tensor, number: int) -> None:
        """A view is taken of a tensor that entered: remember how the tensor itself lies."""
        try:
            self.replaced(live, number)
        except DumpError:
            pass  # said when an op wants the value

    def number_of(self, live: torch.Tensor, name: str | None) -> int | None:
        """Which entering value a tensor of unknown origin is: by name, else by shape in order."""
        dtype, shape = dtype_name(live.dtype), tuple(live.shape)
        for number, uses in self._uses.items():
            record, key = uses[0]
            if name is not None and record.entry.names.get(key) == name:
                return number
        if name is not None:
            return None
        for number, uses in self._uses.items():
            if number in self._bases or any(r.entry.names.get(key) for r, key in uses):
                continue
            for record, key in uses:
                stored = _input(record, key)
                if stored is not None and (stored.dtype, stored.shape) == (dtype, shape):
                    return number
        return None

    def _stored(self, live: torch.Tensor, number: int) -> Tensor | None:
        for record, key in self._uses[number]:
            stored = _input(record, key)
            if stored is not None and stored.shape == tuple(live.shape):
                return stored
        return None


def _input(record: Record, key: str) -> Tensor | None:
    return next((tensor for tensor in record.inputs if tensor.name == key), None)


def _seen_as(base: torch.Tensor, seen: torch.Tensor, live: torch.Tensor) -> torch.Tensor | None:
    """`base`, laid out as `seen`, viewed as `live` views the memory of `seen`."""
    if base.dtype is not live.dtype:
        return None
    offset = live.storage_offset() - seen.storage_offset()
    reach = sum((s - 1) * step for s, step in zip(live.shape, live.stride(), strict=True) if s)
    held = sum((s - 1) * step for s, step in zip(seen.shape, seen.stride(), strict=True) if s)
    if offset < 0 or offset + reach > held:
        return None
    return base.as_strided(live.shape, live.stride(), offset + base.storage_offset())
