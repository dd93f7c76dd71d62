"""Conversions between formats of the user's own, from files as the original documents them.

`DIR/format_convert/convert_<A>_to_<B>.py` defines `convert(shape_from, shape_to, array)`, which
returns an array; where it takes a fourth argument that is the number of groups. One of the user's
comes before one that is built in.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dumper.errors import DumpError, first_line

from .cann.formats import CODES
from .userfile import run_file, takes

FOLDER = "format_convert"
_FILE = re.compile(r"convert_([A-Za-z0-9_]+)_to_([A-Za-z0-9_]+)\.py")
_FORM = "def convert(shape_from, shape_to, array), which returns an array"


@dataclass(frozen=True, slots=True)
class CustomFormat:
    """One conversion. path: its file. grouped: its function takes the number of groups."""

    path: Path
    function: Callable[..., object]
    grouped: bool

    def __call__(
        self, array: np.ndarray, shape: tuple[int, ...], groups: int
    ) -> np.ndarray:  # fmt: skip
        """What the function makes of the array, which it gets flat, and may write to.

        shape: that the result is asked for in; () where nobody says. Raises DumpError for whatever
        the function raises, and for what is no array of numbers.
        """
        given = [list(array.shape), list(shape), array.flatten()]
        try:
            with contextlib.redirect_stdout(sys.stderr):
                found = self.function(*given, groups) if self.grouped else self.function(*given)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - of somebody's function
            what = f"this conversion failed ({type(error).__name__}: {first_line(error)})"
            raise DumpError(what, self.path, "correct its convert") from None
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "biufc":
            what = f"this conversion returned {type(found).__name__}, not an array of numbers"
            raise DumpError(what, self.path, f"define {_FORM}")
        return found


def load(folder: Path, target: str) -> dict[str, CustomFormat]:
    """Load every conversion to the format `target` below `folder`, by the format it is from.

    This runs those files. Raises DumpError for the first that is wrong, and where there is none.
    """
    place = folder / FOLDER
    try:
        paths = sorted(path for path in place.iterdir() if path.is_file())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        todo = f"name the folder that holds {FOLDER}/convert_<A>_to_<B>.py"
        raise DumpError(f"there is no folder of conversions ({reason})", place, todo) from None
    found: dict[str, CustomFormat] = {}
    for path in paths:
        if not (path.name.startswith("convert_") and path.suffix == ".py"):
            continue
        match = _FILE.fullmatch(path.name)
        if match is None or not {match[1], match[2]} <= CODES.keys():
            todo = "name it convert_<A>_to_<B>.py, with the names of two formats"
            raise DumpError("this file's name names no conversion", path, todo)
        if match[2] == target:
            found[match[1]] = _loaded(path)
    if not found:
        todo = f"put convert_<A>_to_{target}.py there, or leave out -c"
        raise DumpError(f"there is no conversion to {target} here", place, todo)
    return found


def _loaded(path: Path) -> CustomFormat:
    function = run_file(path, f"_msaccucmp_{path.stem}", "conversion").get("convert")
    for count in (4, 3):
        if takes(function, count):
            return CustomFormat(path, function, count == 4)
    what = "this file has no convert with three arguments, or four"
    raise DumpError(what, path, f"define {_FORM}")
