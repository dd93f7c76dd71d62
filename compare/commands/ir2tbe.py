"""`msaccucmp ir2tbe`: which TBE operators an op becomes on an NPU, and which ops use one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from dumper.errors import DumpError

from ..flags import LANGUAGE, named
from ..opening import opening
from ..program import no_records, say

if TYPE_CHECKING:
    from dumper.reader import Dump


@click.command()
@click.argument("op", required=False, callback=named)
@click.option("--dump", "dump", callback=named, metavar="FILE", help="All ops of an HDF5 dump.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@LANGUAGE
def ir2tbe(op: str | None, dump: str | None, as_json: bool, lang: str) -> int:
    """Say which TBE operators OP becomes on an NPU, in order: OP as addmm, aten::add.Tensor,
    add_Tensor or AddmmBackward0. For a TBE operator (BNTrainingReduce) say which ops use it.
    """
    from ir2tbe.support import supported
    from ir2tbe.table import table

    from ..ir2tbe_screen import show_found, show_ops, show_users
    from ..ir2tbe_words import Words

    if (op is None) == (dump is None):
        raise click.UsageError("name an op, or a file with --dump")
    words = Words(lang)
    if dump is not None:
        with opening(dump) as opened:
            calls = calls_of(opened)
        found_ops = supported(table(), calls)
        if as_json:
            _print_json({"path": dump, "ops": [each.as_json() for each in found_ops]})
        else:
            show_ops(dump, found_ops, words)
    elif found := table().find(op):
        if as_json:
            entries = [each.as_json() for each in found.entries]
            how = {"match": found.how.value, "approximate": found.approximate}
            others = [each.name for each in found.others]
            _print_json({"op": op, **how, "entries": entries, "other_overloads": others})
        else:
            show_found(op, found, words)
    elif uses := table().users(op):
        if as_json:
            users = [_use(use.entry.as_json(), use.kind, use.where) for use in uses]
            _print_json({"tbe": op, "users": users})
        else:
            show_users(op, uses, words)
    else:
        raise _unknown(op, table().is_composite(op), table().near(op))
    return 0


def calls_of(dump: Dump) -> Counter[str]:
    """How often each op of a dump was called, in the order of the first calls.

    Raises DumpError where it holds no op.
    """
    from dumper.layout import VALUES

    calls = Counter(record.ir for record in dump.records if record.ir not in VALUES)
    if not calls:
        raise no_records(dump)
    return calls


def _use(entry: dict[str, Any], kind: str, where: str) -> dict[str, Any]:
    names = ("name", "ir", "tbe", "confidence", "approximate", "source", "file")
    return {"kind": kind, "where": where, **{name: entry[name] for name in names}}


def _unknown(op: str, composite: bool, near: list[str]) -> DumpError:
    if composite:
        what = "PyTorch makes this op of others before a device sees it, so that it has no sequence"
        return DumpError(what, op, "dump or profile it, and ask for the ops that it calls")
    like = f"; near it: {', '.join(near)}" if near else ""
    todo = f"name an op, as addmm or add_Tensor, or a TBE operator{like}"
    return DumpError("the table has no such op, nor a TBE operator of this name", op, todo)


def _print_json(value: object) -> None:
    import json

    say(json.dumps(value, indent=1))
