"""One op call as the checker sees it, and what is known of the value that it left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import torch

from ..layout import member
from ..ops import Op
from ..parts import is_plain, parts_of
from ..record import Call, tensors_in
from ..tensors import storage_of
from .events import Overflow


class Root:
    """Where an overflow begins, and how far it still flows.

    live: values that hold it and that no later op of the same pass has taken up. ended: a mask
    stopped it somewhere. events: all that came of it.
    """

    __slots__ = ("event", "live", "ended", "events")

    def __init__(self, event: Overflow) -> None:
        self.event = event
        self.live = 0
        self.ended = False
        self.events = [event]

    @property
    def contained(self) -> bool:
        """Whether all that came of it was masked away."""
        return self.ended and not self.live


class Made:
    """The values that one call left in its results.

    low, high: between which they lie; NaN where one is NaN, None where nobody looked. exact: not
    only an interval that holds them. single: they are those of one tensor. sources: seqids of the
    calls whose values it read. rest: what made the memory around results that are parts of some.
    event: the overflow that it holds; root: where that began. used: a later op took it up. carries:
    they are gradients, so that a loss scale is in them.
    """

    low: float | None = None
    high: float | None = None
    exact = True
    single = False
    rest: Made | None = None
    event: Overflow | None = None
    root: Root | None = None
    used = False
    carries = False

    def __init__(self, seqid: int, ir: str, sources: Sequence[int]) -> None:
        self.seqid = seqid
        self.ir = ir
        self.sources = sources

    @property
    def was_seen(self) -> bool:
        """Whether its results were looked at, all elements of them."""
        return self.exact and self.low is not None

    @property
    def magnitude(self) -> float | None:
        """The largest absolute value; None where it is not known."""
        if self.low is None or not self.exact:
            return None
        if self.low != self.low:
            return self.low
        return max(abs(self.low), abs(self.high))

    def widen(self, low: float, high: float) -> None:
        """Take in another tensor's range. NaN stays NaN."""
        if self.low is None:
            self.low, self.high = low, high
        elif self.low == self.low:
            self.low = low if not low >= self.low else self.low
            self.high = high if not high <= self.high else self.high

    def holds(self, event: Overflow, root: Root | None) -> None:
        """An overflow is in it. root: None for what the program asked for."""
        self.event, self.root = event, root
        if root is not None:
            root.live += 1

    def take_in_rest(self) -> None:
        """The memory around its results is as it was."""
        rest, self.rest = self.rest, None
        if rest is None:
            return
        if self.event is None and rest.event is not None:
            self.event, self.root = rest.event, rest.root
        self.single = False
        if rest.low is None or self.low is None:
            self.low = self.high = None
        else:
            self.widen(rest.low, rest.high)

    def take_up(self) -> None:
        """A later op read it."""
        if not self.used and self.root is not None:
            self.used = True
            self.root.live -= 1


class Look:
    """A call whose results are to be looked at.

    given: the arguments in schema order as they were before the op; those written are copies.
    sources: of each tensor given, in order, what made it. has_overflow: one of those holds one.
    after: the arguments when it had run. result: what it returned. results: the floating-point ones
    by name; ranges: from where to where they reach. by_register: the device saturates and has a
    status register; bits: of it.
    """

    has_overflow = False
    after: list[Any]
    result: Any = None
    results: list[tuple[str, torch.Tensor]]
    ranges: Sequence[tuple[float, float]] = ()
    by_register = False
    bits = 0
    _differentiable: bool | None = None

    def __init__(
        self, call: Call, given: list[Any], sources: list[Made | None], made: Made
    ) -> None:
        self.call = call
        self.given = given
        self.sources = sources
        self.made = made
        self.results = []

    def ask_sources(self) -> None:
        """What was not known when the op ran: whether an operand holds an overflow."""
        self.has_overflow = any(one is not None and one.event is not None for one in self.sources)

    @property
    def needs_gradient(self) -> bool:
        """Whether a gradient is to go through it."""
        if self._differentiable is None:
            given = tensors_in(self.given)
            self._differentiable = torch.is_grad_enabled() and any(t.requires_grad for t in given)
        return self._differentiable

    def hold(self) -> None:
        """It will be needed later: keep other tensors of the same memory, which need no gradient.

        torch sees whether a tensor is anybody else's too, and then copies it or makes it a view.
        """
        self._differentiable = self.needs_gradient
        self.given, self.result, self.after, self.results = _each(
            [self.given, self.result, self.after, self.results], torch.Tensor.detach, {}
        )

    def keep(self, written: Iterable[torch.Tensor]) -> None:
        """These are about to be overwritten: keep what is in them."""
        self.given, (self.result, self.after, *self.results) = saved(
            [self.given, [self.result, self.after, *self.results]], written
        )

    def inputs(self) -> Iterator[tuple[str, int, torch.Tensor, Made | None]]:
        """(name, place among the arguments, tensor, what made it) of each tensor given."""
        sources = iter(self.sources)
        for place, (argument, value) in enumerate(
            zip(self.call.op.arguments, self.given, strict=True)
        ):
            for key, tensor in named_tensors(argument.key, value):
                yield key, place, tensor, next(sources)


