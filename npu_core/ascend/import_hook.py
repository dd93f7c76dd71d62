"""`import torch_npu` under NPU_CORE: the name leads to our modules.

Libraries test `importlib.util.find_spec("torch_npu")` to learn whether Ascend's package is there.
So the name exists only where the user asked for the emulator by environment, and our finder stands
last: a real torch_npu is found before it.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec

# The importable name, and the module of this package it leads to; None: a plain folder of names.
_MODULES = {
    "torch_npu": "torch_npu",
    "torch_npu.contrib": None,
    "torch_npu.contrib.transfer_to_npu": "transfer_to_npu",
    "torch_npu.npu": "surface",
    "torch_npu.npu.amp": ".amp",
    "torch_npu.npu.utils": "npu_utils",
    "torch_npu.optim": "optimizers",
    "torch_npu.profiler": "profiler",
}


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _MODULES:
            return None
        inner = any(other.startswith(f"{name}.") for other in _MODULES)
        return ModuleSpec(name, self, origin="npu_core", is_package=inner)

    def exec_module(self, module: types.ModuleType) -> None:
        """Put our module in place of the empty one: importlib hands out what stands there."""
        target = _MODULES[module.__name__]
        if target is not None:
            sys.modules[module.__name__] = importlib.import_module(f".{target}", __package__)


def install() -> None:
    """Make `import torch_npu` work; called once, at registration."""
    sys.meta_path.append(_Finder())
