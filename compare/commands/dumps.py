"""The commands about one dump: `convert`, `info`, `show`, `h5copy`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dumper.errors import DumpError, printable

from ..flags import named
from ..opening import opening
from ..program import TROUBLE, complain, no_records, say

if TYPE_CHECKING:
    from ir2tbe.convert import Request


@click.command()
@click.option(
    "-d", "--dump_file", "dump", required=True, callback=named,
    help="An HDF5 dump; a CANN dump file, a folder of those, or several, by commas.",
)  # fmt: skip
@click.option("-out", "--out", "--output", "out", default=".", help="Directory; made if missing.")
@click.option(
    "-t", "--type", "kind", type=click.Choice(["npy", "bin", "msnpy", "pt", "txt"]), default="npy",
    help="Of the files; npy or txt of an HDF5 dump.",
)  # fmt: skip
@click.option("-op", "--op_name", "name", help="Only this IR, NAME, or this record, NAME/SEQID.")
@click.option("-f", "--format", "form", help="Convert tensors of CANN to this format, as NCHW.")
@click.option("-s", "--shape", help="Shape in that format, as 1,3,224,224.")
@click.option("-o", "--output_tensor", "output", type=click.IntRange(0), help="Only this output.")
@click.option("-i", "--input_tensor", "input", type=click.IntRange(0), help="Only this input.")
@click.option(
    "-c", "--custom_script_path", "scripts",
    help="Folder with format_convert/convert_<A>_to_<B>.py: conversions of your own, to be run.",
)  # fmt: skip
@click.option("-v", "--version", type=click.Choice(["2"]), default="2", help="As in the original.")
def convert(
    dump: str,
    out: str,
    kind: str,
    name: str | None,
    form: str | None,
    shape: str | None,
    output: int | None,
    input: int | None,
    scripts: str | None,
    version: str,
) -> int:
    """Write tensors of a dump to files, one each."""
    from ir2tbe.sources import is_cann, paths_of

    for option, value in {"-s": shape, "-o": output, "-i": input, "-c": scripts}.items():
        if form is None and value is not None:
            raise click.BadParameter("it takes effect only with -f", param_hint=option)
    paths = paths_of(dump)
    if len(paths) == 1 and not is_cann(paths[0]):
        if form is not None:
            raise click.BadParameter("only tensors in a CANN dump have one", param_hint="-f")
        if kind not in ("npy", "txt"):
            what = f"{kind!r} is not for an HDF5 dump, which becomes npy or txt"
            raise click.BadParameter(what, param_hint="-t")
        return _convert_hdf5(dump, out, kind, name)
    if name is not None:
        raise click.BadParameter("only an HDF5 dump has records", param_hint="-op")
    return _convert_cann(paths, Path(out), _request(kind, form, shape, output, input, scripts))


def _request(
    kind: str,
    form: str | None,
    shape: str | None,
    output: int | None,
    input: int | None,
    scripts: str | None,
) -> Request:
    """What the options of a conversion of CANN dumps ask for."""
    from ir2tbe.convert import Request, import_torch
    from ir2tbe.custom_formats import load
    from ir2tbe.relayout import MOST_AXES, TARGETS

    if output is not None and input is not None:
        raise click.BadParameter("it goes not with -o", param_hint="-i")
    customs = load(Path(scripts), form) if form is not None and scripts is not None else {}
    if form is not None and form not in TARGETS and not customs:
        what = f"{form!r} is none of {', '.join(TARGETS)}"
        raise click.BadParameter(what, param_hint="-f")
    sizes = shape.split(",") if shape is not None else []
    if not all(n.isascii() and n.isdigit() and len(n) < 19 and int(n) for n in sizes):
        raise click.BadParameter(f"{shape!r} is not like 1,3,224,224", param_hint="-s")
    if len(sizes) > MOST_AXES:
        raise click.BadParameter(f"it has more than {MOST_AXES} sizes", param_hint="-s")
    if kind == "pt":
        import_torch()  # once, before there are processes
    side = "output" if output is not None else "input" if input is not None else None
    index = output if output is not None else input or 0
    return Request(kind, form, tuple(int(n) for n in sizes), side, index, customs)


def _convert_cann(paths: list[Path], out: Path, request: Request) -> int:
    from ir2tbe.sources import find

    from ..converting import FAILED, convert_all, write_failed
    from ..progress import with_progress, working

    with working("looking for dumps"):
        found = find(paths)
    for path, why in found.passed:
        say(f"passed over {printable(str(path))}: {why}")
    if not found.files and not found.errors:
        raise DumpError(
            "there is no CANN dump file here",
            ", ".join(map(str, paths)),
            "their names are like Add.add_1.3.2.1673383728093446; of HDF5 dumps name one file",
        )
    size = sum(source.size for source in found.files)
    count = len(found.files)
    say(f"{count} dump file{'s' * (count != 1)}, {size} bytes")
    for error in found.errors:
        complain(str(error))
    written, failed = 0, []
    with contextlib.closing(convert_all(found.files, out, request)) as results:
        for result in with_progress(results, "converting", len(found.files)):
            written += len(result.written)
            for name, note in result.notes:
                say(f"{printable(name)}: {note}")
            for error in result.errors:
                complain(str(error))
            if result.errors:
                failed.append(result.at)
    say(f"{written} files written to {printable(str(out))}")
    if failed and len(found.files) > 1:
        write_failed(out, [found.files[at].path for at in sorted(failed)])
        say(f"{len(failed)} dump files not whole, listed in {FAILED}")
    return TROUBLE if failed or found.errors else 0


def _convert_hdf5(dump: str, out: str, kind: str, name: str | None) -> int:
    from ..convert import WIDENED, check_sizes, estimate, is_widened, select, tensors_of
    from ..convert import convert as convert_all
    from ..origin import origin_of
    from ..progress import with_progress
    from ..terminal import show_missing
    from ..whole import folder_with_room

    if name is not None and not name.strip("/"):
        raise click.BadParameter("it is empty; leave it out for all records", param_hint="-op")
    with opening(dump) as opened:
        if not opened.records:
            raise no_records(opened)
        show_missing("dump", origin_of(opened))
        tensors, damaged = check_sizes(tensors_of(select(opened, name)))
        for error in damaged:
            complain(str(error))
        size = estimate(tensors, kind)
        about = "" if kind == "npy" else "at most about "
        say(f"{len(tensors)} tensors, {about}{size} bytes of {kind} in {printable(out)}")
        todo = "make room, name another -out, or choose records with -op"
        folder_with_room(Path(out), size, todo)
        if names := sorted({tensor.dtype for _, tensor in tensors if is_widened(tensor)}):
            say(f"{', '.join(names)} widened to {WIDENED}, which holds every value exactly")
        failed = 0
        for error in with_progress(
            convert_all(tensors, Path(out), kind), "converting", len(tensors)
        ):
            if error is not None:
                failed += 1
                complain(str(error))
        say(f"{len(tensors) - failed} files written")
    return TROUBLE if failed or damaged else 0


@click.command()
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
    from ..info import info_of
    from ..screen import show_info, show_tree, show_verdict
    from ..tree import tree_of
    from ..verify import verify

    with opening(file, checked=check) as dump:
        if check:
            found = verify(dump)
            _print_json(found.as_json()) if as_json else show_verdict(found)
            return 0 if found.whole else 1
        if not dump.records:
            raise no_records(dump)
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


@click.command()
@click.argument("file")
@click.argument("record")
@click.option("-g", "--golden_dump_path", "golden", help="A dump to compare this record with.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(file: str, record: str, golden: str | None, as_json: bool) -> int:
    """Show one record, RECORD as /IR/SEQID: its tensors, values, and where they come from."""
    from ..screen import show_case
    from ..show import case_of, find_record

    with contextlib.ExitStack() as stack:
        dump = stack.enter_context(opening(file))
        if not dump.records:
            raise no_records(dump)
        found = find_record(dump, record)
        other = stack.enter_context(opening(golden)) if golden else None
        case = case_of(dump, found, other)
        if other is not None and case.partner is None:
            raise DumpError(
                f"{found.path} has no counterpart", golden, "compare lists what pairs with what"
            )
        _print_json(case.as_json()) if as_json else show_case(case)
    return 0


def _print_json(value: object) -> None:
    import json

    say(json.dumps(value, indent=1))


@click.command()
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
    from ..extract import FLAGS, copy_object

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
        say=lambda text: say(printable(text)) if verbose else None,
    )
    return 0


def _show_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        import h5py

        say(f"h5copy: Version {h5py.version.hdf5_version}")
        context.exit()
