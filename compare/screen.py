"""What people see of one dump: `msaccucmp info` and `show`, as tables that fit the terminal.

Plain text, unwrapped, when the output is no terminal. Names come from files and are shown inert.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from dumper.errors import printable
from dumper.layout import PHASES

from .columns import number, share
from .info import Info, Share
from .progress import console
from .show import Case, Shown
from .terminal import WIDE
from .tree import MODEL, OUTSIDE, Flow, Node, walk
from .verify import Verdict

_FLOWS = 3
"""Tensors of a boundary that are named; more are counted."""

_USERS = 4
"""Users of a tensor that are named; more are counted."""

_PHASES = {"forward": "fwd", "backward": "bwd"}
"""Phases in a narrow terminal; of others the first three letters."""

_LABEL = "bold"


def show_info(info: Info) -> None:
    """Print what a dump holds: the facts line by line, then the heaviest ops and modules."""
    out = console(sys.stdout)
    facts = _grid()
    for label, text in _facts(info):
        facts.add_row(label, Text(printable(text)))
    out.print(facts)
    tables = (
        ("heaviest ops", "op", info.heaviest(info.ops)),
        ("heaviest modules", "module", info.heaviest(info.modules)),
    )
    for title, what, shares in tables:
        if shares:
            out.print()
            out.print(_heaviest(title, what, shares, info.stored_bytes))


def show_verdict(verdict: Verdict) -> None:
    """Print what `--verify` found, problems first."""
    out = console(sys.stdout)
    for path, what in verdict.problems[:20]:
        out.print(Text(f"{printable(path)}: {printable(what)}"), soft_wrap=True)
    if len(verdict.problems) > 20:
        out.print(f"and {len(verdict.problems) - 20} more")
    for note in verdict.notes:
        out.print(f"note: {note}", soft_wrap=True)
    checked = f"{verdict.records} records, {verdict.datasets} datasets checked"
    out.print(f"whole: {checked}" if verdict.whole else f"not whole: {checked}")


def show_tree(nodes: list[Node]) -> None:
    """Print modules, calls and what enters and leaves each; a narrow terminal gets less of it."""
    out = console(sys.stdout)
    wide = out.width >= WIDE
    table = _table("module, call", no_wrap=True)
    table.columns[0].overflow, table.columns[0].max_width = "ellipsis", 48 if wide else 32
    table.add_column("phase", no_wrap=True)
    table.add_column("ops", justify="right", no_wrap=True)
    for title in ("enters", "leaves"):
        table.add_column(title if wide else f"{title} + more", overflow="fold")
    for lead, below, node in walk(nodes):
        name = Text(lead, style="dim")
        name.append(_node_name(node), style=_LABEL if node.kind == "module" else "default")
        if not node.parts:
            table.add_row(name)
        for i, phase in enumerate(sorted(node.parts, key=_phase_order)):
            part = node.parts[phase]
            flows = [Text(_flows(side, wide)) for side in (part.entering, part.leaving)]
            start = Text(below, style="dim") if i else name
            short = phase if wide else _PHASES.get(phase, phase[:3])
            table.add_row(start, _text(short), str(part.ops), *flows)
    out.print(table)


def _phase_order(phase: str) -> tuple[int, str]:
    """Phases in the order of a step; what a file calls so besides comes last."""
    return (PHASES.index(phase) if phase in PHASES else len(PHASES)), phase


def show_case(case: Case) -> None:
    """Print one record: where it belongs, its tensors, their numbers and values."""
    out = console(sys.stdout)
    out.print(Text(printable(case.record.path), style=_LABEL), soft_wrap=True)
    facts = _grid()
    for label, text in _place(case):
        facts.add_row(label, Text(printable(text)))
    out.print(facts)
    if case.tensors:
        out.print()
        out.print(_tensors(case.tensors))
    counted = [shown for shown in case.tensors if shown.statistics]
    if counted:
        out.print()
        out.print(_numbers(counted))
        out.print()
        out.print(_values(counted))
    if measured := [shown for shown in counted if shown.metrics]:
        out.print()
        out.print(_metrics(measured))
        if apart := [shown for shown in measured if shown.worst]:
            out.print()
            out.print(_differences(apart))
    linked = [s for s in case.tensors if s.made_by or s.used_by or s.seen_by]
    if linked:
        out.print()
        out.print(_links(linked))


def size(count: int) -> str:
    """Bytes for people: `3.2 MB`."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def _grid() -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _facts(info: Info) -> Iterator[tuple[str, str]]:
    yield "file", f"{info.path}, {size(info.size)}"
    states = {True: "finished", None: "the writer does not say whether it is finished"}
    stops = f"unfinished: it stops after {info.last or 'nothing'}"
    yield "state", states.get(info.finished, stops)
    yield "made", ", ".join(_made(info))
    if devices := list(_devices(info)):
        yield "devices", "; ".join(devices)
    phases = [p for p in (*PHASES, "unknown") if info.phases[p]]
    if phases == ["unknown"]:
        yield "records", str(info.records)
    else:
        counts = ", ".join(f"{phase} {info.phases[phase]}" for phase in phases)
        yield "records", f"{info.records}: {counts}"
    if info.steps:
        yield "steps", _ranges(sorted(info.steps))
    if len(info.threads) > 1:
        yield "threads", str(len(info.threads))
    environment = info.environment
    if "rank" in environment:
        yield "rank", f"{environment['rank']} of {environment.get('world_size')}"
    links = f"; links save {size(info.linked_bytes)} ({info.linked} tensors)" * bool(info.linked)
    yield "tensors", f"{info.tensors - info.linked} stored, {size(info.stored_bytes)}{links}"
    yield "dtypes", _counts(info.dtypes) or "none"
    if info.described:
        total = sum(info.described.values())
        yield "described", f"{total} tensors without values here: {_counts(info.described)}"
    if info.uninitialised:
        yield "unwritten", f"{info.uninitialised} tensors hold memory that no op had written"
    if info.unmatched:
        yield "unmatched", f"{info.unmatched} ops had no recorded inputs"
    if info.omitted:
        (path, reason), count = info.omitted[0], len(info.omitted)
        yield "left out", f"{count} values, first {path}: {reason}"
    if info.skipped:
        (path, reason), count = info.skipped[0], len(info.skipped)
        yield "unreadable", f"{count} parts, first {path}: {reason}"


