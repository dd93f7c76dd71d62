"""A JSON file that a person wrote, read as strictly as JSON is, with all its faults in one message.

Nothing in it is trusted: not its kind, size, encoding or depth.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import DumpError
from .json_faults import MOST, faults

_MOST_BYTES = 1 << 20
_SHOWN = 20  # faults in one message
_SAVE = "save it as UTF-8"
_LINE_END = re.compile(rb"\r\n|\r|\n")

_BEGINNINGS = {
    rb"\xff\xfe\0\0|[^\0]\0\0\0": "UTF-32 (little-endian)",
    rb"\0\0\xfe\xff|\0\0\0[^\0]": "UTF-32 (big-endian)",
    rb"\xff\xfe|[^\0]\0": "UTF-16 (little-endian)",
    rb"\xfe\xff|\0[^\0]": "UTF-16 (big-endian)",
}
"""Encodings by how a file in them begins; wider ones first. What JSON begins with is ASCII."""


def read_json(path: Path, todo: str) -> Any:
    """The value of a JSON file of at most 1 MiB. todo: what the errors tell to do.

    Raises FileNotFoundError, and DumpError for a file that cannot be read or is no JSON; that
    message lists the faults with their places.
    """
    text = _text(path, todo)
    found = faults(text)
    if found:
        what = f"this file is no JSON, {listed([str(fault) for fault in found])}"
        raise DumpError(what, path, todo)
    try:
        return json.loads(text)
    except ValueError as error:  # more digits than Python turns into a number
        raise DumpError(f"this file cannot be read ({error})", path, todo) from None


def listed(found: Sequence[str]) -> str:
    """Faults as one line, numbered; beyond MOST they are not counted."""
    shown = "; ".join(f"({i}) {fault}" for i, fault in enumerate(found[:_SHOWN], 1))
    if len(found) > MOST:
        return f"more than {MOST} faults: {shown}; and so on"
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{len(found)} fault{'s' * (len(found) != 1)}: {shown}{more}"


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
    wide = _wide_encoding(data)
    if wide:
        raise DumpError(f"the encoding of this file is {wide}, and JSON's is UTF-8", path, _SAVE)
    try:
        return data.decode("utf-8-sig")  # with or without the mark that some editors put first
    except UnicodeDecodeError as error:
        line = len(_LINE_END.findall(data, 0, error.start)) + 1
        raise DumpError(f"line {line} of this file is not UTF-8", path, _SAVE) from None


def _wide_encoding(data: bytes) -> str:
    """UTF-16 or UTF-32 where a text that begins as JSON does, or with a byte order mark, is in it;
    '' else."""
    for marks, name in _BEGINNINGS.items():
        if re.match(marks, data, re.DOTALL):
            return name
    return ""


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # else a pipe would be waited for
