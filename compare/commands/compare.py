"""`msaccucmp compare`: two dumps, op by op."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dumper.errors import DumpError, printable

from ..child import import_numpy
from ..flags import LANGUAGE, named
from ..opening import opening, walking
from ..options import Asked, algorithms, instead, note, original_options, refuse_for_dumps
from ..program import TROUBLE, no_records, ready_loops, say
from .folders import cann_folder, compare_folders
from .results import say_gaps, show_answer

if TYPE_CHECKING:
    from ..partial import Head, Partial
    from ..results import Results


class _Compare(click.Command):
    """A command that takes `-alg 0 3 5` as the original does: what follows up to the next option
    belongs to it, since nothing else may stand there."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        joined: list[str] = []
        taking = False
        for word in args:
            if taking and not word.startswith("-"):
                joined[-1] += f" {word}"
                continue
            name, equals, _ = word.partition("=")
            taking = (bool(joined) and joined[-1] in _ALG) or (bool(equals) and name in _ALG)
            joined.append(word)
        return super().parse_args(ctx, joined)


_ALG = ("-alg", "--algorithm")


@click.command(cls=_Compare)
@click.option(
    "-m", "--my_dump_path", "mine", required=True, callback=named, help="The dump to be judged."
)
@click.option(
    "-g",
    "--golden_dump_path",
    "golden",
    required=True,
    callback=named,
    help="The dump taken as right.",
)
@click.option(
    "-out",
    "--out",
    "--output",
    "out",
    default=".",
    callback=named,
    help="Directory for results; made if missing.",
)
@click.option(
    *_ALG, "algorithm", default="all", metavar="NAME,...",
    help="Algorithms by name or number, 0 to 9, in the order of their columns; all.",
)  # fmt: skip
@original_options
@click.option("--resume", is_flag=True, help="Go on where a run that was stopped left off.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 also when something differs.")
@click.option("--op-map", callback=named, metavar="FILE", help="Names and groups of ops, JSON.")
@click.option(
    "--explain-align", "explained", callback=named, metavar="OP/SEQID",
    help="Only say what the op of a row belongs to, and why.",
)  # fmt: skip
@LANGUAGE
def compare(
    mine: str, golden: str, out: str, algorithm: str, asked: Asked, resume: bool, exit_zero: bool,
    op_map: str | None, explained: str | None, lang: str,
) -> int:  # fmt: skip
    """Compare two dumps, op by op, and write result_<time>.csv and .json.

    Or a folder of CANN dump files with another, with npy files or with an HDF5 dump.
    """
    import_numpy()
    from dumper.superblock import check_file

    others = op_map or explained
    if folder := cann_folder(mine, golden, asked.threads):
        if resume or others:
            what = "--resume, --op-map and --explain-align are for two HDF5 dumps."
            raise click.UsageError(what)
        return compare_folders(folder, golden, out, asked, algorithm, exit_zero, lang)
    if _are_no_dumps(mine, golden):
        from .files import compare_paths

        alone = Asked(quantized=asked.quantized)
        if asked != alone or algorithm != "all" or resume or others or lang != "en":
            raise click.UsageError("These files are no dumps: only -out, --exit-zero and -q apply.")
        return compare_paths(mine, golden, out, exit_zero, quantized=asked.quantized)
    refuse_for_dumps(asked)
    if (asked.mapping or asked.single) and (resume or algorithm != "all" or others):
        raise click.UsageError("-map and -op take no -alg, --resume, --op-map or --explain-align.")
    if explained and (asked != Asked() or algorithm != "all" or resume):
        raise click.UsageError("--explain-align writes no result: of the others --op-map applies.")
    for path in (mine, golden):
        check_file(Path(path))
    if os.path.samefile(mine, golden):
        raise DumpError(
            "both paths name the same file", f"{mine} and {golden}", "name two different dumps"
        )
    with walking(golden, beside=mine) as walked:
        return _compare_dumps(
            mine, golden, walked, out, algorithm, asked, resume, exit_zero, op_map, explained, lang
        )


