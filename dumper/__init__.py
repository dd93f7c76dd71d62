"""Record a training step's operators into one HDF5 file, replay them, read them back (floor 1).

`dumper.dumper` is `torch.utils.dumper`; `open_dump` reads a file without torch; `run` repeats one
record. Everything is imported at first use, so that reading costs no torch and `import torch` costs
no h5py.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_WHERE = {
    "dumper": "context",
    "open_dump": "reader",
    "Dump": "reader",
    "Record": "reader",
    "Tensor": "stored",
    "Argument": "stored",
    "DumpError": "errors",
    "run": "replay",
    "start": "automatic",
}

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)


if "torch" in sys.modules:  # without torch's autoloading, importing this package does its work
    from _torch_dumper_bootstrap import install

    install()
