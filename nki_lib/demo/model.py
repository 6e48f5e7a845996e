"""A byte-level transformer, small enough to train in seconds, whose attention is whatever function it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Causal attention: q [B, Hq, S, D], k and v [B, Hkv, S, D] -> [B, Hq, S, D]."""

BYTES = 256


@dataclass(frozen=True)
class Shape:
    """Sizes of the model. Every two query heads share a key head."""

    layers: int = 2
    width: int = 128
    heads: int = 4
    key_heads: int = 2
    depth: int = 64
    context: int = 320


class Block(nn.Module):
    """Attention and a feed-forward layer, each on normalised input and added to it. Dimensions: [B, S, width]."""

    def __init__(self, shape: Shape, attention: Attention) -> None:
        super().__init__()
        self.shape = shape
        self.attention = attention
        inner, key_inner = shape.heads * shape.depth, shape.key_heads * shape.depth
        self.before_attention = nn.LayerNorm(shape.width)
        self.project = nn.Linear(shape.width, inner + 2 * key_inner, bias=False)
        self.merge = nn.Linear(inner, shape.width, bias=False)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(shape.width),
            nn.Linear(shape.width, 4 * shape.width),
            nn.GELU(),
            nn.Linear(4 * shape.width, shape.width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """One layer."""
        shape = self.shape
        heads = self.project(self.before_attention(x)).unflatten(-1, (-1, shape.depth)).transpose(1, 2)
        q, k, v = heads.split((shape.heads, shape.key_heads, shape.key_heads), dim=1)
        x = x + self.merge(self.attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.feed_forward(x)


class ByteModel(nn.Module):
    """Bytes [B, S] -> logits of the next byte [B, S, 256]."""

    def __init__(self, shape: Shape, attention: Attention) -> None:
        super().__init__()
        self.embed = nn.Embedding(BYTES, shape.width)
        self.position = nn.Parameter(0.02 * torch.randn(shape.context, shape.width))
        self.blocks = nn.Sequential(*(Block(shape, attention) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        self.read_out = nn.Linear(shape.width, BYTES, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        """Logits at every position."""
        x = self.embed(text) + self.position[: text.shape[1]]
        return self.read_out(self.norm(self.blocks(x)))


def loss_of(logits: Tensor, following: Tensor) -> Tensor:
    """Mean cross-entropy in nats a byte, in float32. Dimensions: logits [B, S, 256], following [B, S]."""
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), following.flatten())


def train(
    model: ByteModel, text: Tensor, context: int, steps: int, report: Callable[[int, float], None]
) -> None:
    """A few steps of AdamW on random windows of the text, so that its logits mean something."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    for step in range(steps):
        starts = torch.randint(len(text) - context, (4, 1), generator=generator)
        windows = text[starts + torch.arange(context + 1)]
        loss = loss_of(model(windows[:, :-1]), windows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(step + 1, loss.item())
