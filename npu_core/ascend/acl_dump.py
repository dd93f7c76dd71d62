"""`torch.npu.init_dump`, `set_dump`, `finalize_dump`: the whole process's ACL dump.

This floor knows no dump files. A package above that does registers a handler here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from .. import options


class Handler(Protocol):
    """What an upper floor registers to serve ACL dump."""

    def init(self) -> None:
        """Prepare dumping."""

    def configure(self, path: str) -> None:
        """Start dumping as the json configuration at `path` says."""

    def finalize(self) -> None:
        """Stop dumping."""


_handler: Handler | None = None


def register_dump(handler: Handler | None) -> None:
    """Let `handler` serve the three calls; None takes it away."""
    global _handler
    _handler = handler


def _served() -> Handler:
    if _handler is None:
        raise RuntimeError(
            "ACL dump on the emulated npu comes with package ir2tbe: import it before init_dump"
        )
    return _handler


def init_dump() -> None:
    """Prepare ACL dump (option mdldumpswitch). Raises RuntimeError without a handler."""
    _served().init()
    options.set_option({"mdldumpswitch": "enable"})


def set_dump(cfg_file: str) -> None:
    """Start dumping as a json file says (option mdldumpconfigpath).

    Raises RuntimeError without a handler, FileNotFoundError if the file does not exist.
    """
    handler = _served()
    if not Path(cfg_file).is_file():
        raise FileNotFoundError(f"set_dump: no configuration file at {cfg_file}")
    handler.configure(str(cfg_file))
    options.set_option({"mdldumpconfigpath": cfg_file})


def finalize_dump() -> None:
    """Stop ACL dump. Raises RuntimeError without a handler."""
    _served().finalize()
    options.set_option({"mdldumpswitch": "disable"})
