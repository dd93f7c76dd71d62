"""`msaccucmp replay`: recorded ops run again under ACL dump, down to their TBE operators."""

from __future__ import annotations

import contextlib
import itertools
import json
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dumper.errors import DumpError, printable
from dumper.layout import VALUES

from ..flags import LANGUAGE, named
from ..opening import opening
from ..program import TROUBLE, complain, no_records, say

if TYPE_CHECKING:
    import torch

    from dumper.reader import Dump, Record
    from ir2tbe.replay import Replays

    from ..replay_words import Words

T = TypeVar("T")


@click.command()
@click.argument("dump", callback=named)
@click.option(
    "--device", default="npu", show_default=True, metavar="DEVICE",
    help="Where the ops run: npu (emulated where there is none), cpu, or another of torch's.",
)  # fmt: skip
@click.option(
    "--acl", "config", callback=named, metavar="FILE",
    help="CANN's configuration of the dump; by default acl.json of the working directory.",
)  # fmt: skip
@click.option("-op", "--op_name", "name", help="Only this IR, NAME, or this record, NAME/SEQID.")
@click.option(
    "--against", metavar="DEVICE",
    help="Replay there too, all inputs and outputs, and compare the TBE operators; without --acl.",
)  # fmt: skip
@click.option(
    "-out", "--out", "--output", "out", default=".", callback=named, metavar="DIR",
    help="Directory for dumps and result of --against; made if missing.",
)  # fmt: skip
@click.option("--exit-zero", is_flag=True, help="Exit with 0 also when something differs.")
@LANGUAGE
def replay(
    dump: str, device: str, config: str | None, name: str | None, against: str | None, out: str,
    exit_zero: bool, lang: str,
) -> int:  # fmt: skip
    """Run the ops of an HDF5 dump again under ACL dump: files of their TBE operators' inputs and
    outputs.

    Exit status: 0, with --against as compare's, 2 trouble.
    """
    from ir2tbe.convert import import_torch

    import_torch("a replay runs ops, which needs torch", "msaccucmp replay", "install torch")
    from ir2tbe.replay import Replays, device_named

    from ..replay_words import Words

    words = Words(lang)
    if against is not None and config is not None:
        raise click.UsageError("--against dumps all there is: it takes no --acl.")
    if against == device:
        raise click.BadParameter("it is the device itself; name cpu", param_hint="--against")
    place = device_named(device)
    other = None if against is None else device_named(against, "--against")
    with opening(dump) as source:
        if not source.records:
            raise no_records(source)
        records = _wanted(source, name)
        if other is None:
            replays = Replays(place, Path(config or "acl.json"))
            return 0 if _run(replays, records, words) else TROUBLE
        folder = _new_folder(Path(out))
        both = [_into(folder, each) for each in (place, other)]
        whole = [_run(replays, records, words) for replays in both]
    from .files import compare_paths

    mine, golden = (str(replays.folder) for replays in both)
    status = compare_paths(mine, golden, out, exit_zero, lang)
    return status if all(whole) else TROUBLE


def _wanted(source: Dump, name: str | None) -> list[Record]:
    """The records to run. Raises DumpError where those that are named hold no op."""
    from ir2tbe.replay import runs

    from ..convert import select

    found = select(source, name)
    if name is None:
        return [each for each in found if runs(each)]
    if found[0].ir in VALUES:
        what = f"{name} is a value at the end of a step, and no op"
        raise DumpError(what, source.path, "name an op; info lists them")
    return found


def _new_folder(out: Path) -> Path:
    from ..result import explained
    from ..whole import stems

    with explained(out):
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        for stem in stems("replay"):
            with contextlib.suppress(FileExistsError):
                folder = out.absolute() / stem
                folder.mkdir(mode=0o700)
                return folder
    raise AssertionError  # stems ends with an exception


def _into(folder: Path, device: torch.device) -> Replays:
    """Replays with a configuration of their own, that dumps everything below a folder."""
    from dumper.acl_config import EXAMPLE
    from ir2tbe.replay import Replays

    from ..result import explained

    name = str(device).replace(":", "_")
    asked = json.loads(EXAMPLE)
    asked["dump"]["dump_path"] = str(folder / name)
    config = folder / f"{name}.json"
    with explained(folder):
        config.write_text(json.dumps(asked, indent=1))
    return Replays(device, config)


def _run(replays: Replays, records: list[Record], words: Words) -> bool:
    """Run the records and say what came of each; whether all could be run."""
    say(words("begin", count=len(records), device=printable(replays.label)))
    total, idle, whole = 0, 0, True
    for outcome in _with_notes(replays.run(records)):
        if isinstance(outcome, DumpError):
            complain(str(outcome))
            whole = False
            continue
        total += len(outcome.files)
        if not outcome.files and len(records) > 1:  # an allocation, a number read back
            idle += 1
            continue
        record = outcome.record
        operators = _listed(file.name.op_type for file in outcome.files) or words("none")
        said = words(_SAME[outcome.same])
        say(f"  {printable(record.ir)}/{record.seqid}  {operators}  ({said})")
    if idle:
        say(words("idle", count=idle))
    say(words("files", count=total, folder=printable(str(replays.folder))))
    return whole


def _listed(names: Iterable[str]) -> str:
    """Names in order, those in a row once: `Mul, 42 x Addcdiv`."""
    runs = ((name, len(list(same))) for name, same in itertools.groupby(names))
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in runs)


def _with_notes(outcomes: Iterator[T]) -> Iterator[T]:
    """The outcomes; what is warned of meanwhile is a note, as a command's are."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield from outcomes
    for text in dict.fromkeys(str(each.message) for each in said):
        click.echo(f"msaccucmp: note: {text.removeprefix('torch.utils.dumper: ')}", err=True)


_SAME = {True: "same", False: "other", None: "unknown"}
