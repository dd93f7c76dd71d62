"""`msaccucmp overflow`: which ops overflowed, by what CANN dumped of them."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dumper.errors import DumpError, printable

from ..flags import LANGUAGE, named
from ..program import TROUBLE, complain, say


@click.command()
@click.option(
    "-d", "--dump_path", "folder", required=True, callback=named, metavar="PATH",
    help="A CANN overflow dump (a folder), an HDF5 dump, or a folder of those.",
)  # fmt: skip
@click.option(
    "-out", "--out", "--output", "out", default=".", callback=named, metavar="DIR",
    help="Directory for what a CANN dump is converted to; made if missing.",
)  # fmt: skip
@click.option(
    "-n", "--top_n", "top", type=click.IntRange(1), default=1, show_default=True,
    help="How many overflows are shown, the first by time.",
)  # fmt: skip
@click.option("--exit-zero", is_flag=True, help="Exit with 0 also when something overflowed.")
@LANGUAGE
def overflow(folder: str, out: str, top: int, exit_zero: bool, lang: str) -> int:
    """Say which ops overflowed: from the Opdebug files that CANN wrote beside its dumps, or from an
    HDF5 dump, made with check_overflow or without.

    Exit status: 0 nothing overflowed, 1 something did, 2 trouble.
    """
    from ..overflow.of_dump import dumps_in, report_dump

    if files := dumps_in(Path(folder)):
        return report_dump(files, lang, exit_zero=exit_zero)

    from ir2tbe.cann.overflow import look_through

    from ..overflow.cann import errors_of, overflows
    from ..overflow.phrases import Words
    from ..overflow.summary import show_report, write_summary
    from ..progress import with_progress, working

    words, place = Words(lang), printable(folder)
    with working(f"looking through {place}"):
        tree = look_through(Path(folder))
    for path, why in tree.passed:
        say(words("passed", path=printable(str(path)), why=why))
    count = len(tree.reports)
    if not count:
        say(words("none", folder=place))
        for error in tree.errors:
            complain(str(error))
        return TROUBLE if tree.errors else 0
    say(words("found", count=count, folder=place))
    reads = list(with_progress(overflows(tree, Path(out), top), "reading", count))
    found, errors = [], list(tree.errors)
    for read in reads:
        if isinstance(read, DumpError):
            errors.append(read)
            continue
        show_report(read, words)
        found += read.overflows
        errors += read.errors
    errors += errors_of(found)
    if rest := count - len(reads):
        say(words("rest", count=rest, all=count))
    if found:
        path = write_summary(Path(out), found)
        say(f"result: {printable(os.path.join(out, path.name))}")
    elif not errors:
        say(words("nothing"))
    for error in errors:
        complain(str(error))
    if errors:
        return TROUBLE
    return 1 if found and not exit_zero else 0