def named_tensors(key: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The dense tensors of one argument or result by name, in order; of a sparse one its parts."""
    if isinstance(value, torch.Tensor):
        if is_plain(value):
            yield key, value
        else:
            for name, part in _parts(value).items():
                yield from named_tensors(f"{key}/{name}", part)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            if item is not None:
                yield from named_tensors(member(key, i), item)


def dense(value: Any) -> Iterable[torch.Tensor]:
    """The same without names."""
    if type(value) in _NO_TENSORS:
        return ()
    if isinstance(value, torch.Tensor) and is_plain(value):
        return (value,)
    return (tensor for _, tensor in named_tensors("", value))


_NO_TENSORS = (int, float, bool, type(None), torch.dtype, torch.device, str)


def _parts(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    try:
        parts = parts_of(tensor)
    except RuntimeError:  # a subclass that will not be opened
        return {}
    return parts.tensors if parts else {}


def results_of(op: Op, result: Any, values: list[Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """What a call made, by name: what it returned, and what it changed without returning it."""
    if op.plain_result and isinstance(result, torch.Tensor) and is_plain(result):
        yield op.returns[0], result
        return
    for key, made in op.named_results(result):
        yield from named_tensors(key, made)
    for place in op.silent_outputs:
        yield from named_tensors(op.arguments[place].key, values[place])


def saved(values: list[Any], lost: Iterable[torch.Tensor]) -> list[Any]:
    """The values, with copies of all tensors that share memory with those about to be written.

    A tensor that is there twice is so in the copy.
    """
    memory = {storage._cdata for t in lost if (storage := storage_of(t)) is not None}

    def kept(tensor: torch.Tensor) -> torch.Tensor:
        storage = storage_of(tensor)
        return tensor if storage is None or storage._cdata not in memory else tensor.clone()

    return _each(values, kept, {})


def _each(
    value: Any,
    change: Callable[[torch.Tensor], torch.Tensor],
    known: dict[int, tuple[torch.Tensor, torch.Tensor]],
) -> Any:
    """The same with each tensor changed; one that is there twice is so in the answer."""
    if isinstance(value, torch.Tensor):
        if id(value) not in known:
            known[id(value)] = value, change(value)
        return known[id(value)][1]
    if isinstance(value, (list, tuple)):
        found = [_each(one, change, known) for one in value]
        return tuple(found) if isinstance(value, tuple) else found
    return value


_REPLACES = frozenset(
    "aten::copy_ aten::_foreach_copy_ aten::fill_ aten::zero_ aten::_foreach_zero_ aten::set_ "
    "aten::_amp_foreach_non_finite_check_and_unscale_".split()
)


@cache
def unread(op: Op) -> frozenset[int]:
    """Places of the arguments whose values an op does not read: it overwrites them, or makes
    another tensor of their kind."""
    arguments = op.func._schema.arguments
    found = {i for i, argument in enumerate(arguments) if argument.is_out}
    if op.base.endswith("_like") or op.base.startswith("new_"):
        found.add(0)
    if op.written and (op.qualified in _REPLACES or op.seeded):
        found.add(0)
    return frozenset(found)
