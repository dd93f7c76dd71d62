"""Conversions between formats of the user's own, from files as the original documents them.

`DIR/format_convert/convert_<A>_to_<B>.py` defines `convert(shape_from, shape_to, array)`, which
returns an array; where it takes a fourth argument that is the number of groups. Loading such a file
runs it, with all rights of the user: that is meant, of files that the user named, and never done
with anything that a dump names. One of the user's comes before one that is built in. What it prints
goes to stderr.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

from dumper.errors import DumpError, first_line

from .cann.formats import CODES

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
    """The file's `convert`; the file is run by its path, `sys.path` stays untouched."""
    module = ModuleType(f"_msaccucmp_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses look up what they are in
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever somebody's file raises
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        raise DumpError(
            f"this conversion cannot be loaded ({type(error).__name__}: {first_line(error)})",
            f"{path}, line {line}" if line else path,
            "correct the file; it is run by itself, other files of its folder are no modules",
        ) from None
    function = vars(module).get("convert")
    for count in (4, 3):
        try:
            inspect.signature(function).bind(*[None] * count)
        except TypeError:  # not callable, or takes another number
            continue
        return CustomFormat(path, function, count == 4)
    what = "this file has no convert with three arguments, or four"
    raise DumpError(what, path, f"define {_FORM}")
