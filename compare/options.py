"""The original's options of `compare`, on the command line and as one value.

Some say how to compare (-c -a -max -overflow_detection), some what to write as well (-p -advisor),
two what to do instead of comparing everything (-map, -op), and three are of folders of CANN dumps
(-f -r -s). Those that have no meaning are refused with what they are for: what would change nothing
is never let pass in silence. docs/options.md has the table.

flags.py has their names and limits. What is heavy is imported where it is used, so that `--help` is
fast.

    @original_options  # the command gets what the options ask for as `asked`
    def compare(mine, golden, out, exit_zero, asked: Asked) -> int:
        customs = asked.customs(names)  # names: of our own algorithms
        status = instead(asked, left, right, Path(out))  # of -map or -op; None: compare everything
        after = After(asked)  # -p and -advisor
        for row in rows:
            after.add(row)
        whole = after.write(result, left, right, summary, columns.names, columns.cells)
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from dumper.errors import DumpError, printable

from .flags import MAX_LINE, OPTIONS, POSITIONS_ARE_OF_FOLDERS, RULES_ARE_OF_FOLDERS, TOPN
from .positions import Positions, positions_of
from .program import complain, say

if TYPE_CHECKING:
    from dumper.reader import Dump

    from .advisor import Advisor
    from .columns import Columns
    from .custom import Custom
    from .row import Row
    from .summary import Summary

_SAID = 10
"""Errors of -p that are printed; the next ones are counted."""


class SingleOp(NamedTuple):
    """One tensor to be shown element by element. name: NAME or NAME/SEQID. side: "input" or
    "output". number: which tensor of that side, from 0. elements: whether all are written, in files
    of max_line lines each."""

    name: str
    side: str = "output"
    number: int = 0
    topn: int = TOPN
    max_line: int = MAX_LINE
    elements: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """What the original's options ask for.

    scripts: folder of custom algorithms (-c). parameters: theirs by name (-a). first: elements of
    each tensor that are compared (-max), 0 for all. overflow: the column OverFlow is wanted.
    filtered (-p), advisor, mapping: the files to write. single: the tensor of -op. rules: the file
    of -f. positions: of -r or -s.
    """

    scripts: str | None = None
    parameters: str = ""
    first: int = 0
    overflow: bool = False
    filtered: bool = False
    advisor: bool = False
    mapping: bool = False
    single: SingleOp | None = None
    rules: str | None = None
    positions: Positions | None = None

    def customs(self, built_in: tuple[str, ...]) -> tuple[Custom, ...]:
        """Load the algorithms of -c with the options of -a; this runs their files.

        built_in: names of our own, by their numbers, which take no options; where some are given,
        it is said. Raises DumpError.
        """
        if self.scripts is None and not self.parameters:
            return ()
        from .columns import is_taken
        from .custom import load, parse

        given = parse(self.parameters)
        for name in [*built_in, *map(str, range(len(built_in)))]:
            if given.pop(name, None) is not None:
                note(f"-a: {name} has no options; what is given for it changes nothing")
        if self.scripts is not None:
            return load(Path(self.scripts), given, built_in, is_taken)
        if given:
            name = next(iter(given))
            raise DumpError(f"there is no algorithm {name}", "-a", "name its folder with -c")
        return ()


def algorithms(asked: Asked, algorithm: str) -> tuple[Columns, tuple[Custom, ...]]:
    """The columns that -alg, -c and -overflow_detection come to, and the custom algorithms among
    them; what -c has loaded for nothing is said. Raises DumpError."""
    from .columns import ALGORITHMS, select

    ours = tuple(each.name for each in ALGORITHMS)
    customs = {each.name: each for each in asked.customs(ours)}
    columns = select(algorithm, tuple(customs), asked.overflow)
    if idle := [name for name in customs if name not in columns.custom]:
        note(f"-alg leaves out {', '.join(idle)}, which -c has loaded")
    return columns, tuple(customs[name] for name in columns.custom)


def note(text: str) -> None:
    """Say on stderr what a user should know and no result depends on."""
    click.echo(f"msaccucmp: note: {printable(text)}", file=sys.stderr)


def original_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the original's options; it gets what they ask for as `asked`."""

    @functools.wraps(command)
    def collected(
        *, filtered: str, version: str, rules: str | None, span: str | None, chosen: str | None,
        **values: object,
    ) -> int:  # fmt: skip
        own = {name: values.pop(name) for name in _HOW}
        single = _single(**{name: values.pop(name) for name in _SINGLE})
        asked = Asked(
            filtered=filtered == "1", single=single, rules=rules or None,
            positions=positions_of(span, chosen), **own,
        )  # fmt: skip
        _check(asked)
        if version == "1":
            note("-v 1 is the original's protobuf dump; an HDF5 dump has one version and is read")
        return command(asked=asked, **values)

    for option in reversed(OPTIONS):
        collected = option(collected)
    return collected


_HOW = ("scripts", "parameters", "first", "overflow", "advisor", "mapping")
_SINGLE = ("name", "output", "source", "brief", "topn", "max_line")


