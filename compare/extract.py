"""One object copied from one HDF5 file into another: h5copy, where hdf5-tools are not installed.

Same options, same words with -v, and like it the output file grows with repeated calls, so that a
case can be put together from several records. Unlike it, only hard links lead to the source, a
failure leaves no new file behind, and files are private.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
from h5py import h5g, h5l, h5o, h5p

from dumper.errors import DumpError
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
        way = target.strip("/").split("/")
        if not way[0]:
            raise DumpError(
                "the root cannot be the destination", target_file, "name a group with -d"
            )
        if len(way) > 1 or target.startswith("/"):
            _check_parents(outside, way, target_file, parents, say)
        plan, link = h5p.create(h5p.OBJECT_COPY), h5p.create(h5p.LINK_CREATE)
        plan.set_copy_object(sum(FLAGS[flag] for flag in set(flags)) if flags else 0)
        link.set_create_intermediate_group(parents)
        try:
            h5o.copy(inside.id, _bytes(source), outside.id, _bytes("/".join(way)), plan, link)
        except DAMAGE as error:
            raise DumpError(
                f"this object cannot be copied ({first_line(error)})",
                f"{source_file}, {source}",
                "check that the file is whole and that the destination is free",
            ) from None


@contextmanager
def _opened(source: Path, target: Path) -> Iterator[tuple[h5py.File, h5py.File]]:
    new = not target.exists()
    if not new:
        check_file(target)
    try:
        if not new and os.path.samefile(source, target):
            with h5py.File(target, "r+") as both:
                yield both, both
            return
        if new:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        # What h5py makes by default is too new for the HDF5 tools in use.
        with h5py.File(source, "r") as inside:
            with h5py.File(target, "w" if new else "r+", libver=("v108", "v110")) as outside:
                yield inside, outside
    except BaseException as error:
        if new:
            target.unlink(missing_ok=True)
        if isinstance(error, DAMAGE):
            raise DumpError(
                f"these files cannot be opened ({first_line(error)})",
                f"{source} and {target}",
                "check both; is one of them open in another process?",
            ) from None
        raise


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
        node = h5o.open(node, name)


def _check_parents(
    file: h5py.File, way: list[str], path: Path, parents: bool, say: Callable[[str], None]
) -> None:
    if parents:
        say("h5copy: Creating parent groups")
    elif len(way) > 1 and "/".join(way[:-1]) not in file:
        parent = "/" + "/".join(way[:-1])
        raise DumpError(f"group <{parent}> doesn't exist", path, "use -p to create parent groups")
    if "/".join(way) in file:
        raise DumpError(
            f"there is an object {'/'.join(way)} already", path, "name another destination with -d"
        )


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
