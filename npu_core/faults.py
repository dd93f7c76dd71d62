"""Faults on purpose: chosen calls of one op on npu return something else.

How every claim of the kind "finds the op that went wrong" is tested. A fault stands around the
kernel, so it exists on npu only and the caller cannot tell it from a wrong kernel.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .fault_call import Call, Run, arguments, each
from .fault_kinds import KINDS
from .signature import Signature

# By `name.overload`, in the order of planting; read by every kernel, usually empty. Backward runs
# kernels on threads of its own: the tuples are replaced, never changed.
planted: dict[str, tuple[Fault, ...]] = {}
_witnesses: list[list[dict]] = []
_lock = threading.Lock()
_running = threading.local()


class Fault:
    """One planted fault, and what it has met since.

    seen: calls of its ops. calls: those of them for which `when` holds; `nth` counts these.
    applied: the numbers of the calls that were changed.
    """

    def __init__(
        self,
        op: str,
        overloads: list[str],
        change: Callable[[Any], Any] | str,
        nth: int | Collection[int] | None,
        when: Callable[..., bool] | None,
        seed: int,
    ) -> None:
        """op: as the user names it, which stands for the kernels `overloads`.

        Raises ValueError for an unknown kind, one that does not fit the op, and a bad nth;
        TypeError for a `change` that is neither a kind nor callable.
        """
        if not (isinstance(change, str) or callable(change)):
            raise TypeError(f"change is neither callable nor the name of a kind: {change!r}")
        self.op, self.change, self.when, self.seed = op, change, when, seed
        self.nth = None if nth is None else {nth} if isinstance(nth, int) else set(nth)
        if self.nth is not None and not (self.nth and min(self.nth) >= 1):
            raise ValueError(f"nth={nth}: calls are counted from 1, and at least one is named")
        self.overloads = _fitting(op, overloads, change) if isinstance(change, str) else overloads
        self.seen = self.calls = 0
        self._applied: dict[int, None] = {}
        self._memory: dict = {}

    @property
    def applied(self) -> list[int]:
        """The numbers of the calls that were changed, in the order of counting."""
        return sorted(self._applied)

    def describe(self) -> dict[str, Any]:
        """What was planted, as JSON values; of callables the name."""
        return {
            "op": self.op,
            "change": _name(self.change),
            "nth": None if self.nth is None else sorted(self.nth),
            "when": None if self.when is None else _name(self.when),
            "seed": self.seed,
        }

    def around(self, run: Run, op: str, args: tuple, kwargs: dict, written: bool) -> Run:
        """Count this call; `run` with the fault around it if the fault is to change the call."""
        number = self._count(Call(op, run, args, kwargs, written))
        chosen = number is not None and (self.nth is None or number in self.nth)
        kind = KINDS[self.change] if isinstance(self.change, str) else None
        if not chosen and not (kind and kind.every):
            return run

        def faulty(args: tuple, kwargs: dict) -> Any:
            call = Call(op, run, args, kwargs, written, self.seed, chosen, self._memory)
            changed = kind.change(call) if kind else _changed(self.change, call)
            if chosen and call.applied:
                self._applied[number] = None
            return changed

        return faulty

    def _count(self, call: Call) -> int | None:
        """The number of this call, None where `when` does not hold."""
        holds = True
        if self.when is not None:
            positional, keywords = call.all()
            holds = _guarded(call, "when", self.when, *positional, **keywords)
        with _lock:
            self.seen += 1
            if not holds:
                return None
            self.calls += 1
            return self.calls

    def warn_if_idle(self, stacklevel: int) -> None:
        """Warn of chosen calls that were not changed, or if none was: a test would prove nothing.

        stacklevel: as for warnings.warn, seen from the caller.
        """
        missed = not self._applied if self.nth is None else self.nth - self._applied.keys()
        if not missed:
            return
        which = "no call was" if self.nth is None else f"calls {sorted(missed)} were not"
        held = "" if self.when is None else f", `when` held for {self.calls}"
        warnings.warn(
            f"fault {_name(self.change)} on {self.op}: {which} changed; {self.seen} calls of "
            f"{', '.join(self.overloads)} seen{held}",
            stacklevel=stacklevel + 1,
        )


def _fitting(op: str, overloads: list[str], name: str) -> list[str]:
    """The overloads a kind can be planted on."""
    if name not in KINDS:
        raise ValueError(f"unknown fault {name!r}: choose one of {', '.join(KINDS)}, or a callable")
    found = [full for full in overloads if KINDS[name].fits(full)]
    if not found:
        raise ValueError(
            f"fault {name} does not fit {op}, it needs {KINDS[name].needs}; the arguments of "
            f"{overloads[0]} are {', '.join(arguments(overloads[0]))}"
        )
    return found


def _name(value: Any) -> str:
    return value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)


@contextmanager
def plant(fault: Fault) -> Iterator[Fault]:
    """Within the block the fault is in force, around those planted before.

    Leaving it without an exception warns of chosen calls that were not changed.
    """
    with _lock:
        for op in fault.overloads:
            planted[op] = (*planted.get(op, ()), fault)
        for witness in _witnesses:
            witness.append(fault.describe())
    try:
        yield fault
    finally:
        with _lock:
            for op in fault.overloads:
                planted[op] = tuple(other for other in planted[op] if other is not fault)
                if not planted[op]:
                    del planted[op]
    fault.warn_if_idle(stacklevel=3)


@contextmanager
def witnessed(found: list[dict]) -> Iterator[None]:
    """Let `found` list, as `Fault.describe`, the faults in force now and those planted within."""
    with _lock:
        found += [fault.describe() for fault in dict.fromkeys(sum(planted.values(), ()))]
        _witnesses.append(found)
    try:
        yield
    finally:
        with _lock:
            _witnesses[:] = [other for other in _witnesses if other is not found]


def asleep() -> bool:
    """Whether this thread is inside a faulty call: the ops that a fault itself calls are sound."""
    return getattr(_running, "now", False)


@contextmanager
def sleeping() -> Iterator[None]:
    """Within the block no op of this thread is faulty, nor counted: they are nobody's calls."""
    before = asleep()
    _running.now = True
    try:
        yield
    finally:
        _running.now = before


