"""Measure ours against a named baseline: scripts/bench NAME [--quick] [--runs N] [--json FILE].

Ours and the baseline run in turn, several times; the table shows medians. Its last line, `NAME
ratio=R`, says how many times better ours is in the worst of the cases that have a limit. The JSON
file has every single run.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path

import click
from benchmarks import Case, Missing
from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).resolve().parent / "benchmarks"
NAMES = ("compare", "convert", "dump", "npu", "overflow")
PACKAGES = ("numpy", "h5py", "numba", "torch")


@click.command()
@click.argument("name", type=click.Choice(NAMES))
@click.option("--quick", is_flag=True, help="Small sizes: does it run, not how fast is it.")
@click.option("--runs", default=3, type=click.IntRange(min=1), help="Runs of each side.")
@click.option("--json", "target", type=click.Path(dir_okay=False), help="Write every run to FILE.")
def bench(name: str, quick: bool, runs: int, target: str | None) -> None:
    """Run the benchmark NAME and print how many times better than its baseline ours is."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        try:
            cases = importlib.import_module(f"benchmarks.{name}").cases(Path(folder), quick)
        except Missing as missing:
            click.echo(f"bench: {missing}", err=True)
            sys.exit(2)
        results = [measure(case, runs, warm=not quick) for case in cases]
    ratio = min(result["ratio"] for result in results if result["limit"])
    show(results)
    click.echo(f"{name} ratio={ratio:.2f}")
    if target:
        report = {
            "name": name,
            "quick": quick,
            "ratio": ratio,
            "cases": results,
            "machine": machine(),
            "versions": versions(),
        }
        Path(target).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def measure(case: Case, runs: int, warm: bool) -> dict:
    """Run both sides in turn. warm: run ours once more before, uncounted, to fill caches."""
    if warm:
        case.ours()
    ours, theirs = [], []
    for _ in range(runs):
        ours.append(case.ours())
        theirs.append(case.theirs())
    ratio = statistics.median(theirs) / statistics.median(ours)
    return {
        "case": case.name,
        "size": case.size,
        "baseline": case.baseline,
        "unit": case.unit,
        "limit": case.limit,
        "ours": ours,
        "theirs": theirs,
        "ratio": ratio,
    }


def show(results: list[dict]) -> None:
    """Print the table of medians."""
    out = Console() if sys.stdout.isatty() else Console(width=200)
    table = Table("case", "size", "baseline", "unit", box=None, pad_edge=False)
    for title in ("ours", "baseline", "ratio"):
        table.add_column(title, justify="right")
    for result in results:
        medians = (statistics.median(result[key]) for key in ("ours", "theirs"))
        numbers = (f"{value:.3f}" for value in (*medians, result["ratio"]))
        table.add_row(result["case"], result["size"], result["baseline"], result["unit"], *numbers)
    out.print(table)


def machine() -> dict:
    """Processor, cores and system; nothing that names the host."""
    cpu = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = models[0].partition(":")[2].strip() if models else cpu
    return {"cpu": cpu, "cores": os.cpu_count(), "system": platform.system()}


def versions() -> dict:
    """Versions of Python and of the packages that do the work, those that are installed."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    bench()
