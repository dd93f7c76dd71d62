"""What `compare` does with a folder of CANN dumps: against another, npy files or an HDF5 dump."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dumper.errors import DumpError, printable

from ..opening import opening
from ..options import Asked, algorithms, note
from ..program import TROUBLE, complain, no_records, ready_loops, say

if TYPE_CHECKING:
    from ..folders.pairs import Golden
    from ..folders.rules import Rules
    from ..folders.scan import Folder

_F, _Q, _CF = (
    "-f/--fusion_rule_file", "-q/--quant_fusion_rule_file", "-cf/--close_fusion_rule_file",
)  # fmt: skip


def cann_folder(mine: str, golden: str, apart: bool = False) -> Folder | None:
    """My folder of CANN dumps, if that is what it is. apart: files of FFTS+ threads are not put
    together. Raises DumpError where only golden is one, or mine is neither that nor a folder of npy
    files to go with golden."""
    is_folder = os.path.isdir(mine), os.path.isdir(golden)
    if not any(is_folder):
        return None
    from ..folders.scan import folder_of, nothing_found

    found = folder_of(Path(mine), apart) if is_folder[0] else None
    if found is None and is_folder[1] and folder_of(Path(golden)):
        raise DumpError(
            "golden is a folder of CANN dumps, and mine is none", f"{mine} and {golden}",
            "swap -m and -g: CANN dumps are compared with golden values of any kind",
        )  # fmt: skip
    if found is None and is_folder == (True, False):
        raise nothing_found(Path(mine), "")
    return found


def compare_folders(
    mine: Folder, golden: str, out: str, asked: Asked, algorithm: str, exit_zero: bool, lang: str
) -> int:
    """Compare the operators of a folder with golden; print and write what is found.

    Returns the exit status. Raises DumpError, before anything is written, for what cannot be
    compared, and click.UsageError for options that have no meaning here.
    """
    from ..advisor import Advisor
    from ..after import give_advice
    from ..comparing import Options
    from ..folders.advice import advice
    from ..folders.pairs import all_pairs
    from ..folders.phrases import Words
    from ..folders.report import Parting, passed_over, show
    from ..folders.rows import row_of
    from ..folders.single import write_single
    from ..folders.table import FolderColumns, write_mapping
    from ..progress import with_progress
    from ..result import result_file

    _refuse(asked, algorithm)
    words = Words(lang)
    columns, custom = algorithms(asked, algorithm)
    numbers = range(1, len(mine.ops) + 1)
    if asked.positions is not None:
        numbers = asked.positions.of(len(mine.ops))
    with _golden(mine, golden, asked) as (right, folders):
        shape = FolderColumns(columns, right.addresses, asked.positions is not None)
        for folder in folders:
            for line in passed_over(folder, _npy_beside(folder), words):
                say(line)
            for error in folder.errors:
                complain(str(error))
        if asked.threads and not any(folder.has_threads for folder in folders):
            note("no file here is of an FFTS+ thread; -ffts changes nothing")
        trouble = any(folder.errors for folder in folders)
        steps = with_progress(numbers, "comparing", len(numbers))
        pairs = all_pairs(mine, right, steps, rest=asked.positions is None)
        if asked.mapping:
            mapped = write_mapping(pairs, Path(out))
            say(words("mapped", count=mapped.rows, unpaired=mapped.unpaired))
            if mapped.damaged:
                say(words("mapped damaged", count=mapped.damaged))
            say(f"mapping: {printable(str(mapped.path))}")
            return (
                TROUBLE if trouble else int(mapped.unpaired + mapped.damaged > 0 and not exit_zero)
            )
        ready_loops()
        if asked.single:
            shown = write_single(mine, right, asked.single, Path(out), asked.first)
            for line in shown.summary:
                say(line)
            say(f"{len(shown.paths)} files in {printable(out)}")
            return TROUBLE if trouble else int(shown.differing > 0 and not exit_zero)
        options = Options(columns.divergence, asked.first, custom)
        found, advisor = Parting(), Advisor(overflow=asked.overflow)
        with result_file(Path(out), shape) as result:
            for pair in pairs:
                row = row_of(pair, options)
                result.add(row)
                found.add(row)
                advisor.add(row.row)
        show(mine, right, golden, found, words)
    if asked.advisor:
        unread = sum(len(folder.errors) for folder in folders)
        try:
            give_advice(advice(advisor, found, unread, asked.first), Path(out))
        except DumpError as error:
            complain(str(error))
            trouble = True
    say(f"result: {printable(os.path.join(out, result.path.name))}")
    if trouble:
        return TROUBLE
    return 0 if exit_zero or found.summary.nothing_wrong else 1


def _refuse(asked: Asked, algorithm: str) -> None:
    """Let no option through that would change nothing. Raises click.UsageError."""
    if asked.filtered:
        raise click.UsageError(
            "-p is for two HDF5 dumps, not for folders; convert makes npy files of a CANN dump."
        )
    for option, given in (("-map", asked.mapping), ("-op", asked.single)):
        if given and algorithm != "all":
            what = "compares nothing" if asked.mapping else "compares one tensor"
            raise click.UsageError(f"{option} {what}, so that -alg would do nothing.")
    if asked.single and asked.positions is not None:
        raise click.UsageError("-op compares one tensor, so that -r or -s would do nothing.")


@contextlib.contextmanager
def _golden(mine: Folder, path: str, asked: Asked) -> Iterator[tuple[Golden, list[Folder]]]:
    """What is taken as right, and the folders of CANN dumps that there are. Raises DumpError."""
    from ..folders.scan import folder_of, no_npy_of_ops

    if os.path.isdir(path):
        if os.path.samefile(mine.root, path):
            what = "both paths name the same directory"
            raise DumpError(what, f"{mine.root} and {path}", "name two different ones")
        other = folder_of(Path(path), asked.threads)
        if other is not None:
            yield _of_cann(mine, other, asked), [mine, other]
            return
        from ..filepairs import npy_files
        from ..folders.originals import Originals

        _no_rules({_CF: asked.unfused}, "a folder of npy files", "golden is no compiled network")
        rules = None
        for file in filter(None, (asked.rules, asked.quantized)):
            rules = rules.before(_rules(file)) if rules else _rules(file, mine)
        originals = Originals(mine, npy_files(Path(path)), rules)
        if not originals.count:
            raise no_npy_of_ops(Path(path))
        yield originals, [mine]
        return
    from dumper.superblock import check_file

    from ..folders.records import Records

    check_file(Path(path))
    rules = {_F: asked.rules, _Q: asked.quantized, _CF: asked.unfused}
    _no_rules(rules, "an HDF5 dump", "the dump files name its records")
    with opening(path) as dump:
        if not dump.records:
            raise no_records(dump)
        yield Records(dump), [mine]


def _of_cann(mine: Folder, golden: Folder, asked: Asked) -> Golden:
    """A second folder of CANN dumps, of the same network, or of how it was before fusion."""
    from ..folders.compiled import Compiled
    from ..folders.pairs import Dumps

    kind = "a folder of CANN dumps"
    _no_rules({_Q: asked.quantized}, kind, "a quantized network's ops are related to npy files")
    if asked.rules is None and asked.unfused is None:
        return Dumps(mine, golden)
    if asked.rules is None or asked.unfused is None:
        given, other = (_F, _CF) if asked.unfused is None else (_CF, _F)
        raise DumpError(
            f"golden is {kind}, and only one of two networks has its fusion rules",
            given,
            f"give both, -f of mine and -cf of golden, or leave out {given.partition('/')[0]}: "
            "operators pair by type and name then",
        )
    rules = _rules(asked.rules, mine), _rules(asked.unfused, golden)
    return Compiled(mine, golden, *rules)


def _rules(file: str, folder: Folder | None = None) -> Rules:
    """The rules of a network. folder: its dumps. What makes them doubtful is said."""
    from ..folders.fusion import load
    from ..folders.origins import file_name

    rules = load(Path(file))
    if rules.twice:
        count, name = len(rules.twice), printable(rules.twice[0])
        note(f"{file} lists {count} ops again and otherwise, first {name}; the first one counts")
    names = ({op.called, file_name(op.name.op_name)} for op in folder.ops) if folder else ()
    if folder and not any(name in rules for each in names for name in each):
        note(f"{file} has none of the operators in {folder.root}")
    return rules


def _no_rules(given: dict[str, str | None], golden: str, why: str) -> None:
    for option, file in given.items():
        if file is not None:
            raise DumpError(f"golden is {golden}", option, f"leave it out: {why}")


def _npy_beside(folder: Folder) -> int:
    """How many npy files of the original network's ops lie in a folder of CANN dumps."""
    from ..filepairs import npy_files
    from ..folders.originals import named

    return sum(map(len, named(npy_files(folder.root)).values()))
