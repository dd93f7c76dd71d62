"""The operators that a folder of CANN dumps holds, one a file, in the order in which they ran.

The order is that of the timestamps in the files' names. No file is opened here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dumper.errors import DumpError
from ir2tbe.cann.folder import Missed, walk
from ir2tbe.cann.names import DumpName

_EXAMPLE = "Add.add_1.3.2.1673383728093446"


class OpFile(NamedTuple):
    """One operator's file. number: from 1, in order of execution. place: its folder below the root,
    '' for the root itself."""

    number: int
    path: Path
    name: DumpName
    place: str


@dataclass
class Folder(Missed):
    """A folder and all below it."""

    root: Path = Path()
    ops: list[OpFile] = field(default_factory=list)


def folder_of(root: Path) -> Folder | None:
    """The CANN dumps of a folder and of those below it; None where there are none.

    Reports of overflows are no operators. Raises DumpError for what cannot be looked at.
    """
    try:
        root.resolve()  # which the walk does too, where nobody would say why it cannot
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DumpError(f"cannot look at this ({reason})", root, "check the path") from None
    found = Folder(root=root)
    files = [
        (file.name.timestamp, os.fspath(file.path), file.name, folder)
        for folder, dumps in walk(root, found)
        for file in dumps
        if not file.name.is_opdebug
    ]
    for error in found.errors:
        if error.where == str(root):  # nothing is known of it, not even that it is no such folder
            raise error
    for number, (_, path, name, folder) in enumerate(sorted(files, key=lambda f: f[:2]), 1):
        place = folder.relative_to(root).as_posix()
        found.ops.append(OpFile(number, Path(path), name, "" if place == "." else place))
    return found if found.ops else None


def nothing_found(root: Path, wanted: str) -> DumpError:
    """What to say of a folder that has no file of a kind. wanted: which else would do, or ''."""
    also = f", and no {wanted}" if wanted else ""
    return DumpError(
        f"this is a directory without a CANN dump file in it{also}",
        root,
        f"CANN names its files like {_EXAMPLE}, {{op_type}}.{{op_name}}.{{task_id}}.{{stream_id}}."
        "{timestamp}; check the path",
    )
