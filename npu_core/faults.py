"""Faults on purpose: chosen calls of one op on npu return something else.

How every claim of the kind "finds the op that went wrong" is tested. A fault is applied to what the
kernel hands back, so it exists on npu only and the caller cannot tell it from a wrong kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

planted: dict[str, list[Fault]] = {}  # by `name.overload`; read by every kernel, usually empty
_applying = False  # the ops `change` itself calls are sound


class Fault:
    """One planted change and the number of calls it has seen."""

    def __init__(self, change: Callable[[Any], Any], nth: int | None) -> None:
        self.change, self.nth, self.calls = change, nth, 0


@contextmanager
def plant(ops: list[str], change: Callable[[Any], Any], nth: int | None = None) -> Iterator[None]:
    """Within the block, calls of `ops` (full overload names) return `change(output)`.

    nth counts from 1 over all of `ops` together; None means every call. Raises ValueError for
    nth < 1.
    """
    if nth is not None and nth < 1:
        raise ValueError(f"nth={nth}: calls are counted from 1")
    fault = Fault(change, nth)
    for op in ops:
        planted.setdefault(op, []).append(fault)
    try:
        yield
    finally:
        for op in ops:
            planted[op].remove(fault)
            if not planted[op]:
                del planted[op]


def apply(op: str, result: Any, written: bool) -> Any:
    """The result after the faults planted on `op`, innermost block last.

    written: the results are the caller's own tensors, so they are overwritten, not replaced.
    Raises RuntimeError where `change` fails with a TypeError or returns another structure than it
    got. Not TypeError: in a kernel below `a @ b` Python takes that for "not implemented".
    """
    global _applying
    if _applying:
        return result
    for fault in planted.get(op, ()):
        fault.calls += 1
        if fault.nth is not None and fault.calls != fault.nth:
            continue
        _applying = True
        try:
            with torch._C.DisableTorchFunction():
                changed = _call(fault.change, op, result)
                if written:
                    for mine, other in zip(_each(result), _each(changed), strict=True):
                        if other is not mine:
                            mine.copy_(other)
                else:
                    result = changed
        finally:
            _applying = False
    return result


def _each(result: Any) -> list:
    return list(result) if isinstance(result, tuple | list) else [result]


def _call(change: Callable[[Any], Any], op: str, result: Any) -> Any:
    def structure(value: Any) -> list[str]:
        return [type(value).__name__] + [
            v.device.type if isinstance(v, torch.Tensor) else type(v).__name__ for v in _each(value)
        ]

    try:
        changed = change(result)
    except TypeError as error:
        raise RuntimeError(f"fault on {op}: change raised TypeError: {error}") from error
    if structure(result) != structure(changed):
        raise RuntimeError(
            f"fault on {op}: change returned {structure(changed)} where the op returns "
            f"{structure(result)}; return a value of the same structure on npu"
        )
    return changed
