"""The zoo's networks: images [n, 8, 8] to 10 outputs each, or tokens; healthy as they stand."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

INPUTS, CLASSES = 64, 10
LEVELS = 6
"""Intensities that the images' pixels are rounded to where they are tokens."""


def linears(model: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    """The layers with weight matrices, in the model's order."""
    return [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]


def attention_of(model: nn.Module) -> list[Attention]:
    """The attention networks within a model."""
    return [m for m in model.modules() if isinstance(m, Attention)]


def perceptron(
    width: int = 64,
    depth: int = 2,
    activation: Callable[[], nn.Module] = nn.ReLU,
    dropout: float = 0.0,
    outputs: int = CLASSES,
) -> nn.Module:
    """`depth` hidden layers of `width`."""
    layers: list[nn.Module] = [nn.Flatten()]
    for i in range(depth):
        layers += [nn.Linear(width if i else INPUTS, width), activation()]
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def normalised(width: int = 64) -> nn.Module:
    """A perceptron with batch normalisation."""
    hidden = [nn.Linear(INPUTS, width), nn.BatchNorm1d(width), nn.ReLU()]
    deeper = [nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, *deeper, nn.Linear(width, CLASSES))


def normalised_convolution(width: int = 12) -> nn.Module:
    """A convolution with batch normalisation, over the places too, and a linear head."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv2d(1, width, 3, stride=2, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(width * 16, CLASSES),
    )


def convolution(width: int = 12, dropout: float = 0.0) -> nn.Module:
    """Two convolutions and a linear head."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(2 * width * 16, CLASSES),
    )


class Residual(nn.Module):
    """Residual branches behind layer norms; `zeroed` lets every branch start at zero."""

    def __init__(self, width: int = 64, depth: int = 3, *, zeroed: bool = False) -> None:
        super().__init__()
        self.entry = nn.Linear(INPUTS, width)
        self.branches = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, CLASSES)
        if zeroed:
            for branch in self.branches:
                nn.init.zeros_(branch[-1].weight)
                nn.init.zeros_(branch[-1].bias)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.entry(images.flatten(1))
        for branch in self.branches:
            hidden = hidden + branch(hidden)
        return self.head(hidden)


class Dropping(nn.Module):
    """Two experts of which a training batch uses the second half of the time: no gradient then."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.entry = nn.Linear(INPUTS, width)
        self.expert = nn.Sequential(nn.ReLU(), nn.Linear(width, width))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.entry(images.flatten(1))
        if not self.training or torch.rand(()) < 0.5:
            hidden = hidden + self.expert(hidden)
        return self.head(torch.relu(hidden))


class Pixels(nn.Module):
    """A bag of embedded (place, intensity) tokens out of a table of 20,000 rows."""

    def __init__(self, rows: int = 20_000, width: int = 32, *, sparse: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width, sparse=sparse)
        self.body = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, CLASSES))
        self.register_buffer("places", 17 * torch.arange(INPUTS), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        levels = ((images.flatten(1) + 1.0) * 6).clamp(0, 16).long()
        return self.body(4 * self.table(self.places + levels).mean(1))


class Tokens(nn.Module):
    """Tokens [n, T] to logits [n, tokens, T]: one block of masked self-attention, a tied head."""

    def __init__(
        self,
        tokens: int = LEVELS + 1,
        width: int = 32,
        *,
        causal: bool = True,
        tied: bool = True,
        padding: int | None = None,
        masked: bool = False,
    ) -> None:
        """`masked`: padding is no key of the attention."""
        super().__init__()
        self.causal, self.masked = causal, masked
        self.embed = nn.Embedding(tokens, width, padding_idx=padding)
        self.place = nn.Parameter(0.1 * torch.randn(INPUTS, width))
        self.mix = nn.Linear(width, 3 * width)
        self.feed = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)
        nn.init.normal_(self.embed.weight, std=width**-0.5)
        self.head.weight = self.embed.weight if tied else nn.Parameter(self.embed.weight.clone())

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embed(tokens) + self.place[: tokens.shape[1]]
        parts = self.mix(hidden).chunk(3, -1)
        keys = (tokens != self.embed.padding_idx)[:, None] if self.masked else None
        hidden = hidden + F.scaled_dot_product_attention(
            *parts, attn_mask=keys, is_causal=self.causal
        )
        return self.head(self.norm(hidden + self.feed(hidden))).mT


class Attention(nn.Module):
    """Rows as tokens, one layer of self-attention with two heads, mean pooling."""

    def __init__(self, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Linear(8, width)
        self.place = nn.Parameter(0.1 * torch.randn(8, width))
        self.norm = nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width)
        )
        self.head = nn.Linear(width, CLASSES)
        self.entropy = 1.0

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embed(images) + self.place
        hidden = self.norm(tokens)
        query, key, value = (
            f(hidden).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(-1)
        if not self.training:  # what a user would log beside the losses
            self.entropy = float(-(weights * (weights + 1e-12).log()).sum(-1).mean()) / math.log(8)
        tokens = tokens + self.out((weights @ value).transpose(1, 2).flatten(-2))
        return self.head((tokens + self.feed(tokens)).mean(1))


class Careless(nn.Module):
    """Dropout by a function that was not told of evaluation mode."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.entry, self.head = nn.Linear(INPUTS, width), nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(nn.functional.dropout(torch.relu(self.entry(images.flatten(1))), 0.5))


class Scaled(nn.Module):
    """Another network whose outputs are multiplied."""

    def __init__(self, body: nn.Module, factor: float) -> None:
        super().__init__()
        self.body, self.factor = body, factor

    def forward(self, images: Tensor) -> Tensor:
        return self.factor * self.body(images)


class Cut(nn.Module):
    """Another network whose trunk is cut off from the graph."""

    def __init__(self, body: nn.Sequential) -> None:
        super().__init__()
        self.trunk, self.head = body[:-1], body[-1]

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.trunk(images).detach())
