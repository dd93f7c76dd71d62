"""Training steps of real model families, for tests that ask if a tool changes what they compute.

The networks themselves are in `networks`; here are their data, losses and optimizers. Each is a
real size of its kind (4 blocks or more, width 128 or more) on a small batch of short samples, so
that a step takes well under a second. `make(name, device)` gives the same numbers at every call:
weights and data are drawn on the CPU from one seed, then moved. Nothing is downloaded: weights are
random, MiniLM's are files of the package that ships them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import networks
import torch
from torch import nn
from torch.nn import functional as F

Tensors = dict[str, torch.Tensor]
Optimizers = dict[str, torch.optim.Optimizer]


class Step:
    """Models, their optimizers and a batch; a call trains one step and returns its losses.

    train: runs one step on (models, optimizers, batch) and returns what is to be compared; the
    entries whose names end in `loss` are the losses.
    """

    def __init__(
        self,
        models: dict[str, nn.Module],
        batch: Tensors,
        optimizers: Callable[[dict[str, nn.Module]], Optimizers],
        train: Callable[[dict[str, nn.Module], Optimizers, Tensors], dict[str, Any]],
        device: str,
    ) -> None:
        self.models = {name: model.to(device) for name, model in models.items()}
        self.batch = {name: value.to(device) for name, value in batch.items()}
        self.optimizers = optimizers(self.models)  # after the move: they hold the parameters
        self._train = train
        self._outputs: Tensors = {}

    def __call__(self) -> Tensors:
        results = self._train(self.models, self.optimizers, self.batch)
        self._outputs = dict(named_tensors("", results))
        return {k: v.detach() for k, v in self._outputs.items() if k.endswith("loss")}

    def outputs(self) -> Tensors:
        """What the models returned in the last step, and the losses, by name."""
        return self._outputs

    def state(self) -> Tensors:
        """What the steps left behind: parameters, buffers, gradients, optimizer state."""
        found: Tensors = {}
        for name, model in self.models.items():
            found |= named_tensors(f"{name}.", dict(model.named_buffers()))
            for key, parameter in model.named_parameters():
                found[f"{name}.{key}"] = parameter
                if parameter.grad is not None:
                    found[f"{name}.{key}.grad"] = parameter.grad
        for name, optimizer in self.optimizers.items():
            state = {str(i): s for i, s in enumerate(optimizer.state.values())}
            found |= named_tensors(f"{name}.state.", state)
        return found


def named_tensors(prefix: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in nested dicts, tuples and lists, by its path."""
    if isinstance(value, torch.Tensor):
        yield prefix.rstrip("."), value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from named_tensors(f"{prefix}{key}.", member)
    elif isinstance(value, (list, tuple)):
        for i, member in enumerate(value):
            yield from named_tensors(f"{prefix}{i}.", member)


def _supervised(forward: Callable[[nn.Module, Tensors], dict[str, Any]]) -> Callable:
    """A plain step: zero, forward (which returns a `loss`), backward, clip, update."""

    def train(models: dict[str, nn.Module], optimizers: Optimizers, batch: Tensors) -> dict:
        for optimizer in optimizers.values():
            optimizer.zero_grad()
        results = forward(models["model"], batch)
        results["loss"].backward()
        dense = [
            p for p in models["model"].parameters() if p.grad is not None and not p.grad.is_sparse
        ]
        nn.utils.clip_grad_norm_(dense, 1.0)
        for optimizer in optimizers.values():
            optimizer.step()
        return results

    return train


def _classify(model: nn.Module, batch: Tensors) -> dict[str, Any]:
    logits = model(batch["x"])
    return {"logits": logits, "loss": F.cross_entropy(logits.flatten(0, -2), batch["y"].flatten())}


def _segment(model: nn.Module, batch: Tensors) -> dict[str, Any]:
    logits = model(batch["x"])
    return {"logits": logits, "loss": F.cross_entropy(logits, batch["y"])}


