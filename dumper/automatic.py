"""A dump of a script that cannot be edited: TORCH_DUMPER names a JSON file with the arguments.

    {"dump_path": "./gpu_{rank}.h5", "steps": "0", "modules": "layers.3"}

    TORCH_DUMPER=dump.json python train.py

The dump begins at the first call of a module, and a step ends with each `optimizer.step()`;
without `steps` the first one is dumped. Processes that a dumping one starts (data loaders) do not
dump. What is wrong with the file is said once, and the script runs on.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from .context import dumper
from .errors import DumpError, warn

VARIABLE = "TORCH_DUMPER"
_OWNER = "TORCH_DUMPER_PROCESS"
_ARGUMENTS = tuple(
    name for name in inspect.signature(dumper).parameters if name not in ("enabled", "model")
)


def arguments(path: Path) -> dict[str, Any]:
    """Read the arguments of `torch.utils.dumper` from a JSON file.

    Raises DumpError where there is no such file, it is no JSON object, or a name is no argument.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DumpError(
            f"this configuration cannot be read ({error})", path, f"mend it, or unset {VARIABLE}"
        ) from None
    if not isinstance(found, dict):
        raise DumpError("this configuration is no JSON object", path, 'write {"dump_path": ...}')
    for name in found:
        if name not in _ARGUMENTS:
            raise DumpError(
                f"{name!r} is no argument of the dumper", path, f"there are {', '.join(_ARGUMENTS)}"
            )
    modes = ("use_dump", "use_load", "check_overflow")
    if not any(mode in found for mode in modes):
        found["use_dump"] = True
    return {"steps": 0, **found}


def start(config: str) -> None:
    """Dump as the file `config` says, from the first call of a module on. Never raises."""
    path = Path(config)
    if os.environ.get(_OWNER, str(os.getpid())) != str(os.getpid()):
        return  # a child of a process that dumps
    try:
        dump = dumper(**arguments(path))
    except DumpError as error:
        warn(f"nothing will be dumped: {error.what}", path, error.todo)
        return
    except (RuntimeError, TypeError) as error:
        warn(f"nothing will be dumped: {error}", path, f"mend it, or unset {VARIABLE}")
        return
    os.environ[_OWNER] = str(os.getpid())
    _begin_at_first_call(dump, path)


def _begin_at_first_call(dump: dumper, path: Path) -> None:
    original: Callable[..., Any] = nn.Module.__call__

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if nn.Module.__call__ is not __call__ or not _alone():  # another one lies over ours
            return original(self, *args, **kwargs)
        nn.Module.__call__ = original
        _begin(dump, path)
        return self(*args, **kwargs)

    nn.Module.__call__ = __call__


def _alone() -> bool:
    """Whether no mode of the script's is on: it would end before ours, and take ours off instead.

    The one that `torch.set_default_device` leaves on for good does not count.
    """
    functions = [_get_current_function_mode_stack, _get_current_dispatch_mode_stack]
    lasting = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return all(mode is lasting for stack in functions for mode in stack())


def _begin(dump: dumper, path: Path) -> None:
    dump.gives_way = True
    try:
        dump.__enter__()
    except (DumpError, RuntimeError, OSError) as error:
        warn(f"nothing will be dumped: {error}", path, f"mend it, or unset {VARIABLE}")
        return

    def stepped(*_: Any) -> None:
        if dump.done:
            dump.stop()
        else:
            dump.step()

    register_optimizer_step_post_hook(stepped)