def _single(
    name: str | None,
    output: int | None,
    source: int | None,
    brief: bool,
    topn: int | None,
    max_line: int | None,
) -> SingleOp | None:
    given = {
        "-o": output is not None,
        "-i": source is not None,
        "--ignore_single_op_result": brief,
        "-n": topn is not None,
        "-ml": max_line is not None,
    }
    if name is None:
        for option, is_given in given.items():
            if is_given:
                raise click.UsageError(f"{option} says what to show of one op: it needs -op.")
        return None
    if not name.strip("/ "):
        raise click.BadParameter("it is empty; name an op, NAME or NAME/SEQID", param_hint="-op")
    if given["-o"] and given["-i"]:
        raise click.UsageError("-o and -i are two tensors: give one of them.")
    side, number = ("input", source) if source is not None else ("output", output or 0)
    return SingleOp(name, side, number, topn or TOPN, max_line or MAX_LINE, not brief)


def refuse_for_dumps(asked: Asked) -> None:
    """Let no option through that only folders of CANN dumps have. Raises DumpError."""
    what = "this option means nothing for HDF5 dumps"
    if asked.rules is not None:
        raise DumpError(what, "-f/--fusion_rule_file", RULES_ARE_OF_FOLDERS)
    if asked.positions is not None:
        raise DumpError(what, asked.positions.option, POSITIONS_ARE_OF_FOLDERS)


def _check(asked: Asked) -> None:
    """What compares nothing, or one tensor, lets no option be without effect."""
    only = "-map" if asked.mapping else "-op" if asked.single else None
    if only is None:
        return
    idle = {
        "-op": asked.mapping and asked.single,
        "-c": asked.scripts is not None,
        "-a": asked.parameters,
        "-max": asked.mapping and asked.first,
        "-overflow_detection": asked.overflow,
        "-p": asked.filtered,
        "-advisor": asked.advisor,
    }
    for option, is_given in idle.items():
        if is_given:
            what = "compares nothing" if asked.mapping else "compares one tensor"
            raise click.UsageError(f"{only} {what}, so that {option} would do nothing.")


def instead(asked: Asked, mine: Dump, golden: Dump, folder: Path) -> int | None:
    """Do what -map or -op ask for instead of comparing; the exit status, None where neither is.

    Raises DumpError.
    """
    if asked.mapping:
        from .mapping import write_mapping

        mapped = write_mapping(mine, golden, folder)
        say(f"{mapped.rows} tensors and ops, {mapped.unpaired} without partner")
        say(f"mapping: {printable(str(mapped.path))}")
        return 1 if mapped.unpaired or mine.skipped or golden.skipped else 0
    if asked.single:
        from .single import write_single

        shown = write_single(mine, golden, asked.single, folder, asked.first)
        for line in shown.summary:
            say(line)
        say(f"{len(shown.paths)} files in {printable(str(folder))}")
        return 1 if shown.differing else 0
    return None


class After:
    """What -p and -advisor write when all rows are known; takes the rows as they come."""

    def __init__(self, asked: Asked) -> None:
        from .advisor import Advisor
        from .filtered import is_low

        self._is_low = is_low
        self._kept: list[Row] | None = [] if asked.filtered else None
        self._advisor = Advisor(overflow=asked.overflow) if asked.advisor else None

    def add(self, row: Row) -> None:
        """Take the next row."""
        if self._kept is not None and self._is_low(row):
            self._kept.append(row)
        if self._advisor:
            self._advisor.add(row)

    def write(
        self,
        result: Path,
        mine: Dump,
        golden: Dump,
        summary: Summary,
        header: Sequence[str],
        cells: Callable[[Row], Sequence[str]],
    ) -> bool:
        """Write the files beside `result`, the csv, and say so; whether all could be written.

        header, cells: of that csv. What cannot be is complained of, and costs nothing else.
        """
        from .filtered import write_filtered

        errors: list[DumpError] = []
        if self._kept is not None:
            try:
                written = write_filtered(self._kept, mine, golden, result, header, cells)
            except DumpError as error:
                errors.append(error)
            else:
                errors += written.errors
                say(f"{written.rows} rows with a low cosine: {printable(str(written.folder))}")
        if self._advisor:
            try:
                self._advise(self._advisor, result, mine, golden, summary)
            except DumpError as error:
                errors.append(error)
        for error in errors[:_SAID]:
            complain(str(error))
        if len(errors) > _SAID:
            complain(f"{len(errors) - _SAID} more, as the last one")
        return not errors

    @staticmethod
    def _advise(advisor: Advisor, result: Path, mine: Dump, golden: Dump, summary: Summary) -> None:
        from .advisor import write_advice

        unread = len(mine.skipped) + len(golden.skipped)
        loaded = mine.load_mode or golden.load_mode
        advice = advisor.advice(summary, load_mode=loaded, unread=unread)
        for line in advice.lines:
            say(line)
        say(f"advice: {printable(str(write_advice(advice, result.parent)))}")
