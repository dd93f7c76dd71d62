"""Whole models train on npu under profile `exact` with the CPU's bits, and under 910A without them.

The reference is the CPU running the same aten ops: attention as plain ops (sdpa's math backend) and
LSTM and GRU as a loop of matrix products and cells, since the CPU's own fused kernels for them are
other computations.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import npu_core

Results = dict[str, torch.Tensor]


pytestmark = pytest.mark.usefixtures("exact")


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.conv1, self.norm1 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.stem(x), 2)
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        x = F.avg_pool2d(F.relu(x + self.norm2(self.conv2(y))), 2)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class GPTBlock(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(50, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return self.head(x + self.down(F.gelu(self.up(self.norm2(x))))).flatten(0, 1)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: object) -> None:
        super().__init__()
        self.rnn = kind(6, 8, **options)
        self.head = nn.Linear(16 if options.get("bidirectional") else 8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0][-1])


def lstm_step(x, h, c, w_ih, w_hh, b_ih, b_hh):  # noqa: ANN001, ANN201
    """One LSTM step by the formulas of nn.LSTM's documentation."""
    hidden, given = h @ w_hh.t(), x @ w_ih.t()
    if b_ih is not None:
        hidden, given = hidden + b_hh, given + b_ih
    i, f, g, o = (hidden + given).chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_step(x, h, c, w_ih, w_hh, b_ih, b_hh):  # noqa: ANN001, ANN201
    """One GRU step by the formulas of nn.GRU's documentation, in the form (h - n) z + n."""
    hidden, given = h @ w_hh.t(), x @ w_ih.t()
    if b_ih is not None:
        hidden, given = hidden + b_hh, given + b_ih
    (hr, hz, hn), (ir, iz, in_) = hidden.chunk(3, 1), given.chunk(3, 1)
    n = (in_ + hn * (hr + ir).sigmoid()).tanh()
    return (h - n) * (hz + iz).sigmoid() + n, c


class Loop(nn.Module):
    """The CPU reference of `Recurrent`, over its own parameters."""

    def __init__(self, model: Recurrent) -> None:
        super().__init__()
        self.rnn, self.head = model.rnn, model.head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rnn = self.rnn
        step = lstm_step if isinstance(rnn, nn.LSTM) else gru_step
        directions = 2 if rnn.bidirectional else 1
        weights = [[*w, None, None][:4] for w in rnn.all_weights]
        for layer in range(rnn.num_layers):
            outputs = []
            for direction in range(directions):
                h = c = torch.zeros(x.size(1), rnn.hidden_size)
                order = range(len(x))[:: -1 if direction else 1]
                steps: dict[int, torch.Tensor] = {}
                for t in order:
                    h, c = step(x[t], h, c, *weights[layer * directions + direction])
                    steps[t] = h
                outputs.append(torch.stack([steps[t] for t in range(len(x))]))
            x = torch.cat(outputs, -1)
        return self.head(x[-1])


def train(
    model: nn.Module, data: torch.Tensor, target: torch.Tensor, optimizer: Callable, device: str
) -> Results:
    """Two steps; losses, gradients of both, parameters and buffers after them."""
    model = copy.deepcopy(model).to(device)
    data, target = data.to(device), target.to(device)
    updates, results = optimizer(model.parameters()), {}
    for step in range(2):
        updates.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        results[f"loss {step}"] = loss.detach()
        results |= {f"{n} grad {step}": p.grad.clone() for n, p in model.named_parameters()}
        updates.step()
    results |= model.state_dict()
    assert {v.device.type for v in results.values()} == {device}
    return {name: value.cpu() for name, value in results.items()}


def different(a: Results, b: Results) -> list[str]:
    assert a.keys() == b.keys()
    return [name for name in a if not torch.equal(a[name], b[name])]


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "adamw foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "adamw loop": lambda p: torch.optim.AdamW(p, foreach=False),
    "adamw fused": lambda p: torch.optim.AdamW(p, fused=True),
}


def resnet() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return ResNet(), torch.randn(4, 1, 8, 8), torch.randint(0, 10, (4,))


