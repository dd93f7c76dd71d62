"""What people see of a comparison: the answer in a few lines, then the worst rows in a table that
fits.

First whether both runs started equal, then how many rows there are of each verdict, then the one
place where they first differ beyond rounding, the worst rows, what has no partner, and what to do.
Plain text, unwrapped, when the output is no terminal. Names come from files and are shown inert.
All of it is said of a result, so that one that is read again says the same.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator

from rich.cells import set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dumper.errors import printable
from dumper.layout import DEVICE_NAMES

from .columns import element, number, shape_text
from .judging.verdict import Kind
from .origin import Gap, Origin
from .phrases import phrase, why
from .progress import console, show_table
from .row import Row
from .start import KINDS, WEIGHTS
from .summary import Summary, argument_of

WIDE = 110  # columns


def show_summary(mine: Origin, golden: Origin, summary: Summary) -> None:
    """Print files, the start, counts, the first difference and the worst rows on stdout."""
    out = console(sys.stdout)

    def say(text: str) -> None:
        out.print(Text(text), soft_wrap=True)

    for title, origin in (("my dump", mine), ("golden", golden)):
        mode = phrase("load mode") if origin.load_mode else ""
        what = phrase(
            "file", path=printable(origin.path), device=device_name(origin.device),
            count=origin.records, mode=mode,
        )  # fmt: skip
        say(f"{set_cell_size(phrase(title), 8)}  {what}")
    for line in answer(mine, golden, summary):
        say(line)
    if summary.worst:
        say(phrase("worst rows"))
        show_table(out, _table(summary.worst, out))
        if summary.again:
            say(phrase("again", count=summary.again))
    for line in _rest(mine, golden, summary):
        say(line)


def answer(mine: Origin, golden: Origin, summary: Summary) -> Iterator[str]:
    """The lines before the table."""
    if not summary.paired:
        yield phrase("nothing compared")
        return
    yield from _start(mine.load_mode or golden.load_mode, summary)
    counts = {kind.value: summary.verdicts[kind] for kind in Kind}
    yield phrase("counts", compared=summary.compared, **counts)
    if summary.by_default:
        part = f"{summary.by_default / summary.judged:.1%}"
        yield phrase("by default", count=summary.by_default, judged=summary.judged, share=part)
    yield from _first(mine, golden, summary)


def _start(loaded: bool, summary: Summary) -> Iterator[str]:
    start = summary.start
    parts = []
    for kind in KINDS:
        each = start.leaves[kind]
        if each.differ:
            name = (each.first.leaf if kind == WEIGHTS else each.first.my_path) or ""
            parts.append(
                phrase(
                    "leaves differ",
                    kind=phrase(kind),
                    differ=each.differ,
                    count=each.compared,
                    first=phrase("first leaf", name=printable(name)),
                )  # fmt: skip
            )
    for name, a, b in start.flags:
        parts.append(
            phrase("flag differs", name=name, mine=printable(str(a)), golden=printable(str(b)))
        )
    if start.equal is False:
        yield phrase("started unequal", what=phrase("semicolon").join(parts))
    elif start.equal:
        counts = ((kind, start.leaves[kind].compared) for kind in KINDS)
        what = [
            phrase("leaves equal", count=n, kind=phrase(kind, count=n)) for kind, n in counts if n
        ]
        yield phrase("started equal", what=phrase("comma").join(what))
    else:
        why = phrase("start in load mode" if loaded else "start not recorded")
        yield phrase("start unknown", why=why) if not loaded else why
    if start.scale:
        scale = start.scale
        ratio = f"{scale.ratio:g} : 1"
        if scale.mine is not None:
            ratio = f"{scale.mine:g} : {scale.golden:g}"
        yield phrase("loss scale", ratio=ratio)


def _first(mine: Origin, golden: Origin, summary: Summary) -> Iterator[str]:
    """Where the two first differ beyond rounding, or that they do not."""
    first, odd = summary.first, summary.odd
    found = {} if odd is None else {"path": _path(odd), "why": _why(odd)}
    if first is not None:
        yield phrase(
            "first difference", place=place_text(summary), arg=printable(argument_of(first) or "?"),
            reason=printable(why(first.verdict)),
        )  # fmt: skip
        if odd is not first:
            yield phrase("before it", **found)
    elif summary.verdicts[Kind.DIFFERS]:
        yield phrase("only weak", count=summary.verdicts[Kind.DIFFERS])
        if odd.verdict.kind is not Kind.DIFFERS:
            yield phrase("before it", **found)
    elif summary.unexplained:
        yield phrase("unexplained", count=summary.unexplained, **found)
    elif odd is not None:
        yield phrase("not comparable first", count=summary.wrong, **found)
    elif unread := _unread(mine, golden):
        yield phrase("unread", count=unread)
    else:
        inherited = summary.verdicts[Kind.INHERITED]
        yield phrase("only inherited" if inherited else "nothing differs")


def _unread(mine: Origin, golden: Origin) -> int:
    return mine.unreadable.count + golden.unreadable.count


def _path(row: Row) -> str:
    return printable(row.my_path or row.golden_path or row.record_path or "?")


def _why(row: Row) -> str:
    return printable("; ".join(row.reasons) or why(row.verdict))


def place_text(summary: Summary) -> str:
    """Which call, op, module and line of the user's program the first difference is in, as far as
    the file says."""
    row, place = summary.first, summary.first_place
    text = ""
    if row.phase is not None:
        call = printable(place.api or phrase("outside calls"))
        text = phrase("in call", call=call, phase=row.phase)
    text += phrase("place", op=printable(row.op or "?"), seqid=row.index)
    if place.module is not None:
        text += phrase("in module", module=printable(place.module) or phrase("the model"))
    return text + (phrase("at source", source=printable(place.source)) if place.source else "")


def _rest(mine: Origin, golden: Origin, summary: Summary) -> Iterator[str]:
    """The lines behind the table: what has no partner, and what to do."""
    if summary.unpaired:
        what = phrase("comma").join(
            f"{count} {code}" for code, count in summary.unpaired.most_common()
        )
        yield phrase("unpaired", what=what)
    row, loaded = summary.first, mine.load_mode or golden.load_mode
    if summary.start.equal is False:
        yield phrase("next", what=phrase("next start"))
    elif row is not None:
        words = mine.path, row.record_path or row.my_path or "?", golden.path
        left, path, right = (shlex.quote(printable(word)) for word in words)
        yield phrase("next", what=phrase("next show", mine=left, path=path, golden=right))
    elif summary.verdicts[Kind.INHERITED] and not loaded:
        yield phrase("next", what=phrase("next load", golden=printable(golden.path)))
    elif summary.nothing_wrong and not _unread(mine, golden):
        yield phrase("next", what=phrase("next nothing"))


def show_missing(title: str, origin: Origin) -> None:
    """Say on stderr what is missing from a file: its end, damaged parts, what the writer left
    out."""
    out = console(sys.stderr)

    def say(text: str) -> None:
        out.print(Text(f"{title} {printable(origin.path)} {text}"), soft_wrap=True)

    def first(gap: Gap) -> str:
        return f"first {printable(gap.path)}: {printable(gap.reason)}"

    if origin.finished is False:
        last = printable(origin.last_record)
        say(f"is unfinished: its last record is {last}; compared as far as it goes")
    if origin.unreadable.count:
        parts = counted(origin.unreadable.count, "unreadable part")
        say(f"has {parts}, {first(origin.unreadable)}")
    if origin.left_out.count:
        values = counted(origin.left_out.count, "value")
        say(f"lacks {values} its writer left out, {first(origin.left_out)}")


def counted(count: int, thing: str) -> str:
    """A number of things, in the plural unless there is one."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def device_name(code: int | None) -> str:
    """The name of a `DeviceType`."""
    if code is None:
        return "no tensors"
    return DEVICE_NAMES.get(code, f"device type {code}")


