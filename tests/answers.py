"""Dumps of steps, and what a comparison of two of them comes to, for the tests of the answer.

`answer` asks the comparison itself, for rows, matches and the summary; `told` asks the program, for
what it prints, its exit status and its json.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from click.testing import CliRunner
from torch import nn

from compare.alignment import Match
from compare.cli import cli
from compare.engine import compare_dumps
from compare.judging import Kind
from compare.loss_scale import loss_scale
from compare.pairing import pairing_of
from compare.row import Row, Status
from compare.start import Start, flags_of
from compare.summary import Summary
from dumper import dumper, open_dump
from dumper.reader import Record


@dataclass(frozen=True)
class Answer:
    """What a comparison comes to. records: of mine, by path."""

    summary: Summary
    rows: list[Row]
    matches: list[Match]
    records: dict[str, Record]

    def wrong(self) -> list[str]:
        """Each row that differs, or differs unexplained, with the reason, to be shown."""
        return [
            f"{row.my_path}: {row.verdict.kind.value}, {row.verdict.code}, {row.verdict.reason}"
            for row in self.rows
            if row.verdict.kind is Kind.DIFFERS
            or row.verdict.kind is Kind.CANNOT_TELL
            and row.status is Status.DIFFERS
        ]

    def of(self, path: str) -> list[Row]:
        """The rows of the outputs of one record of mine."""
        return [row for row in self.rows if row.record_path == path and row.side == "output"]

    def match(self, path: str) -> Match:
        """What a record of mine belongs to."""
        return next(m for m in self.matches if any(record.path == path for record in m.mine))


def answer(mine: Path, golden: Path) -> Answer:
    """Compare two dumps as `msaccucmp compare` does, without its files."""
    with open_dump(mine) as a, open_dump(golden) as b:
        pairing = pairing_of(a, b)
        scale = loss_scale(pairing.matches)
        summary = Summary(Start(flags_of(a.environment, b.environment), scale))
        rows = list(compare_dumps(a, b, pairing=pairing, scale=scale))
        for row in rows:
            summary.add(row)
        records = {record.path: record for record in a.records}
        return Answer(summary, rows, pairing.matches, records)


class Told(NamedTuple):
    """What the program said. result: its json; text: what people read."""

    status: int
    text: str
    complaint: str
    json: Path
    csv: Path

    @property
    def result(self) -> dict[str, Any]:
        """The whole json."""
        return json.loads(self.json.read_text(encoding="utf-8"))

    @property
    def summary(self) -> dict[str, Any]:
        """Its summary."""
        return self.result["summary"]

    def row(self, number: int) -> dict[str, Any]:
        """The row of that number in the csv."""
        found = self.result
        return next(r for r in (*found["rows"], *found["unpaired"]) if r["row"] == number)


def told(mine: Path, golden: Path, out: Path, *more: str) -> Told:
    """`msaccucmp compare` into the folder `out`."""
    words = ["compare", "-m", mine, "-g", golden, "-out", out, *more]
    done = CliRunner().invoke(cli, list(map(str, words)))
    assert done.exit_code in (0, 1), done.output
    paths = dict(line.split(": ", 1) for line in done.stdout.splitlines()[-2:])
    return Told(
        done.exit_code, done.stdout, done.stderr, Path(paths["json"]), Path(paths["result"])
    )


def record(step: Callable[[], object], path: Path, source: Path | None = None) -> Path:
    """Run a step under the dumper. source: the dump whose inputs each op is fed, in load mode."""
    mode = {"use_load": True, "load_file_path": source} if source else {"use_dump": True}
    with dumper(dump_path=path, **mode):
        step()
    return path


class Trainer:
    """A small classifier that has trained one step, so that its optimizer has a state.

    A call trains the next one. Attributes that may be changed: `autocast`, a dtype; `backward`,
    which is given the loss.
    """

    def __init__(self, device: str = "cpu") -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16), nn.Linear(16, 4)
        ).to(device)
        self.batch = torch.randn(5, 8).to(device)
        self.labels = torch.randint(0, 4, (5,)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, foreach=False)
        self.autocast: torch.dtype | None = None
        self.backward: Callable[[torch.Tensor], object] = torch.Tensor.backward
        self.device = device
        self()

    def __call__(self) -> None:
        """One step."""
        self.optimizer.zero_grad()
        with torch.autocast(self.device, self.autocast, enabled=self.autocast is not None):
            loss = nn.functional.cross_entropy(self.model(self.batch), self.labels)
        self.backward(loss)
        self.optimizer.step()
