"""Small programs that do what training scripts do around a model, each deterministic by one seed.

`SCENARIOS` maps a name to a function of a device that returns whatever it computed: tensors,
strings, numbers, nested. Tests run one twice, with and without a tool, and compare. Here are the
register, what the programs share, and plain training; importing `scenarios_autograd`,
`scenarios_torch` and `scenarios_tensors` adds theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

FORWARD, TRAINING = ("forward",), ("forward", "backward")


@dataclass(frozen=True)
class Scenario:
    """run: the program. devices: where it can run. phases: those its ops belong to, at least."""

    run: Callable[[str], Any]
    devices: tuple[str, ...]
    phases: tuple[str, ...]


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *options: Any, devices: tuple[str, ...] = ("cpu", "npu"), phases: tuple[str, ...] = TRAINING
) -> Callable[[Callable], Callable]:
    """Register a program, once for each of options, which it takes as its second argument."""

    def register(run: Callable) -> Callable:
        for option in options or (None,):
            name = run.__name__ if option is None else f"{run.__name__}-{_text(option)}"
            call = run if option is None else lambda device, o=option: run(device, o)
            assert name not in SCENARIOS, name
            SCENARIOS[name] = Scenario(call, devices, phases)
        return run

    return register


def _text(option: Any) -> str:
    parts = option if isinstance(option, tuple) else (option,)
    return "-".join(getattr(p, "__name__", str(p)).removeprefix("torch.") for p in parts)


def raised(run: Callable[[], Any]) -> str:
    """Type and text of what `run` raises; it must raise."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        return f"{type(error).__name__}: {error}"
    raise AssertionError("nothing was raised")


def learned(model: nn.Module, *others: Any) -> dict[str, Any]:
    """What training leaves in a model, beside other results."""
    parameters = dict(model.named_parameters())
    return {
        "parameters": parameters,
        "grads": {name: p.grad for name, p in parameters.items()},
        "buffers": dict(model.named_buffers()),
        "others": others,
    }


def mlp(device: str, width: int = 32) -> nn.Module:
    """A net with dropout and an in-place activation."""
    return nn.Sequential(
        nn.Linear(width, width),
        nn.LayerNorm(width),
        nn.GELU(),
        nn.Dropout(0.3),
        nn.Linear(width, width),
        nn.ReLU(inplace=True),
        nn.Linear(width, 4),
    ).to(device)


