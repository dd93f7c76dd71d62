"""Small training steps with an overflow planted in them, and which op it is by the record alone.

Who overflowed first is told from a plain dump of the same step, read with numpy: the first call
whose inputs are all sound and whose results are not. The checker has no part in that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import models
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import npu_core
from dumper import dumper, open_dump
from dumper.reader import Record

FAMILIES = ("mlp", "resnet", "lstm", "gpt", "bert")


class Setting(NamedTuple):
    """Where a step runs and in which numbers: `half` or `fp32` throughout, or autocast to one."""

    device: str
    profile: str | None
    numbers: str

    @property
    def saturates(self) -> bool:
        """Whether no infinity is left to see."""
        return self.profile == "910A"


CPU_HALF = Setting("cpu", None, "half")
CPU_FP32 = Setting("cpu", None, "fp32")
CPU_BF16 = Setting("cpu", None, "autocast bfloat16")
NPU_A = Setting("npu", "910A", "autocast float16")
NPU_B = Setting("npu", "910B", "autocast float16")


@contextmanager
def placed(setting: Setting) -> Iterator[None]:
    """The npu, if it is one, in the setting's profile."""
    if setting.profile is None:
        yield
        return
    with npu_core.use(setting.profile):
        if setting.saturates:
            torch.npu.clear_npu_overflow_flag()
        yield


