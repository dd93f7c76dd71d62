"""Every op of training steps of ResNet, BERT and GPT as its TBE operators, on both chips.

The ops are enumerated afresh: a dispatch mode takes each call of a step and runs it as its
operators, of which `tbe_calls.check` says what must hold. And how few ops of all model families run
as one operator that stands for them.
"""

from __future__ import annotations

from collections import Counter

import families
import pytest
import torch
from tbe_calls import PROFILES, Call, Recorder, check, profile
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    ResNetConfig,
    ResNetForImageClassification,
)

OPTIM = torch.optim


def resnet() -> tuple[torch.nn.Module, dict[str, Tensor]]:
    config = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 64, 128], depths=[1, 2, 1, 1], num_labels=10
    )  # bottlenecks, as ResNet50
    batch = {"pixel_values": torch.randn(2, 3, 64, 64), "labels": torch.tensor([1, 2])}
    return ResNetForImageClassification(config), batch


def bert(attention: str) -> tuple[torch.nn.Module, dict[str, Tensor]]:
    config = BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32, attn_implementation=attention,
    )  # fmt: skip
    mask = torch.tensor([[1] * 8, [1] * 6 + [0] * 2])
    words = torch.randint(0, 60, (2, 8))
    return BertForMaskedLM(config), {"input_ids": words, "attention_mask": mask, "labels": words}


def gpt(attention: str) -> tuple[torch.nn.Module, dict[str, Tensor]]:
    config = GPT2Config(
        vocab_size=60, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=1,
        eos_token_id=2, loss_type="ForCausalLM", attn_implementation=attention,
    )  # fmt: skip
    words = torch.randint(0, 60, (2, 8))
    return GPT2LMHeadModel(config), {"input_ids": words, "labels": words}


MODELS = {
    "resnet": resnet,
    "bert": lambda: bert("sdpa"),
    "bert, eager": lambda: bert("eager"),
    "gpt": lambda: gpt("sdpa"),
    "gpt, eager": lambda: gpt("eager"),
}


@pytest.mark.parametrize("chip", PROFILES)
@pytest.mark.parametrize("name", MODELS)
def test_forward_and_backward_run_as_the_operators_of_the_table(name, chip):
    torch.manual_seed(0)
    seen: Counter[str] = Counter()

    def taken(call: Call) -> None:
        seen[call.op.qualified] += 1
        check(call)

    with profile(chip):
        model, batch = MODELS[name]()
        model = model.npu().train()
        batch = {key: value.npu() for key, value in batch.items()}
        for half in (False, True):
            with Recorder(taken):
                with torch.autocast("npu", torch.float16, enabled=half):
                    loss = model(**batch).loss
                (loss * 8).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    expected = {"resnet": "convolution_backward", "bert": "native_dropout_backward"}
    assert seen[f"aten::{expected.get(name, 'native_layer_norm_backward')}"] > 1


class Weights(torch.nn.Module):
    """A few parameters that have gradients."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        for i, shape in enumerate(((3, 4), (5,), (2, 3, 3, 3))):
            weight = torch.nn.Parameter(torch.randn(shape, generator=draw).npu())
            weight.grad = torch.randn(shape, generator=draw).npu()
            self.register_parameter(f"w{i}", weight)


OPTIMIZERS = {
    "sgd": (OPTIM.SGD, [{}, {"momentum": 0.9}, {"momentum": 0.9, "weight_decay": 0.1},
                        {"momentum": 0.9, "nesterov": True},
                        {"momentum": 0.9, "dampening": 0.2, "maximize": True}]),
    "adam": (OPTIM.Adam, [{}, {"weight_decay": 0.1}, {"amsgrad": True}, {"maximize": True}]),
    "adamw": (OPTIM.AdamW, [{}, {"amsgrad": True, "maximize": True}]),
}  # fmt: skip


@pytest.mark.parametrize("chip", PROFILES)
@pytest.mark.parametrize("how", ["single", "foreach", "fused"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_run_as_the_operators_of_the_table(name, how, chip):
    kind, choices = OPTIMIZERS[name]
    seen: Counter[str] = Counter()

    def taken(call: Call) -> None:
        seen[call.op.qualified] += 1
        check(call)

    with profile(chip):
        for choice in choices:
            ways = {"foreach": how == "foreach"} | ({"fused": True} if how == "fused" else {})
            optimizer = kind(Weights().parameters(), lr=0.01, **ways, **choice)
            with Recorder(taken):
                for _ in range(3):  # the first step is another one than those that follow
                    optimizer.step()
                optimizer.zero_grad()
    prefix = {"single": "aten::add", "foreach": "aten::_foreach", "fused": "aten::_fused"}[how]
    assert any(key.startswith(prefix) for key in seen)


SHARE = 0.025
"""Of the calls of one step of all families: 0.019 when it was last measured (the fused LSTM and GRU
cells are most of it)."""


def test_few_calls_of_all_families_are_stand_ins(capsys):
    calls: Counter[str] = Counter()
    stand_ins: Counter[str] = Counter()

    def taken(call: Call) -> None:
        calls[call.op.ir] += 1
        if call.ran.instead_of is None:
            return
        stand_ins[call.op.ir] += 1
        assert len(call.ran.steps) == 1
        assert call.types == (call.op.ir,)

    with profile("910A"):
        for name, family in families.FAMILIES.items():
            if "npu" in family.devices:
                step = families.make(name, "npu")
                with Recorder(taken):
                    step()
    share = stand_ins.total() / calls.total()
    with capsys.disabled():
        print(f"\n{stand_ins.total()} of {calls.total()} calls ({share:.1%}) run as one stand-in:")
        for ir, count in stand_ins.most_common():
            print(f"  {count:4} {ir}")
    assert 0 < share < SHARE
