"""`msaccucmp file_compare`: two files of tensors, or two directories of npy files or CANN dumps.

`compare_paths` is what `compare` calls too where it is given no HDF5 dumps, and `replay`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dumper.errors import DumpError, printable

from ..options import Asked
from ..program import ready_loops, say
from .folders import cann_folder, compare_folders

if TYPE_CHECKING:
    from ..row import Row


@click.command("file_compare")
@click.option("-m", "--my_dump_path", "mine", required=True, help="The file to be judged.")
@click.option("-g", "--golden_dump_path", "golden", required=True, help="The one taken as right.")
@click.option("-out", "--out", "--output", "out", default=".", help="Directory; made if missing.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 also when something differs.")
def file_compare(mine: str, golden: str, out: str, exit_zero: bool) -> int:
    """Compare two files (npy, txt, pt, safetensors) or two directories of npy files or CANN
    dumps."""
    return compare_paths(mine, golden, out, exit_zero)


def compare_paths(
    mine: str,
    golden: str,
    out: str,
    exit_zero: bool,
    lang: str = "en",
    quantized: str | None = None,
) -> int:
    """Compare two files or directories, of which mine is no HDF5 dump; print and write what is
    found.

    lang: what people read of folders of CANN dumps; all else is said in English. quantized: rules
    of my network, where mine and golden are directories of npy files of ops. Returns the exit
    status. Raises DumpError for what is not there, is one file, or is not whole.
    """
    if folder := cann_folder(mine, golden):
        return compare_folders(folder, golden, out, Asked(), "all", exit_zero, lang)
    from ..filepairs import rows_of_files, rows_of_folders
    from ..filereport import FirstOwn, show_pair, show_rows, write_pair
    from ..progress import with_progress
    from ..result import result_file
    from ..summary import Summary

    left, right = Path(mine), Path(golden)
    folders = [_is_folder(path) for path in (left, right)]
    if os.path.samefile(left, right):
        what = "both paths name the same " + ("directory" if folders[0] else "file")
        raise DumpError(what, f"{mine} and {golden}", "name two different ones")
    if folders[0] != folders[1]:
        raise DumpError(
            "one is a directory and the other is a file", f"{mine} and {golden}",
            "name two files, or two directories",
        )  # fmt: skip
    ready_loops()
    if quantized is not None:
        count, rows = _of_quantized(left, right, quantized, folders[0])
    else:
        count, rows = (rows_of_folders if folders[0] else rows_of_files)(left, right)
    summary = Summary()
    if count == 1 and not folders[0]:
        (row,) = rows
        summary.add(row)
        path = write_pair(Path(out), row)
        show_pair(row)
    else:
        own = FirstOwn()
        with result_file(Path(out)) as result:
            for row in with_progress(rows, "comparing", count):
                result.add(row)
                summary.add(row)
                own.add(row)
        path = result.path
        show_rows(left, right, summary, own.row)
    say(f"result: {printable(os.path.join(out, path.name))}")
    return 0 if exit_zero or summary.nothing_wrong else 1


def _of_quantized(
    mine: Path, golden: Path, rules: str, are_folders: bool
) -> tuple[int, Iterator[Row]]:
    from ..folders.fusion import load
    from ..folders.networks import rows_of_networks

    if not are_folders:
        todo = "leave it out: it relates the ops of two directories of npy files"
        raise DumpError("these are two files", "-q/--quant_fusion_rule_file", todo)
    return rows_of_networks(mine, golden, load(Path(rules)))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir() if path.stat() else False
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DumpError(f"cannot look at this ({reason})", path, "check the path") from None
