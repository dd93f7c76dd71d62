"""Steps that overflow, their dumps, and what a scan says of one, for several test files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from compare.overflow.scan import Scanned, scan
from dumper.reader import open_dump

HALF = torch.float16


def recorded(path: Path, step: Callable[[], object], **options: object) -> Path:
    with torch.utils.dumper(use_dump=True, dump_path=str(path), **options):
        step()
    return path


def scanned(path: Path) -> Scanned:
    with open_dump(path) as opened:
        return scan(opened)


def t5() -> None:
    data = torch.ones(2, 4, dtype=HALF)
    data[0] = torch.tensor([181.0, 181.0, 1.0, 0.0])
    weight = torch.ones(3, 4, dtype=HALF)
    weight[1] = torch.tensor([183.0, 183.0, 0.0, 0.0])
    hidden = torch.nn.functional.linear(data, weight)
    torch.nn.functional.layer_norm(hidden, (3,)).sum()
