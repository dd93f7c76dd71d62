"""One process of the dump benchmark: a GPT step plain, then under a dumper; prints JSON.

    python gpt_step.py ours|msprobe FOLDER LAYERS

A process each, because msprobe wraps torch's functions for good. Both are timed on their second
dumped step: the first one pays for imports and wrapping.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

PLAIN_RUNS = 7


class Block(nn.Module):
    """A causal transformer block with scaled_dot_product_attention.

    after_mlp: modules behind the second linear layer of its MLP (a dropout).
    """

    def __init__(self, width: int, heads: int, *after_mlp: nn.Module) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), *after_mlp
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


def make(
    layers: int, width: int = 256, device: str = "cpu", batch: tuple[int, int] = (4, 64)
) -> tuple[nn.Module, Callable[[], None]]:
    """The model (4 heads, vocabulary 1000) and its step on a batch of sequences."""
    torch.manual_seed(0)
    blocks = [Block(width, 4) for _ in range(layers)]
    model = nn.Sequential(nn.Embedding(1000, width), *blocks, nn.Linear(width, 1000)).to(device)
    tokens = torch.randint(0, 1000, batch).to(device)
    targets = torch.randint(0, 1000, (batch[0] * batch[1],)).to(device)

    def step() -> None:
        model.zero_grad()
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets).backward()

    return model, step


def seconds(run: Callable[[], None]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def ours(folder: Path, step: Callable[[], None]) -> tuple[float, int, int]:
    """Seconds of a dumped step, closing the file included; tensors it recorded, and stored."""
    import dumper

    def dumped(path: Path) -> None:
        with dumper.dumper(use_dump=True, dump_path=path):
            step()

    dumped(folder / "first.h5")
    elapsed = seconds(lambda: dumped(folder / "second.h5"))
    with dumper.open_dump(folder / "second.h5") as dump:
        tensors = [t for r in dump.records for t in (*r.inputs, *r.outputs)]
        return elapsed, len(tensors), len({tensor.address for tensor in tensors})


def msprobe(folder: Path, model: nn.Module, step: Callable[[], None]) -> tuple[float, int, int]:
    """The same for msprobe's task `tensor` at level L1."""
    from msprobe.pytorch import PrecisionDebugger

    config = {
        "task": "tensor",
        "dump_path": str(folder / "msprobe"),
        "rank": [],
        "step": [],
        "level": "L1",
        "tensor": {"scope": [], "list": [], "data_mode": ["all"]},
    }
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    debugger = PrecisionDebugger(config_path=str(path))

    def dumped() -> None:
        debugger.start(model=model)
        step()
        debugger.stop()
        debugger.step()

    dumped()
    elapsed = seconds(dumped)
    files = len(list((folder / "msprobe" / "step1").rglob("*.pt")))
    return elapsed, files, files


def main() -> None:
    """Time it and print one line of JSON."""
    side, folder, layers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    model, step = make(layers)
    step()
    plain = statistics.median(seconds(step) for _ in range(PLAIN_RUNS))
    found = ours(folder, step) if side == "ours" else msprobe(folder, model, step)
    print(
        json.dumps(
            {"plain_s": plain, **dict(zip(("dumped_s", "recorded", "stored"), found, strict=True))}
        )
    )


if __name__ == "__main__":
    main()