def _compare_dumps(
    mine: str, golden: str, walked: Callable[[], bytes | None], out: str, algorithm: str,
    asked: Asked, resume: bool, exit_zero: bool, op_map: str | None, explained: str | None,
    lang: str,
) -> int:  # fmt: skip
    """Compare two HDF5 dumps. walked: what another process finds in golden meanwhile."""
    from ..after import After
    from ..alignment import OpMap
    from ..comparing import Options
    from ..explain import explain
    from ..loss_scale import loss_scale
    from ..pairing import pairing_of
    from ..phrases import speak
    from ..progress import working
    from ..run import Stopped, head_of, one_stop, places_of, run

    speak(lang)
    columns, custom = algorithms(asked, algorithm)
    with opening(mine) as left, opening(golden, walked=walked()) as right:
        for dump in (left, right):
            if not dump.records:
                raise no_records(dump)
        status = instead(asked, left, right, Path(out))
        if status is not None:
            return 0 if exit_zero and status != TROUBLE else status
        with working("finding what belongs together"):
            pairing = pairing_of(left, right, OpMap.load(op_map) if op_map else None)
        if explained is not None:
            return explain(pairing, explained)
        scale = loss_scale(pairing.matches)
        head = head_of(
            left, right, columns,
            max_cmp_size=asked.first, custom_script_path=asked.scripts,
            algorithm_options=asked.parameters, op_map=op_map,
            loss_scale=scale and scale._asdict(),
        )  # fmt: skip
        say_gaps(head)
        ready_loops()
        gc.freeze()  # what is open stays, and need not be gone through at each collection
        partial = _left_over(Path(out), head) if resume else None
        options = Options(columns.divergence, asked.first, custom)
        after = After(asked)
        result = None
        with one_stop():
            try:
                result = run(
                    left, right, head, columns, options, Path(out), pairing,
                    left=partial, see=after.add,
                )  # fmt: skip
                status = show_answer(head, result.summary)
                place = places_of(left)
                whole = after.write(
                    result.csv, left, right, result.summary, columns.names,
                    lambda row: columns.cells(row, place(row)),
                )  # fmt: skip
            except Stopped as stop:
                raise click.ClickException(
                    f"interrupted after {stop.rows} rows; the same command with --resume goes on "
                    "there"
                ) from None
            except KeyboardInterrupt:
                if result is None:
                    raise
                _name_files(out, result)
                raise click.ClickException(_stopped_late(asked)) from None
    _name_files(out, result)
    return TROUBLE if not whole else 0 if exit_zero else status


def _name_files(folder: str, result: Results) -> None:
    for name, path in (("json", result.json), ("result", result.csv)):
        say(f"{name}: {printable(os.path.join(folder, path.name))}")


def _stopped_late(asked: Asked) -> str:
    """What to say of a stop once both files of the result have their names."""
    more = [*["-p"] * asked.filtered, *["-advisor"] * asked.advisor]
    if not more:
        return "interrupted; the result is complete"
    return (
        f"interrupted; the result is complete, and what {' and '.join(more)} write may not be"
        "\n  what to do: give the same command again, which compares anew"
    )


def _are_no_dumps(mine: str, golden: str) -> bool:
    """Whether both are directories, or files whose endings say that they are no dumps."""
    if os.path.isdir(mine) and os.path.isdir(golden):
        return True
    from ..files import KINDS

    return all(Path(path).suffix.lower() in KINDS for path in (mine, golden))


def _left_over(folder: Path, head: Head) -> Partial | None:
    """The partial result that --resume goes on from, and on stderr which, or why none."""
    from ..partial import find

    found, refused = find(folder, head)
    for reason in refused:
        note(f"not gone on from {reason}")
    if found is None:
        note(f"{folder} has no partial result of this comparison; it begins anew")
    else:
        note(f"goes on from {found.path.name}")
    return found