def conv_net(device: str) -> nn.Module:
    """A net whose activations are written in place."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.Dropout2d(0.2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 4),
    ).to(device)


def batch(device: str, *shape: int) -> torch.Tensor:
    """Data that is drawn on the CPU, so that it is the same on every device."""
    return torch.randn(shape or (6, 32)).to(device)


@scenario(torch.bfloat16, torch.float16)
def autocast(device: str, dtype: torch.dtype) -> Any:
    """Mixed precision with a loss scale, whose check of the gradients writes unmarked."""
    model = conv_net(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**17, growth_interval=2)
    outputs = []
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype):
            y = model(batch(device, 2, 3, 8, 8))
            loss = y.float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        outputs += [y, loss, norm, scaler.get_scale()]
    return learned(model, outputs)


@scenario()
def gradient_accumulation(device: str) -> Any:
    model = mlp(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for micro in range(6):
        loss = model(batch(device)).square().mean() / 3
        loss.backward()
        losses.append(loss)
        if micro % 3 == 2:
            optimizer.step()
            optimizer.zero_grad(set_to_none=micro > 3)
    return learned(model, losses)


@scenario()
def inplace_activations(device: str) -> Any:
    model, x = conv_net(device), batch(device, 2, 3, 8, 8).requires_grad_()
    y = model(x)
    y.square().sum().backward()
    return learned(model, y, x.grad)


@scenario()
def linears_that_share_an_input(device: str) -> Any:
    one, two = (nn.Linear(32, 16).to(device) for _ in range(2))
    norm = nn.BatchNorm1d(16).to(device)
    x = batch(device)
    y = norm(F.relu_(one(x)) + F.silu(two(x), inplace=True))
    y.pow(3).sum().backward()
    return learned(nn.ModuleList([one, two, norm]), y)


@scenario()
def tied_weights(device: str) -> Any:
    embed, head = nn.Embedding(20, 32).to(device), nn.Linear(32, 20, bias=False).to(device)
    head.weight = embed.weight
    middle = nn.Linear(32, 32).to(device)
    optimizer = torch.optim.Adam({*embed.parameters(), *middle.parameters()}, lr=1e-2)
    tokens = torch.randint(0, 20, (5,)).to(device)
    for _ in range(2):
        y = head(middle(middle(embed(tokens))))
        optimizer.zero_grad()
        F.cross_entropy(y, tokens).backward()
        optimizer.step()
    return learned(nn.ModuleList([embed, head, middle]), y, head.weight is embed.weight)


@scenario(nn.LSTM, nn.GRU)
def packed_sequences(device: str, kind: type[nn.RNNBase]) -> Any:
    rnn = kind(32, 16, num_layers=2, bidirectional=True, dropout=0.2).to(device)
    x = batch(device, 5, 3, 32).requires_grad_()
    packed = nn.utils.rnn.pack_padded_sequence(x, [5, 2, 4], enforce_sorted=False)
    output, state = rnn(packed)
    padded, lengths = nn.utils.rnn.pad_packed_sequence(output)
    padded.square().sum().backward()
    return learned(rnn, padded, lengths, state, x.grad)


@scenario()
def channels_last(device: str) -> Any:
    model = conv_net(device).to(memory_format=torch.channels_last)
    x = batch(device, 2, 3, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
    middle = model[:5](x)
    y = model[5:](middle)
    y.sum().backward()
    return learned(model, middle, y, x.grad)


@scenario()
def parametrizations(device: str) -> Any:
    module = nn.Sequential(*[nn.Linear(16, 16) for _ in range(3)]).to(device)
    nn.utils.parametrizations.weight_norm(module[0])
    nn.utils.parametrizations.spectral_norm(module[1])
    nn.utils.parametrizations.orthogonal(module[2], orthogonal_map="householder")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    x = batch(device, 4, 16)
    for _ in range(2):
        with nn.utils.parametrize.cached():
            y = module(x) + module(x * 2)
        optimizer.zero_grad()
        y.square().mean().backward()
        optimizer.step()
    return learned(module, y, [layer.weight for layer in module])


KINDS = ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad")


WAYS = [(kind, way) for kind in KINDS for way in ("foreach", "loop", "fused")]


@scenario(*[pair for pair in WAYS if pair != ("RMSprop", "fused")])
def optimizer(device: str, chosen: tuple[str, str]) -> Any:
    """Each way an optimizer can update, with its options on; RMSprop has no fused one."""
    kind, way = chosen
    options: dict[str, Any] = {"weight_decay": 0.01, "maximize": way != "fused"}
    options |= {"SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}}.get(kind, {})
    options |= {"RMSprop": {"centered": True, "momentum": 0.5}}.get(kind, {})
    options |= {"fused": True} if way == "fused" else {"foreach": way == "foreach"}
    model = mlp(device)
    trainer = getattr(torch.optim, kind)(model.parameters(), lr=1e-2, **options)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(trainer, 4)
    average = torch.optim.swa_utils.AveragedModel(model)
    for _ in range(3):
        trainer.zero_grad()
        loss = model(batch(device)).square().mean()
        loss.backward()
        trainer.step()
        scheduler.step()
        average.update_parameters(model)
    return learned(model, loss, trainer.state_dict(), list(average.parameters()))


@scenario()
def optimizer_with_a_closure(device: str) -> Any:
    model, x = nn.Linear(32, 4).to(device), batch(device)
    trainer = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        trainer.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        return loss

    return learned(model, trainer.step(closure), trainer.step(closure))
