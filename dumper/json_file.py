"""A JSON file that a person wrote, read as strictly as JSON is, with all its faults in one message.

Nothing in it is trusted: not its kind, size, encoding or depth.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import DumpError
from .json_faults import MOST, faults

_MOST_BYTES = 1 << 20
_SHOWN = 20  # faults in one message


def read_json(path: Path, todo: str) -> Any:
    """The value of a JSON file of at most 1 MiB. todo: what the errors tell to do.

    Raises FileNotFoundError, and DumpError for a file that cannot be read or is no JSON; that
    message lists the faults with their places.
    """
    text = _text(path, todo)
    found = faults(text)
    if found:
        what = f"this file is no JSON, {listed([str(fault) for fault in found], MOST)}"
        raise DumpError(what, path, todo)
    try:
        return json.loads(text)
    except RecursionError:
        raise DumpError("this file is nested too deeply", path, todo) from None
    except ValueError as error:  # more digits than Python turns into a number
        raise DumpError(f"this file cannot be read ({error})", path, todo) from None


def listed(found: Sequence[str], most: int | None = None) -> str:
    """Faults as one line, numbered. most: so many were looked for, so there may be more."""
    shown = "; ".join(f"({i}) {fault}" for i, fault in enumerate(found[:_SHOWN], 1))
    count = f"{len(found)} fault{'s' * (len(found) != 1)}"
    count += " or more" if len(found) == most else ""
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{count}: {shown}{more}"


def _text(path: Path, todo: str) -> str:
    try:
        with open(path, "rb", opener=_opened) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DumpError("this is no regular file", path, todo)
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DumpError(f"this file cannot be read ({error.strerror})", path, todo) from None
    if len(data) > _MOST_BYTES:
        raise DumpError(f"this file has more than {_MOST_BYTES} bytes", path, todo)
    try:
        return data.decode("utf-8-sig")  # with or without the mark that some editors put first
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DumpError(f"line {line} of this file is not UTF-8", path, todo) from None


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # else a pipe would be waited for
