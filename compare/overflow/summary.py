"""What is left of the overflows that CANN reports: the summary file, and what people see.

The file has the original's lines in its order, for programs that read them, and after each what the
original leaves out: what the status says, and how many values are not right.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
from rich.table import Table
from rich.text import Text

from dumper.errors import printable
from ir2tbe.cann.opdebug import Entry
from ir2tbe.cann.status import Meaning, meanings

from ..program import say
from ..progress import console, show_table
from ..whole import adding
from .cann import OpTensor, Overflow, Read
from .phrases import Words

_RULER = "=" * 49 + "[{number}]" + "=" * 50
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECONDS = range(10**15, 10**16)
"""Timestamps that are a time."""


def write_summary(out: Path, found: list[Overflow]) -> Path:
    """Write `overflow_summary_<time>.txt` and return its path. Raises DumpError."""
    with adding(out, "overflow_summary", ".txt") as (file, paths):
        for overflow in found:
            file.write("".join(f"{line}\n" for line in lines_of(overflow)).encode())
    return paths[0]


def lines_of(overflow: Overflow) -> Iterator[str]:
    """The block of one overflow in the summary file."""
    yield _RULER.format(number=overflow.number)
    if overflow.match is not None:
        yield f"[{overflow.match.file.name.op_type}] {printable(overflow.op_name)}"
    for entry in overflow.entries:
        ids = f"[TaskId:{entry.fields['task_id']}][StreamId:{entry.fields['stream_id']}]"
        yield f" [{entry.unit}]{ids}[Status:{entry.shown_status}]"
        for meaning in meanings(entry):
            word = f" of word {meaning.word}" if len(entry.status) > 1 else ""
            yield f" -[{meaning.mask:#x}{word}: {meaning.text}]"
    yield f" [timestamp:{overflow.report.name.timestamp}]"
    for tensor in overflow.dump.tensors if overflow.dump else ():
        yield from _tensor_lines(tensor)


def _tensor_lines(tensor: OpTensor) -> Iterator[str]:
    what = f"[Format: {tensor.format}] [Shape: {tensor.shape}] [Dtype: {tensor.dtype}]"
    if tensor.error is not None:
        yield f" {tensor.title}"
        yield f" -{what} [Not read: {tensor.error.what}]"
        return
    yield f" {tensor.file}"
    if tensor.numbers is None:
        yield f" -{what}"
        return
    n = tensor.numbers
    least, greatest, mean = _extremes(tensor)
    yield f" -{what} [Max: {greatest}] [Min: {least}] [Mean: {mean}]"
    first = f" [First: {n.first}]" if n.first is not None else ""
    yield f" -[NaN: {n.nan}] [Inf: {n.infinite}] [Saturated: {n.saturated}]{first}"


def show_report(read: Read, words: Words) -> None:
    """Print what a report holds on stdout: its overflows, or that it has none, and what is odd."""
    path = printable(str(read.report.path))
    for note in read.notes:
        say(words("odd", path=path, note=note))
    if not read.overflows:
        say(words("quiet", path=path))
    for overflow in read.overflows:
        _show(overflow, words)


def _show(overflow: Overflow, words: Words) -> None:
    """Print one overflow: op, place, status in words, and its tensors in a table."""
    number, match, dump = overflow.number, overflow.match, overflow.dump
    if match is None:
        say(words("no op", number=number, folder=printable(str(overflow.report.path.parent))))
    else:
        kind, name = match.file.name.op_type, printable(overflow.op_name)
        say(words("op", number=number, type=kind, name=name))
    fields = overflow.entries[0].fields
    place = words(
        "place",
        task=fields["task_id"],
        stream=fields["stream_id"],
        time=time_of(overflow.report.name.timestamp),
    )
    say(f"    {place}")
    ids = [overflow.entries[0].known_id(name) for name in ("context_id", "thread_id")]
    if None not in ids:
        say(f"    {words('thread', context=ids[0], thread=ids[1])}")
    for entry in overflow.entries:
        say(f"    {_status(entry, words)}")
    if match is not None and match.missing:
        say(f"    {words('guessed', ids=', '.join(match.missing))}")
    if match is not None and match.others:
        say(f"    {words('others', count=match.others)}")
    if dump is not None and dump.tensors:
        show_table(console(sys.stdout), _table(dump.tensors, words))


def time_of(timestamp: int) -> str:
    """A file name's timestamp as a time; what is none as it is."""
    if timestamp not in _MICROSECONDS:
        return str(timestamp)
    time = _EPOCH + timedelta(microseconds=timestamp)
    return f"{time:%Y-%m-%d %H:%M:%S.%f} UTC"


def _status(entry: Entry, words: Words) -> str:
    shown = " ".join(map(hex, entry.status)) if len(entry.status) > 1 else str(entry.status[0])
    found = [_meaning(meaning, len(entry.status) > 1, words) for meaning in meanings(entry)]
    return words("status", unit=entry.unit, status=shown, meaning=words("semicolon").join(found))


def _meaning(meaning: Meaning, several: bool, words: Words) -> str:
    values = {"mask": hex(meaning.mask), "meaning": words(meaning.text)}
    return words("word", word=meaning.word, **values) if several else words("bits", **values)


def _table(tensors: list[OpTensor], words: Words) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in (f"    {words('tensor')}", words("dtype")):
        table.add_column(title, no_wrap=True)
    for title in (words("shape"), words("format")):
        table.add_column(title, overflow="fold")
    for title in (words("min"), words("max"), words("mean")):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    for tensor in tensors:
        cells = [f"    {tensor.title}", tensor.dtype, _index(tensor.shape), tensor.format]
        table.add_row(*(Text(printable(cell)) for cell in (*cells, *_cells(tensor, words))))
    return table


def _cells(tensor: OpTensor, words: Words) -> list[str]:
    if tensor.error is not None:
        return ["", "", "", words("unread")]
    n = tensor.numbers
    if n is None:
        return ["", "", "", ""]
    extremes = [_short(value) for value in (n.least, n.greatest, n.mean)]
    counts = (("NaN", n.nan), ("inf", n.infinite), (words("saturated"), n.saturated))
    odd = [words("count", number=number, what=what) for what, number in counts if number]
    if n.first is not None:
        odd.append(words("first", index=_index(n.first)))
    return [*extremes, words("comma").join(odd)]


def _short(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _extremes(tensor: OpTensor) -> list[str]:
    """Least, greatest and mean: integers whole, floats with the digits of float32, or of float64
    where they have as many. numpy's own float16 would say 6.55e+04 for 65504."""
    n, kind = tensor.numbers, tensor.plain
    part = kind.itemsize // 2 if kind.kind == "c" else kind.itemsize
    floats = np.float64 if kind.kind in "biu" or part > 4 else np.float32
    extreme = kind.type if kind.kind in "biu" else floats
    pairs = ((n.least, extreme), (n.greatest, extreme), (n.mean, floats))
    return ["NaN" if value is None else str(make(value)) for value, make in pairs]


def _index(index: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, index))}]"
