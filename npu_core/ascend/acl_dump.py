"""`torch.npu.init_dump`, `set_dump`, `finalize_dump`: the whole process's ACL dump.

This floor knows no dump files. A package above that does is found by its entry point of group
`npu_core.acl_dump`, whose object is called and returns the handler; or it registers one. As with
torch_npu, which passes over what CANN answers, a second init_dump and a finalize_dump without one
do nothing.
"""

from __future__ import annotations

import atexit
import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from .. import options

_GROUP = "npu_core.acl_dump"


class Handler(Protocol):
    """What an upper floor registers to serve ACL dump."""

    def init(self) -> None:
        """Prepare dumping."""

    def configure(self, path: str) -> None:
        """Start dumping as the json configuration at `path` says."""

    def finalize(self) -> None:
        """Stop dumping."""


_handler: Handler | None = None
_on = False


def register_dump(handler: Handler | None) -> None:
    """Let `handler` serve the three calls; None takes it away."""
    global _handler, _on
    _handler, _on = handler, False


def _served() -> Handler:
    global _handler
    if _handler is None:
        found = next(iter(entry_points(group=_GROUP)), None)
        if found is None:
            raise RuntimeError(
                "ACL dump on the emulated npu comes with package ir2tbe: install torch-dumper "
                "whole, or register a handler before init_dump"
            )
        _handler = found.load()()
    return _handler


def is_dumping() -> bool:
    """Whether init_dump was called and finalize_dump not yet. torch_npu has no such call."""
    return _on


def init_dump() -> None:
    """Prepare ACL dump (option mdldumpswitch). Raises RuntimeError without a handler."""
    global _on
    handler = _served()
    if not _on:
        handler.init()
        _on = True
        options.set_option({"mdldumpswitch": "enable"})


def set_dump(cfg_file: str) -> None:
    """Start dumping as a json file says (option mdldumpconfigpath).

    Raises RuntimeError without a handler and before init_dump, FileNotFoundError if the file does
    not exist.
    """
    handler = _served()
    if not Path(cfg_file).is_file():
        raise FileNotFoundError(f"set_dump: no configuration file at {cfg_file}")
    if not _on:
        raise RuntimeError("set_dump: no ACL dump is prepared; call init_dump first")
    handler.configure(str(cfg_file))
    options.set_option({"mdldumpconfigpath": cfg_file})


def finalize_dump() -> None:
    """Stop ACL dump. Raises RuntimeError without a handler."""
    global _on
    handler = _served()
    if _on:
        _on = False
        options.set_option({"mdldumpswitch": "disable"})
        handler.finalize()


def dump_if_asked() -> None:
    """Dump the whole process where ACL_DUMP_DATA=1 asks for it, as acl.json says.

    Raises as `init_dump` and `set_dump` do.
    """
    if os.environ.get("ACL_DUMP_DATA") == "1":
        init_dump()
        set_dump("acl.json")
        atexit.register(finalize_dump)
