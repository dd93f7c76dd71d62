"""The command `msaccucmp`: options as the original writes them, errors as one block, exit status
like diff.

0: nothing differs. 1: something differs or has no partner. 2: trouble. Numba and the rest are
imported by the command that needs them, so that `--help` and `convert` answer at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from dumper.errors import DumpError, printable

if TYPE_CHECKING:
    from dumper.reader import Dump

TROUBLE = 2


class _Program(click.Group):
    """A group whose commands return their exit status and whose errors are one block on stderr."""

    def main(self, *args: object, **options: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # no console may fail on a name it cannot show
                stream.reconfigure(errors="backslashreplace")
        options["standalone_mode"] = False
        try:
            status = super().main(*args, **options) or 0
            sys.stdout.flush()  # not at exit, where a full disk would be a traceback
        except DumpError as error:
            _fail(str(error))
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), file=sys.stderr)
            sys.exit(TROUBLE)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "msaccucmp"
            _fail(f"{error.format_message()}\n  what to do: see {command} --help")
        except click.ClickException as error:
            _fail(error.format_message())
        except (click.Abort, KeyboardInterrupt):
            _fail("interrupted")
        except SystemExit:  # how click and rich answer a pipe that nobody reads
            _fail_output("nobody reads it any more")
        except OSError as error:
            reason = error.strerror or str(error)
            if error.filename is None:  # what is written to has no name here
                _fail_output(reason)
            _fail(str(DumpError(reason, error.filename, "check the path and the disk")))
        except MemoryError:
            _fail("there is not enough memory\n  what to do: free some, or use another machine")
        except Exception as error:  # noqa: BLE001 - the top of the program: status 1 means "differs"
            _fail(_unexpected(error))
        sys.exit(status)


def _say(text: str) -> None:
    # click would put a UTF-8 writer of its own over an ASCII console
    click.echo(text, file=sys.stdout)


def _complain(block: str) -> None:
    click.echo(f"msaccucmp: error: {block}", file=sys.stderr)


def _fail(block: str) -> NoReturn:
    with contextlib.suppress(OSError):  # stderr is full or closed: nobody is left to tell
        _complain(block)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # what is left in it would be written again at exit, and fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(TROUBLE)


def _fail_output(reason: str) -> NoReturn:
    error = DumpError(
        f"the output cannot be written ({reason})",
        "standard output or standard error",
        "make room, or send it elsewhere; files written before are complete",
    )
    _fail(str(error))


def _unexpected(error: Exception) -> str:
    *_, frame = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frame.filename).parent.name}/{Path(frame.filename).name}, line {frame.lineno}"
    what = f"unexpected {type(error).__name__}: {error}"
    return str(DumpError(what, place, "please report this, with the command that you gave"))


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Compare, convert and take apart dumps of PyTorch operators."""


@cli.command()
@click.option("-m", "--my_dump_path", "mine", required=True, help="The dump to be judged.")
@click.option("-g", "--golden_dump_path", "golden", required=True, help="The dump taken as right.")
@click.option(
    "-out", "--out", "--output", "out", default=".", help="Directory for the csv; made if missing."
)
@click.option("--exit-zero", is_flag=True, help="Exit with 0 also when something differs.")
def compare(mine: str, golden: str, out: str, exit_zero: bool) -> int:
    """Compare two dumps, op by op, and write result_<time>.csv."""
    from dumper.superblock import check_file

    from .engine import compare_dumps
    from .result import result_file
    from .summary import Summary
    from .terminal import show_gaps, show_summary, with_progress

    for path in (mine, golden):
        check_file(Path(path))
    if os.path.samefile(mine, golden):
        raise DumpError(
            "both paths name the same file", f"{mine} and {golden}", "name two different dumps"
        )
    with _opened(mine) as left, _opened(golden) as right:
        for title, dump in (("my dump", left), ("golden", right)):
            if not dump.records:
                raise _no_records(dump)
            show_gaps(title, dump)
        summary = Summary()
        total = sum(len(record.inputs) + len(record.outputs) for record in left.records)
        with result_file(Path(out)) as result:
            for row in with_progress(compare_dumps(left, right), "comparing", total):
                result.add(row)
                summary.add(row)
        show_summary(left, right, summary)
        _say(f"result: {printable(os.path.join(out, result.path.name))}")
        clean = summary.nothing_differs and not left.skipped and not right.skipped
    return 0 if exit_zero or clean else 1


def _opened(path: str) -> Dump:
    from dumper.reader import open_dump

    from .terminal import working

    with working(f"opening {printable(path)}"):
        return open_dump(path)


def _no_records(dump: Dump) -> DumpError:
    seen = f"; {dump.skipped[0][0]}: {dump.skipped[0][1]}" if dump.skipped else ""
    return DumpError(
        f"there is no record in this file{seen}",
        dump.path,
        "name a file that the dumper wrote; groups are /<IR>/<seqid>/input|output",
    )


