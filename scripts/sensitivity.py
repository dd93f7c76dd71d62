"""What the derived tolerance lets pass and what it sees: scripts/sensitivity [--family NAME ...].

Three tables in Markdown, for docs/benchmarks.md: what is said of healthy pairs of runs (false
alarms), the smallest planted error that is called wrong, by class and dtype, and how many planted
faults are. Ends with 1 where a healthy op is called wrong, or a fault is not that changed its op by
more than rounding.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

import families  # noqa: E402
from sensitivities import alarms, faults, planted  # noqa: E402

from compare.judging import Kind  # noqa: E402

PARTS = ("alarms", "planted", "faults")


@click.command()
@click.option("--family", "chosen", multiple=True, type=click.Choice(list(families.FAMILIES)))
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), help="Not all three.")
@click.option("--by-op", is_flag=True, help="Planted errors by op, not by class.")
def sensitivity(chosen: tuple[str, ...], parts: tuple[str, ...], by_op: bool) -> None:
    """Measure false alarms and what is seen, over the tests' model families."""
    warnings.simplefilter("ignore")
    wanted, names = parts or PARTS, list(chosen or families.FAMILIES)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="sensitivity-") as name:
        folder = Path(name)
        if "alarms" in wanted:
            rows, lines = alarms.measure(names, folder)
            show(["pair", *(kind.value for kind in Kind), "by default"], rows)
            wrong += lines
        if "planted" in wanted:
            show_planted(planted.measure(names, folder), by_op)
        if "faults" in wanted:
            columns = ("planted", "changed", "below rounding", "flagged")
            for pair in faults.PAIRS:
                counts, lines = faults.measure(names, folder, pair)
                rows = [[kind, *(str(count[c]) for c in columns)] for kind, count in counts.items()]
                show([f"fault, {pair[0]} against {pair[1]}", *columns], rows)
                wrong += lines
    for line in wrong:
        click.echo(line, err=True)
    sys.exit(1 if wrong else 0)


def show_planted(found: dict[planted.Key, list[tuple[float, float]]], by_op: bool) -> None:
    """The smallest errors seen: the median over outputs, and the worst."""
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for (kind, op, dtype), values in found.items():
        groups.setdefault((kind, op, dtype) if by_op else (kind, dtype), []).extend(values)
    rows = []
    for key, values in sorted(groups.items()):
        cells = [
            f"{statistics.median(side):.1e} / {max(side):.1e}" for side in zip(*values, strict=True)
        ]
        rows.append([*key, str(len(values)), *cells])
    head = ["class", "op", "dtype"] if by_op else ["class", "dtype"]
    show([*head, "outputs", "one element: median / worst", "all: median / worst"], rows)


def show(head: list[str], rows: Iterable[list[str]]) -> None:
    """A Markdown table."""
    for row in (head, ["---"] * len(head), *rows):
        click.echo("| " + " | ".join(row) + " |")
    click.echo()


if __name__ == "__main__":
    sensitivity()
