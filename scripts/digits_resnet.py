"""The demo's training step: a small ResNet on scikit-learn's handwritten digits.

Everything that decides the step (weights, batch, order) comes from one seed on the CPU and is moved
to the device afterwards, so that two devices start equal and every run has the same numbers.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class DigitsResNet(nn.Module):
    """Stem, three blocks, pooling, linear: 10 classes of 8x8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.blocks = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2), Block(32, 32, 1))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.pool(self.blocks(self.stem(x))).flatten(1))


class Step:
    """One training step, ready to run: `Step("cpu")()` returns the loss."""

    def __init__(self, device: str, batch: int = 64, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = DigitsResNet().to(device)
        digits = load_digits()
        images = torch.tensor(digits.images[:batch], dtype=torch.float32)[:, None] / 16
        self.images, self.labels = images.to(device), torch.tensor(digits.target[:batch]).to(device)
        # foreach=False: else the two devices would update their parameters by different ops.
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.1, momentum=0.9, foreach=False
        )

    def __call__(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()