def _made(info: Info) -> Iterator[str]:
    environment = info.environment
    if environment.get("mode") == "overflow":
        yield "overflow check, of a free run"
    else:
        yield "load mode" if info.load_mode else "free run"
    for name in ("torch", "python", "hdf5"):
        if name in environment:
            yield f"{name} {environment[name]}"
    if "platform" in environment:
        yield str(environment["platform"])


def _devices(info: Info) -> Iterator[str]:
    for device, count in info.devices.most_common():
        known = info.environment.get(device)
        known = known if isinstance(known, dict) else {}
        chip = f" ({known['device']})" if "device" in known else ""
        faults = known.get("faults")
        planted = f", {len(faults)} planted faults" if isinstance(faults, list) and faults else ""
        yield f"{device}{chip}: {count} tensors{planted}"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def _ranges(numbers: list[int]) -> str:
    """`0-3, 7`."""
    runs: list[list[int]] = []
    for value in numbers:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _heaviest(title: str, what: str, shares: list[tuple[Any, Share]], total: int) -> Table:
    table = _table(title)
    for column in ("records", "tensors", "stored", "share"):
        table.add_column(column, justify="right", no_wrap=True)
    names = {None: OUTSIDE, "": MODEL} if what == "module" else {}
    for name, found in shares:
        cells = str(found.calls), str(found.tensors), size(found.stored)
        portion = f"{100 * found.stored / total:.1f} %"
        table.add_row(Text(printable(names.get(name, name))), *cells, portion)
    return table


def _node_name(node: Node) -> str:
    names = [_leaf(name, node.kind) for name in (node.name, *node.alike)]
    if node.kind == "calls":
        return f"{names[0]} ({len(node.alike)} calls)"
    text = names[0]
    if len(node.alike) > 1:
        text = f"{names[0]} … {names[-1].rpartition('.')[2]} ({len(node.alike)} alike)"
    return f"{text} ({', '.join(_plural(node.hidden, 'module'))})" if node.hidden else text


def _leaf(name: str, kind: str) -> str:
    """A name as it is read: modules stand below what they are in, and most calls are torch's."""
    name = printable(name)
    if kind == "module":
        return name if name.startswith("(") else name.rpartition(".")[2]
    return name.replace("torch.nn.functional.", "F.").replace("torch.", "")


def _flows(flows: Sequence[Flow], wide: bool) -> str:
    """`f32[2,16,32], 2 params`; in a narrow terminal `f32[2,16,32] +2`."""
    plain = [str(flow) for flow in flows if flow.name is None]
    if not wide:
        first = (plain or [str(flow) for flow in flows])[:1]
        return printable(" ".join(first + [f"+{len(flows) - 1}"] * (len(flows) > 1)))
    counts = Counter(plain)
    names = [f"{n}×{text}" if n > 1 else text for text, n in counts.items()]
    if len(names) > _FLOWS:
        rest = sum(list(counts.values())[_FLOWS - 1 :])
        names = [*names[: _FLOWS - 1], f"{rest} more"]
    return printable(", ".join(names + _plural(len(flows) - len(plain), "param")))


