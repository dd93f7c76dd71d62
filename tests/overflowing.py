"""Steps that overflow, under the check."""

from __future__ import annotations

from pathlib import Path

import torch

from dumper import dumper

HALF = torch.float16
LINE = "IR: {} SeqId: {} is overflow!\n"


def product(device: str) -> torch.Tensor:
    """A matrix product of which one element is 66246 and the others fit."""
    a = torch.ones(2, 3, dtype=HALF)
    a[1] = torch.tensor([181.0, 1.0, 0.0])
    b = torch.ones(3, 2, dtype=HALF)
    b[:, 1] = torch.tensor([366.0, 0.0, 5.0])  # 181 * 366 = 66246
    return a.to(device) @ b.to(device)


def check(path: Path, run, **arguments):
    with dumper(check_overflow=True, dump_path=path, **arguments) as dump:
        run()
    return dump
