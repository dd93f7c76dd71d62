"""Feed msaccucmp with hostile files and look for faults: scripts/fuzz [--files N] [--seed N].

Small dumps of every kind (fuzz_seeds.py) are damaged where it counts (fuzz_bytes.py) or get hostile
content that is sound HDF5 (fuzz_hostile.py), and every command runs over each (fuzz_worker.py). A
fault is a traceback, an exit status other than 0, 1 and 2, an error without words, a control
character in what is printed or a formula in a csv, a value of a file that must not be read, a file
written elsewhere than in the output folder, a command that takes more than 10 s or 1 GiB, and the
death of the process. What kills or blocks a process of the fuzzer is tried again with the program
itself, which has a process for each command: where that ends with a message, it is contained, and
where it ends well, HDF5 was spoilt by a file before; neither is a fault, and both are counted.
Prints a line for each kind of fault. Ends with 0 without faults, else 1.

File N of a seed is always the same but for the times that HDF5 notes: --file N runs it alone,
--keep DIR keeps what had a fault.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

import click
from fuzz_bytes import map_of
from fuzz_seeds import make_seeds
from fuzz_worker import MEMORY, Fault, Seed, serve
from rich.console import Console
from rich.progress import Progress

SECONDS = 10  # that one command may take
_START = 120  # seconds that a process may take to start: it may have to compile
_LOOK = 0.2  # seconds between two looks at the processes
_SPAWN = multiprocessing.get_context("spawn")
_MEMORY = "memory"
_PROGRAM = Path(__file__).resolve().with_name("msaccucmp.py")
_STACK = 12  # lines of a dead process's stack that are shown


@click.command()
@click.option("--files", default=20_000, type=click.IntRange(min=1), show_default=True)
@click.option("--seed", default=0, show_default=True, help="Of all chance.")
@click.option("--jobs", default=2, type=click.IntRange(min=1), help="Processes.", show_default=True)
@click.option("--quick", is_flag=True, help="80 files: does it run.")
@click.option("--file", "only", type=click.IntRange(0), help="Only the file of this number.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep files here.")
def fuzz(
    files: int, seed: int, jobs: int, quick: bool, only: int | None, keep: Path | None
) -> None:
    """Run msaccucmp over hostile files and print what it did wrong."""
    numbers = [only] if only is not None else range(80 if quick else files)
    counts: Counter[str] = Counter()
    first: dict[str, tuple[int, Fault]] = {}
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(os.path.realpath(name))
        seeds = [_seed(path) for path in make_seeds(folder)]
        pool = Pool(folder, keep, serve, (seed, seeds))
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            done = pool.run(numbers, min(jobs, len(numbers)))
            for number, faults in bar.track(done, len(numbers), description="fuzz"):
                counts.update({fault.kind for fault in faults})
                for fault in faults:
                    first.setdefault(fault.kind, (number, fault))
    for kind, count in counts.most_common():
        number, fault = first[kind]
        click.echo(f"{count} x {kind}: first --file {number}, {fault.command!r}")
        if only is not None or keep is not None:
            click.echo(fault.detail)
    faults = sum(counts.values())
    click.echo(
        f"fuzz files={len(numbers)} faults={faults} seed={seed} contained={pool.contained} "
        f"spoilt={pool.spoilt}"
    )
    sys.exit(1 if counts else 0)


def _seed(path: Path) -> Seed:
    data, beside = path.read_bytes(), Path(f"{path}.journal")
    return Seed(path.stem, data, beside.read_bytes() if beside.exists() else None, map_of(data))


@dataclass
class Worker:
    """A process. number: of the file it has. arguments: of the command it runs now, and since when;
    none while it starts."""

    connection: Connection
    process: multiprocessing.process.BaseProcess
    folder: Path
    number: int = -1
    arguments: tuple[str, ...] = ()
    since: float = field(default_factory=time.monotonic)


class Pool:
    """Processes that are given numbers of files; one that dies or hangs is replaced."""

    def __init__(
        self,
        folder: Path,
        keep: Path | None,
        serve: Callable[..., None],
        given: tuple[object, ...],
        seconds: float = SECONDS,
    ) -> None:
        """folder: for their working directories. serve, given: what each runs, and its arguments
        after the connection and its own directory."""
        self._folder, self._keep = folder, keep
        self._serve, self._given, self._seconds = serve, given, seconds
        self._workers: dict[Connection, Worker] = {}
        self._started = 0
        self.contained = self.spoilt = 0

    def run(self, numbers: Iterable[int], jobs: int) -> Iterator[tuple[int, list[Fault]]]:
        """Each number with its faults, as they come."""
        waiting = iter(numbers)
        for _ in range(jobs):
            self._give(self._start(), waiting)
        while self._workers:
            for connection in wait(list(self._workers), _LOOK):
                worker = self._workers[connection]
                try:
                    news = connection.recv()
                except EOFError:
                    yield from self._lost(worker, "", waiting)
                    continue
                if isinstance(news, tuple):
                    worker.arguments, worker.since = news, time.monotonic()
                    continue
                yield worker.number, self._kept(worker, news)
                self._give(worker, waiting)
            for worker in list(self._workers.values()):
                if why := self._too_much(worker):
                    yield from self._lost(worker, why, waiting)

    def _start(self) -> Worker:
        ours, theirs = _SPAWN.Pipe()
        self._started += 1
        folder = self._folder / f"worker{self._started}"
        arguments = theirs, folder, *self._given
        process = _SPAWN.Process(target=self._serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return Worker(ours, process, folder)

    def _give(self, worker: Worker, waiting: Iterator[int]) -> None:
        number = next(waiting, None)
        if number is None:
            self._workers.pop(worker.connection, None)
            worker.connection.close()
            worker.process.join()
            return
        worker.number, worker.arguments, worker.since = number, (), time.monotonic()
        try:
            worker.connection.send(number)
        except OSError:  # it ended after the last one, for its memory
            self._workers.pop(worker.connection, None)
            worker.process.join()
            worker = self._start()
            worker.number = number
            worker.connection.send(number)
        self._workers[worker.connection] = worker

    def _lost(
        self, worker: Worker, why: str, waiting: Iterator[int]
    ) -> Iterator[tuple[int, list[Fault]]]:
        del self._workers[worker.connection]
        if why:
            worker.process.kill()
        worker.process.join()
        worker.connection.close()
        stack = worker.folder / "stack"
        lines = stack.read_text().splitlines() if stack.exists() else []
        place = next((line.strip() for line in lines if "File" in line), "no place")
        status = _alone(worker) if worker.arguments and why != _MEMORY else None
        if status is not None:
            self.contained += status == 2
            self.spoilt += status != 2
            yield worker.number, []
        else:
            name = next(iter(worker.arguments), "start")
            kind = f"{why} in {name}" if why else f"died with {worker.process.exitcode} at {place}"
            fault = Fault(kind, " ".join(worker.arguments), "\n".join(lines[:_STACK]))
            yield worker.number, self._kept(worker, [fault])
        shutil.rmtree(worker.folder, ignore_errors=True)
        self._give(self._start(), waiting)

    def _too_much(self, worker: Worker) -> str:
        """Why a process must end: it hangs, or has taken too much memory; else nothing."""
        limit = self._seconds if worker.arguments else _START
        if time.monotonic() - worker.since > limit:
            return f"over {self._seconds} s"
        try:
            pages = int(Path(f"/proc/{worker.process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):  # it has ended, or there is no /proc
            return ""
        return _MEMORY if pages * os.sysconf("SC_PAGE_SIZE") > MEMORY else ""

    def _kept(self, worker: Worker, faults: list[Fault]) -> list[Fault]:
        if faults and self._keep:
            target = self._keep / str(worker.number)
            target.mkdir(parents=True, exist_ok=True)
            for path in (worker.folder / "box").glob("*.h5*"):
                shutil.copy(path, target)
            (target / "faults").write_text("\n\n".join("\n".join(fault) for fault in faults))
        return faults


def _alone(worker: Worker) -> int | None:
    """The program's own exit status on what kills or blocks a process; None where it does not end
    as it must either."""
    box, began = worker.folder / "box", time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, _PROGRAM, *worker.arguments],
            cwd=box if box.exists() else None,
            capture_output=True,
            timeout=3 * SECONDS,
        )
    except subprocess.TimeoutExpired:
        return None
    lines = done.stderr.splitlines()
    if any(line.startswith(b"Traceback") for line in lines):
        return None
    if done.returncode == 2:
        return 2 if any(line.startswith(b"msaccucmp: error: ") for line in lines) else None
    in_time = time.monotonic() - began < SECONDS
    return done.returncode if done.returncode in (0, 1) and in_time else None


if __name__ == "__main__":
    fuzz()
