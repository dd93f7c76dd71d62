"""What people see of the table from ops to TBE ops: one op, who uses a TBE op, the ops of a file.

Plain text, unwrapped, when the output is no terminal. Names come from files and are shown inert.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table as Grid
from rich.text import Text

from dumper.errors import printable
from ir2tbe.support import BY_HAND, Op, State, Support
from ir2tbe.table import ACLNN_ONLY, Entry, Found, How, Step, Use

from .ir2tbe_words import Words
from .progress import console, show_table

_CONFIDENCE = "mark "
_EITHER = " | "


def show_found(name: str, found: Found, words: Words) -> None:
    """Print the entries of one op; those that say the same but their names are one."""
    out = console(sys.stdout)
    why = "" if found.sure else words(f"how {found.how.value}", name=printable(name))
    for entry, *others in _alike(found.entries):
        for line in _lines(entry, [each.name for each in others], why, words):
            out.print(Text(line), soft_wrap=True)
    if found.others:
        names = ", ".join(each.name for each in found.others)
        out.print(Text(words("others", names=names)), soft_wrap=True)


def show_users(tbe: str, uses: Sequence[Use], words: Words) -> None:
    """Print which ops use a TBE op, and where."""
    out = console(sys.stdout)
    count = len({use.entry.name for use in uses})
    out.print(Text(words("used", tbe=tbe, count=count)), soft_wrap=True)
    grid = _grid(*(words(f"{each} title") for each in ("op", "tbe", "confidence", "source")), "")
    for use in uses:
        support = Support(State.SEQUENCE, Found(How.EXACT, (use.entry,)))
        where = words(f"used {use.kind}", where=use.where)
        cells = use.entry.name, _tbe(support, words), _mark(support, words)
        grid.add_row(*map(Text, (*cells, _source(support, words), where)))
    show_table(out, grid)


def show_ops(path: str, ops: Sequence[Op], words: Words) -> None:
    """Print how many ops of a file there are of each state, then each, in their order."""
    out = console(sys.stdout)
    calls = sum(op.calls for op in ops)
    head = words("file", path=printable(path), count=len(ops), calls=calls)
    for line in (head, *_sums(ops, words)):
        out.print(Text(line), soft_wrap=True)
    titles = ("op", "calls", "tbe", "confidence", "source")
    grid = _grid(*(words(f"{each} title") for each in titles))
    for op in ops:
        support = op.support
        cells = printable(op.name), str(op.calls), _tbe(support, words)
        grid.add_row(*map(Text, (*cells, _mark(support, words), _source(support, words))))
    show_table(out, grid)


def _sums(ops: Sequence[Op], words: Words) -> Iterator[str]:
    counts: Counter[State] = Counter(op.support.state for op in ops)
    for state in State:
        if not counts[state]:
            continue
        inside = [op for op in ops if op.support.state is state]
        values = {
            "what": words(f"state {state.value}"),
            "count": counts[state],
            "calls": sum(op.calls for op in inside),
        }
        approximate = sum(op.support.approximate for op in inside)
        name = "sum approximate" if approximate else "sum"
        yield words(name, **values, approximate=approximate)


def _lines(entry: Entry, others: list[str], why: str, words: Words) -> Iterator[str]:
    also = words("overloads", names=", ".join(others)) if others else ""
    yield words("op", name=entry.name, ir=entry.ir) + also
    mark = words(f"{_CONFIDENCE}{entry.confidence}")
    if reasons := [each for each in (why, mark) if each]:
        yield "  " + words("approximate", why="; ".join(reasons))
    if entry.steps is None:
        yield "  " + words("aclnn only")
    elif not entry.steps:
        yield "  " + words("not known" if entry.unresolved else "none needed")
    for number, step in enumerate(entry.steps or (), 1):
        yield "  " + words("step", number=number, op=step.op) + "  " + _ports(step, words)
    for when, tbe in entry.variants:
        yield "  " + words("when", when=when, tbe=_sequence(tbe, words))
    for release, tbe in (entry.releases or {}).items():
        if tbe != entry.tbe:
            yield "  " + words("in release", release=release, tbe=_sequence(tbe, words))
    if entry.by_rules is not None:
        yield "  " + words("by rules", tbe=_sequence(entry.by_rules, words))
    if entry.unresolved:
        yield "  " + words("unresolved", names=", ".join(entry.unresolved))
    if entry.aclnn:
        yield "  " + words("aclnn", names=", ".join(entry.aclnn))
    if entry.note:
        yield "  " + words("note", text=entry.note)
    source = ", ".join(filter(None, (entry.source, entry.file))) or words("by hand")
    yield "  " + words("source", source=source, mark=entry.confidence)


def _ports(step: Step, words: Words) -> str:
    if step.inputs is None:
        return words("no ports")
    sides = (", ".join(side or ()) or words("empty") for side in (step.inputs, step.outputs))
    text = words("ports", **dict(zip(("inputs", "outputs"), sides, strict=True)))
    if step.attributes:
        text += words("attributes", attributes=", ".join(step.attributes))
    other = words("or", ops=", ".join(step.alternatives)) + "  " if step.alternatives else ""
    return other + text


def _alike(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Entries in groups of those that differ in their names alone."""
    groups: dict[object, list[Entry]] = {}
    for entry in entries:
        values = {name: value for name, value in vars(entry).items() if name not in ("name", "ir")}
        groups.setdefault(repr(values), []).append(entry)
    yield from groups.values()


def _tbe(support: Support, words: Words) -> str:
    """The sequence, or why there is none; all that it may be, where the overload is not known."""
    found = support.found
    if support.state in (State.UNKNOWN, State.COMPOSITE) or found is None:
        return words(f"state {support.state.value}")
    if support.state is State.ACLNN_ONLY:
        return words("aclnn", names=", ".join(found.entries[0].aclnn))
    known = [each for each in found.sequences if each is not None]
    return _EITHER.join(_sequence(each, words) for each in known)


def _sequence(tbe: Sequence[str], words: Words) -> str:
    return ", ".join(tbe) or words("empty")


def _mark(support: Support, words: Words) -> str:
    """How far it can be trusted, and of which op it is where that is another one."""
    found, entry = support.found, support.entry
    if found is None or entry is None:
        return "-"
    text = entry.confidence
    if found.how not in (How.EXACT, How.ANY_OVERLOAD):
        text = words("of", mark=text, name=entry.name)
    approximate = support.approximate and entry.confidence != ACLNN_ONLY
    return words("approximate mark", mark=text) if approximate else text


def _source(support: Support, words: Words) -> str:
    source = support.source
    return words("by hand") if source == BY_HAND else source or "-"


def _grid(*titles: str) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        grid.add_column(title, overflow="fold")
    return grid
