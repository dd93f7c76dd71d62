"""A Python file of the user's own, run for a function that it defines.

Loading it runs it, with all rights of the user: that is meant, of files that the user named, and
never done with anything that a dump names. It is run by its path, so that `sys.path` and its folder
stay untouched; what it prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from dumper.errors import DumpError, first_line


def run_file(path: Path, module: str, what: str) -> dict[str, Any]:
    """What a file defines once it has run. module: its name as one. what: it is, in messages.

    Raises DumpError for whatever the file raises, with the line of the file.
    """
    made = ModuleType(module)
    made.__file__ = str(path)
    sys.modules[module] = made  # where dataclasses look up what they are in
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(path.read_bytes(), str(path), "exec"), vars(made))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever somebody's file raises
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        raise DumpError(
            f"this {what} cannot be loaded ({type(error).__name__}: {first_line(error)})",
            f"{path}, line {line}" if line else path,
            "correct the file; it is run by itself, other files of its folder are no modules",
        ) from None
    return vars(made)


def takes(function: object, count: int) -> bool:
    """Whether this is a function that can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:  # not callable, or takes another number
        return False
    return True
