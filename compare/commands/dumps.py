"""The commands about one dump: `convert`, `info`, `show`, `h5copy`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from dumper.errors import DumpError, printable

from ..program import TROUBLE, complain, no_records, opening, say


@click.command()
@click.option("-d", "--dump_file", "dump", required=True, help="The dump to be converted.")
@click.option("-out", "--out", "--output", "out", default=".", help="Directory; made if missing.")
@click.option("-t", "--type", "kind", type=click.Choice(["npy", "txt"]), default="npy")
@click.option("-op", "--op_name", "name", help="Only this IR, NAME, or this record, NAME/SEQID.")
@click.option("-v", "--version", type=click.Choice(["2"]), default="2", help="As in the original.")
def convert(dump: str, out: str, kind: str, name: str | None, version: str) -> int:
    """Write tensors of a dump to npy or txt files, one each."""
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
