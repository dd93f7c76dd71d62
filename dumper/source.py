"""Which line of the user's code an op comes from.

The nearest frame above the op that is neither torch's nor ours: for a Hugging Face model that is
the modelling file, which is what one wants to read. Files are named relative to where Python finds
them, never by an absolute path, since dumps are attached to issues.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import FrameType

import torch

_OURS = (
    os.path.dirname(os.path.abspath(torch.__file__)) + os.sep,
    os.path.dirname(os.path.abspath(__file__)) + os.sep,
    os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "npu_core") + os.sep,
    os.path.dirname(os.__file__) + os.sep + "contextlib.py",
    os.path.dirname(os.__file__) + os.sep + "threading.py",
    "<frozen ",
)
_KEPT = 10_000
# What to call a file; None: not the user's. By name: equal code of two files is one key.
_NAMES: dict[str, str | None] = {}


def user_line(frame: FrameType | None) -> str | None:
    """`file:line` of the nearest user frame at or above `frame`; None where there is none."""
    while frame is not None:
        file = frame.f_code.co_filename
        try:
            name = _NAMES[file]
        except KeyError:
            name = _remember(file)
        if name is not None:
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def _remember(file: str) -> str | None:
    if len(_NAMES) >= _KEPT:
        _NAMES.clear()
    name = _NAMES[file] = _short(file)
    return name


def _short(file: str) -> str | None:
    if file.startswith(_OURS):
        return None
    if not os.path.isabs(file):
        return file
    best = ""
    for root in _roots():
        if len(root) > len(best) and file.startswith(root):
            best = root
    return file[len(best) :] if len(best) > 1 else os.path.basename(file)


def _roots() -> Iterator[str]:
    """Where Python looks for files, whatever else a user may have put into `sys.path`."""
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        here = ""
    for root in ("", *sys.path):
        if isinstance(root, str):
            yield os.path.join(os.path.normpath(os.path.join(here, root)), "")
