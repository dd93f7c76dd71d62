"""One object copied from one HDF5 file into another: h5copy, where hdf5-tools are not installed.

Same options, same words with -v, and like it the output file grows with repeated calls, so that a
case can be put together from several records. Unlike it, only hard links lead to the source, a
failure leaves no new file behind, and files are private.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
from h5py import h5g, h5l, h5o, h5p

from dumper.errors import DumpError
from dumper.patience import patience
from dumper.reader import explain_open
from dumper.stored import DAMAGE, first_line
from dumper.superblock import check_file

FLAGS = {
    "shallow": h5o.COPY_SHALLOW_HIERARCHY_FLAG,
    "soft": h5o.COPY_EXPAND_SOFT_LINK_FLAG,
    "ext": h5o.COPY_EXPAND_EXT_LINK_FLAG,
    "ref": h5o.COPY_EXPAND_REFERENCE_FLAG,
    "noattr": h5o.COPY_WITHOUT_ATTR_FLAG,
}
FLAGS["allflags"] = sum(FLAGS.values())


def copy_object(
    source_file: Path,
    target_file: Path,
    source: str,
    target: str,
    *,
    parents: bool,
    flags: tuple[str, ...],
    say: Callable[[str], None],
) -> None:
    """Copy the object `source` of one file to `target` in the other, which is made or added to.

    parents: make missing groups above the target. flags: names in FLAGS. say: takes h5copy's own
    messages. Raises DumpError when a file or the source cannot be read, or the target exists.
    """
    check_file(source_file)
    say(
        f"Copying file <{source_file}> and object <{source}> "
        f"to file <{target_file}> and object <{target}>"
    )
    for flag in flags[-1:]:  # h5copy names the last one only
        say(f"Using {flag} flag")
    with _opened(source_file, target_file) as (inside, outside):
        _check_source(inside, source, source_file)
        way = [part for part in target.split("/") if part not in ("", ".")]
        if not way:
            raise DumpError(
                "the root cannot be the destination", target_file, "name a group with -d"
            )
        if parents and (len(way) > 1 or target.startswith("/")):
            say("h5copy: Creating parent groups")
        _check_target(outside, way, target_file, parents)
        plan, link = h5p.create(h5p.OBJECT_COPY), h5p.create(h5p.LINK_CREATE)
        plan.set_copy_object(sum(FLAGS[flag] for flag in set(flags)) if flags else 0)
        link.set_create_intermediate_group(parents)
        try:
            h5o.copy(inside.id, _bytes(source), outside.id, _bytes("/".join(way)), plan, link)
        except DAMAGE as error:
            if _error_number(error):
                raise _explain_output(target_file, error) from None
            raise DumpError(
                f"this object cannot be copied ({first_line(error)})",
                f"{source_file}, {source}",
                "check that the file is whole",
            ) from None


@contextmanager
def _opened(source: Path, target: Path) -> Iterator[tuple[h5py.File, h5py.File]]:
    """Both files, which may be one; a new target is removed again if the block raises."""
    new = not target.exists()
    if not new:
        check_file(target)
    made = False
    try:
        if not new and os.path.samefile(source, target):
            with h5py.File(target, "r+") as both:
                yield both, both
            return
        with _input(source) as inside:
            if new:
                os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                made = True
            # What h5py makes by default is too new for the HDF5 tools in use.
            with h5py.File(target, "w" if new else "r+", libver=("v108", "v110")) as outside:
                yield inside, outside
    except BaseException as error:
        if made:
            target.unlink(missing_ok=True)
        if isinstance(error, DAMAGE):
            raise _explain_output(target, error) from None
        raise


def _input(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except DAMAGE as error:
        raise explain_open(path, error) from None


def _error_number(error: BaseException) -> int | None:
    """The system's error number, which HDF5 puts into the middle of its words."""
    found = re.search(r"errno = (\d+)", str(error))
    return int(found[1]) if found else getattr(error, "errno", None)


def _explain_output(path: Path, error: BaseException) -> DumpError:
    number = _error_number(error)
    if number == errno.EAGAIN:
        return explain_open(path, error)
    reason = os.strerror(number) if number else first_line(error)
    todo = "check the file and its directory"
    if number == errno.ENOSPC:
        todo = "make room; what was in the file before may be damaged"
    elif number in (errno.EACCES, errno.EPERM, errno.EROFS):
        todo = "change its mode or owner, or name another with -o"
    elif number == errno.ENOENT:
        todo = "make the directory first"
    return DumpError(f"the output cannot be written ({reason})", path, todo)


def _check_source(file: h5py.File, source: str, path: Path) -> None:
    """Walk to the source by hard links only: others lead out of the file."""
    node = h5g.open(file.id, b"/")
    for part in source.strip("/").split("/"):
        if part in ("", "."):
            continue
        name = _bytes(part)
        if not isinstance(node, h5g.GroupID) or not node.links.exists(name):
            raise DumpError(f"there is no object {source}", path, "h5ls -r lists what there is")
        if node.links.get_info(name).type != h5l.TYPE_HARD:
            raise DumpError(
                f"{source} leads over a soft or external link, which is not followed",
                path,
                "name the object by its own path",
            )
        with patience:
            node = h5o.open(node, name)


def _check_target(file: h5py.File, way: list[str], path: Path, parents: bool) -> None:
    """Walk to the target by hard links only; it must be free, and what is above it groups."""
    node = h5g.open(file.id, b"/")
    for depth, part in enumerate(way, 1):
        here, name = "/" + "/".join(way[:depth]), _bytes(part)
        if not node.links.exists(name):
            if depth < len(way) and not parents:
                above = "/" + "/".join(way[:-1])
                raise DumpError(
                    f"group <{above}> doesn't exist", path, "use -p to create parent groups"
                )
            return
        todo = "name another destination with -d"
        if depth == len(way):
            raise DumpError(f"there is an object {here} already", path, todo)
        if node.links.get_info(name).type != h5l.TYPE_HARD:
            what = f"{here} is a soft or external link, which is not followed"
            raise DumpError(what, path, todo)
        with patience:
            node = h5o.open(node, name)
        if not isinstance(node, h5g.GroupID):
            raise DumpError(f"{here} is no group, so that nothing can be below it", path, todo)


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
