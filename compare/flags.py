"""Names, limits and help of the original's options of `compare`, for click.

options.py says what they come to. A dash before a word is the original's spelling.
"""

from __future__ import annotations

from collections.abc import Callable

import click

from dumper.errors import DumpError

from .phrases import LANGUAGES

TOPN = 20
"""Of -n."""

MAX_LINE = 1_000_000
"""Of -ml, and the most that it may be."""

RULES_ARE_OF_FOLDERS = (
    "leave it out: fusion rules say which ops of an original network became one op of a compiled "
    "one, and a dump of a running step holds every op as it ran"
)
POSITIONS_ARE_OF_FOLDERS = (
    "name one op with -op, or cut some out with h5copy; it counts the operators of a folder of "
    "CANN dumps"
)
"""What to do instead with an option that only folders of CANN dumps have."""

_OTHER_RULES = (
    "leave it out: fusion rules of a quantized network, or of one that was compiled without "
    "fusion, relate two compiled networks; -f takes those of mine"
)
_THREADS = (
    "leave it out: FFTS+ splits an op over threads, whose files the original puts together without "
    "it; here they are compared one by one"
)


def named(_: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A path as it was given, for click. Raises click.BadParameter for an empty one."""
    if value == "":
        raise click.BadParameter("it is empty; name a file or a directory")
    return value


LANGUAGE = click.option(
    "--lang", type=click.Choice(LANGUAGES), default="en", show_default=True,
    help="What people read; csv, json and errors stay English.",
)  # fmt: skip


def _refused(*names: str, todo: str, flag: bool = False) -> Callable[[Callable], Callable]:
    """An option that is known, and means nothing here, whatever is compared."""

    def refuse(_: click.Context, option: click.Option, value: object) -> None:
        if value:
            raise DumpError("this option means nothing here", "/".join(names), todo)

    return click.option(
        *names, expose_value=False, hidden=True, is_flag=flag, default=None, callback=refuse
    )


OPTIONS = (
    click.option(
        "-c",
        "--custom_script_path",
        "scripts",
        metavar="DIR",
        callback=named,
        help="Folder with algorithm/alg_<Name>.py; they are run.",
    ),
    click.option(
        "-a",
        "--algorithm_options",
        "parameters",
        default="",
        metavar="NAME:K=V,...;...",
        help="Options of custom algorithms.",
    ),
    click.option(
        "-max",
        "--max_cmp_size",
        "first",
        type=click.IntRange(0),
        default=0,
        help="Compare the first N elements of each tensor; 0 is all.",
    ),
    click.option(
        "-overflow_detection",
        "overflow",
        is_flag=True,
        help="Column OverFlow: float16 values at 65504 or beyond.",
    ),
    click.option(
        "-p",
        "--post_process",
        "filtered",
        type=click.Choice(["0", "1"]),
        default="0",
        help="1: write the rows with a low cosine, and their arrays.",
    ),
    click.option("-advisor", "advisor", is_flag=True, help="Write advisor_summary.txt."),
    click.option(
        "-map",
        "--mapping",
        "mapping",
        is_flag=True,
        help="Only write what belongs to what, mapping_<time>.csv.",
    ),
    click.option(
        "-v",
        "--version",
        "version",
        type=click.Choice(["1", "2"]),
        default="2",
        help="As in the original; HDF5 dumps have one version.",
    ),
    click.option("-op", "--op_name", "name", help="Only this op's one tensor, element by element."),
    click.option(
        "-o", "--output_tensor", "output", type=click.IntRange(0), help="With -op: which output; 0."
    ),
    click.option(
        "-i", "--input_tensor", "source", type=click.IntRange(0), help="With -op: which input."
    ),
    click.option(
        "--ignore_single_op_result",
        "brief",
        is_flag=True,
        help="With -op: no file of all elements.",
    ),
    click.option(
        "-n",
        "--topn",
        "topn",
        type=click.IntRange(1, 10_000),
        help=f"With -op: how many of the worst; {TOPN}.",
    ),
    click.option(
        "-ml",
        "--max_line",
        "max_line",
        type=click.IntRange(10_000, MAX_LINE),
        help=f"With -op: lines a file; {MAX_LINE}.",
    ),
    click.option(
        "-f",
        "--fusion_rule_file",
        "rules",
        metavar="FILE",
        help="Of a folder of CANN dumps against npy files: what was fused, ATC's json.",
    ),
    click.option(
        "-r",
        "--range",
        "span",
        metavar="START,END,STEP",
        help="Of a folder of CANN dumps: only these operators, from 1; END -1 is the last.",
    ),
    click.option("-s", "--select", "chosen", metavar="I,J,...", help="Likewise, one by one."),
    _refused("-q", "--quant_fusion_rule_file", todo=_OTHER_RULES),
    _refused("-cf", "--close_fusion_rule_file", todo=_OTHER_RULES),
    _refused("-ffts", todo=_THREADS, flag=True),
)