def _table(rows: list[Row], out: Console) -> Table:
    """The rows as a table; a narrow terminal gets fewer columns, so that paths stay readable."""
    wide = out.width >= WIDE
    table = Table(box=None, pad_edge=False)
    table.add_column(phrase("seqid"), justify="right", overflow="fold")
    table.add_column(phrase("tensor"), overflow="fold")  # an ellipsis is no sign of every console
    table.add_column(phrase("verdict"), overflow="fold", no_wrap=True)
    titles = ["margin", "error", "allowed", *["worst at", "my dump", "golden"] * wide]
    for title in titles:
        table.add_column(phrase(title), justify="right", overflow="fold", no_wrap=True)
    for row in rows:
        m, verdict = row.metrics, row.verdict
        cells = [str(row.index), Text(printable(row.my_path or "?")), phrase(verdict.kind.value)]
        margin = "" if verdict.margin is None else f"{verdict.margin:.3g}"
        error = m.max_absolute if verdict.actual is None else verdict.actual
        allowed = "" if verdict.allowed is None else number(verdict.allowed)
        cells += [margin, number(error), allowed]
        if wide:
            cells += ["", "", ""] if m.worst is None else _worst(row)
        table.add_row(*cells)
    return table


def _worst(row: Row) -> list[str]:
    """The element that differs most: its index, and both values."""
    index, mine, golden = row.metrics.worst
    return [shape_text(index), element(mine, row.dtype), element(golden, row.dtype)]
