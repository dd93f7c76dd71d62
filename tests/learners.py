"""Two unlike models that learn something real in 200 steps: digits, and the next letter of a text.

The digits and the text come with scikit-learn. Every number that decides a run (weights, batches)
comes from one seed on the CPU, so that two devices are given the same task.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import sklearn
import torch
from digits_resnet import DigitsResNet
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

KINDS = ("conv", "transformer")
STEPS, LENGTH = 200, 32


class LetterTransformer(nn.Module):
    """A causal transformer block that predicts the next letter."""

    def __init__(self, letters: int, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.embed, self.place = nn.Embedding(letters, width), nn.Embedding(LENGTH, width)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.head = nn.Linear(width, letters)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        batch, length = letters.shape
        x = self.embed(letters) + self.place.weight[:length]
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        x = x + self.mlp(self.norm2(x))
        return self.head(self.norm3(x)).flatten(0, 1)


@cache
def _digits() -> tuple[torch.Tensor, torch.Tensor]:
    digits = load_digits()
    return torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(
        digits.target
    )


@cache
def _text() -> tuple[torch.Tensor, int]:
    files = sorted(Path(sklearn.__file__).parent.glob("datasets/descr/*.rst"))
    text = b"".join(file.read_bytes() for file in files)
    letters = {letter: i for i, letter in enumerate(sorted(set(text)))}
    return torch.tensor([letters[letter] for letter in text]), len(letters)


def _windows(text: torch.Tensor, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    windows = text[starts[:, None] + torch.arange(LENGTH + 1)]
    return windows[:, :-1], windows[:, 1:].flatten()


def model(kind: str, seed: int) -> nn.Module:
    """The untrained model."""
    torch.manual_seed(seed)
    return DigitsResNet() if kind == "conv" else LetterTransformer(_text()[1])


def batches(kind: str, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """STEPS batches to learn from; the last part of the data is held out."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        if kind == "conv":
            images, labels = _digits()
            chosen = torch.randint(0, 1300, (64,), generator=generator)
            yield images[chosen], labels[chosen]
        else:
            text = _text()[0][:-8000]
            yield _windows(
                text, torch.randint(0, len(text) - LENGTH - 1, (16,), generator=generator)
            )


def held_out(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What nobody learned from."""
    if kind == "conv":
        images, labels = _digits()
        return images[1300:], labels[1300:]
    text = _text()[0][-8000:]
    return _windows(text, torch.arange(0, len(text) - LENGTH - 1, LENGTH))


class Run(NamedTuple):
    """How a training ended."""

    accuracy: float  # percent of the held-out answers
    scales: list[float]  # the loss scale after every step


def train(
    kind: str,
    device: str,
    seed: int,
    scaler: torch.amp.GradScaler | None = None,
    weight: float = 1.0,
) -> Run:
    """Train for STEPS steps; with a scaler, in fp16 autocast.

    weight: of the loss; the learning rate makes up for it, so in exact numbers it changes nothing.
    """
    net = model(kind, seed).to(device)
    rate = {"conv": 0.05, "transformer": 0.5}[kind] / weight
    optimizer = torch.optim.SGD(net.parameters(), rate, momentum=0.9)
    scales = []
    for step, (inputs, targets) in enumerate(batches(kind, seed)):
        optimizer.param_groups[0]["lr"] = rate * (1 - step / STEPS)
        optimizer.zero_grad()
        with torch.autocast(device, torch.float16, enabled=scaler is not None):
            logits = net(inputs.to(device))
            loss = F.cross_entropy(logits, targets.to(device)) * weight
        if scaler is None:
            loss.backward()
            optimizer.step()
            continue
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    net.eval()
    inputs, targets = held_out(kind)
    with torch.no_grad(), torch.autocast(device, torch.float16, enabled=scaler is not None):
        right = net(inputs.to(device)).argmax(1).cpu() == targets
    return Run(100 * right.double().mean().item(), scales)