def _translate(model: nn.Module, batch: Tensors) -> dict[str, Any]:
    logits = model(batch["x"], batch["y"])
    return {"logits": logits, "loss": F.cross_entropy(logits.flatten(0, 1), batch["y"].flatten())}


def _transformers(model: nn.Module, batch: Tensors) -> dict[str, Any]:
    """Models of the transformers library take the batch by name and return their loss."""
    return dict(model(**batch, output_hidden_states=True))


def _similar(model: nn.Module, batch: Tensors) -> dict[str, Any]:
    """Sentence embeddings: mean over the words, then each sentence is to be most like itself."""
    ids, mask = batch["input_ids"], batch["attention_mask"]
    views = []
    for _ in range(2):  # two dropout masks of the same sentences, as SimCSE trains
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        views.append(F.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1))
    scores = views[0] @ views[1].t() * 5
    target = torch.arange(len(scores), device=scores.device)
    return {"views": views, "scores": scores, "loss": F.cross_entropy(scores, target)}


def _recommend(model: nn.Module, batch: Tensors) -> dict[str, Any]:
    scores = model(batch["user"], batch["items"])
    return {"scores": scores, "loss": F.binary_cross_entropy_with_logits(scores, batch["y"])}


def _adversarial(models: dict[str, nn.Module], optimizers: Optimizers, batch: Tensors) -> dict:
    """One step of a GAN: the discriminator's, then the generator's through it."""
    generator, critic = models["generator"], models["critic"]
    noise = torch.randn(len(batch["x"]), 64, 1, 1, device=batch["x"].device)
    fake = generator(noise)
    real_score, fake_score = critic(batch["x"]), critic(fake.detach())
    critic_loss = F.softplus(-real_score).mean() + F.softplus(fake_score).mean()
    optimizers["critic"].zero_grad()
    critic_loss.backward()
    optimizers["critic"].step()
    generator_loss = F.softplus(-critic(fake)).mean()
    optimizers["generator"].zero_grad()
    generator_loss.backward()
    optimizers["generator"].step()
    return {
        "fake": fake,
        "real_score": real_score,
        "critic_loss": critic_loss,
        "generator_loss": generator_loss,
    }


def _one(kind: type[torch.optim.Optimizer], **options: Any) -> Callable:
    """One optimizer for all that is trained."""

    def optimizers(models: dict[str, nn.Module]) -> Optimizers:
        trained = [p for p in models["model"].parameters() if p.requires_grad]
        return {"optimizer": kind(trained, **options)}

    return optimizers


def _sparse_and_dense(models: dict[str, nn.Module]) -> Optimizers:
    tables = list(models["model"].tables.parameters())
    dense = list(models["model"].tower.parameters())
    return {
        "tables": torch.optim.SparseAdam(tables, lr=1e-2),
        "tower": torch.optim.Adam(dense, lr=1e-3),
    }


def _one_each(models: dict[str, nn.Module]) -> Optimizers:
    return {
        name: torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.999))
        for name, model in models.items()
    }


def _images(side: int, classes: int = 10, channels: int = 3) -> Tensors:
    return {"x": torch.randn(2, channels, side, side), "y": torch.randint(0, classes, (2,))}


def _tokens(vocabulary: int, length: int = 12) -> Tensors:
    return {name: torch.randint(1, vocabulary, (2, length)) for name in ("x", "y")}


def _masked(vocabulary: int = 400, length: int = 12) -> Tensors:
    """Token ids with padding at the end of the second sample, and labels for some of them."""
    ids = torch.randint(1, vocabulary, (2, length))
    mask = torch.ones_like(ids)
    mask[1, length - 4 :] = 0
    labels = torch.where(torch.rand(ids.shape) < 0.4, ids, -100)
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": labels}