def _place(case: Case) -> Iterator[tuple[str, str]]:
    entry = case.record.entry
    if entry.phase is not None:
        thread = f", thread {entry.thread}" if entry.thread else ""
        yield "phase", f"{entry.phase}, step {entry.step}{thread}"
    if entry.api is not None:
        yield "call", entry.api
    if entry.module is not None:
        yield "module", entry.module or MODEL
    if entry.source is not None:
        yield "source", entry.source
    if entry.node is not None:
        yield "node", entry.node
    for side, title in (("input", "arguments"), ("output", "results")):
        found = [_argument(name, value) for at, name, value in case.arguments if at == side]
        if found:
            yield title, ", ".join(found)
    if case.partner is not None:
        yield "golden", case.partner.path


def _tensors(tensors: list[Shown]) -> Table:
    """What the tensors are; a column that nobody has anything in is not shown."""
    columns: dict[str, list[str]] = {
        "dtype": [shown.dtype for shown in tensors],
        "shape": [_sizes(shown.shape) for shown in tensors],
        "stride": [_sizes(shown.stride) for shown in tensors],
        "device": [shown.device or "" for shown in tensors],
        "format": [shown.format or "" for shown in tensors],
        "": [_remarks(shown) for shown in tensors],
    }
    columns = {title: cells for title, cells in columns.items() if any(cells)}
    table = _table("tensor", *columns)
    for shown, *cells in zip(tensors, *columns.values(), strict=True):
        table.add_row(_name(shown), *map(_text, cells))
    return table


def _remarks(shown: Shown) -> str:
    found = [shown.parameter, "uninitialised" if shown.uninitialised else None, shown.note]
    return "; ".join(filter(None, found))


def _numbers(tensors: list[Shown]) -> Table:
    table = _table("tensor")
    for title in ("min", "max", "mean", "norm", "NaN", "inf", "zero"):
        table.add_column(title, justify="right", no_wrap=True)
    for shown in tensors:
        s = shown.statistics
        cells = [_value(value) for value in (s.least, s.greatest, s.mean, s.norm)]
        table.add_row(_name(shown), *cells, str(s.nan), str(s.infinite), str(s.zero))
    return table


def _values(tensors: list[Shown]) -> Table:
    largest = not any(shown.metrics for shown in tensors)
    table = _table("tensor", "first values", *["largest"] * largest)
    for shown in tensors:
        dots = " …" if shown.statistics.size > len(shown.first) else ""
        first = ", ".join(map(_value, shown.first)) + dots
        worst = [f"{_sizes(one.index)}={_value(one.value)}" for one in shown.worst]
        table.add_row(_name(shown), _text(first), *[_text(", ".join(worst))] * largest)
    return table


def _metrics(tensors: list[Shown]) -> Table:
    table = _table("against golden")
    for title in ("RelativeEuclidean", "MaxAbsolute", "Cosine", "ExactMatch"):
        table.add_column(title, justify="right", no_wrap=True)
    for shown in tensors:
        m = shown.metrics
        numbers = (number(each) for each in (m.relative_euclidean, m.max_absolute, m.cosine))
        table.add_row(_name(shown), *numbers, share(m.exact))
    return table


def _differences(tensors: list[Shown]) -> Table:
    table = _table("differ most", "at")
    for title in ("mine", "golden", "difference"):
        table.add_column(title, justify="right", no_wrap=True)
    for shown in tensors:
        for i, one in enumerate(shown.worst):
            cells = map(_value, (one.value, one.golden, one.difference))
            table.add_row("" if i else _name(shown), _sizes(one.index), *cells)
    return table


def _links(tensors: list[Shown]) -> Table:
    table = _table("tensor", "made by", "used by")
    for shown in tensors:
        users = shown.used_by[:_USERS]
        rest = len(shown.used_by) - len(users)
        users += [f"{rest} more"] * bool(rest) + _plural(len(shown.seen_by), "view")
        table.add_row(_name(shown), _text(shown.made_by), _text(", ".join(users)))
    return table


def _plural(count: int, what: str) -> list[str]:
    return [f"{count} {what}" + "s" * (count > 1)] * bool(count)


def _table(first: str, *columns: str, no_wrap: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in (first, *columns):
        table.add_column(column, overflow="fold", no_wrap=no_wrap)
    return table


def _name(shown: Shown) -> Text:
    return Text(printable(f"{'in' if shown.side == 'input' else 'out':3} {shown.name}"))


def _text(value: str | None) -> Text:
    return Text(printable(value or ""))


def _sizes(sizes: Iterable[int | str] | None) -> str:
    return "" if sizes is None else f"[{','.join(map(str, sizes))}]"


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else str(value)
    return str(value)


def _argument(name: str, value: Any) -> str:
    if isinstance(value, dict) and "kind" in value:  # what the parts of a tensor make up
        coalesced = ", coalesced" if value.get("coalesced") else ""
        shape = f" {value['shape']}" if value.get("shape") else ""
        name = name.rpartition("/")[0] or name
        value = f"{value['kind']} {value.get('dtype')}{shape}{coalesced}"
    text = str(value)
    return f"{name}={text if len(text) <= 60 else text[:57] + '...'}"
