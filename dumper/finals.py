"""What a step leaves behind: gradients before the optimizer uses them, parameters after it has.

The old guide tells people to print each gradient before `optimizer.step()`; here they are records,
phase `grad`, and the updated parameters and running statistics are records of phase `update`. A
gradient is what it was when the optimizer began, since `zero_grad` may follow before the step ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from .follow import tracker_here
from .names import Names
from .session import Session


class Finals:
    """Stores what the present step leaves behind."""

    def __init__(self, session: Session, names: Names) -> None:
        self._session = session
        self._names = names
        self._seen = 0  # ops, when the step began
        self._stored: set[int] = set()  # ids of parameters whose gradient is stored in this step

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Mark the optimizer's ops, and store the gradients before they run."""

        def begins(optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> Any:
            tracker = tracker_here()
            if tracker is None or not self._session.ours or self._session.paused:
                return None
            wanted = {id(p) for group in optimizer.param_groups for p in group["params"]}
            tracker.enter_optimizer(True)
            closures = [v for v in (*args, *kwargs.values()) if _is_closure(v)]
            if not closures:
                self._gradients(wanted)
                return None

            def outside(value: Any) -> Any:
                if not _is_closure(value):
                    return value
                return tracker.outside_optimizer(value, lambda: self._gradients(wanted))

            # What a closure runs is the model, and its gradients are there when it returns.
            return tuple(map(outside, args)), {key: outside(v) for key, v in kwargs.items()}

        def ended(*_: Any) -> None:
            tracker = tracker_here()
            if tracker is not None:
                tracker.enter_optimizer(False)

        before = register_optimizer_step_pre_hook(begins)
        after = register_optimizer_step_post_hook(ended)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def end_step(self) -> None:
        """Store what no optimizer took, then parameters and running statistics.

        Nothing where no op ran: the context ended right after a step.
        """
        if self._session.calls == self._seen:
            return
        self._gradients(None)
        self._stored.clear()
        self._session.values("update", self._names.parameters())
        self._session.values("update", self._names.statistics())
        self._seen = self._session.calls

    def _gradients(self, wanted: set[int] | None) -> None:
        found = []
        with torch._C.DisableTorchFunction():  # no call of the user's, for none of the user's modes
            self._collect(wanted, found)
        self._session.values("grad", found)

    def _collect(self, wanted: set[int] | None, found: list[tuple[str, torch.Tensor]]) -> None:
        for name, parameter in self._names.parameters():
            if id(parameter) in self._stored or (
                wanted is not None and id(parameter) not in wanted
            ):
                continue
            if parameter.grad is not None:
                self._stored.add(id(parameter))
                found.append((name, parameter.grad))


def _is_closure(value: Any) -> bool:
    return callable(value) and not isinstance(value, torch.Tensor)