def call(op: str, kernel: Callable, signature: Signature, args: tuple, kwargs: dict) -> Any:
    """What `kernel` of `op` returns with the faults planted on it, the innermost block's last.

    Results written in place or to out= are overwritten.
    Raises RuntimeError where a fault cannot be applied to this call, `change` or `when` fails with
    a TypeError, or `change` returns another structure than it got. Not TypeError: in a kernel below
    `a @ b` Python takes that for "not implemented".
    """
    silent = signature.returned == ()  # a list written in place, nothing returned: _foreach_add_

    def run(args: tuple, kwargs: dict) -> Any:
        results = kernel(*args, **kwargs)
        if not silent:
            return results
        place = signature.written[0]
        return args[place] if type(place) is int else kwargs[place]

    written = signature.returned is not None
    _running.now = True
    try:
        with torch._C.DisableTorchFunction():
            for fault in planted.get(op, ()):
                run = fault.around(run, op, args, kwargs, written)
            results = run(args, kwargs)
    finally:
        _running.now = False
    return None if silent else results


def _changed(change: Callable[[Any], Any], call: Call) -> Any:
    def structure(value: Any) -> list[str]:
        return [type(value).__name__] + [
            v.device.type if isinstance(v, torch.Tensor) else type(v).__name__ for v in each(value)
        ]

    results = call.run()
    changed = _guarded(call, "change", change, results)
    if structure(results) != structure(changed):
        raise RuntimeError(
            f"fault on {call.op}: change returned {structure(changed)} where the op returns "
            f"{structure(results)}; return a value of the same structure on npu"
        )
    if not call.written:
        return changed
    for mine, other in zip(each(results), each(changed), strict=True):
        if other is not mine:
            mine.copy_(other)
    return results


def _guarded(call: Call, what: str, function: Callable, *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        names = ", ".join(arguments(call.op))
        raise RuntimeError(
            f"fault on {call.op}: {what} raised TypeError: {error} (the op's arguments: {names})"
        ) from error
