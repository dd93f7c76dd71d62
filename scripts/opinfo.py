"""How much of PyTorch computes the same on npu as on the CPU: scripts/opinfo [--op PART].

Measures every pair of PyTorch's OpInfo database (opinfo_pairs.py). Pairs that are not bit-equal
must be listed in opinfo_exceptions.txt, under one of REASONS; none may be listed that is equal.
Ends with 0, or 1 where a pair is not as listed or fewer than 99 % are equal, or 2 for trouble.

Processes measure, one pair at a time, so that an op that kills its process loses no other.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path

import click
import torch
from opinfo_pairs import ABSENT, DTYPES, EQUAL, OPS, Pair, measure, pairs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import npu_core

EXCEPTIONS = Path(__file__).resolve().with_name("opinfo_exceptions.txt")
REASONS = (
    "no sparse tensors on npu",
    "PyTorch demands a CPU tensor on every accelerator",
    "another path off the CPU",
)
REQUIRED = 0.99  # of the pairs that run on the CPU
_SPAWN = multiprocessing.get_context("spawn")


@click.command()
@click.option("--op", "part", default="", help="Only ops with PART in their name; no rate then.")
@click.option("--jobs", default=2, type=click.IntRange(min=1), help="Processes.")
def opinfo(part: str, jobs: int) -> None:
    """Measure npu against the CPU over PyTorch's OpInfo database."""
    todo = list(pairs(part))
    if not todo:
        raise click.UsageError(f"no op of the database has {part!r} in its name")
    try:
        exceptions = read_exceptions(EXCEPTIONS)
    except ValueError as error:
        click.echo(f"opinfo: {error}", err=True)
        sys.exit(2)
    outcomes = {}
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for pair, outcome in progress.track(measured(todo, jobs), len(todo), description="opinfo"):
            outcomes[pair] = outcome
    show(outcomes, exceptions)
    wrong = wrongs(outcomes, exceptions)
    for line in wrong:
        click.echo(line)
    equal, ran = rate(outcomes)
    click.echo(f"opinfo: {equal} of {ran} pairs equal, {100 * equal / max(ran, 1):.2f} %")
    sys.exit(1 if wrong or (not part and equal < REQUIRED * ran) else 0)


def read_exceptions(path: Path) -> dict[Pair, str]:
    """The listed pairs and their reasons.

    Raises ValueError with the line's number for an unknown reason or pair and for a pair listed
    twice.
    """
    found: dict[Pair, str] = {}
    reason = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        where, words = f"{path.name} line {number}", line.split()
        if not words or line.startswith("#"):
            continue
        if line.startswith("["):
            reason = line.strip("[] ")
            if reason not in REASONS:
                raise ValueError(f"{where}: no reason {reason!r}; choose of {', '.join(REASONS)}")
            continue
        for dtype in words[2:]:
            pair = Pair(words[0], words[1], dtype)
            names = [str(d).removeprefix("torch.") for d in DTYPES.get(pair.direction, ())]
            if reason is None or pair.op not in OPS or dtype not in names:
                raise ValueError(f"{where}: no pair {pair} under a reason")
            if pair in found:
                raise ValueError(f"{where}: {pair} is listed twice")
            found[pair] = reason
    return found


def wrongs(outcomes: dict[Pair, str], exceptions: dict[Pair, str]) -> list[str]:
    """One line for each measured pair that is not as the exceptions have it."""
    lines = []
    for pair, outcome in outcomes.items():
        sound = outcome in (EQUAL, ABSENT)
        if sound and pair in exceptions:
            lines.append(f"{pair}: {outcome}, but listed as an exception; remove it from the list")
        elif not sound and pair not in exceptions:
            lines.append(f"{pair}: {outcome}")
    return lines


def rate(outcomes: dict[Pair, str]) -> tuple[int, int]:
    """How many pairs are equal, and how many run on the CPU."""
    counts = Counter(outcomes.values())
    return counts[EQUAL], len(outcomes) - counts[ABSENT]


def show(outcomes: dict[Pair, str], exceptions: dict[Pair, str]) -> None:
    """Print the counts by direction and dtype, and the exceptions by reason."""
    out = Console() if sys.stdout.isatty() else Console(width=100)
    table = Table("", "dtype", box=None, pad_edge=False)
    for title in ("pairs", "equal", "exceptions"):
        table.add_column(title, justify="right")
    for direction, dtypes in DTYPES.items():
        for dtype in (str(d).removeprefix("torch.") for d in dtypes):
            chosen = {p: o for p, o in outcomes.items() if p[1:] == (direction, dtype)}
            equal, ran = rate(chosen)
            listed = sum(pair in exceptions for pair in chosen)
            table.add_row(direction, dtype, str(ran), str(equal), str(listed))
    out.print(table)
    for reason, count in Counter(exceptions[p] for p in outcomes if p in exceptions).items():
        out.print(f"exceptions: {count} {reason}", highlight=False)


def serve(connection: Connection) -> None:
    """What a process does: measure each pair it is sent, until the other end is closed."""
    logging.getLogger("npu_core").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    npu_core.use("exact")
    while True:
        try:
            pair = connection.recv()
        except EOFError:
            return
        connection.send(measure(pair))


def measured(
    todo: Iterable[Pair], jobs: int, serve: Callable[[Connection], None] = serve
) -> Iterator[tuple[Pair, str]]:
    """Each pair with its outcome, as they come; the death of a process is the pair's outcome."""
    waiting = iter(todo)
    busy: dict[Connection, tuple[Pair, multiprocessing.process.BaseProcess]] = {}

    def give(connection: Connection, process: multiprocessing.process.BaseProcess) -> None:
        pair = next(waiting, None)
        if pair is None:
            connection.close()
            process.join()
        else:
            connection.send(pair)
            busy[connection] = pair, process

    for _ in range(jobs):
        give(*_start(serve))
    while busy:
        for connection in wait(list(busy)):
            pair, process = busy.pop(connection)
            try:
                outcome = connection.recv()
                again = connection, process
            except EOFError:
                process.join()
                outcome = f"the process died with exit code {process.exitcode}"
                again = None
            yield pair, outcome
            give(*(again or _start(serve)))


def _start(
    serve: Callable[[Connection], None],
) -> tuple[Connection, multiprocessing.process.BaseProcess]:
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return ours, process


if __name__ == "__main__":
    opinfo()
