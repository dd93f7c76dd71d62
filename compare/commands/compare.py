"""`msaccucmp compare`: two dumps, op by op."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dumper.errors import DumpError, printable

from ..program import no_records, opening, say


@click.command()
@click.option("-m", "--my_dump_path", "mine", required=True, help="The dump to be judged.")
@click.option("-g", "--golden_dump_path", "golden", required=True, help="The dump taken as right.")
@click.option(
    "-out", "--out", "--output", "out", default=".", help="Directory for the csv; made if missing."
)
@click.option("--exit-zero", is_flag=True, help="Exit with 0 also when something differs.")
def compare(mine: str, golden: str, out: str, exit_zero: bool) -> int:
    """Compare two dumps, op by op, and write result_<time>.csv."""
    from dumper.superblock import check_file

    from ..engine import compare_dumps
    from ..result import result_file
    from ..summary import Summary
    from ..terminal import show_gaps, show_summary, with_progress

    for path in (mine, golden):
        check_file(Path(path))
    if os.path.samefile(mine, golden):
        raise DumpError(
            "both paths name the same file", f"{mine} and {golden}", "name two different dumps"
        )
    with opening(mine) as left, opening(golden) as right:
        for title, dump in (("my dump", left), ("golden", right)):
            if not dump.records:
                raise no_records(dump)
            show_gaps(title, dump)
        summary = Summary()
        total = sum(len(record.inputs) + len(record.outputs) for record in left.records)
        with result_file(Path(out)) as result:
            for row in with_progress(compare_dumps(left, right), "comparing", total):
                result.add(row)
                summary.add(row)
        show_summary(left, right, summary)
        say(f"result: {printable(os.path.join(out, result.path.name))}")
        clean = summary.nothing_differs and not left.skipped and not right.skipped
    return 0 if exit_zero or clean else 1
