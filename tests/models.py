"""Training steps that the tests run: every family the first version promises, on any device.

A step is made by `make(family, device)`: weights and data from one seed on the CPU, then moved.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from digits_resnet import DigitsResNet
from torch import nn

FAMILIES = ("resnet", "gpt", "lstm")


class GPTBlock(nn.Module):
    """A causal transformer block over an embedding, with scaled_dot_product_attention."""

    def __init__(self, vocabulary: int = 50, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(vocabulary, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return self.head(x + self.mlp(self.norm2(x))).flatten(0, 1)


class LSTMTagger(nn.Module):
    """A two-layer bidirectional LSTM with a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(12, 16, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0]).flatten(0, 1)


class Step:
    """A model, its batch and its optimizer; calling it trains one step and returns the loss."""

    def __init__(
        self,
        model: nn.Module,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        device: str,
        optimizer: Callable[..., torch.optim.Optimizer],
    ) -> None:
        self.model = model.to(device)
        self.inputs, self.targets = inputs.to(device), targets.to(device)
        self.optimizer = optimizer(self.model.parameters())

    def __call__(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(self.inputs), self.targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def state(self) -> dict[str, torch.Tensor]:
        """Everything a step leaves behind: parameters, buffers, gradients, optimizer state."""
        found = {name: value.detach() for name, value in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            found[f"{name}.grad"] = parameter.grad
            for key, value in self.optimizer.state[parameter].items():
                if isinstance(value, torch.Tensor):
                    found[f"{name}.{key}"] = value
        return found


def sgd(parameters: object) -> torch.optim.Optimizer:
    """SGD with momentum, one tensor at a time."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False)


def adamw(parameters: object) -> torch.optim.Optimizer:
    """AdamW as a loop over tensors."""
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=False)


def adamw_foreach(parameters: object) -> torch.optim.Optimizer:
    """AdamW over lists of tensors."""
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=True)


def make(
    family: str, device: str, optimizer: Callable[..., torch.optim.Optimizer] | None = None
) -> Step:
    """The step of one of FAMILIES on `device`, the same numbers at every call."""
    torch.manual_seed(0)
    if family == "resnet":
        images, labels = torch.randn(4, 1, 8, 8), torch.randint(0, 10, (4,))
        return Step(DigitsResNet(), images, labels, device, optimizer or sgd)
    if family == "gpt":
        tokens, targets = torch.randint(0, 50, (2, 9)), torch.randint(0, 50, (18,))
        return Step(GPTBlock(), tokens, targets, device, optimizer or adamw)
    if family == "lstm":
        return Step(
            LSTMTagger(),
            torch.randn(3, 6, 12),
            torch.randint(0, 5, (18,)),
            device,
            optimizer or adamw,
        )
    raise ValueError(f"no family {family!r}; there are {', '.join(FAMILIES)}")