@dataclass(frozen=True)
class Family:
    """How to make one family: its networks, batch, optimizers and step, and where it can run."""

    models: Callable[[], nn.Module | dict[str, nn.Module]]
    batch: Callable[[], Tensors]
    optimizers: Callable[[dict[str, nn.Module]], Optimizers]
    train: Callable[[dict[str, nn.Module], Optimizers, Tensors], dict[str, Any]]
    devices: tuple[str, ...] = ("cpu", "npu")


_OPTIM = torch.optim

FAMILIES: dict[str, Family] = {
    "resnet": Family(
        networks.ResNet,
        lambda: _images(8),
        _one(_OPTIM.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4),
        _supervised(_classify),
    ),
    "densenet": Family(
        networks.DenseNet,
        lambda: _images(16),
        _one(_OPTIM.SGD, lr=0.1, momentum=0.9, foreach=False),
        _supervised(_classify),
    ),
    "unet": Family(
        networks.UNet,
        lambda: {"x": torch.randn(2, 3, 16, 16), "y": torch.randint(0, 4, (2, 16, 16))},
        _one(_OPTIM.RMSprop, lr=1e-3, momentum=0.9),
        _supervised(_segment),
    ),
    "mobilenet": Family(
        networks.MobileNet,
        lambda: _images(16),
        _one(_OPTIM.RMSprop, lr=1e-3, foreach=False),
        _supervised(_classify),
    ),
    "lstm": Family(
        lambda: networks.Tagger(nn.LSTM),
        lambda: _tokens(100, 8),
        _one(_OPTIM.Adam, lr=1e-3, foreach=False),
        _supervised(_classify),
    ),
    "gru": Family(
        lambda: networks.Tagger(nn.GRU),
        lambda: _tokens(100, 8),
        _one(_OPTIM.Adagrad, lr=1e-2),
        _supervised(_classify),
    ),
    "transformer": Family(
        networks.Translator,
        lambda: _tokens(200),
        _one(_OPTIM.Adam, lr=1e-3, amsgrad=True, foreach=True),
        _supervised(_translate),
    ),
    "gpt": Family(
        networks.GPT,
        lambda: _tokens(200, 16),
        _one(_OPTIM.AdamW, lr=1e-3, foreach=False),
        _supervised(_classify),
    ),
    "bert": Family(
        networks.bert,
        _masked,
        _one(_OPTIM.AdamW, lr=1e-3, foreach=True),
        _supervised(_transformers),
    ),
    "t5": Family(
        networks.t5,
        _masked,
        _one(_OPTIM.Adafactor, lr=1e-2, foreach=True),
        _supervised(_transformers),
    ),
    "vit": Family(
        networks.vit,
        lambda: {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.randint(0, 10, (2,))},
        _one(_OPTIM.AdamW, lr=1e-3, fused=True),
        _supervised(_transformers),
    ),
    "minilm": Family(
        networks.minilm,
        networks.sentences,
        _one(_OPTIM.AdamW, lr=2e-5, fused=True),
        _supervised(_similar),
    ),
    "gan": Family(
        lambda: {"generator": networks.Generator(), "critic": networks.Critic()},
        lambda: _images(16),
        _one_each,
        _adversarial,
    ),
    # The emulated npu has no sparse tensors.
    "embedding": Family(
        networks.Recommender,
        lambda: {
            "user": torch.randint(0, 500, (8,)),
            "items": torch.randint(0, 500, (8, 5)),
            "y": torch.randint(0, 2, (8,)).float(),
        },
        _sparse_and_dense,
        _supervised(_recommend),
        devices=("cpu",),
    ),
}


def make(name: str, device: str) -> Step:
    """The step of the family `name` on `device`: same weights, batch and random state each time."""
    family = FAMILIES[name]
    torch.manual_seed(0)
    models = family.models()
    if isinstance(models, nn.Module):
        models = {"model": models}
    step = Step(models, family.batch(), family.optimizers, family.train, device)
    torch.manual_seed(1)  # of every device: what is drawn above may depend on the library's version
    return step
