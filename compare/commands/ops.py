"""`msaccucmp ops`: what an NPU has for the ops of a model, by a dump of it or a profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dumper.errors import printable

from ..flags import LANGUAGE, named
from ..opening import opening
from ..program import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ir2tbe.profiles import Profile


@click.command()
@click.argument("file", callback=named)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 also when an op has no TBE sequence.")
@LANGUAGE
def ops(file: str, as_json: bool, exit_zero: bool, lang: str) -> int:
    """Say which ops of a model an NPU has TBE operators for. FILE: a dump, a chrome trace that
    torch.profiler exported, or the saved text of key_averages().table().

    Exit status: 0 each op has a TBE sequence or needs none, 1 one has only aclnn (910B and later)
    or is unknown, 2 trouble.
    """
    from ir2tbe.profiles import CUT, DEFAULT_ROWS
    from ir2tbe.support import State, supported
    from ir2tbe.table import table

    from ..ir2tbe_screen import show_ops
    from ..ir2tbe_words import Words

    calls, profile = _calls(file)
    order = list(State)
    found = supported(table(), calls, whole=profile is None)
    found.sort(key=lambda op: (order.index(op.support.state), -op.support.approximate, -op.calls))
    cut = sum(name.endswith(CUT) for name in calls)
    full = profile is not None and profile.full
    if as_json:
        import json

        kind = "dump" if profile is None else profile.kind
        about = {"path": file, "kind": kind, "maybe_more": full}
        say(json.dumps({**about, "ops": [op.as_json() for op in found]}, indent=1))
    else:
        words = Words(lang)
        show_ops(file, found, words)
        if profile is not None:
            say(words("nested"))
        if full:
            say(words("full", rows=DEFAULT_ROWS))
        if cut:
            say(words("cut", count=cut))
    lacking = any(op.support.state in (State.UNKNOWN, State.ACLNN_ONLY) for op in found)
    return 1 if lacking and not exit_zero else 0


def _calls(file: str) -> tuple[Mapping[str, int], Profile | None]:
    """How often each op ran, and the profile that says so; None where it is a dump."""
    from ir2tbe.profiles import is_dump, read_profile

    from ..progress import working
    from .ir2tbe import calls_of

    if is_dump(Path(file)):
        with opening(file) as dump:
            return calls_of(dump), None
    with working(f"reading {printable(file)}"):
        profile = read_profile(Path(file))
    return profile.calls, profile
