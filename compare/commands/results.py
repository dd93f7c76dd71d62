"""`msaccucmp report` and `judge`: the answer of compare again, from its json alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dumper.errors import printable

from ..flags import LANGUAGE, named
from ..program import say

if TYPE_CHECKING:
    from ..partial import Head
    from ..row import Row
    from ..summary import Summary

_RESULT = click.argument("result", callback=named)
_OUT = click.option(
    "-out", "--out", "--output", "out", callback=named,
    help="Directory for the csv; none is written.",
)  # fmt: skip


class _Number(click.FloatRange):
    """A float that is one: a NaN is in every range."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


_EXIT_ZERO = click.option(
    "--exit-zero", is_flag=True, help="Exit with 0 also when something differs."
)


@click.command()
@_RESULT
@_OUT
@_EXIT_ZERO
@LANGUAGE
def report(result: str, out: str | None, exit_zero: bool, lang: str) -> int:
    """Show the answer of compare again from RESULT, its json, without the dumps.

    The exit status is that of compare.
    """
    status = _shown(result, out, lang, lambda row: row)
    return 0 if exit_zero else status


@click.command()
@_RESULT
@_OUT
@click.option("--rtol", type=_Number(min=0), help="Allow so much of golden's greatest.")
@click.option("--atol", type=_Number(min=0), help="Allow so much besides.")
@click.option(
    "--c", "factor", type=_Number(min=0, min_open=True),
    help="The c of c * u * sum|a||b|, in place of 3.8.",
)  # fmt: skip
@_EXIT_ZERO
@LANGUAGE
def judge(
    result: str, out: str | None, rtol: float | None, atol: float | None, factor: float | None,
    exit_zero: bool, lang: str,
) -> int:  # fmt: skip
    """Judge the rows of RESULT, the json of compare, by another tolerance, without the dumps.

    --rtol and --atol take the place of what was derived for each op; --c scales it.
    """
    from ..again import Tolerance, judged_again

    if factor is not None and (rtol is not None or atol is not None):
        raise click.UsageError("--c scales what is derived, which --rtol and --atol replace.")
    if rtol is atol is factor is None:
        raise click.UsageError("Give --rtol and --atol, or --c.")
    tolerance = Tolerance(rtol, atol, factor)
    status = _shown(result, out, lang, lambda row: judged_again(row, tolerance))
    return 0 if exit_zero else status


def _shown(result: str, out: str | None, lang: str, judged: Callable[[Row], Row]) -> int:
    """Print the answer of a result's rows, each as it is judged now; the exit status."""
    from ..document import read, summary_of
    from ..phrases import speak
    from ..result import result_file

    speak(lang)
    found = read(Path(result))
    say_gaps(found.head)
    summary = summary_of(found.head)
    rows = [(judged(numbered.row), numbered.place) for numbered in found.rows]
    for row, place in rows:
        summary.add(row, place)
    if out is not None:
        with result_file(Path(out), found.columns) as table:
            for row, place in rows:
                table.add(row, place)
    status = show_answer(found.head, summary)
    if out is not None:
        say(f"result: {printable(os.path.join(out, table.path.name))}")
    return status


def say_gaps(head: Head) -> None:
    """Say on stderr what is missing from both files."""
    from ..terminal import show_missing

    show_missing("my dump", head.mine)
    show_missing("golden", head.golden)


def show_answer(head: Head, summary: Summary) -> int:
    """Print it, and say it as an exit status."""
    from ..terminal import show_summary

    show_summary(head.mine, head.golden, summary)
    unread = head.mine.unreadable.count + head.golden.unreadable.count
    return 0 if summary.nothing_wrong and not unread else 1
