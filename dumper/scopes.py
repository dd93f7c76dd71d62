"""Where an op belongs: its phase, the outermost torch API call, the module, the user's line.

In forward this is what is on the stack: which module runs, and which torch function was called from
outside torch. Backward runs from C++ with an empty stack, but every autograd node bears the number
of the moment when forward made it. So forward notes at each change of call or module which numbers
belong to what was before (`_ends`), and an op in backward is looked up by the number of the node
that runs. That wants one sequence of numbers, hence one thread (capture sees to it).

What recomputation (checkpointing) runs is called as it was in the first run: the region's counts
and modules are kept when it is first entered and stand again while it is recomputed.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .index import function_of
from .modes import Modes
from .names import Names
from .source import user_line

FORWARD, BACKWARD, OPTIMIZER, RECOMPUTE = "forward", "backward", "optimizer", "recompute"

_now = torch._C._autograd._get_sequence_nr
_NO_NUMBER = 2**64 - 1  # of the nodes that accumulate gradients
_STARTERS = frozenset(("torch.Tensor.backward", "torch.autograd.backward", "torch.autograd.grad"))


class Scope:
    """One API call, or the ops of a module outside of any call.

    api: `<public name>.<number>`, None outside. module: qualified name; '' in the model itself,
    None outside of any. source: the user's `file:line`. number: in the file's table, 0 until used.
    """

    __slots__ = ("api", "module", "source", "number")

    def __init__(self, api: str | None, module: str | None, source: str | None) -> None:
        self.api = api
        self.module = module
        self.source = source
        self.number = 0


_NOWHERE = Scope(None, None, None)


class Region:
    """What stood when a checkpointed region was first entered."""

    __slots__ = ("counts", "modules")

    def __init__(self, counts: dict[str, int], modules: list[str]) -> None:
        self.counts = counts
        self.modules = modules


class Tracker:
    """Follows one thread through modules, API calls and phases.

    peers: the trackers of all threads, this one among them from now on; each thread numbers its
    nodes for itself. modes: is told of every call and module. finished: its thread has ended.
    """

    def __init__(
        self, names: Names, peers: list[Tracker] | None = None, modes: Modes | None = None
    ) -> None:
        self.names = names
        self._modes = modes or Modes()
        self.finished = False
        self._peers = [] if peers is None else peers
        self._peers.append(self)
        self.in_optimizer = False
        self.on_leave: Callable[[list[torch.Tensor]], None] | None = None  # of a call or module
        self.on_pass: Callable[[], None] | None = None  # when the engine has run
        self._recomputing = 0
        self._engines = 0  # runs of autograd's engine that we are in
        self._modules: list[str] = []
        self._api: str | None = None
        self._scope: Scope | None = None
        self._plain: dict[tuple[str | None, str | None], Scope] = {}
        self._counts: dict[str, int] = {}
        # nodes numbered from _ends[i-1] up to but not including _ends[i] belong to _scopes[i]
        self._ends: list[int] = [_now()]
        self._scopes: list[Scope] = [_NOWHERE]
        self._last_step = 0

    def new_step(self) -> None:
        """Count API calls from 0 again. Graphs of steps before the last one are forgotten.

        Whatever thread says so: nothing here may ask for a node's number, which is the caller's.
        """
        self._counts = {}
        old = self._last_step
        self._ends = self._ends[old:]
        self._scopes = [_NOWHERE, *self._scopes[old + 1 :]]
        self._last_step = len(self._ends) - 1
        if self.finished and not self._last_step:
            self._peers.remove(self)  # none of its nodes is of this step or the one before

    def place(self) -> tuple[str, Scope, str | None]:
        """(phase, scope, autograd node's name) of the op that is being called."""
        node = torch._C._current_autograd_node()
        if self._recomputing:
            return RECOMPUTE, self._here(), None if node is None else node.name()
        if node is not None:
            scope = self._of_node(node)
            if torch.is_grad_enabled():  # create_graph: the nodes made now belong there too
                self._end(scope)
            if scope.api is None and self._api is not None:  # a Function's own backward, a hook
                scope = self._here(scope.module)
            return BACKWARD, scope, node.name()
        if self._engines:  # a callback at the end of backward
            return BACKWARD, self._here(), None
        if self.in_optimizer:
            return OPTIMIZER, self._here(), None
        starting = self._api is not None and function_of(self._api) in _STARTERS
        return BACKWARD if starting else FORWARD, self._here(), None

    def passed(self) -> None:
        """An op is called of which nobody asks where: only what its nodes belong to is noted."""
        if torch.is_grad_enabled() and torch._C._current_autograd_node() is not None:
            self.place()

    def enter_call(self, name: str) -> bool:
        """A torch function was called; False where that is inside another one."""
        if self._api is not None:
            return False
        self._close()
        self._modes.call()
        if not self._recomputing:
            if self.in_optimizer:
                name = f"optimizer:{name}"
            elif torch._C._current_autograd_node() is not None:
                name = f"backward:{name}"
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        self._api = f"{name}.{count}"
        return True

    def leave_call(self, result: Any = None) -> None:
        """The function of the last `enter_call` that was not inside another returned."""
        self._close()
        self._api = None
        if self.on_leave is not None:
            self.on_leave(_tensors(result))

    def enter_module(self, module: torch.nn.Module) -> None:
        """A module's `__call__` begins."""
        self._close()
        if not self._modules:
            self.in_optimizer = False  # a step that raised never said that it ended
            self.names.refresh(module)
        inside = self._modules[-1] if self._modules else None
        name = self.names.of_module(module, inside)
        self._modules.append(name)
        self._modes.module(module, name)

    def leave_module(self, module: torch.nn.Module, result: Any = None) -> None:
        """The module entered last returned."""
        self._close()
        self._modules.pop()
        if not self._modules:
            self.names.settle(module)
        if self.on_leave is not None:
            self.on_leave(_tensors(result))

    def enter_optimizer(self, inside: bool) -> None:
        """An optimizer's step begins or has ended."""
        self._close()
        self.in_optimizer = inside

    def outside_optimizer(
        self, function: Callable[..., Any], after: Callable[[], None]
    ) -> Callable[..., Any]:
        """An optimizer's closure, made to run as what it is: forward and backward."""

        def closure(*args: Any, **kwargs: Any) -> Any:
            self.enter_optimizer(False)
            try:
                result = function(*args, **kwargs)
                after()
                return result
            finally:
                self.enter_optimizer(True)

        return closure

    @contextmanager
    def outside_calls(self) -> Iterator[None]:
        """Inside the autograd engine the call that started it is not the outermost one."""
        self._close()
        api, self._api = self._api, None
        self._engines += 1
        try:
            yield
        finally:
            self._close()
            self._engines -= 1
            self._api = api
        if self.on_pass is not None and not self._engines:
            self.on_pass()

    def region(self) -> Region:
        """Note where a checkpointed region begins."""
        return Region(dict(self._counts), list(self._modules))

    @contextmanager
    def recompute(self, region: Region) -> Iterator[None]:
        """Run a region again under the names of its first run."""
        self._close()
        before = self._counts, self._modules, self._api
        self._counts, self._modules, self._api = dict(region.counts), list(region.modules), None
        self._recomputing += 1
        try:
            yield
        finally:
            self._close()
            self._recomputing -= 1
            self._counts, self._modules, self._api = before

    def _here(self, module: str | None = None) -> Scope:
        """What is on the stack. module: where that is not on it."""
        scope = self._scope
        if scope is None:
            if module is None:
                module = self._modules[-1] if self._modules else None
            source = user_line(sys._getframe(2))
            if self._api is not None:
                scope = self._scope = Scope(self._api, module, source)
            else:  # op by op, since each may stand on a line of its own
                scope = self._outside(module, source)
        return scope

    def _outside(self, module: str | None, source: str | None) -> Scope:
        """The one scope of a module's ops outside of any call, for each line."""
        scope = self._plain.get((module, source))
        if scope is None:
            scope = self._plain[module, source] = Scope(None, module, source)
        return scope

    def _close(self) -> None:
        """What comes now is no longer what was: the nodes made so far belong to that."""
        if _now() > self._ends[-1]:
            self._end(self._here())
        self._scope = None

    def _end(self, scope: Scope) -> None:
        now = _now()
        if now > self._ends[-1]:
            self._ends.append(now)
            self._scopes.append(scope)

    def _of_node(self, node: Any) -> Scope:
        number = node._sequence_nr()
        if number == _NO_NUMBER:
            return self._of_variable(getattr(node, "variable", None))
        knowing = [peer for peer in self._peers if peer is self or peer.knows(number)]
        if len(knowing) == 1:
            return self._numbered(number)
        # Made by one thread or the other: which one, nobody can tell, unless we made none so old.
        others = [peer for peer in knowing if peer is not self]
        if self.knows(number) or len(others) > 1:
            return _NOWHERE
        return others[0]._numbered(number)

    def knows(self, number: int) -> bool:
        """Whether a node that this thread made inside the context bears this number."""
        return self._ends[0] <= number < self._ends[-1]

    def _numbered(self, number: int) -> Scope:
        at = bisect_right(self._ends, number)
        # made since the last change: still on the stack
        return self._scopes[at] if at < len(self._scopes) else self._here()

    def _of_variable(self, variable: torch.Tensor | None) -> Scope:
        name = None if variable is None else self.names.of_tensor(variable)
        if name is None:
            return _NOWHERE
        return self._outside(name.rpartition(".")[0], None)


def _tensors(result: Any) -> list[torch.Tensor]:
    """The tensors in what a function returned, however it is nested."""
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
