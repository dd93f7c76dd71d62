"""The original's options of `compare`, on the command line and as one value.

Some say how to compare (-c -a -max -overflow_detection), some what to write as well (-p -advisor),
two what to do instead of comparing everything (-map, -op), and some are of folders (-f -q -cf -r -s
-ffts). Those that have no meaning are refused with what they are for: what would change nothing
is never let pass in silence. docs/options.md has the table.

flags.py has their names and limits. What is heavy is imported where it is used, so that `--help` is
fast.

    @original_options  # the command gets what the options ask for as `asked`
    def compare(mine, golden, out, exit_zero, asked: Asked) -> int:
        customs = asked.customs(names)  # names: of our own algorithms
        status = instead(asked, left, right, Path(out))  # of -map or -op; None: compare everything
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from dumper.errors import DumpError, printable

from .flags import (
    MAX_LINE,
    OPTIONS,
    POSITIONS_ARE_OF_FOLDERS,
    RULES_ARE_OF_FOLDERS,
    THREADS_ARE_OF_FOLDERS,
    TOPN,
)
from .positions import Positions, positions_of
from .program import say

if TYPE_CHECKING:
    from dumper.reader import Dump

    from .columns import Columns
    from .custom import Custom


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
    filtered (-p), advisor, mapping: the files to write. single: the tensor of -op. rules,
    quantized, unfused: the files of -f, -q and -cf. positions: of -r or -s. threads: -ffts.
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
    quantized: str | None = None
    unfused: str | None = None
    positions: Positions | None = None
    threads: bool = False

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
        *, filtered: str, version: str, span: str | None, chosen: str | None, **values: object
    ) -> int:  # fmt: skip
        own = {name: values.pop(name) for name in _HOW}
        files = {name: values.pop(name) or None for name in _RULES}  # the original's default is ''
        single = _single(**{name: values.pop(name) for name in _SINGLE})
        asked = Asked(
            filtered=filtered == "1", single=single, positions=positions_of(span, chosen), **own,
            **files,
        )  # fmt: skip
        _check(asked)
        if version == "1":
            note("-v 1 is the original's protobuf dump; an HDF5 dump has one version and is read")
        return command(asked=asked, **values)

    for option in reversed(OPTIONS):
        collected = option(collected)
    return collected


_HOW = ("scripts", "parameters", "first", "overflow", "advisor", "mapping", "threads")
_RULES = ("rules", "quantized", "unfused")
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
    rules = {
        "-f/--fusion_rule_file": asked.rules,
        "-q/--quant_fusion_rule_file": asked.quantized,
        "-cf/--close_fusion_rule_file": asked.unfused,
    }
    for option, file in rules.items():
        if file is not None:
            raise DumpError(what, option, RULES_ARE_OF_FOLDERS)
    if asked.threads:
        raise DumpError(what, "-ffts", THREADS_ARE_OF_FOLDERS)
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
