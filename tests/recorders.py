"""Modes of a user's own that note what they see: ops below autograd, calls of torch's functions."""

from __future__ import annotations

from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Ops(TorchDispatchMode):
    """Notes every op, such as `aten.mm.default`."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Calls(TorchFunctionMode):
    """Notes the name of every function called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))
