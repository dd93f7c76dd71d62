"""Algorithms of the user's own, from files as the original documents them.

`DIR/algorithm/alg_<Name>.py` defines `compare(my, golden, args)`, which returns a value and a
reason as text. `args` bears as attributes what `-a "Name:key=value"` gave. Loading such a file runs
it (`ir2tbe.userfile`).

An algorithm sees what it would see in the original, flat arrays that numpy computes with: float32
where that holds the values, else float64 or complex. They are read-only, since the metrics are of
the same memory, and one thread calls at a time. What it prints goes to stderr: scripts read the
answer from stdout.

    customs = load(Path(folder), parse("Name:key=value"))
    value, reason = customs[0].compare(mine.reshape(-1), golden.reshape(-1))
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from dumper.errors import DumpError
from ir2tbe.userfile import run_file, takes

FOLDER = "algorithm"
_FILE = re.compile(r"alg_(?P<name>[A-Za-z0-9_]+)\.py")
_FORM = "def compare(my, golden, args), which returns two texts"
_FLOAT32 = {np.dtype(name) for name in ("float32", "int16", "uint16", "int8", "uint8", "bool")}
"""Dtypes whose values float32 holds; ml_dtypes' and float16 are told by their size."""

_running = threading.Lock()
"""Held while an algorithm runs, whichever it is: where print goes is one thing for all threads."""


class Arguments(SimpleNamespace):
    """What `-a` gave, as attributes; texts all of them."""

    def get_dict(self) -> dict[str, str]:
        """All of it by name, as the original's algorithms may ask."""
        return dict(vars(self))

    get = get_dict


@dataclass(frozen=True, slots=True)
class Custom:
    """One algorithm. compare: takes two flat arrays, mine and golden, and returns (value,
    reason); what it raises is a reason too, and its value then `NaN`."""

    name: str
    compare: Callable[[np.ndarray, np.ndarray], tuple[str, str]]


def parse(options: str) -> dict[str, dict[str, str]]:
    """Take `Name:key=value,key2=value2;Name2:...` apart: what is given, by key, by algorithm.

    A value may hold `:` and `=`. Raises DumpError for what is not of this form.
    """
    found: dict[str, dict[str, str]] = {}
    for part in filter(str.strip, options.split(";")):
        name, colon, pairs = part.partition(":")
        given = [pair.partition("=") for pair in pairs.split(",") if pair.strip()]
        whole = name.strip() and given and all(k.strip() and e and v.strip() for k, e, v in given)
        if not (colon and whole and all(key.strip().isidentifier() for key, _, _ in given)):
            raise DumpError(
                f"this is no option of an algorithm: {part.strip()}",
                "-a",
                'write "Name:key=value,key2=value2;Name2:key=value"',
            )
        values = found.setdefault(name.strip(), {})
        values.update((key.strip(), value.strip()) for key, _, value in given)
    return found


def load(
    folder: Path,
    options: Mapping[str, Mapping[str, str]],
    built_in: tuple[str, ...] = (),
    is_taken: Callable[[str], bool] = lambda name: False,
) -> tuple[Custom, ...]:
    """Load every `algorithm/alg_<Name>.py` below `folder`, by name.

    options: by algorithm, from `parse`. built_in: names of other algorithms. is_taken: whether a
    name means something else, as that of a column. This runs the files. Raises DumpError, one for
    the first that is wrong: no such file, a name that is taken or is none, a file that cannot be
    run or defines no `compare`.
    """
    place = Path(folder) / FOLDER
    try:
        paths = sorted(path for path in place.iterdir() if path.is_file())
    except OSError as error:
        reason = error.strerror or str(error)
        todo = f"name the folder that holds {FOLDER}/alg_<Name>.py"
        raise DumpError(f"there is no folder of algorithms ({reason})", place, todo) from None
    customs = []
    for path in paths:
        if not (path.name.startswith("alg_") and path.suffix == ".py"):
            continue
        match = _FILE.fullmatch(path.name)
        if match is None:
            todo = "name it alg_<Name>.py, with letters, digits and _"
            raise DumpError("this file's name names no algorithm", path, todo)
        name = match["name"]
        if name in built_in:
            raise DumpError(f"there is an algorithm {name} already", path, "give it another name")
        if is_taken(name):
            what = f"no algorithm can be called {name}: a column is, or -alg takes it for another"
            raise DumpError(what, path, "give it another name")
        customs.append(_custom(name, _function(path, name), Arguments(**options.get(name, {}))))
    if not customs:
        raise DumpError("there is no algorithm here", place, "put alg_<Name>.py there")
    unknown = [name for name in options if name not in built_in and name not in _names(customs)]
    if unknown:
        known = ", ".join((*built_in, *_names(customs)))
        raise DumpError(f"there is no algorithm {unknown[0]}", "-a", f"the names are {known}")
    return tuple(customs)


def _names(customs: list[Custom]) -> list[str]:
    return [custom.name for custom in customs]


def _function(path: Path, name: str) -> Callable[..., object]:
    """`compare` of the file."""
    with _running:
        function = run_file(path, f"_msaccucmp_alg_{name}", "algorithm").get("compare")
    if not (callable(function) and takes(function, 3)):
        raise DumpError(
            "this file has no compare with three arguments", path, f"define {_FORM}"
        )  # fmt: skip
    return function


def _custom(name: str, function: Callable[..., object], args: Arguments) -> Custom:
    def compare(mine: np.ndarray, golden: np.ndarray) -> tuple[str, str]:
        quiet = np.errstate(divide="ignore", invalid="ignore")
        with _running, quiet, contextlib.redirect_stdout(sys.stderr):
            try:
                return _two_texts(function(_plain(mine), _plain(golden), args))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - of somebody's function
                said = str(error) or type(error).__name__
        return "NaN", f"Failed to execute 'compare' in '{name}'. {said}"

    return Custom(name, compare)


def _two_texts(found: object) -> tuple[str, str]:
    if not (isinstance(found, tuple | list) and len(found) == 2):
        raise TypeError(f"it returned {type(found).__name__}, not (value, reason)")
    value, reason = found
    if not (isinstance(value, str) and isinstance(reason, str)):
        raise TypeError(
            f"value and reason are {type(value).__name__} and {type(reason).__name__}, not texts"
        )
    return value, reason


def _plain(values: np.ndarray) -> np.ndarray:
    """The values in a dtype that any algorithm computes with, read-only."""
    kind = values.dtype
    small = kind.kind not in "iubc" and kind.itemsize <= 2 or kind.itemsize == 1
    if kind in _FLOAT32 or small:
        values = values.astype(np.float32, copy=False)
    elif kind.kind != "c":
        values = values.astype(np.float64, copy=False)
    view = values.view()
    view.flags.writeable = False
    return view
