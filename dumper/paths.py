"""Where a dump goes: the original's rules, and the names that several ranks and steps need."""

from __future__ import annotations

import os
import re
from datetime import datetime

_RANK, _STEP = "{rank}", "{step}"


def text(given: str | os.PathLike | None) -> str | None:
    """A path as text; '' means not given. Raises RuntimeError for what is no path."""
    try:
        found = None if given is None else os.fsdecode(given)
    except TypeError:
        raise RuntimeError(f"{given!r} is no path") from None
    if found and "\0" in found:
        raise RuntimeError(f"{found!r} is no legal path")
    return found or None


def resolve(dump_path: str | None, rank: int, ranks: int) -> str:
    """The dump file's path by the original's rules, the rank filled in.

    Raises RuntimeError when its directory is not there, and when several ranks would share it.
    """
    stamp = datetime.now().strftime("%Y%m%d_%H%M%S.%f")
    stamp += f"_rank{rank}.h5" if ranks > 1 else ".h5"
    if dump_path is None:
        return stamp
    directory = os.path.dirname(dump_path).replace(_RANK, str(rank))
    if directory and not os.path.isdir(directory):
        raise RuntimeError(f"the directory '{directory}' does not exist, please input a valid one")
    if not os.path.basename(dump_path) or os.path.isdir(dump_path):
        return os.path.join(dump_path, stamp)
    # Filled in by the caller, in the file's name or its folder's: further up a number is no rank.
    nearest = "/".join(dump_path.split(os.sep)[-2:])
    own = re.search(rf"(?<!\d){rank}(?!\d)", nearest)
    if ranks > 1 and _RANK not in dump_path and not own:
        raise RuntimeError(
            f"this is rank {rank} of {ranks}, and all would write '{dump_path}'; "
            f"please put {_RANK} into dump_path"
        )
    return dump_path.replace(_RANK, str(rank))


def has_step(path: str) -> bool:
    """Whether every step gets a file of its own."""
    return _STEP in os.path.basename(path)


def for_step(path: str, step: int) -> str:
    """The path of one step's file."""
    directory, name = os.path.split(path)
    return os.path.join(directory, name.replace(_STEP, str(step)))


def check(path: str) -> None:
    """Raises RuntimeError where no file can be made at `path`."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise RuntimeError(f"'{path}' is no regular file, please input another")
    directory = os.path.dirname(path) or "."
    if not os.access(directory, os.W_OK):
        raise RuntimeError(f"the directory '{directory}' is not writable, please input another")


def same_file(one: str, other: str) -> bool:
    """Whether two paths name one file, there or not."""
    if os.path.exists(one):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)
