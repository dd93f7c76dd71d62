"""Names, limits and help of the original's options of `compare`, for click.

options.py says what they come to. A dash before a word is the original's spelling.
"""

from __future__ import annotations

import click

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
THREADS_ARE_OF_FOLDERS = "leave it out: only files of CANN dumps are of FFTS+ threads"
"""What to do instead with an option that only folders of CANN dumps have."""


def named(_: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A path as it was given, for click. Raises click.BadParameter for an empty one."""
    if value == "":
        raise click.BadParameter("it is empty; name a file or a directory")
    return value


LANGUAGE = click.option(
    "--lang", type=click.Choice(LANGUAGES), default="en", show_default=True,
    help="What people read; csv, json and errors stay English.",
)  # fmt: skip


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
        help="Of a folder of CANN dumps: what was fused into its operators, ATC's json.",
    ),
    click.option(
        "-r",
        "--range",
        "span",
        metavar="START,END,STEP",
        help="Of a folder of CANN dumps: only these operators, from 1; END -1 is the last.",
    ),
    click.option("-s", "--select", "chosen", metavar="I,J,...", help="Likewise, one by one."),
    click.option(
        "-q",
        "--quant_fusion_rule_file",
        "quantized",
        metavar="FILE",
        help="Of a quantized network against npy files of the one before: AMCT's json.",
    ),
    click.option(
        "-cf",
        "--close_fusion_rule_file",
        "unfused",
        metavar="FILE",
        help="Of two folders of CANN dumps: golden's rules, compiled without fusion; with -f.",
    ),
    click.option(
        "-ffts",
        "threads",
        is_flag=True,
        help="Of folders of CANN dumps: FFTS+ threads one by one, not put together.",
    ),
)
