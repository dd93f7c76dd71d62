"""One op call as ACL dump sees it: what it was given, what it made, and its TBE operators.

The call itself runs as if nobody looked. What shows its intermediate values runs afterwards, on
copies of what the op wrote, below autograd, autocast and modes, with the status register and the
planted faults left alone: a fault on an op stands in what the op returned, and so in the last TBE
operator that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from dumper.ops import Op
from dumper.parts import is_plain
from dumper.record import tensors_in
from npu_core import faults, status

from .. import sequences
from ..sequences.steps import Ran

_KEYS = torch._C.DispatchKey
_AUTOCAST = torch._C.DispatchKeySet(_KEYS.AutocastCPU).add(_KEYS.AutocastPrivateUse1)


@dataclass(frozen=True)
class Seen:
    """A call. results: (name in a record, tensor or None), in the order that `Port.result` counts.
    ran: its TBE operators. status: bits of the AI Core register that the call set."""

    op: Op
    results: list[tuple[str, torch.Tensor | None]]
    ran: Ran
    status: int


def given_to(op: Op, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    """The arguments of a call in schema order, for later: what the op writes as copies, and so
    every tensor in the same memory."""
    values = op.bind(args, kwargs)
    if not op.written:
        return values
    with undisturbed():
        lost = {_memory(t) for i in op.written for t in tensors_in(values[i])} - {None}
        return [_kept(value, lost) for value in values]


def _kept(value: Any, lost: set[int | None]) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone() if _memory(value) in lost else value
    if isinstance(value, (list, tuple)):
        return [_kept(each, lost) for each in value]
    return value


def _memory(tensor: torch.Tensor) -> int | None:
    return tensor.untyped_storage().data_ptr() if is_plain(tensor) else None


def seen(op: Op, given: list[Any], after: list[Any], result: Any, raised: int = 0) -> Seen:
    """What a call came to. given: from before it. after: its arguments as they are now."""
    with undisturbed():
        named = sequences.results_of(op, after, result)
        ran = sequences.run(op, given, [tensor for _, tensor in named])
    return Seen(op, named, ran, raised)


def all_plain(values: list[Any]) -> bool:
    """Whether all tensors among some arguments are dense ones, which alone CANN knows."""
    return all(is_plain(tensor) for value in values for tensor in tensors_in(value))


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within the block torch computes for us: nothing of the program's sees it or is changed."""
    held = status.read(), status.read_atomic()
    with ExitStack() as stack:
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(torch._C._DisableTorchDispatch())
        stack.enter_context(torch._C._ExcludeDispatchKeyGuard(_AUTOCAST))
        stack.enter_context(torch.no_grad())
        stack.enter_context(faults.sleeping())
        stack.callback(_put_back, *held)
        yield


def _put_back(core: int, atomic: int) -> None:
    status.clear()
    status.note(core)
    if atomic:
        status.note_atomic()


def watched(run: Callable[[], Any]) -> tuple[Any, int]:
    """What a call returns, and which bits of the AI Core register it set."""
    status.take_recent()
    result = run()
    return result, status.take_recent()
