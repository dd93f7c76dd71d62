"""What autocast did and which modules did not train while a step ran, for the environment.

Two runs that differ in this start unequal, and no op's record shows it: an op under autocast has a
narrower dtype, dropout in eval mode has no op at all.
"""

from __future__ import annotations

from typing import Any

import torch

from .tensors import dtype_name

_is_any_on = torch._C._is_any_autocast_enabled

_LISTED = 64
"""Modules in eval mode that are listed by name; of more there is the number."""


class Modes:
    """Notes what is on while calls are made and modules run."""

    def __init__(self) -> None:
        self._autocast: dict[str, str] = {}
        self._evaluated: dict[str, None] = {}
        self._trained = False

    def call(self) -> None:
        """An API call is about to run."""
        if _is_any_on():
            own = torch._C._get_privateuse1_backend_name()
            for device in ("cpu", "cuda", own):
                if torch.is_autocast_enabled(device):
                    self._autocast[device] = dtype_name(torch.get_autocast_dtype(device))

    def module(self, module: torch.nn.Module, name: str) -> None:
        """A module is about to run."""
        if module.training:
            self._trained = True
        else:
            self._evaluated[name] = None

    def facts(self) -> dict[str, Any]:
        """JSON values for the environment; what was not seen is not said."""
        found: dict[str, Any] = {}
        if self._autocast:
            found["autocast"] = dict(self._autocast)
        if self._evaluated or self._trained:
            names = list(self._evaluated)
            found["eval_modules"] = {"count": len(names), "names": names[:_LISTED]}
        return found