def gpt() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return GPTBlock(), torch.randint(0, 50, (2, 9)), torch.randint(0, 50, (18,))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("make", [resnet, gpt])
def test_bits_are_the_cpus(make: Callable, optimizer: str) -> None:
    model, data, target = make()
    with sdpa_kernel(SDPBackend.MATH):
        cpu = train(model, data, target, OPTIMIZERS[optimizer], "cpu")
    assert different(cpu, train(model, data, target, OPTIMIZERS[optimizer], "npu")) == []


def test_channels_last_has_the_cpus_bits() -> None:
    model, data, target = resnet()
    model, data = (v.to(memory_format=torch.channels_last) for v in (model, data))
    runs = [train(model, data, target, OPTIMIZERS["sgd"], device) for device in ("cpu", "npu")]
    assert different(*runs) == []


def test_backward_on_the_callers_thread_has_the_same_bits() -> None:
    model, data, target = gpt()
    usual = train(model, data, target, OPTIMIZERS["adamw loop"], "npu")
    with torch.autograd.set_multithreading_enabled(False):
        single = train(model, data, target, OPTIMIZERS["adamw loop"], "npu")
    assert different(usual, single) == []


RNN_OPTIONS = [
    {}, {"bias": False}, {"num_layers": 2}, {"bidirectional": True},
    {"num_layers": 2, "bidirectional": True},
]  # fmt: skip


@pytest.mark.parametrize("options", RNN_OPTIONS, ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_bits_are_those_of_the_formulas(kind: type[nn.RNNBase], options: dict) -> None:
    torch.manual_seed(0)
    model, data, target = Recurrent(kind, **options), torch.randn(5, 3, 6), torch.arange(3)
    cpu = train(Loop(model), data, target, OPTIMIZERS["adamw loop"], "cpu")
    npu = train(model, data, target, OPTIMIZERS["adamw loop"], "npu")
    assert different(cpu, npu) == []


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_agrees_with_the_cpus_own(kind: type[nn.RNNBase]) -> None:
    # Other sums (gates of all steps at once, bias inside the product): equal to rounding only.
    # float64, so that torch's default tolerance is far above rounding and far below any mistake.
    torch.manual_seed(0)
    model = Recurrent(kind, num_layers=2, bidirectional=True).double()
    data, target = torch.randn(5, 3, 6, dtype=torch.float64), torch.arange(3)
    runs = [train(model, data, target, OPTIMIZERS["sgd"], device) for device in ("cpu", "npu")]
    torch.testing.assert_close(*runs)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_packed_sequences(kind: type[nn.RNNBase]) -> None:
    torch.manual_seed(0)
    rnn, data = kind(6, 8).double(), torch.randn(5, 3, 6, dtype=torch.float64)
    lengths = torch.tensor([5, 3, 1])

    def run(device: str) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(data.to(device), lengths)
        return nn.utils.rnn.pad_packed_sequence(copy.deepcopy(rnn).to(device)(packed)[0])[0].cpu()

    torch.testing.assert_close(run("npu"), run("cpu"))


@pytest.mark.parametrize(
    ("kind", "only"), [("lstm", "hy"), ("lstm", "cy"), ("lstm", "both"), ("gru", "hy")]
)
def test_gradients_of_the_cells_are_those_of_finite_differences(kind: str, only: str) -> None:
    torch.manual_seed(0)
    cell = (nn.LSTMCell if kind == "lstm" else nn.GRUCell)(3, 4).double().npu()

    def run(x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> object:
        if kind == "gru":
            return cell(x, h)
        hy, cy = cell(x, (h, c))
        return {"hy": hy, "cy": cy, "both": (hy, cy)}[only]

    given = [torch.randn(2, n, dtype=torch.float64, device="npu") for n in (3, 4, 4)]
    assert torch.autograd.gradcheck(run, [g.requires_grad_() for g in given])


@pytest.mark.parametrize("profile", ["910A", "910B"])
def test_a_chip_trains_like_the_cpu_but_not_to_the_bit(profile: str) -> None:
    model, data, target = resnet()
    cpu = train(model, data, target, OPTIMIZERS["sgd"], "cpu")
    with npu_core.use(profile):
        npu = train(model, data, target, OPTIMIZERS["sgd"], "npu")
    assert "loss 0" in different(cpu, npu)
    # forward of 4 layers of operands rounded to 11 bits: each rounding is off by 2**-11 at most
    assert abs(npu["loss 0"] / cpu["loss 0"] - 1) < 4 * 2 * 2**-11