@cli.command()
@click.option("-d", "--dump_file", "dump", required=True, help="The dump to be converted.")
@click.option("-out", "--out", "--output", "out", default=".", help="Directory; made if missing.")
@click.option("-t", "--type", "kind", type=click.Choice(["npy", "txt"]), default="npy")
@click.option("-op", "--op_name", "name", help="Only this IR, NAME, or this record, NAME/SEQID.")
@click.option("-v", "--version", type=click.Choice(["2"]), default="2", help="As in the original.")
def convert(dump: str, out: str, kind: str, name: str | None, version: str) -> int:
    """Write tensors of a dump to npy or txt files, one each."""
    from .convert import WIDENED, check_room, check_sizes, estimate, is_widened, select, tensors_of
    from .convert import convert as convert_all
    from .terminal import show_gaps, with_progress

    if name is not None and not name.strip("/"):
        raise click.BadParameter("it is empty; leave it out for all records", param_hint="-op")
    with _opened(dump) as opened:
        if not opened.records:
            raise _no_records(opened)
        show_gaps("dump", opened)
        tensors, damaged = check_sizes(tensors_of(select(opened, name)))
        for error in damaged:
            _complain(str(error))
        size = estimate(tensors, kind)
        about = "" if kind == "npy" else "at most about "
        _say(f"{len(tensors)} tensors, {about}{size} bytes of {kind} in {printable(out)}")
        check_room(Path(out), size)
        if names := sorted({tensor.dtype for _, tensor in tensors if is_widened(tensor)}):
            _say(f"{', '.join(names)} widened to {WIDENED}, which holds every value exactly")
        failed = 0
        for error in with_progress(
            convert_all(tensors, Path(out), kind), "converting", len(tensors)
        ):
            if error is not None:
                failed += 1
                _complain(str(error))
        _say(f"{len(tensors) - failed} files written")
    return TROUBLE if failed or damaged else 0


@cli.command()
@click.argument("file")
@click.option("--tree", is_flag=True, help="Modules, calls, and what enters and leaves each.")
@click.option("--depth", type=click.IntRange(0), default=3, help="Levels of modules; default 3.")
@click.option("--step", type=click.IntRange(0), help="The step that --tree shows; the first.")
@click.option("--verify", "check", is_flag=True, help="Check that the file is whole.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(file: str, tree: bool, depth: int, step: int | None, check: bool, as_json: bool) -> int:
    """Say what is in a dump.

    With --verify the exit status is 1 when the file is unfinished, damaged, or not what its writer
    wrote.
    """
    from .info import info_of
    from .screen import show_info, show_tree, show_verdict
    from .tree import tree_of
    from .verify import digests_of, verify

    digests = digests_of(file) if check else None
    with _opened(file) as dump:
        if digests:
            found = verify(dump, digests)
            _print_json(found.as_json()) if as_json else show_verdict(found)
            return 0 if found.whole else 1
        if not dump.records:
            raise _no_records(dump)
        if tree:
            steps = {record.entry.step for record in dump.records}
            if step is not None and step not in steps:
                raise click.BadParameter(f"there is no step {step}", param_hint="--step")
            nodes = tree_of(dump, depth, step)
            if as_json:
                _print_json([node.as_json() for node in nodes])
            elif nodes:
                show_tree(nodes)
            else:
                raise DumpError(
                    "this file does not say which calls and modules its ops belong to",
                    file,
                    "dump the step again with this version",
                )
        else:
            found = info_of(dump)
            _print_json(found.as_json()) if as_json else show_info(found)
    return 0


@cli.command()
@click.argument("file")
@click.argument("record")
@click.option("-g", "--golden_dump_path", "golden", help="A dump to compare this record with.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(file: str, record: str, golden: str | None, as_json: bool) -> int:
    """Show one record, RECORD as /IR/SEQID: its tensors, values, and where they come from."""
    from .screen import show_case
    from .show import case_of, find_record

    with contextlib.ExitStack() as stack:
        dump = stack.enter_context(_opened(file))
        if not dump.records:
            raise _no_records(dump)
        found = find_record(dump, record)
        other = stack.enter_context(_opened(golden)) if golden else None
        case = case_of(dump, found, other)
        if other is not None and case.partner is None:
            raise DumpError(
                f"{found.path} has no counterpart", golden, "compare lists what pairs with what"
            )
        _print_json(case.as_json()) if as_json else show_case(case)
    return 0


def _print_json(value: object) -> None:
    import json

    _say(json.dumps(value, indent=1))


@cli.command()
@click.option("-i", "--input", "source_file", required=True, help="Input file name.")
@click.option("-o", "--output", "target_file", required=True, help="Output file name.")
@click.option("-s", "--source", required=True, help="Source object name.")
@click.option("-d", "--destination", required=True, help="Destination object name.")
@click.option("-p", "--parents", is_flag=True, help="Make parent groups as needed.")
@click.option("-v", "--verbose", is_flag=True, help="Say what is copied.")
@click.option(
    "-f", "--flag", "flags", multiple=True, help="shallow, soft, ext, ref, noattr, allflags."
)
@click.option(
    "-V", "--version", is_flag=True, is_eager=True, expose_value=False,
    callback=lambda *given: _show_version(*given), help="Print the version of HDF5 and exit.",
)  # fmt: skip
def h5copy(
    source_file: str,
    target_file: str,
    source: str,
    destination: str,
    parents: bool,
    verbose: bool,
    flags: tuple[str, ...],
) -> int:
    """Copy one record (or any object) to another HDF5 file, adding to it, as HDF5's h5copy does."""
    from .extract import FLAGS, copy_object

    for flag in flags:
        if flag not in FLAGS:
            raise click.BadParameter(f"{flag!r} is none of {', '.join(FLAGS)}", param_hint="-f")
    copy_object(
        Path(source_file),
        Path(target_file),
        source,
        destination,
        parents=parents,
        flags=flags,
        say=lambda text: _say(printable(text)) if verbose else None,
    )
    return 0


def _show_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        import h5py

        _say(f"h5copy: Version {h5py.version.hdf5_version}")
        context.exit()


def main() -> None:
    """Run the command line."""
    _open_streams()
    for name in ("SIGTERM", "SIGHUP"):  # clean up as after Ctrl-C
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    cli.main(prog_name="msaccucmp")


def _open_streams() -> None:
    """Give what the shell closed (`>&-`) a stream that fails when it is written to.

    Without one, the first file that is opened would be standard output.
    """
    while (number := os.open(os.devnull, os.O_RDONLY)) <= 2:
        pass
    os.close(number)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)