class Bert(nn.Module):
    """One post-norm block with dropout and tied weights; the mask is added to the scores."""

    def __init__(self, lowest: float, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.lowest, self.heads = lowest, heads
        self.embed, self.place = nn.Embedding(40, width), nn.Embedding(8, width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, 40)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.place.weight[: tokens.shape[1]]
        q, k, v = (
            each(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        lowest = torch.finfo(scores.dtype).min if self.lowest > -math.inf else -math.inf
        mask = torch.zeros(tokens.shape, dtype=scores.dtype, device=tokens.device)
        mask = mask.masked_fill(tokens == 0, lowest)
        weights = F.dropout(F.softmax(scores + mask[:, None, None], -1), 0.1, self.training)
        x = self.norm1(x + self.out((weights @ v).transpose(1, 2).flatten(2)))
        x = self.norm2(x + F.dropout(self.down(F.gelu(self.up(x))), 0.1, self.training))
        return self.head(x).flatten(0, 1)


class Tagger(nn.Module):
    """A small LSTM with a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(12, 8, batch_first=True), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0]).flatten(0, 1)


class Training:
    """A model, a batch and an optimizer, the same numbers at every making; a call trains a step.

    lowest: of a mask: -infinity, or else the lowest number of its dtype. scale: of the loss. touch:
    is given the parameters when their gradients are there.
    """

    def __init__(self, family: str, setting: Setting, lowest: float = -1.0) -> None:
        self.setting = setting
        self.scale = 1.0
        self.touch: Callable[[list[nn.Parameter]], None] | None = None
        torch.manual_seed(0)
        self.model, inputs, targets = _parts(family, lowest)
        if setting.numbers == "half":
            self.model.half()
            inputs = inputs.half() if inputs.is_floating_point() else inputs
        self.model.to(setting.device)
        self.inputs, self.targets = inputs.to(setting.device), targets.to(setting.device)
        self.optimizer = _optimizer(family, list(self.model.parameters()))
        torch.manual_seed(1)

    def __call__(self) -> torch.Tensor:
        self.backward()
        if self.touch is not None:
            self.touch(list(self.model.parameters()))
        self.optimizer.step()
        return self.loss

    def backward(self, scaler: torch.amp.GradScaler | None = None) -> None:
        """Forward and backward; `loss` is the loss then."""
        self.optimizer.zero_grad()
        kind, _, dtype = self.setting.numbers.partition(" ")
        autocast = torch.autocast(
            self.setting.device, getattr(torch, dtype or "float16"), enabled=kind == "autocast"
        )
        with autocast:
            logits = self.model(self.inputs)
            self.loss = F.cross_entropy(logits, self.targets)
        loss = self.loss * self.scale if self.scale != 1 else self.loss
        (loss if scaler is None else scaler.scale(loss)).backward()

    def state(self) -> dict[str, torch.Tensor]:
        """What a step leaves behind: loss, weights, buffers, gradients, optimizer and RNG state."""
        found = {"loss": self.loss.detach(), "rng": torch.get_rng_state()}
        if self.setting.device == "npu":
            found["npu rng"] = torch.npu.get_rng_state()
        found |= self.model.state_dict()
        for name, parameter in self.model.named_parameters():
            found[f"{name}.grad"] = parameter.grad
            for key, value in self.optimizer.state[parameter].items():
                if isinstance(value, torch.Tensor):
                    found[f"{name}.{key}"] = value
        return found


def _parts(family: str, lowest: float) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Model, inputs and targets."""
    if family == "mlp":
        model = nn.Sequential(
            nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)
        )
        return model, torch.randn(6, 16), torch.randint(0, 4, (6,))
    if family == "lstm":
        return Tagger(), torch.randn(3, 4, 12), torch.randint(0, 5, (12,))
    if family == "bert":
        tokens = torch.randint(1, 40, (2, 6))
        tokens[1, 4:] = 0
        return Bert(lowest), tokens, torch.randint(0, 40, (12,))
    step = models.make(family, "cpu")
    return step.model, step.inputs, step.targets


def _optimizer(family: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if family in ("mlp", "resnet"):
        return torch.optim.SGD(parameters, 0.1, momentum=0.9, foreach=family == "resnet")
    if family == "lstm":
        return torch.optim.Adafactor(parameters, lr=1e-2, foreach=False)
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=family == "gpt")


# Who was first, by the record


class First(NamedTuple):
    """The first call whose inputs are sound and whose results are not."""

    ir: str
    seqid: int
    phase: str | None
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    bad: dict[str, np.ndarray]


def first_overflow(path: Path, saturates: bool) -> First | None:
    """It, by the recorded numbers. saturates: the largest number of a dtype stands for more."""
    with open_dump(path) as dump:
        for record in dump.records:
            if record.phase in ("grad", "update"):
                continue
            outputs = {
                each.name: each.read() for each in record.outputs if not each.claims.uninitialised
            }
            bad = {name: unsound(values, saturates) for name, values in outputs.items()}
            if not any(mask.any() for mask in bad.values()) or _was_given(record, saturates):
                continue
            inputs = {each.name: each.read() for each in record.inputs}
            return First(record.ir, record.seqid, record.phase, inputs, outputs, bad)
    return None


def unsound(values: np.ndarray, saturates: bool) -> np.ndarray:
    """Where values are infinite, NaN or, where that stands for them, their dtype's largest."""
    if values.dtype.kind != "f":
        return np.zeros(values.shape, bool)
    found = ~np.isfinite(values)
    return found | (np.abs(values) >= np.finfo(values.dtype).max) if saturates else found


def _was_given(record: Record, saturates: bool) -> bool:
    """Whether an unsound number went in, among numbers that are no tensors too."""
    if any(unsound(each.read(), saturates).any() for each in record.inputs):
        return True
    numbers = [argument.value for argument in record.arguments.values()]
    return any(isinstance(one, float) and not abs(one) < 65504 for one in numbers)


# Plants


class Plant(NamedTuple):
    """What makes a step overflow. around: is entered around the step, with the training given."""

    name: str
    around: Callable[[Training], Any]


def honest(how: str, strength: int, random: Random) -> Plant:
    """Numbers that grow too large by themselves. strength: 0, or 1 where that did not do."""
    seed = random.random()

    @contextmanager
    def around(training: Training) -> Iterator[None]:
        drawn = Random(seed)
        _HONEST[how](training, drawn, strength)
        yield

    return Plant(how, around)


def _scale_weight(training: Training, random: Random, strength: int) -> None:
    """One output of one layer has weights near the end of float16."""
    layers = [
        name
        for name, value in training.model.named_parameters()
        if value.dim() > 1 and not name.startswith(("embed", "place"))
    ]
    layers = [name for name in layers if "weight_ih" in name] or layers  # an LSTM's states are < 1
    weight = training.model.get_parameter(random.choice(layers)).data
    row = weight[random.randrange(len(weight))]
    row.copy_(row.sign() * (3e4, 6e4)[strength])


def _scale_input(training: Training, random: Random, strength: int) -> None:
    """One sample is near the end of float16; where samples are words, one feature of a norm."""
    if training.inputs.is_floating_point():
        training.inputs[random.randrange(len(training.inputs))] = (3e4, 6e4)[strength]
    else:
        weight = training.model.norm1.weight.data
        weight[random.randrange(len(weight))] = (3e4, 6e4)[strength]


def _scale_loss(training: Training, random: Random, strength: int) -> None:
    training.scale = 2.0 ** (random.randrange(15, 18) + 6 * strength)


def _scale_gradient(training: Training, random: Random, strength: int) -> None:
    """The gradient that one layer hands on is multiplied until it nears the end of its dtype."""
    layers = [
        module
        for module in training.model.modules()
        if isinstance(module, (nn.Linear, nn.Conv2d, nn.LayerNorm, nn.BatchNorm2d))
    ]
    size = (6e4, 1e6)[strength]

    def grow(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * (size / float(gradient.abs().max()))

    def watch(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        output.register_hook(grow)

    random.choice(layers).register_forward_hook(watch)


def _scale_parameter_gradient(training: Training, random: Random, strength: int) -> None:
    """One element of one gradient is larger than its square can be."""
    at = random.random()

    def touch(parameters: list[nn.Parameter]) -> None:
        chosen = random.choice(parameters).grad.view(-1)
        size = 1e25 if chosen.dtype is torch.float32 else 6e4
        chosen[int(at * len(chosen))] = size

    training.touch = touch


_HONEST: dict[str, Callable[[Training, Random, int], None]] = {
    "weight": _scale_weight,
    "input": _scale_input,
    "loss": _scale_loss,
    "gradient": _scale_gradient,
    "optimizer": _scale_parameter_gradient,
}

FAULTY = (
    "mm addmm bmm convolution native_layer_norm native_batch_norm gelu relu tanh _softmax "
    "_log_softmax mul.Tensor convolution_backward native_layer_norm_backward "
    "native_batch_norm_backward gelu_backward threshold_backward tanh_backward sum.dim_IntList "
    "_thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl addcdiv_ addcmul_ _foreach_addcmul_ "
    "_foreach_div_.ScalarList add_.Tensor _foreach_add_.List"
).split()
"""Ops that are made to go wrong."""


def faulty(path: Path, random: Random) -> Plant:
    """One call of the step that is recorded in `path`, drawn, has one element wrong."""
    with open_dump(path) as dump:
        schemas = {line["ir"]: line["schema"] for line in dump.lines("ops")}
        counts: dict[str, int] = {}
        calls = []
        for record in dump.records:
            made = (*record.inputs, *record.outputs)
            if record.phase in ("grad", "update") or not any(one.device_type for one in made):
                continue  # an optimizer counts its steps on the CPU
            op = schemas[record.ir].partition("(")[0].removeprefix("aten::")
            counts[op] = counts.get(op, 0) + 1
            if op in FAULTY and any(one.dtype.startswith("float") for one in made):
                calls.append((op, counts[op], record.phase))
    phase = random.choice(sorted({phase for _, _, phase in calls}))
    op = random.choice(sorted({op for op, _, at in calls if at == phase}))
    nth = random.choice([nth for name, nth, at in calls if (name, at) == (op, phase)])
    value = random.choice([math.inf, -math.inf, math.nan])
    at, which = random.random(), random.random()

    def change(results: Any) -> Any:
        several = results if isinstance(results, (tuple, list)) else [results]
        floats = [
            one
            for one in several
            if isinstance(one, torch.Tensor) and one.is_floating_point() and one.numel()
        ]
        chosen = floats[int(which * len(floats))].detach()
        chosen[np.unravel_index(int(at * chosen.numel()), chosen.shape)] = value
        return results

    def around(_training: Training) -> Any:
        return npu_core.fault(op, change, nth=nth)

    return Plant(f"{op} call {nth} {value}", around)


def run(training: Training, plant: Plant | None, path: Path, **options: Any) -> dumper:
    """Train one step under a dumper."""
    with placed(training.setting):
        if plant is None:
            with dumper(dump_path=path, **options) as dump:
                training()
            return dump
        with plant.around(training), dumper(dump_path=path, **options) as dump:
            training()
    return dump


def check(setting: Setting, folder: Path, step: Callable[[], object], **options: object) -> dumper:
    """A step under the check alone."""
    with (
        placed(setting),
        dumper(check_overflow=True, dump_path=folder / "check.h5", **options) as dump,
    ):
        step()
    return dump


def assert_same(one: float, other: float) -> None:
    """That two numbers are equal, or both NaN."""
    assert one == other or (one != one and other != other)
